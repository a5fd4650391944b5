//! The three isolation levels, and a test at each of them.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    #[default]
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Isolation {
    pub const ALL: [Isolation; 3] =
        [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];

    /// The words of SQL.
    pub fn sql(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "READ COMMITTED",
            Isolation::RepeatableRead => "REPEATABLE READ",
            Isolation::Serializable => "SERIALIZABLE",
        }
    }
}

/// Makes three tests, one for each isolation level, of each function named. A function takes
/// `(&Database, Isolation)`; the tests are `function::read_committed` and so on.
#[macro_export]
macro_rules! at_every_isolation {
    ($($function:ident),+ $(,)?) => {$(
        mod $function {
            use $crate::prelude::{Database, Isolation};

            #[test]
            fn read_committed() {
                super::$function(&Database::fresh(), Isolation::ReadCommitted);
            }

            #[test]
            fn repeatable_read() {
                super::$function(&Database::fresh(), Isolation::RepeatableRead);
            }

            #[test]
            fn serializable() {
                super::$function(&Database::fresh(), Isolation::Serializable);
            }
        }
    )+};
}
