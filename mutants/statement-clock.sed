# The clock is that of the statement's start, and not of the moment after the lock was won.
# file: src/clock.rs
# caught by: waiting the_claim_is_dated_after_the_wait
s/[a-z_]*::GetCurrentTimestamp()/pg_sys::GetCurrentStatementStartTimestamp()/
