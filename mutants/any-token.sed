# The token is not compared with the record's current one: who lost a lease goes on.
# file: src/api/lease.rs
# caught by: model the_database_does_as_the_model_says
s/^    let is_own = row\.uuid(.*/    let is_own = true;/
