blackbox::tests_of!("go");
