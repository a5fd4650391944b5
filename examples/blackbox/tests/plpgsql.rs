blackbox::tests_of!("plpgsql");
