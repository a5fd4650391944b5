//! Many clients send requests with retries while everything fails that can fail; at the end the
//! effects are counted.
//!
//! - [`plan`]: what is decided by the seed. Each connection and the thread of faults has dice of its
//!   own, so the same seed makes the same sequence of decisions in each, though not the same timing.
//! - [`site`]: the primary, its synchronous standby, the pooler, and moving from one to the next.
//! - [`client`]: one connection, which sends each request until it is answered. [`requests`]: the kinds of
//!   one transaction; [`leases`]: those of several; [`execution`]: what becomes of one that has won its
//!   key; [`two_phases`]: what is prepared; [`expected`]: which errors may come when.
//! - [`ledger`]: what the clients were told, and what they did; [`history`]: who held which key when.
//! - [`faults`]: what is done to the servers meanwhile.
//! - [`verdict`]: what must hold at the end; [`truth`]: whether those who were told to wait had to;
//!   [`log`]: what the servers have logged.

mod client;
mod execution;
mod expected;
mod faults;
mod history;
mod leases;
mod ledger;
mod log;
pub mod plan;
mod requests;
mod site;
mod truth;
mod two_phases;
pub mod verdict;

use client::Client;
use ledger::Ledger;
use plan::Plan;
use site::Site;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Instant;
use verdict::Verdict;

/// Runs a plan to its end and judges what is left.
pub fn run(plan: &Plan) -> Verdict {
    let site = Site::start();
    let since = Instant::now();
    let (barrier, over) = (Barrier::new(plan.connections), AtomicBool::new(false));
    let (ledgers, faults) = thread::scope(|scope| {
        let clients: Vec<_> = (0..plan.connections)
            .map(|at| {
                let (site, barrier, over) = (&site, &barrier, &over);
                scope.spawn(move || {
                    or_exit(|| {
                        let mut client = Client::new(site, plan, at);
                        for epoch in 0.. {
                            client.epoch(epoch);
                            if barrier.wait().is_leader() {
                                over.store(since.elapsed() >= plan.time, SeqCst);
                            }
                            barrier.wait();
                            if over.load(SeqCst) {
                                break;
                            }
                        }
                        client.finish()
                    })
                })
            })
            .collect();
        let injector =
            scope.spawn(|| or_exit(|| faults::inject(&site, plan, &|| over.load(SeqCst))));
        let ledgers: Vec<Ledger> =
            clients.into_iter().map(|client| client.join().expect("it would have left")).collect();
        (ledgers, injector.join().expect("it would have left"))
    });
    verdict::judge(&site, Ledger::merged(ledgers), faults, since.elapsed())
}

/// A thread that panics would leave the others at the barrier: so the process ends, and the servers
/// with it.
fn or_exit<T>(work: impl FnOnce() -> T) -> T {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_told| std::process::exit(101))
}
