//! The backend of design B: creates that a phone's outbox may send again, each with a pointer to what
//! it has created, and the endpoints that take no part in this.

use crate::call::{Call, complete};
use crate::database::Database;
use crate::operation::{claim_by, configure_operation};
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::session::Session;
use serde_json::{Value, json};

pub const UPLOAD: &str = "POST /api/food-records";
pub const SAVE_AS_COMMON: &str = "POST /api/common-foods";
pub const PUMP_PUSH: &str = "POST /api/integrations/pump/push";
pub const VALIDATE_BOLUS: &str = "POST /api/treatment/validate-bolus";
pub const CORRECT: &str = "PATCH /api/food-records";

const SCHEMA: &str = "
    CREATE TABLE food_records (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, owner text NOT NULL, photo text NOT NULL);
    CREATE TABLE common_foods (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, owner text NOT NULL, name text NOT NULL,
                               carbs integer NOT NULL, UNIQUE (owner, name));
    CREATE TABLE pump_events (dedupe_hash bytea PRIMARY KEY, event text NOT NULL);
    CREATE TABLE notes (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text NOT NULL);
    GRANT ALL ON food_records, common_foods, pump_events, notes TO backend;
    SELECT idempotency_register_resource('food_record', 'food_records', 'id');
    SELECT idempotency_register_resource('common_food', 'common_foods', 'id');";

/// A new database with the design's tables and settings: one row for each endpoint.
pub fn database() -> Database<'static> {
    let db = Database::fresh();
    db.run(SCHEMA);
    for endpoint in [UPLOAD, SAVE_AS_COMMON] {
        configure_operation(&db, endpoint, json!({"preset": "create"}));
    }
    for endpoint in [PUMP_PUSH, CORRECT] {
        configure_operation(&db, endpoint, json!({"mode": "ignored"}));
    }
    configure_operation(&db, VALIDATE_BOLUS, json!({"mode": "forbidden"}));
    db
}

/// What the client gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    pub status: i32,
    pub body: Value,
    pub replayed: bool,
}

impl Response {
    fn error(status: i32, detail: &str) -> Response {
        Response { status, body: json!({"detail": detail}), replayed: false }
    }
}

/// What a create made: the pointer to it, and the body that shows it.
pub struct Created {
    pub resource_type: &'static str,
    pub id: i64,
    pub body: Value,
}

/// A multipart upload of a photo.
#[derive(Clone, Copy)]
pub struct Upload<'a> {
    pub user: Option<&'a str>,
    pub key: Option<&'a str>,
    pub content_type: &'a str,
    pub photo: Option<&'a str>,
}

impl<'a> Upload<'a> {
    /// A well-formed one of Alice's.
    pub fn new(key: Option<&'a str>, photo: &'a str) -> Upload<'a> {
        Upload { user: Some("alice"), key, content_type: "multipart/form-data", photo: Some(photo) }
    }
}

/// One worker of the backend, and its side effects outside of the database.
pub struct Backend {
    pub session: Session,
    pub vision_calls: u32,
    pub stored_photos: Vec<String>,
    /// Whether the user has meal intelligence switched on.
    pub meal_intelligence: bool,
}

impl Backend {
    pub fn new(db: &Database<'_>, name: &str) -> Backend {
        let session = db.session(name);
        Backend { session, vision_calls: 0, stored_photos: Vec::new(), meal_intelligence: true }
    }

    /// `POST /api/food-records`. Whether the request is well-formed is looked at before its key.
    pub fn upload(&mut self, request: &Upload<'_>) -> Response {
        let Some(user) = request.user else { return Response::error(401, "not authenticated") };
        if request.content_type != "multipart/form-data" {
            return Response::error(415, "a form is expected");
        }
        let Some(photo) = request.photo else {
            return Response::error(422, "file: field required");
        };
        self.create(UPLOAD, user, request.key, |backend| backend.recognise(user, photo))
    }

