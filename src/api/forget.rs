//! `idempotency_forget`: erases what is known of a scope, of one operation of it, or of one key.
//!
//! It takes the locks of keys and rows in no order, so while it holds one it waits for none: where one is
//! not free, all that it did is undone, it waits for that one, and begins anew. Where the transaction
//! holds something else already, it does not wait either.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;

use idempotency_core::identity::Identity;
use idempotency_core::{key, order};
use pgrx::prelude::*;

use super::call::{Call, check_length};
use super::lease;
use super::wait::Wait;
use crate::clock;
use crate::convert::args::Text;
use crate::counters;
use crate::error::Error;
use crate::session::key_lock::KeyLock;
use crate::session::subtransaction::all_or_nothing;
use crate::session::xact;
use crate::store::forget::{self, Busy, Stop, Wanted};
use crate::store::leases;
use crate::store::records::{self, Column};

/// `sql/functions/forget.sql`.
#[pg_extern(sql = false)]
fn idempotency_forget<'a>(
    scope: Option<Text<'a>>,
    operation: Option<Text<'a>>,
    key: Option<Text<'a>>,
    force: Option<bool>,
) -> i64 {
    let erased = Request::new(scope.as_ref(), operation.as_ref(), key.as_ref(), force)
        .and_then(|request| request.erase());
    erased.unwrap_or_else(|error| error.raise()) as i64
}

struct Request {
    wanted: Wanted,
    /// Whether a live lease is taken from its worker.
    force: bool,
    /// The key spaces that the operation's keys can be in; none where all operations are meant.
    key_spaces: Vec<String>,
    /// How long to wait for keys and rows, all together.
    wait: Wait,
}

impl Request {
    fn new(
        scope: Option<&Text<'_>>,
        operation: Option<&Text<'_>>,
        key: Option<&Text<'_>>,
        force: Option<bool>,
    ) -> Result<Self, Error> {
        xact::refuse_parallel(c"idempotency_forget()");
        xact::refuse_read_only(c"idempotency_forget()");
        let force = force.ok_or_else(|| Error::null("force"))?;
        let scope = checked("scope", scope)?.ok_or_else(|| Error::null("scope"))?;
        let key = checked("key", key)?;
        let wanted = Wanted { scope, operation: checked("operation", operation)?, key };
        let wait = Wait::new(None, None)?;
        let all = Self { wanted, force, key_spaces: Vec::new(), wait };
        match operation {
            Some(_) => all.of(&Call::new(None, operation)?),
            None => Ok(all),
        }
    }

    /// The same, of one operation. Its key is read as a claim reads it; what is none for a claim is
    /// taken as a record has it, which may be older than the settings.
    fn of(self, call: &Call<'_>) -> Result<Self, Error> {
        let parse = |header: String| match key::parse(&header, &call.policy.key) {
            Ok(key) => key.into_owned(),
            Err(_) => header,
        };
        let own = call.operation.to_owned();
        let key_spaces = vec![call.policy.key_space(call.operation).to_owned(), own];
        let key = self.wanted.key.map(parse);
        let wait = Wait::new(None, Some(&call.policy))?;
        Ok(Self { wanted: Wanted { key, ..self.wanted }, key_spaces, wait, ..self })
    }

    /// The requests that scope, operation and key name, where all three are given.
    fn named(&self) -> BTreeSet<Identity> {
        let identity = |key: &String, key_space: &String| {
            Identity::new(self.wanted.scope.clone(), key_space.clone(), key.clone())
        };
        let keys = self.wanted.key.iter();
        keys.flat_map(|key| self.key_spaces.iter().map(|space| identity(key, space))).collect()
    }

