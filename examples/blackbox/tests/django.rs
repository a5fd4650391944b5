blackbox::tests_of!("django");
