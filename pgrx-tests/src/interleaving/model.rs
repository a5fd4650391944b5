//! The contract of claims in one transaction, as a small machine: keys, who holds them, who waits, and
//! what each session is told. It is written from the reference, and shares no code with the extension.

use super::spec::{self, Act, Key, Spec, Step};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a COMMIT or PREPARE that must fail says.
const COMMIT_REFUSED: &str = "cannot commit with an unsettled claim";
const PREPARE_REFUSED: &str = "cannot prepare with an unsettled claim";

#[derive(Clone)]
pub struct World {
    sessions: Vec<Session>,
    keys: BTreeMap<Key, KeyState>,
    prepared: BTreeMap<String, Transaction>,
    /// What the tester prints of the steps so far.
    pub printed: String,
    /// Which sessions have a step that is printed as waiting, in the order in which they began to wait.
    unfinished: Vec<(usize, String)>,
    /// Committed effects: by whom each key was executed.
    pub effects: BTreeMap<String, Vec<String>>,
    /// Which acts of which session came to something: a claim that won its key, work that was done, the
    /// preparing of a transaction that holds a key, an end that published or freed something.
    pub came_to: BTreeSet<(usize, Act)>,
}

#[derive(Clone)]
struct Session {
    name: String,
    transaction: Transaction,
    /// The rest of a claim that waits for its first key.
    waiting: Option<Pending>,
    /// What the session was told and is not printed yet, in order.
    notices: Vec<String>,
    error: Option<String>,
    /// Whether it prepares transactions itself.
    prepares: bool,
}

#[derive(Clone, Default)]
struct KeyState {
    /// Whose answer is recorded.
    record: Option<String>,
    holder: Option<Owner>,
    queue: VecDeque<usize>,
}

#[derive(Clone, PartialEq, Eq)]
enum Owner {
    Session(usize),
    Prepared(String),
}

#[derive(Clone)]
struct Pending {
    left: VecDeque<Key>,
    asked: Vec<Key>,
    answers: BTreeMap<Key, String>,
    many: bool,
}

impl Pending {
    /// The claim that it is.
    fn act(&self, waits: bool) -> Act {
        Act::Claim { keys: self.asked.clone(), waits, many: self.many }
    }
}

/// What a savepoint can undo.
#[derive(Clone, Default, PartialEq, Eq)]
struct Work {
    claims: BTreeMap<Key, Claim>,
    effects: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    Held,
    Completed,
    Released,
}

#[derive(Clone, Default)]
struct Transaction {
    by: String,
    work: Work,
    savepoint: Option<Work>,
    /// Claims that a rollback to the savepoint took away.
    dropped: BTreeSet<Key>,
    /// Whether it has a transaction id, which no savepoint takes back.
    has_id: bool,
}

impl Transaction {
    fn of(name: &str) -> Transaction {
        Transaction { by: name.to_owned(), ..Transaction::default() }
    }

    fn is_unsettled(&self) -> bool {
        !self.dropped.is_empty()
            || self.work.claims.values().any(|claim| *claim != Claim::Completed)
    }

    fn holds_any(&self) -> bool {
        self.work.claims.values().any(|claim| *claim == Claim::Held)
    }

    fn holds(&self, key: &str) -> bool {
        let held = |(known, claim): (&Key, &Claim)| known.key == key && *claim == Claim::Held;
        self.work.claims.iter().any(held)
    }

    fn held(&mut self, key: &str) -> Option<&mut Claim> {
        let found = self.work.claims.iter_mut().find(|(known, _)| known.key == key)?;
        Some(found.1).filter(|claim| **claim == Claim::Held)
    }
}

impl World {
    pub fn new(spec: &Spec) -> World {
        let prepares = |act: &Act| matches!(act, Act::Prepare(_));
        let session = |known: &spec::Session| Session {
            name: known.name.clone(),
            transaction: Transaction::of(&known.name),
            waiting: None,
            notices: Vec::new(),
            error: None,
            prepares: known.steps.iter().flat_map(|step| &step.acts).any(prepares),
        };
        World {
            sessions: spec.sessions.iter().map(session).collect(),
            keys: BTreeMap::new(),
            prepared: BTreeMap::new(),
            printed: String::new(),
            unfinished: Vec::new(),
            effects: BTreeMap::new(),
            came_to: BTreeSet::new(),
        }
    }

    pub fn is_waiting(&self, session: usize) -> bool {
        self.sessions[session].waiting.is_some()
    }

    pub fn is_anybody_waiting(&self) -> bool {
        self.sessions.iter().any(|session| session.waiting.is_some())
    }

