# The look-up reads under the snapshot of the transaction, and not what is committed now.
# file: src/store/relation.rs
# caught by: concurrency a_replay_that_stays_open_holds_no_key::repeatable_read
s/&raw mut pg_sys::SnapshotSelfData;$/pg_sys::GetTransactionSnapshot();/
