//! Between datums and Rust values; no other place does this.

pub mod args;
pub mod datum;
pub mod outcome;
pub mod returned;
pub mod settings;
