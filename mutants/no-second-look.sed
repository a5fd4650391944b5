# After the wait for the lock the key is not looked at again.
# file: src/api/claim.rs
# caught by: concurrency sixty_four
s/let nothing_new = now::completions() == before;/let nothing_new = now::completions() == before || true;/
