//! The SQL functions, one file per verb: arguments to core types, ask the core, act, answer.

mod admin;
mod answer;
mod call;
mod check;
mod claim;
mod claim_many;
mod complete;
mod counted;
mod fingerprint;
mod forget;
mod given;
mod key_lock;
mod lease;
mod purge;
mod release;
mod replay;
mod settle;
mod stats;
mod token;
mod wait;
