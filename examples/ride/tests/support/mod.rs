//! What the story needs around it: a payment service, processes to kill, a database to look into.

pub mod service;
pub mod worker;
