# Nobody locks a key: two sessions may hold it at a time.
# file: src/api/wait.rs
# caught by: model the_database_does_as_the_model_says
s/^        if lock\.try_acquire() {$/        if true {/
