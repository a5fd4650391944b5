# Writes are committed although a claim is not settled.
# file: src/session/xact.rs
# caught by: commit_guard a_commit_of_writes_is_refused
s/XACT_EVENT_PRE_COMMIT if has_transaction_id() =>/XACT_EVENT_PRE_COMMIT if false =>/