    fn erase(&self) -> Result<usize, Error> {
        let named = self.named();
        if let Some(identity) = named.iter().find(|identity| is_own(identity)) {
            return Err(Error::forgets_own(identity));
        }
        let wrote = xact::has_transaction_id();
        loop {
            let erased = all_or_nothing(AssertUnwindSafe(|| self.erase_what_is_free(&named)));
            match erased {
                Ok(erased) => return Ok(erased),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Busy(busy)) if may_wait(&busy, wrote) && self.wait_for(&busy)? => {}
                Err(Stop::Busy(busy)) => return Err(Error::key_is_locked(busy.identity())),
            }
        }
    }

    /// Waits until something is free, and takes nothing; false where that takes too long.
    fn wait_for(&self, busy: &Busy) -> Result<bool, Error> {
        match busy {
            Busy::Key(identity) => {
                let lock = KeyLock::of(identity);
                let is_free = self.wait.acquire(&lock, None, counters::NO_OPERATION);
                if is_free {
                    lock.release();
                }
                Ok(is_free)
            }
            Busy::Record(identity) => self.wait_for_row(|| records::wait_for(identity)),
            Busy::Lease(_, token) => self.wait_for_row(|| leases::wait_for(*token)),
        }
    }

    /// Waits for a row by taking it, and undoes that.
    fn wait_for_row(&self, take: impl FnOnce() -> Result<(), Error>) -> Result<bool, Error> {
        let mut taken = Ok(());
        let take = AssertUnwindSafe(|| Err::<Infallible, _>(take()));
        let is_free = self.wait.until(counters::NO_OPERATION, |patience| {
            patience.allows(AssertUnwindSafe(|| {
                let Err(undone) = all_or_nothing(take);
                taken = undone;
            }))
        });
        taken.map(|()| is_free)
    }

    fn erase_what_is_free(&self, named: &BTreeSet<Identity>) -> Result<usize, Stop> {
        let mut keys = forget::open_leases(&self.wanted)?;
        keys.extend(named.iter().cloned());
        let mut erased = self.erase_locked(&keys)?;
        if named.is_empty() {
            let walked = forget::delete_finished(&self.wanted)?;
            erased += walked.deleted + self.erase_locked(&walked.open)?;
        }
        forget::blank_leases(&self.wanted, |identity| {
            let spaces = &self.key_spaces;
            let is_meant = spaces.is_empty() || spaces.contains(&identity.key_space);
            is_meant && !is_own(identity)
        })?;
        Ok(erased)
    }

    /// Erases requests one by one, each with its key locked. Where something was erased the lock stays, for
    /// the rest of the transaction, which has written then, so that claims come too late in it. Where there
    /// was nothing the lock protects nothing, and nobody would know of it.
    fn erase_locked(&self, identities: &BTreeSet<Identity>) -> Result<usize, Stop> {
        let mut erased = 0;
        for identity in identities.iter().filter(|identity| !is_own(identity)) {
            let lock = KeyLock::of(identity);
            if !lock.try_acquire() {
                return Err(Stop::Busy(Busy::Key(identity.clone())));
            }
            if self.erase_one(identity)? {
                erased += 1;
            } else {
                lock.release();
            }
        }
        Ok(erased)
    }

    fn erase_one(&self, identity: &Identity) -> Result<bool, Stop> {
        let Some(row) = records::find(identity)? else { return Ok(false) };
        let operation = self.wanted.operation.as_deref();
        if operation.is_some() && operation != row.text(Column::Operation) {
            return Ok(false);
        }
        let lease = lease::of_record(&row, leases::find)?;
        let is_live = lease.is_some_and(|row| !row.lease.is_expired(clock::now()));
        if is_live && !self.force {
            return Err(Error::live_lease(identity).into());
        }
        forget::delete_one(identity)
    }
}

/// Whether the transaction, which had written before the call or not, may wait for it: for a key that comes
/// in order, and for a row where it holds nothing.
fn may_wait(busy: &Busy, wrote: bool) -> bool {
    xact::with_ledger(|ledger| match busy {
        Busy::Key(identity) => order::check(wrote, ledger.greatest(), identity).is_ok(),
        Busy::Record(_) | Busy::Lease(..) => !wrote && ledger.greatest().is_none(),
    })
}

/// Whether the transaction itself has claimed the key: then its record has to commit with its effects.
fn is_own(identity: &Identity) -> bool {
    xact::with_ledger(|ledger| ledger.own(identity).is_some())
}

fn checked(name: &'static str, value: Option<&Text<'_>>) -> Result<Option<String>, Error> {
    let value = Text::read(name, value)?;
    check_length(name, value.unwrap_or_default())?;
    Ok(value.map(str::to_owned))
}
