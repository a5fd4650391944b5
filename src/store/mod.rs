//! Every access to the extension's own tables; nothing else knows a table's name.

pub mod operations;
pub mod records;
mod relation;