    /// Whose answer is recorded under each key, whatever its key space, in the order of these.
    pub fn records(&self) -> BTreeMap<String, Vec<String>> {
        let mut records: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (key, state) in &self.keys {
            if let Some(by) = &state.record {
                records.entry(key.key.clone()).or_default().push(by.clone());
            }
        }
        records
    }

    /// Has a session take a step. False where the step cannot come now.
    pub fn take(&mut self, session: usize, step: &Step) -> bool {
        if !step.acts.iter().all(|act| self.act(session, act)) {
            return false;
        }
        let line = format!("step {}: {}", step.name, step.sql);
        if self.is_waiting(session) {
            self.print(session, &format!("{line} <waiting ...>"));
            self.unfinished.push((session, step.name.clone()));
        } else {
            self.print(session, &line);
        }
        self.print_the_completed();
        true
    }

    // ---- what is printed --------------------------------------------------------------------

    /// A line on a step, between the notices and the error that it came with.
    fn print(&mut self, at: usize, line: &str) {
        let session = &mut self.sessions[at];
        for notice in session.notices.drain(..) {
            self.printed += &format!("{}: NOTICE:  {notice}\n", session.name);
        }
        self.printed += &format!("{line}\n");
        if let Some(error) = session.error.take() {
            self.printed += &format!("ERROR:  {error}\n");
        }
    }

    fn print_the_completed(&mut self) {
        let (unfinished, completed) = std::mem::take(&mut self.unfinished)
            .into_iter()
            .partition::<Vec<_>, _>(|(session, _)| self.is_waiting(*session));
        self.unfinished = unfinished;
        for (session, step) in completed {
            self.print(session, &format!("step {step}: <... completed>"));
        }
    }

    fn act(&mut self, at: usize, act: &Act) -> bool {
        if self.comes_to_something(at, act) {
            self.came_to.insert((at, act.clone()));
        }
        match act {
            Act::Claim { keys, waits, many } => self.claim(at, keys, *waits, *many),
            Act::Work(key) => self.work(at, key),
            Act::Complete(key) => self.settle(at, key, Claim::Completed, "completed"),
            Act::Release(key) => self.settle(at, key, Claim::Released, "released"),
            Act::Savepoint => {
                let transaction = &mut self.sessions[at].transaction;
                transaction.savepoint = Some(transaction.work.clone());
            }
            Act::RollbackTo => self.rollback_to(at),
            Act::Commit => self.commit(at),
            Act::Rollback => {
                self.end(at);
            }
            Act::Prepare(gid) => self.prepare(at, gid),
            Act::CommitPrepared(gid) => return self.end_prepared(at, gid, true),
            Act::RollbackPrepared(gid) => return self.end_prepared(at, gid, false),
            Act::Look => {}
        }
        true
    }

    /// Whether the act, taken now, does what it is there for. A claim may do so later, when it has
    /// waited: see [`World::go_on`].
    fn comes_to_something(&self, at: usize, act: &Act) -> bool {
        let transaction = &self.sessions[at].transaction;
        let holds_keys = |transaction: &Transaction| !transaction.work.claims.is_empty();
        match act {
            Act::Claim { .. } => false,
            Act::Work(key) | Act::Complete(key) | Act::Release(key) => transaction.holds(key),
            Act::Savepoint | Act::Look => true,
            Act::RollbackTo => transaction.savepoint.as_ref() != Some(&transaction.work),
            Act::Commit | Act::Rollback | Act::Prepare(_) => {
                holds_keys(transaction) || !transaction.dropped.is_empty()
            }
            Act::CommitPrepared(gid) | Act::RollbackPrepared(gid) => {
                self.prepared.get(gid).is_some_and(holds_keys)
            }
        }
    }

    // ---- claims -----------------------------------------------------------------------------

    fn claim(&mut self, at: usize, keys: &[Key], waits: bool, many: bool) {
        let mut left = keys.to_vec();
        left.sort();
        let pending =
            Pending { left: left.into(), asked: keys.to_vec(), answers: BTreeMap::new(), many };
        self.go_on(at, pending, waits);
    }

