# The key's lock is given back when the answer is recorded, and not when that is committed.
# file: src/api/complete.rs
# caught by: concurrency a_completed_key_is_held_until_the_commit
s/^    if let Some(lease) = claim\.lease {$/    crate::session::key_lock::KeyLock::of(\&claim.identity).release();\n&/
