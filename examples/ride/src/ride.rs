//! `POST /rides`: a ride is created, paid for and confirmed. Two transactions of ours with a call to
//! somebody else's service between them, and whoever dies: one ride, one charge, one answer.

use crate::payments::{Charge, Payments};
use postgres::{Client, GenericClient, Row};
use serde_json::{Value, json};
use std::error::Error;
use uuid::Uuid;

type Fallible<T> = Result<T, Box<dyn Error>>;

/// A request, from a client or from `idempotency_abandoned`.
pub struct Request {
    pub scope: String,
    pub key: String,
    pub fingerprint: Option<Vec<u8>>,
    pub order: Value,
}

/// What the client is sent: status and body.
pub type Answer = (i32, Vec<u8>);

/// What we have on lease, and how far it has come: whoever takes over is told the same.
struct Work {
    token: Uuid,
    attempt: i32,
    point: Option<String>,
    data: Value,
}

pub struct Rides {
    pub db: Client,
    pub payments: Payments,
    pub lease_ms: i32,
}

impl Rides {
    pub fn handle(&mut self, request: &Request) -> Fallible<Answer> {
        let work = match self.create(request)? {
            Ok(work) => work,
            Err(answered) => return Ok(answered),
        };
        match self.pay(request, work).and_then(|work| self.confirm(&work)) {
            // Charged or not? When the lease has run out, the completer asks by the same key.
            Err(error) if error.is::<ureq::Error>() => Ok((503, b"payment pending".to_vec())),
            // We were too slow and somebody else has the request: their answer is the answer.
            Err(error) if is_lease_lost(&*error) => {
                let sql = "SELECT * FROM idempotency_replay($1, 'POST /rides', $2)";
                Ok(answer(&self.db.query_one(sql, &[&request.scope, &request.key])?))
            }
            confirmed => confirmed,
        }
    }

    /// The first phase: claim, ride and checkpoint are committed together.
    fn create(&mut self, request: &Request) -> Fallible<Result<Work, Answer>> {
        let mut transaction = self.db.transaction()?;
        let Request { scope, key, fingerprint, order } = request;
        let sql = "SELECT * FROM idempotency_claim($1, 'POST /rides', $2, $3,
                                                   lease_ms => $4, data => $5)";
        let claim =
            transaction.query_one(sql, &[scope, key, fingerprint, &self.lease_ms, order])?;
        if claim.get::<_, &str>("outcome") != "claimed" {
            return Ok(Err(answer(&claim)));
        }
        step("claimed");
        let mut work = Work::of(&claim);
        if work.point.is_none() {
            let sql = "INSERT INTO rides (rider, fare) VALUES ($1, $2) RETURNING id";
            let (rider, fare) = (order["rider"].as_str(), order["fare"].as_i64());
            let ride: i64 = transaction.query_one(sql, &[&rider, &fare])?.get("id");
            work.reach(&mut transaction, "created", json!({ "ride": ride }))?;
        }
        step("created");
        transaction.commit()?;
        step("created and committed");
        Ok(Ok(work))
    }

    /// The foreign call, outside of any transaction. Its key names what is paid for and not who
    /// calls, so it is the same for whoever takes over; behind the checkpoint nobody calls.
    fn pay(&mut self, request: &Request, mut work: Work) -> Fallible<Work> {
        if work.point.as_deref() == Some("created") {
            let key = format!("ride-{}-{}-charge", request.scope, request.key);
            let charge = match self.payments.charge(&key, work.attempt, &request.order["fare"])? {
                Charge::Made(id) => Some(id),
                Charge::Declined => None,
            };
            step("charged");
            let data = json!({ "ride": work.data["ride"], "charge": charge });
            work.reach(&mut self.db, "charged", data)?;
            step("charged and committed");
        }
        Ok(work)
    }

    /// The last phase: fenced by the resume, and committed together with the answer.
    fn confirm(&mut self, work: &Work) -> Fallible<Answer> {
        let mut transaction = self.db.transaction()?;
        transaction.execute("SELECT outcome FROM idempotency_resume($1)", &[&work.token])?;
        step("resumed");
        let (ride, charge) = (work.data["ride"].as_i64(), work.data["charge"].as_str());
        let sql = "UPDATE rides SET charge = $2 WHERE id = $1";
        transaction.execute(sql, &[&ride, &charge.unwrap_or("declined")])?;
        let status = if charge.is_some() { 201 } else { 402 };
        let sql = "SELECT * FROM idempotency_complete($1, body_json => $2)";
        let sent = answer(&transaction.query_one(sql, &[&status, &work.data])?);
        step("confirmed");
        transaction.commit()?;
        step("confirmed and committed");
        Ok(sent)
    }

    /// The completer: goes on with what others left behind, as if their clients had asked again.
    pub fn complete_abandoned(&mut self) -> Fallible<Vec<Answer>> {
        let sql = "SELECT scope, key, fingerprint, data FROM idempotency_abandoned()
                   WHERE operation = 'POST /rides'";
        let request = |row: &Row| Request {
            scope: row.get("scope"),
            key: row.get("key"),
            fingerprint: row.get("fingerprint"),
            order: row.get("data"),
        };
        let abandoned: Vec<Request> = self.db.query(sql, &[])?.iter().map(request).collect();
        abandoned.iter().map(|request| self.handle(request)).collect()
    }
}

impl Work {
    fn of(claim: &Row) -> Work {
        Work {
            token: claim.get("token"),
            attempt: claim.get("attempt"),
            point: claim.get("recovery_point"),
            data: claim.get::<_, Option<Value>>("recovery_data").unwrap_or_default(),
        }
    }

    fn reach(&mut self, db: &mut impl GenericClient, point: &str, data: Value) -> Fallible<()> {
        let sql = "SELECT outcome FROM idempotency_checkpoint($1, $2, $3)";
        db.execute(sql, &[&self.token, &point, &data])?;
        (self.point, self.data) = (Some(point.into()), data);
        Ok(())
    }
}

fn answer(outcome: &Row) -> Answer {
    (outcome.get("status"), outcome.get("body"))
}

fn is_lease_lost(error: &(dyn Error + 'static)) -> bool {
    let code = error.downcast_ref::<postgres::Error>().and_then(postgres::Error::code);
    code.is_some_and(|code| code.code() == "IK005")
}

/// A place to die: told to by its name, we say that we are there and stand still until a line comes.
pub fn step(name: &str) {
    if std::env::var("RIDE_STOP_AT").is_ok_and(|at| at == name) {
        println!("at {name}");
        let _the_line_or_the_end = std::io::stdin().read_line(&mut String::new());
    }
}
