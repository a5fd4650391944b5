# The look-up reads under the snapshot of the transaction, and not what is committed now.
# file: src/store/relation.rs
# caught by: concurrency winner
s/&raw mut pg_sys::SnapshotSelfData;$/pg_sys::GetTransactionSnapshot();/
