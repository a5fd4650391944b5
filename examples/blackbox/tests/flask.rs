blackbox::tests_of!("flask");
