//! The statements of a backend.

use super::answers::{answered, claimed, finished, refusal};
use super::machine::{Machine, Result};
use super::transaction::{Claim, Lease, Progress, Record, Recorded, Token};
use super::{Answer, Command};

impl Machine {
    pub(super) fn execute(&mut self, session: usize, command: &Command) -> Result<Answer> {
        match *command {
            Command::Work { key } => {
                let open = self.open(session);
                open.wrote = true;
                open.now.effects[key] += 1;
                Ok(Answer::Done)
            }
            Command::Claim { key, operation, fingerprint, lease } => {
                self.claim(session, key, operation, fingerprint, lease)
            }
            Command::Replay { key, operation, fingerprint } => {
                Ok(self.replay(session, key, operation, fingerprint))
            }
            Command::Complete { by, status, withhold } => {
                self.complete(session, by, status, withhold)
            }
            Command::Release { by } => self.release(session, by),
            Command::Resume { key } => self.resume(session, key),
            Command::Checkpoint { key } => self.change(session, key, false),
            Command::Extend { key } => self.change(session, key, true),
            _ => unreachable!("{command:?} is no statement"),
        }
    }

    fn claim(
        &mut self,
        session: usize,
        key: usize,
        operation: usize,
        fingerprint: usize,
        lease: bool,
    ) -> Result<Answer> {
        let is_own = match self.own(session, key).map(|claim| claim.progress) {
            None => false,
            Some(Progress::Completed) => true,
            Some(_) => return Err("IK004"),
        };
        if !is_own && !self.open(session).may_claim(key) {
            return Err("IK001");
        }
        let found = self.visible(session, key);
        if let Some(answer) =
            answered(found.as_ref(), operation, Some(fingerprint), self.holds[operation])
        {
            return Ok(answer);
        }
        if is_own {
            return Err("IK004");
        }
        if !self.is_free(key, session) {
            return Ok(refusal("in_progress", 409));
        }
        let earlier = found.filter(|record| record.answer.is_none());
        let attempt = earlier.map_or(1, |record| record.attempt + 1);
        let token = self.tokens;
        self.tokens += 1;
        self.sessions[session].tokens[key] = Some(token);
        let progress = Progress::Held;
        let claim = Claim { key, operation, fingerprint, token, attempt, leased: lease, progress };
        let open = self.open(session);
        open.hold(claim);
        if lease {
            open.wrote = true;
            open.now.leases.insert(token, Lease { key, is_blank: false });
            let record =
                Record { operation, fingerprint, token, attempt, expired: false, answer: None };
            open.now.records.insert(key, Some(record));
        }
        Ok(claimed(attempt))
    }

    fn replay(&self, session: usize, key: usize, operation: usize, fingerprint: usize) -> Answer {
        let found = self.visible(session, key);
        let compared = (fingerprint > 0).then_some(fingerprint);
        answered(found.as_ref(), operation, compared, self.holds[operation])
            .unwrap_or(Answer::Outcome { word: "unknown", status: None, body: None, attempt: None })
    }

    fn complete(
        &mut self,
        session: usize,
        by: Option<usize>,
        status: i32,
        withheld: bool,
    ) -> Result<Answer> {
        let body = self.body();
        self.bodies += 1;
        let claim = self.settled(session, by)?;
        let is_kept = status != 503;
        let open = self.open(session);
        let progress = if is_kept { Progress::Completed } else { Progress::Released };
        open.by_token(claim.token).expect("it is held").progress = progress;
        if is_kept {
            open.wrote = true;
            let Claim { key, operation, fingerprint, token, attempt, .. } = claim;
            let answer = Some(Recorded { status, body: body.clone(), withheld });
            let record = Record { operation, fingerprint, token, attempt, expired: false, answer };
            open.now.records.insert(key, Some(record));
        }
        let word = if is_kept { "completed" } else { "released" };
        Ok(Answer::Outcome { word, status: Some(status), body: Some(body), attempt: None })
    }

    fn release(&mut self, session: usize, by: Option<usize>) -> Result<Answer> {
        let claim = self.settled(session, by)?;
        let open = self.open(session);
        let progress = if claim.leased { Progress::Freed } else { Progress::Released };
        open.by_token(claim.token).expect("it is held").progress = progress;
        if claim.leased {
            open.wrote = true;
            open.now.records.insert(claim.key, None);
        }
        Ok(Answer::Done)
    }

    /// The claim that complete and release are about.
    fn settled(&mut self, session: usize, by: Option<usize>) -> Result<Claim> {
        let Some(key) = by else {
            let held = |claim: &&Claim| claim.progress == Progress::Held;
            let held: Vec<_> = self.open(session).now.claims.iter().filter(held).cloned().collect();
            return match &held[..] {
                [claim] => Ok(claim.clone()),
                [] => Err("IK002"),
                _ => Err("22023"),
            };
        };
        let token = self.sessions[session].tokens[key].ok_or("IK002")?;
        if self.open(session).dropped.iter().any(|&(_, dropped)| dropped == token)
            && self.open(session).by_token(token).is_none()
        {
            return Err("IK002");
        }
        self.held(session, token, false)?.map_err(|_| "IK002")
    }

    /// The claim of a token, resumed where the transaction does not hold it; or the answer that
    /// the token recorded.
    fn held(
        &mut self,
        session: usize,
        token: Token,
        in_order: bool,
    ) -> Result<std::result::Result<Claim, Record>> {
        if let Some(claim) = self.open(session).by_token(token) {
            let is_held = claim.progress == Progress::Held;
            return if is_held { Ok(Ok(claim.clone())) } else { Err("IK002") };
        }
        let Lease { key, is_blank, .. } = self.lease(session, token).ok_or("IK002")?;
        if is_blank {
            self.open(session).lost = true;
            return Err("IK005");
        }
        if self.own(session, key).is_some() {
            return Err("IK005");
        }
        if in_order && !self.open(session).may_claim(key) {
            return Err("IK001");
        }
        if !self.is_free(key, session) {
            return Err("55P03");
        }
        let current = self.visible(session, key).filter(|record| record.token == token);
        let Some(record) = current else {
            self.open(session).lost = true;
            return Err("IK005");
        };
        if record.answer.is_some() {
            return Ok(Err(record));
        }
        let Record { operation, fingerprint, attempt, .. } = record;
        let (leased, progress) = (true, Progress::Held);
        let claim = Claim { key, operation, fingerprint, token, attempt, leased, progress };
        self.open(session).hold(claim.clone());
        Ok(Ok(claim))
    }

    fn resume(&mut self, session: usize, key: usize) -> Result<Answer> {
        let token = self.sessions[session].tokens[key].ok_or("IK002")?;
        match self.held(session, token, true)? {
            Ok(claim) if claim.leased => Ok(claimed(claim.attempt)),
            Ok(_) => Err("IK002"),
            Err(record) => Ok(finished(&record)),
        }
    }

    fn change(&mut self, session: usize, key: usize, extend: bool) -> Result<Answer> {
        let token = self.sessions[session].tokens[key].ok_or("IK002")?;
        let claim = self.held(session, token, false)?.map_err(|_| "IK002")?;
        if !claim.leased {
            return Err("IK002");
        }
        let mut record = self.visible(session, claim.key).expect("a lease has a record");
        record.expired &= !extend;
        let open = self.open(session);
        open.wrote = true;
        open.now.records.insert(claim.key, Some(record));
        Ok(claimed(claim.attempt))
    }
}
