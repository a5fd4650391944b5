# The purge deletes finished records whatever their time is.
# file: src/store/purge.rs
# caught by: purge what_has_expired_is_deleted_and_nothing_else
s/let is_over = expires_at <= now && records::is_finished(slot);/let is_over = records::is_finished(slot);/
