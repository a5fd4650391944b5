//! The harness: a real server, real connections, real roles.
//!
//! One throwaway [`cluster::Cluster`] for the tests of a binary, one fresh [`database::Database`] per
//! test, and named [`session::Session`]s on it. A test that restarts its server, reads its log or needs
//! other settings starts a cluster of its own. What a single backend can show belongs to `#[pg_test]`;
//! everything here is about what happens *between* sessions: duplicates, commits, crashes.
//!
//! Nothing in here sleeps to let something happen. A test waits until the server says that a
//! session is blocked ([`database::Database::wait_until_blocked`]), and fails when it never does.

pub mod call;
pub mod cluster;
pub mod database;
pub mod dice;
pub mod erasure;
pub mod food;
pub mod fuzz;
pub mod installation;
pub mod interleaving;
pub mod isolation;
pub mod lease;
pub mod model;
pub mod moved_clock;
pub mod moves;
pub mod objects;
pub mod operation;
pub mod outcome;
pub mod pages;
pub mod paths;
pub mod pooler;
pub mod preloaded;
pub mod process;
pub mod psql;
pub mod purge;
pub mod refusal;
pub mod replication;
pub mod resource;
pub mod server;
pub mod session;
pub mod shop;
pub mod squat;
pub mod stage;
pub mod standby;
pub mod storm;
pub mod wait;
pub mod wire;

/// What nearly every test file needs.
pub mod prelude {
    pub use crate::at_every_isolation;
    pub use crate::call::{Call, Statement, claim, claim_many, complete, release, replay};
    pub use crate::cluster::Cluster;
    pub use crate::database::Database;
    pub use crate::isolation::Isolation;
    pub use crate::outcome::Outcome;
    pub use crate::refusal::Refusal;
    pub use crate::session::{Role, Session};
}
