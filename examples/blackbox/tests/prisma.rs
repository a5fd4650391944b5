blackbox::tests_of!("prisma");
