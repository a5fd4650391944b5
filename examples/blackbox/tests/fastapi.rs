blackbox::tests_of!("fastapi");
