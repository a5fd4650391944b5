blackbox::tests_of!("express");
