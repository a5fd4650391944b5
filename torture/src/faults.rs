//! What is done to the servers while the clients work.

use crate::ledger::Ledger;
use crate::plan::Plan;
use crate::site::Site;
use pg_idempotency_tests::dice::Dice;
use pg_idempotency_tests::process;
use std::thread;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    KillBackend,
    KillPostmaster,
    FailOver,
    RestartPooler,
}

/// Deals out faults until it is over: in each round every heavy one once, in an order of the dice,
/// and light ones between them. The first round is a quick one, so that a short run has them all.
pub fn inject(site: &Site, plan: &Plan, is_over: impl Fn() -> bool) -> Ledger {
    let mut injector =
        Injector { site, dice: plan.dice(plan.connections), ledger: Ledger::default() };
    let mut between = 5;
    loop {
        for blow in injector.round() {
            for _ in 0..between + injector.dice.below(between) {
                if is_over() {
                    return injector.ledger;
                }
                injector.light();
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
        let pause = 40 + self.dice.below(300);
        let (what, victim) = (self.dice.below(9), self.dice.below(1000));
        thread::sleep(Duration::from_millis(pause as u64));
        match what {
            0..3 => self.signal("pg_terminate_backend", victim),
            3..6 => self.signal("pg_cancel_backend", victim),
            6 => self.configure(victim),
            7 => self.tidy("idempotency_purge(1000)"),
            _ => self.tidy("idempotency_forget('alice', 'POST /erased')"),
        }
    }

    fn heavy(&mut self, blow: Blow) {
        match blow {
            Blow::KillBackend => self.kill_backend(),
            Blow::KillPostmaster => self.site.restart(),
            Blow::FailOver => self.site.fail_over(),
            Blow::RestartPooler => self.site.restart_pooler(),
        }
        self.ledger.count(&format!("fault: {blow:?}"));
    }

    /// A backend that works for a client, if the server is there.
    fn victim(&self, number: usize) -> Option<i32> {
        let mut session = self.site.superuser().ok()?;
        let sql = "SELECT pid FROM pg_stat_activity WHERE usename = 'backend' AND state <> 'idle' ORDER BY pid";
        let rows = session.attempt(sql).ok()?;
        Some(rows.get(number.checked_rem(rows.len())?)?.get(0))
    }

    fn signal(&mut self, function: &str, victim: usize) {
        let Some(pid) = self.victim(victim) else { return };
        let sent =
            self.site.superuser().and_then(|mut s| s.attempt(format!("SELECT {function}({pid})")));
        if sent.is_ok() {
            self.ledger.count(&format!("fault: {function}"));
        }
    }

    fn kill_backend(&mut self) {
        let victim = self.dice.below(1000);
        if let Some(pid) = self.victim(victim)
            && process::signal(u32::try_from(pid).expect("a pid"), "KILL")
        {
            self.ledger.count("backends killed");
        }
    }

    /// Purges what has expired, or erases what clients do not count on.
    fn tidy(&mut self, call: &str) {
        if self.site.superuser().and_then(|mut s| s.attempt(format!("SELECT {call}"))).is_ok() {
            self.ledger.count(&format!("fault: {}", call.split('(').next().unwrap_or_default()));
        }
    }

    /// How many may wait, from one to all; `claim` gets its time from the client.
    fn configure(&mut self, number: usize) {
        let waiters = ["1", "3", "null"][number % 3];
        let sql = format!(
            "SELECT idempotency_configure('POST /orders', '{{\"max_waiters\": {waiters}}}')"
        );
        if self.site.superuser().and_then(|mut s| s.attempt(sql)).is_ok() {
            self.ledger.count("fault: configure");
        }
    }
}