    /// Claims key after key, up to one that somebody else holds.
    fn go_on(&mut self, at: usize, mut pending: Pending, waits: bool) {
        while let Some(key) = pending.left.pop_front() {
            let state = self.keys.entry(key.clone()).or_default();
            let answer = if let Some(by) = &state.record {
                format!("replayed {by}")
            } else if state.holder.is_none() {
                state.holder = Some(Owner::Session(at));
                let transaction = &mut self.sessions[at].transaction;
                transaction.work.claims.insert(key.clone(), Claim::Held);
                transaction.dropped.remove(&key);
                self.came_to.insert((at, pending.act(waits)));
                "claimed".to_owned()
            } else if waits {
                state.queue.push_back(at);
                pending.left.push_front(key);
                self.sessions[at].waiting = Some(pending);
                return;
            } else {
                "in_progress".to_owned()
            };
            pending.answers.insert(key, answer);
        }
        let answer = |key: &Key| match pending.many {
            true => format!("{} {}", key.key, pending.answers[key]),
            false => pending.answers[key].clone(),
        };
        let told: Vec<String> = pending.asked.iter().map(answer).collect();
        self.sessions[at].notices.push(told.join(", "));
    }

    /// Gives a key back; those who wait look again, one after the other.
    fn free(&mut self, key: &Key) {
        let Some(state) = self.keys.get_mut(key) else { return };
        state.holder = None;
        while let Some(state) = self.keys.get_mut(key).filter(|state| state.holder.is_none()) {
            let Some(next) = state.queue.pop_front() else { return };
            let pending = self.sessions[next].waiting.take().expect("who queues waits");
            self.go_on(next, pending, true);
        }
    }

    fn work(&mut self, at: usize, key: &str) {
        let transaction = &mut self.sessions[at].transaction;
        if transaction.held(key).is_some() {
            transaction.work.effects.push(key.to_owned());
            transaction.has_id = true;
        }
    }

    fn settle(&mut self, at: usize, key: &str, to: Claim, word: &str) {
        let session = &mut self.sessions[at];
        let Some(claim) = session.transaction.held(key) else { return };
        *claim = to;
        session.transaction.has_id |= to == Claim::Completed;
        session.notices.push(word.to_owned());
    }

    // ---- savepoints and ends ----------------------------------------------------------------

    fn rollback_to(&mut self, at: usize) {
        let transaction = &mut self.sessions[at].transaction;
        let before = transaction.savepoint.clone().expect("a savepoint");
        let undone = std::mem::replace(&mut transaction.work, before);
        let gone = |key: &&Key| !transaction.work.claims.contains_key(key);
        let dropped: Vec<Key> = undone.claims.keys().filter(gone).cloned().collect();
        transaction.dropped.extend(dropped.iter().cloned());
        dropped.iter().for_each(|key| self.free(key));
    }

    fn commit(&mut self, at: usize) {
        let transaction = &self.sessions[at].transaction;
        if transaction.holds_any() || transaction.has_id && transaction.is_unsettled() {
            self.sessions[at].error = Some(COMMIT_REFUSED.to_owned());
            self.end(at);
            return;
        }
        self.publish(&transaction.clone());
        self.end(at);
    }

    /// What the transaction did becomes visible.
    fn publish(&mut self, transaction: &Transaction) {
        for key in &transaction.work.effects {
            self.effects.entry(key.clone()).or_default().push(transaction.by.clone());
        }
        for (key, claim) in &transaction.work.claims {
            if *claim == Claim::Completed {
                self.keys.entry(key.clone()).or_default().record = Some(transaction.by.clone());
            }
        }
    }

    /// The transaction is over, and its keys are free.
    fn end(&mut self, at: usize) -> Transaction {
        let fresh = Transaction::of(&self.sessions[at].name);
        let ended = std::mem::replace(&mut self.sessions[at].transaction, fresh);
        ended.work.claims.keys().for_each(|key| self.free(key));
        ended
    }

    fn prepare(&mut self, at: usize, gid: &str) {
        let transaction = &self.sessions[at].transaction;
        if transaction.is_unsettled() {
            self.sessions[at].error = Some(PREPARE_REFUSED.to_owned());
            self.end(at);
            return;
        }
        let fresh = Transaction::of(&self.sessions[at].name);
        let prepared = std::mem::replace(&mut self.sessions[at].transaction, fresh);
        for key in prepared.work.claims.keys() {
            self.keys.entry(key.clone()).or_default().holder =
                Some(Owner::Prepared(gid.to_owned()));
        }
        self.prepared.insert(gid.to_owned(), prepared);
    }

    /// Who prepares finds out that it was refused; others come when there is something prepared.
    fn end_prepared(&mut self, at: usize, gid: &str, commits: bool) -> bool {
        let Some(prepared) = self.prepared.remove(gid) else {
            let session = &mut self.sessions[at];
            let unknown = format!("prepared transaction with identifier \"{gid}\" does not exist");
            session.error = Some(unknown);
            return session.prepares;
        };
        if commits {
            self.publish(&prepared);
        }
        prepared.work.claims.keys().for_each(|key| self.free(key));
        true
    }
}
