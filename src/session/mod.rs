//! What this backend's transaction holds: the keys' locks, the claims, and the callbacks that
//! refuse a commit. Nothing here outlives the transaction, so a transaction pooler may hand every
//! transaction to another backend.

pub mod evaluation;
pub mod key_lock;
pub mod search_path;
pub mod subtransaction;
pub mod xact;
