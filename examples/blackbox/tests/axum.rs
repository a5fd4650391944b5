blackbox::tests_of!("axum");