    /// `POST /api/common-foods`: saves what a food record shows under a name; merges by name.
    pub fn save_as_common(&mut self, key: Option<&str>, source: i64, name: &str) -> Response {
        self.create(SAVE_AS_COMMON, "alice", key, |backend| {
            let session = &mut backend.session;
            let source = format!("SELECT length(photo) FROM food_records WHERE id = {source}");
            let Some(carbs) = session.rows(source).first().map(|row| row.get::<_, i32>(0)) else {
                return Err(404);
            };
            let merge = format!(
                "INSERT INTO common_foods (owner, name, carbs) VALUES ('alice', '{name}', {carbs})
                 ON CONFLICT (owner, name) DO UPDATE SET carbs = excluded.carbs RETURNING id"
            );
            let id = session.value(merge);
            Ok(Created {
                resource_type: "common_food",
                id,
                body: shown(session, "common_food", id),
            })
        })
    }

    fn recognise(&mut self, user: &str, photo: &str) -> Result<Created, i32> {
        if !self.meal_intelligence {
            return Err(403);
        }
        self.vision_calls += 1;
        self.stored_photos.push(photo.to_owned());
        let insert = format!(
            "INSERT INTO food_records (owner, photo) VALUES ('{user}', '{photo}') RETURNING id"
        );
        let id = self.session.value(insert);
        let body = shown(&mut self.session, "food_record", id);
        Ok(Created { resource_type: "food_record", id, body })
    }

    /// The substrate that every user-authored create goes through: the key comes before every other
    /// look-up, and the pointer commits with the row that it points to.
    pub fn create(
        &mut self,
        endpoint: &str,
        user: &str,
        key: Option<&str>,
        work: impl FnOnce(&mut Backend) -> Result<Created, i32>,
    ) -> Response {
        self.session.run("BEGIN");
        let found = self.session.call(claim_by(user, endpoint, key));
        if !matches!(&*found.outcome, "claimed" | "bypassed") {
            self.session.run("COMMIT");
            return self.answer(&found);
        }
        let call = match work(self) {
            Ok(created) => pointing_to(created),
            Err(status) => complete(status).with("body_json", json!({"detail": "terminal"})),
        };
        let sent = self.session.call(call);
        let is_success = sent.status < Some(300);
        self.session.run(if is_success { "COMMIT" } else { "ROLLBACK" });
        self.answer(&sent)
    }

    /// Sends an outcome; where only the pointer was kept, the resource is rendered as it is now.
    fn answer(&mut self, outcome: &Outcome) -> Response {
        let body = match (&outcome.body, &outcome.resource_type, &outcome.resource_id) {
            (Some(body), _, _) => serde_json::from_slice(body).expect("JSON"),
            (None, Some(kind), Some(id)) => {
                shown(&mut self.session, kind, id.parse().expect("a number"))
            }
            _ => Value::Null,
        };
        let replayed = outcome.header("Idempotent-Replayed") == Some(&json!("true"));
        Response { status: outcome.status.expect("a status is sent"), body, replayed }
    }

    /// `POST /api/integrations/pump/push`: collapses submissions of one event by their content.
    pub fn push_event(&mut self, key: Option<&str>, event: &str) -> i32 {
        self.session.run("BEGIN");
        self.session.call(claim_by("alice", PUMP_PUSH, key)).expect("bypassed");
        let insert = format!(
            "INSERT INTO pump_events VALUES (sha256('{event}'), '{event}') ON CONFLICT DO NOTHING"
        );
        self.session.run(&insert);
        let sent = self.session.call(complete(202)).expect("bypassed");
        self.session.run("COMMIT");
        sent.status.expect("a status is sent")
    }

    /// `POST /api/treatment/validate-bolus`: asks live data, and must never be answered from memory.
    ///
    /// # Errors
    /// What the server refuses: a request with a key.
    pub fn validate_bolus(&mut self, key: Option<&str>) -> Result<Outcome, Refusal> {
        Ok(Outcome::only(&self.session.attempt(claim_by("alice", VALIDATE_BOLUS, key))?))
    }
}

fn pointing_to(created: Created) -> Call {
    let call = complete(201).with("body_json", created.body);
    call.with("resource_type", created.resource_type).with("resource_id", created.id.to_string())
}

/// A resource as it is now.
fn shown(session: &mut Session, resource_type: &str, id: i64) -> Value {
    session.value(format!("SELECT to_jsonb(r) FROM {resource_type}s r WHERE id = {id}"))
}
