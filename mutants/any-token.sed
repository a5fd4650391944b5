# The token is not compared with the record's current one: who lost a lease goes on.
# file: src/api/lease.rs
# caught by: leases_fence a_stale_workers_phase_commits_nothing
s/^    let is_own = row\.uuid(.*/    let is_own = true;/
