//! Every access to the extension's own tables; nothing else knows a table's name.

mod defaults;
mod equality;
pub mod forget;
pub mod leases;
mod names;
pub mod now;
pub mod purge;
pub mod records;
mod relation;
pub mod resources;
pub mod settings;
mod stretches;
mod walk;
mod write;
