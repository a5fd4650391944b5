//! Requests on lease: several transactions, a worker that may go away after each of them, and another
//! that takes over.

use crate::client::{Client, Tried, token_of};
use crate::plan;
use pg_idempotency_tests::call::Call;
use pg_idempotency_tests::isolation::Isolation;
use pg_idempotency_tests::outcome::Outcome;
use pg_idempotency_tests::refusal::Refusal;
use std::time::{Duration, Instant};
use uuid::Uuid;

const PHASES: [&str; 2] = ["charged", "booked"];

/// Milliseconds.
const EXTENSION: i32 = 300;

impl Client<'_> {
    pub fn leased(&mut self, key: &str) -> Tried {
        let (lease_ms, lease) = [(150, 150), (600, 600)][self.dice.below(2)];
        let runs_out = Instant::now() + Duration::from_millis(lease);
        // In a transaction of its own, so that what is measured is the claim, and neither the pooler, which
        // comes back to a server that has refused it after 15 s only, nor the commit, which waits for the
        // standby.
        self.begin(Isolation::ReadCommitted, "")?;
        let outcome = self.claim_on_lease(key, lease_ms)?;
        if !self.commit()? {
            // A failover may lose a lease that the standby does not have: nobody may count on it.
            self.ledger.count("lease in doubt");
            return Ok(false);
        }
        match outcome.outcome.as_str() {
            "claimed" => self.or_lost(key, runs_out, |client| client.work_on(key, &outcome)),
            "replayed" => {
                self.acknowledge(key, &outcome);
                Ok(true)
            }
            _ => Ok(self.surprise(key, &outcome)),
        }
    }

    /// A lease that was lost is no error of the worker's, once it may have run out.
    fn or_lost(
        &mut self,
        key: &str,
        runs_out: Instant,
        work: impl FnOnce(&mut Self) -> Tried,
    ) -> Tried {
        match work(self) {
            Err(refusal) if refusal.code() == Some("IK005") => {
                if Instant::now() < runs_out {
                    self.ledger.violation(format!("{key}: lost before it ran out: {refusal}"));
                }
                self.ledger.count("lease lost");
                self.session.attempt("ROLLBACK")?;
                Ok(false)
            }
            tried => tried,
        }
    }

    fn work_on(&mut self, key: &str, claimed: &Outcome) -> Tried {
        let (token, attempt) = (token_of(claimed), claimed.attempt.expect("a claim has one"));
        if attempt > 1 {
            self.ledger.count("lease taken over");
        }
        let done = claimed.recovery_point.as_deref();
        let first = PHASES.iter().position(|phase| Some(*phase) == done).map_or(0, |at| at + 1);
        if attempt == 1 && first == 0 && self.dice.below(12) == 0 {
            self.ledger.count("lease given back");
            self.session.attempt(Call::new("idempotency_release").with("token", token))?;
            self.end_lease();
            return Ok(false);
        }
        for phase in &PHASES[first..] {
            self.phase(key, token, attempt, phase)?;
            if self.goes_away() {
                return Ok(false);
            }
        }
        self.last_phase(key, token)
    }

    fn phase(&mut self, key: &str, token: Uuid, attempt: i32, phase: &str) -> Result<(), Refusal> {
        self.begin_phase(token)?;
        self.session.attempt(format!(
            "INSERT INTO phases (key, attempt, phase) VALUES ('{key}', {attempt}, '{phase}')"
        ))?;
        let checkpoint = Call::new("idempotency_checkpoint").with("token", token);
        self.session.attempt(checkpoint.with("recovery_point", phase))?;
        if self.dice.below(4) == 0 {
            let extend = Call::new("idempotency_extend").with("token", token);
            self.session.attempt(extend.with("lease_ms", EXTENSION))?;
            self.lease_lasts(EXTENSION);
        }
        self.commit()?;
        self.ledger.count("lease phases");
        Ok(())
    }

    fn last_phase(&mut self, key: &str, token: Uuid) -> Tried {
        self.begin_phase(token)?;
        let body = self.body(key);
        let sent = self.work_and_complete(key, &body, None, token)?;
        if self.commit()? {
            self.acknowledge(key, &sent);
        }
        self.end_lease();
        Ok(true)
    }

    fn begin_phase(&mut self, token: Uuid) -> Result<(), Refusal> {
        let isolation = plan::isolation(&mut self.dice);
        self.begin(isolation, "")?;
        self.session.attempt(Call::new("idempotency_resume").with("token", token))?;
        Ok(())
    }

    /// Whether the worker stops here, with or without its connection.
    fn goes_away(&mut self) -> bool {
        match self.dice.below(10) {
            0 => self.reconnect(),
            1 => {}
            _ => return false,
        }
        self.ledger.count("lease abandoned");
        true
    }
}
