blackbox::tests_of!("drf");
