//! Random and hostile SQL, made of what the catalog says that the extension has.
//!
//! Everything is an expression or a statement in text, so that a failure can be repeated by hand.

pub mod catalog;
pub mod statements;
pub mod values;
pub mod worker;
