# Writes are committed although a claim is not settled.
# file: src/session/xact.rs
# caught by: model the_database_does_as_the_model_says
s/XACT_EVENT_PRE_COMMIT if has_transaction_id() =>/XACT_EVENT_PRE_COMMIT if false =>/
