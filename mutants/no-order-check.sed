# A claim may come after writes, and keys in any order.
# file: src/api/claim.rs
# caught by: model the_database_does_as_the_model_says
s/^    let Err(fault) = checked else { return Ok(()) };$/    let Err(fault) = checked.or(Ok(())) else { return Ok(()) };/
