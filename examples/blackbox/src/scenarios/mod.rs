//! What is asked of every service.

pub mod answers;
pub mod kills;
pub mod poolers;
pub mod refusals;
pub mod together;
