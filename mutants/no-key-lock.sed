# Nobody locks a key: two sessions may hold it at a time.
# file: src/api/wait.rs
# caught by: waiting wait_of_0_answers_in_progress_at_once
s/^        if lock\.try_acquire() {$/        if true {/
