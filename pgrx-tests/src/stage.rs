//! A server that runs every keyed operation in one unit of work, as design A has it: the stage opens
//! the transaction, claims, runs the handler, completes, commits, and retries the whole unit where
//! the database asks for it.

use crate::call::{Argument, Statement, complete};
use crate::database::Database;
use crate::operation::configure_operation;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::session::Session;
use serde_json::{Value, json};

/// The operation of most tests.
pub const CREATE_GROUP: &str = "createGroup";

/// Rights are looked up in the principal's row; each check of a right leaves an entry in the log.
const SCHEMA: &str = "
    CREATE SCHEMA app; GRANT USAGE ON SCHEMA app TO backend;
    CREATE TABLE app.principals (name text PRIMARY KEY, permission_version integer NOT NULL DEFAULT 1);
    INSERT INTO app.principals (name) VALUES ('alice'), ('bob');
    CREATE TABLE app.check_log (scope text, operation text, unit xid8 DEFAULT pg_current_xact_id());
    GRANT ALL ON app.principals, app.check_log TO backend;
    CREATE FUNCTION app.is_proven(text, text, integer) RETURNS boolean LANGUAGE sql STABLE AS $$
        SELECT EXISTS (SELECT FROM app.check_log WHERE scope = $1 AND operation = $2
                       AND unit = pg_current_xact_id_if_assigned())
    $$;";

/// How often the stage begins a unit at most.
const ATTEMPTS: usize = 5;

/// A new database with the design's tables, and [`CREATE_GROUP`] by its preset.
pub fn database() -> Database<'static> {
    let db = Database::fresh();
    db.run(SCHEMA);
    keyed(&db, CREATE_GROUP);
    db
}

/// Makes an operation one with the parameter IdempotencyKey.
#[track_caller]
pub fn keyed(db: &Database<'_>, operation: &str) {
    let settings = json!({"preset": "unit_of_work", "completion_check": "app.is_proven"});
    configure_operation(db, operation, settings);
}

/// What the router hands to the stage.
#[derive(Clone)]
pub struct Request {
    pub principal: Option<&'static str>,
    pub operation: &'static str,
    pub method: &'static str,
    pub path: &'static str,
    pub body: Option<Vec<u8>>,
    pub key: Option<String>,
}

impl Request {
    /// Alice creates a group.
    pub fn create_group(key: &str, body: &str) -> Request {
        Request {
            principal: Some("alice"),
            operation: CREATE_GROUP,
            method: "POST",
            path: "/api/v1/groups",
            body: Some(body.into()),
            key: Some(key.into()),
        }
    }

    /// The claim; the fingerprint is made of the request as it came.
    fn claim(&self) -> Statement {
        let sql = "SELECT * FROM idempotency_claim($1, $2, $3,
                       fingerprint => idempotency_fingerprint($4, $5, body_bytes => $6))";
        let params = vec![
            self.principal.param(),
            self.operation.param(),
            self.key.clone().param(),
            self.method.param(),
            self.path.param(),
            self.body.clone().param(),
        ];
        Statement { sql: sql.into(), params }
    }
}

/// Where a handler writes its answer; each attempt begins with an empty one.
#[derive(Default)]
pub struct Buffer {
    status: i32,
    body: Option<Vec<u8>>,
    headers: Option<Value>,
    withhold: Option<&'static str>,
}

impl Buffer {
    /// Writes status and more of the body, as a response writer does.
    pub fn write(&mut self, status: i32, body: &str) {
        self.status = status;
        self.body.get_or_insert_default().extend_from_slice(body.as_bytes());
    }

    pub fn write_json(&mut self, status: i32, body: &Value) {
        self.write(status, &body.to_string());
    }

    /// A final status without a body.
    pub fn write_nothing(&mut self, status: i32) {
        self.status = status;
    }

    pub fn set_headers(&mut self, headers: Value) {
        self.headers = Some(headers);
    }

    /// Marks the answer as one that carries a one-time secret.
    pub fn has_secret(&mut self) {
        self.withhold = Some("one_time_secret");
    }

    /// The answer to an error of the database. Where the unit has to be tried again it is none, and
    /// the error goes on to the stage.
    ///
    /// # Errors
    /// A deadlock or a lock timeout.
    pub fn write_problem(&mut self, refusal: Refusal) -> Result<(), Refusal> {
        if is_retried(&refusal) {
            return Err(refusal);
        }
        self.write_json(500, &json!({"title": "internal error"}));
        Ok(())
    }
}

/// What the use case behind an operation does in the stage's unit of work.
pub type Handler<'h> = dyn FnMut(&mut Session, &mut Buffer) -> Result<(), Refusal> + 'h;

/// What was sent. An error is the answer 500 of a unit that was rolled back.
pub type Served = Result<Outcome, Refusal>;

/// The status that the client gets.
pub fn status(served: &Served) -> i32 {
    served.as_ref().map_or(500, |sent| sent.status.expect("a status is sent"))
}

/// The stage.
///
/// # Errors
/// What ended the last attempt.
pub fn serve(session: &mut Session, request: &Request, handler: &mut Handler<'_>) -> Served {
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        session.run("BEGIN");
        match attempt(session, request, handler) {
            Err(refusal) if is_retried(&refusal) && left > 0 => session.run("ROLLBACK"),
            Err(refusal) => {
                session.run("ROLLBACK");
                return Err(refusal);
            }
            sent => return sent,
        }
    }
}

fn is_retried(refusal: &Refusal) -> bool {
    matches!(refusal.code(), Some("40P01" | "55P03"))
}

fn attempt(session: &mut Session, request: &Request, handler: &mut Handler<'_>) -> Served {
    let mut sent = Outcome::only(&session.attempt(request.claim())?);
    if matches!(&*sent.outcome, "claimed" | "bypassed") {
        let mut buffer = Buffer::default();
        handler(session, &mut buffer)?;
        sent = Outcome::only(&session.attempt(completion(buffer))?);
    }
    session.attempt(if sent.outcome == "released" { "ROLLBACK" } else { "COMMIT" })?;
    Ok(sent)
}

fn completion(buffer: Buffer) -> Statement {
    let call = complete(buffer.status).with("body_bytes", buffer.body);
    let call = call.with("headers", buffer.headers).with("withhold", buffer.withhold);
    call.into()
}

/// The check of the route's action, which proves that the caller was allowed to get the answer.
///
/// # Errors
/// What the server refuses.
pub fn check_right(session: &mut Session, operation: &str) -> Result<(), Refusal> {
    let entry =
        format!("INSERT INTO app.check_log (scope, operation) VALUES ('alice', '{operation}')");
    session.attempt(entry).map(drop)
}

/// The use case of [`CREATE_GROUP`]: one order per group, and an answer that names it.
///
/// # Errors
/// What the server refuses.
pub fn create_group(session: &mut Session, buffer: &mut Buffer) -> Result<(), Refusal> {
    check_right(session, CREATE_GROUP)?;
    let rows = session.attempt("INSERT INTO orders (key) VALUES ('group') RETURNING id")?;
    let id: i64 = rows[0].get(0);
    buffer.write_json(201, &json!({"id": id, "version": 1}));
    Ok(())
}
