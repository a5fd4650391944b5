blackbox::tests_of!("jdbc");
