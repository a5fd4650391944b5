//! Statements with typed parameters, and calls of the extension's functions by argument name.

use postgres::types::{ToSql, Type};
use serde_json::Value;
use uuid::Uuid;

/// A value and the SQL type it is sent as.
pub type Param = (Box<dyn ToSql + Sync + Send>, Type);

/// What can be an argument; an `Option` that is `None` is a NULL of its type.
pub trait Argument {
    fn param(self) -> Param;
}

macro_rules! argument {
    ($($rust:ty => $owned:ty, $sql:ident);+ $(;)?) => {$(
        impl Argument for $rust {
            fn param(self) -> Param {
                (Box::new(<$owned>::from(self)), Type::$sql)
            }
        }

        impl Argument for Option<$rust> {
            fn param(self) -> Param {
                (Box::new(self.map(<$owned>::from)), Type::$sql)
            }
        }
    )+};
}

argument! {
    &str => String, TEXT;
    String => String, TEXT;
    i32 => i32, INT4;
    bool => bool, BOOL;
    &[u8] => Vec<u8>, BYTEA;
    Vec<u8> => Vec<u8>, BYTEA;
    Value => Value, JSONB;
    Uuid => Uuid, UUID;
    Vec<String> => Vec<String>, TEXT_ARRAY;
    Vec<Vec<u8>> => Vec<Vec<u8>>, BYTEA_ARRAY;
}

impl Argument for &String {
    fn param(self) -> Param {
        self.as_str().param()
    }
}

impl<const N: usize> Argument for [u8; N] {
    fn param(self) -> Param {
        self.to_vec().param()
    }
}

/// One statement and its parameters.
pub struct Statement {
    pub sql: String,
    pub params: Vec<Param>,
}

impl From<&str> for Statement {
    fn from(sql: &str) -> Statement {
        Statement { sql: sql.to_owned(), params: Vec::new() }
    }
}

impl From<String> for Statement {
    fn from(sql: String) -> Statement {
        Statement { sql, params: Vec::new() }
    }
}

/// `SELECT * FROM function(name => value, …)`.
pub struct Call {
    function: &'static str,
    names: Vec<&'static str>,
    params: Vec<Param>,
}

impl Call {
    pub fn new(function: &'static str) -> Call {
        Call { function, names: Vec::new(), params: Vec::new() }
    }

    /// Adds an argument by the name it has in the contract.
    pub fn with(mut self, name: &'static str, value: impl Argument) -> Call {
        self.names.push(name);
        self.params.push(value.param());
        self
    }
}

impl From<Call> for Statement {
    fn from(call: Call) -> Statement {
        let named = |(at, name): (usize, &&str)| format!("{name} => ${}", at + 1);
        let arguments: Vec<String> = call.names.iter().enumerate().map(named).collect();
        let sql = format!("SELECT * FROM {}({})", call.function, arguments.join(", "));
        Statement { sql, params: call.params }
    }
}

fn identified(function: &'static str, key: impl Argument) -> Call {
    Call::new(function).with("scope", "alice").with("operation", "POST /orders").with("key", key)
}

/// A claim of `key` for alice's `POST /orders`.
pub fn claim(key: impl Argument) -> Call {
    identified("idempotency_claim", key)
}

/// A replay of `key` for alice's `POST /orders`.
pub fn replay(key: impl Argument) -> Call {
    identified("idempotency_replay", key)
}

/// Claims of several keys for alice's `POST /orders`.
pub fn claim_many(keys: &[&str]) -> Call {
    let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
    let call = Call::new("idempotency_claim_many").with("scope", "alice");
    call.with("operation", "POST /orders").with("keys", keys)
}

pub fn complete(status: impl Argument) -> Call {
    Call::new("idempotency_complete").with("status", status)
}

pub fn release() -> Call {
    Call::new("idempotency_release")
}
