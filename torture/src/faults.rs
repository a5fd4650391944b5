//! What is done to the servers while the clients work.

use crate::ledger::Ledger;
use crate::plan::Plan;
use crate::site::{PATIENCE, Site};
use pg_idempotency_tests::dice::Dice;
use pg_idempotency_tests::{process, wait};
use std::sync::atomic::Ordering::SeqCst;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    KillBackend,
    KillPostmaster,
    FailOver,
    RestartPooler,
}

/// Deals out faults until it is over: in each round every heavy one once, in an order of the dice,
/// and light ones between them. The first round is a quick one, so that a short run has them all.
pub fn inject(site: &Site, plan: &Plan, is_over: &dyn Fn() -> bool) -> Ledger {
    let dice = plan.dice(plan.connections);
    let mut injector = Injector { site, dice, ledger: Ledger::default(), is_over };
    let mut between = 5;
    loop {
        for blow in injector.round() {
            for _ in 0..between + injector.dice.below(between) {
                injector.light();
                if is_over() {
                    return injector.ledger;
                }
            }
            injector.heavy(blow);
        }
        between = 20;
    }
}

struct Injector<'s> {
    site: &'s Site,
    dice: Dice,
    ledger: Ledger,
    is_over: &'s dyn Fn() -> bool,
}

impl Injector<'_> {
    fn round(&mut self) -> Vec<Blow> {
        let mut left =
            vec![Blow::KillBackend, Blow::KillPostmaster, Blow::FailOver, Blow::RestartPooler];
        let mut round = Vec::new();
        while !left.is_empty() {
            round.push(left.swap_remove(self.dice.below(left.len())));
        }
        round
    }

    fn light(&mut self) {
        let requests = 10 + self.dice.below(150);
        let (what, victim) = (self.dice.below(9), self.dice.below(1000));
        self.let_the_clients_work(requests);
        match what {
            0..3 => self.signal("pg_terminate_backend", victim),
            3..6 => self.signal("pg_cancel_backend", victim),
            6 => self.configure(victim),
            7 => self.purge(),
            _ => self.erase(),
        }
    }

    /// Until so many requests have been sent, so that a slow machine does not have more faults in each.
    fn let_the_clients_work(&self, requests: usize) {
        let enough = self.site.progress.load(SeqCst) + requests;
        wait::until_within(PATIENCE, "requests of the clients", || {
            (self.site.progress.load(SeqCst) >= enough || (self.is_over)()).then_some(())
        });
    }

    fn heavy(&mut self, blow: Blow) {
        let done = match blow {
            Blow::KillBackend => self.kill_backend(),
            Blow::KillPostmaster => {
                self.wait_for_something_prepared();
                self.site.restart();
                true
            }
            Blow::FailOver => {
                self.site.fail_over();
                true
            }
            Blow::RestartPooler => {
                self.site.restart_pooler();
                true
            }
        };
        if done {
            self.ledger.count(&format!("fault: {blow:?}"));
        }
    }

    /// The first number of the only row, where the server is there.
    fn ask(&self, sql: &str) -> Option<i64> {
        let rows = self.site.superuser().ok()?.attempt(sql).ok()?;
        rows.first()?.try_get(0).ok()
    }

    /// So that what is prepared has to outlive the server. Clients prepare all the time.
    fn wait_for_something_prepared(&self) {
        wait::until_within(PATIENCE, "something that is prepared", || {
            let prepared = self.ask("SELECT count(*) FROM pg_prepared_xacts");
            (prepared > Some(0) || (self.is_over)()).then_some(())
        });
    }

    /// A backend that works for a client, if there is one.
    fn victim(&self, number: usize) -> Option<i64> {
        self.ask(&format!(
            "WITH at_work AS (SELECT pid, row_number() OVER (ORDER BY pid) - 1 AS at, count(*) OVER () AS of
                              FROM pg_stat_activity WHERE usename = 'backend' AND state <> 'idle')
             SELECT pid::bigint FROM at_work WHERE at = {number} % of"
        ))
    }

    fn signal(&mut self, function: &str, victim: usize) {
        let Some(pid) = self.victim(victim) else { return };
        if self.ask(&format!("SELECT {function}({pid})::int::bigint")) == Some(1) {
            self.ledger.count(&format!("fault: {function}"));
        }
    }

    /// False where it was over before there was one to kill.
    fn kill_backend(&mut self) -> bool {
        let victim = self.dice.below(1000);
        wait::until_within(PATIENCE, "a backend at work", || {
            if (self.is_over)() {
                return Some(false);
            }
            let pid = u32::try_from(self.victim(victim)?).expect("a pid");
            process::signal(pid, "KILL").then_some(true)
        })
    }

    /// Purges what has expired.
    fn purge(&mut self) {
        if let Some(purged) = self.ask("SELECT idempotency_purge(1000)") {
            self.ledger.count("fault: purge");
            self.ledger.add("records purged", purged.unsigned_abs());
        }
    }

    /// Erases what clients do not count on, and records how much that was, in one transaction. So at
    /// the end the executions can be counted. Whether its answer gets lost does not matter.
    fn erase(&mut self) {
        let erase = "INSERT INTO erasures SELECT idempotency_forget('alice', 'POST /erased') RETURNING records";
        if let Some(erased) = self.ask(erase) {
            self.ledger.count("fault: forget");
            self.ledger.add("records erased", erased.unsigned_abs());
        }
    }

    /// How many may wait, from one to all; `claim` gets its time from the client.
    fn configure(&mut self, number: usize) {
        let waiters = ["1", "3", "null"][number % 3];
        let settings = format!("{{\"max_waiters\": {waiters}}}");
        let sql = format!(
            "SELECT count(*) FROM (SELECT idempotency_configure('POST /orders', '{settings}')) AS c"
        );
        if self.ask(&sql).is_some() {
            self.ledger.count("fault: configure");
        }
    }
}
