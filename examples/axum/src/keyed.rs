//! A request that is executed at most once: claim, work, complete, in one transaction.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use deadpool_postgres::{GenericClient, Pool, PoolError, Transaction};
use serde_json::{Value, json};
use std::future::Future;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

pub struct Request<'a> {
    pub scope: &'a str,
    pub operation: &'a str,
    pub key: Option<String>,
    pub method: &'a str,
    pub path: &'a str,
    pub body: &'a [u8],
}

/// What the client is sent.
pub struct Answer {
    status: i32,
    headers: Value,
    body: Option<Vec<u8>>,
}

pub enum Failure {
    /// A final answer whose effects are undone.
    Refused(Answer),
    Database(Error),
    Pool(PoolError),
}

/// What a request does. It may be done several times, but only one of them is committed.
pub trait Work: Sync {
    fn work(&self, db: &Transaction<'_>) -> impl Future<Output = Result<Answer, Failure>> + Send;
}

/// Has the work executed at most once. Returns what to send.
pub async fn keyed(
    pool: &Pool,
    request: &Request<'_>,
    work: &impl Work,
) -> Result<Answer, Failure> {
    let mut attempt = 1;
    loop {
        match attempted(pool, request, work).await {
            Err(Failure::Database(error)) if attempt < 3 && is_retried(&error) => attempt += 1,
            result => return result,
        }
    }
}

/// One transaction, rolled back where it is not committed.
async fn attempted(
    pool: &Pool,
    request: &Request<'_>,
    work: &impl Work,
) -> Result<Answer, Failure> {
    let mut connection = pool.get().await?;
    let mut transaction = connection.transaction().await?;
    let mut row = claim(&transaction, request).await?;
    if let "claimed" | "bypassed" = row.get("outcome") {
        let answer = in_savepoint(&mut transaction, work).await?;
        row = complete(&transaction, &answer).await?;
    }
    // Released is not kept: its effects go, and a retry is executed.
    match row.get("outcome") {
        "released" => transaction.rollback().await?,
        _ => transaction.commit().await?,
    }
    Ok(Answer { status: row.get("status"), headers: row.get("headers"), body: row.get("body") })
}

async fn in_savepoint(db: &mut Transaction<'_>, work: &impl Work) -> Result<Answer, Failure> {
    let savepoint = db.savepoint("work").await?;
    match work.work(&savepoint).await {
        Err(Failure::Refused(answer)) => {
            savepoint.rollback().await?;
            Ok(answer)
        }
        Ok(answer) => {
            savepoint.commit().await?;
            Ok(answer)
        }
        failed => failed,
    }
}

async fn claim(db: &Transaction<'_>, request: &Request<'_>) -> Result<Row, Error> {
    let sql = "SELECT * FROM idempotency_claim($1, $2, $3, idempotency_fingerprint($4, $5, body_bytes => $6))";
    let texts: [&(dyn ToSql + Sync); 5] =
        [&request.scope, &request.operation, &request.key, &request.method, &request.path];
    let mut values = texts.map(|text| (text, Type::TEXT)).to_vec();
    values.push((&request.body, Type::BYTEA));
    db.query_typed_one(sql, &values).await
}

async fn complete(db: &Transaction<'_>, answer: &Answer) -> Result<Row, Error> {
    let sql = "SELECT * FROM idempotency_complete($1, body_bytes => $2, headers => $3, content_type => $4)";
    let values: &[(&(dyn ToSql + Sync), Type)] = &[
        (&answer.status, Type::INT4),
        (&answer.body, Type::BYTEA),
        (&answer.headers, Type::JSONB),
        (&"application/json", Type::TEXT),
    ];
    db.query_typed_one(sql, values).await
}

/// A serialization failure or a deadlock: the whole transaction is made again, from its claim.
fn is_retried(error: &Error) -> bool {
    [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED]
        .iter()
        .any(|code| error.code() == Some(code))
}

impl Answer {
    pub fn new(status: i32, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status, headers: json!({}), body: Some(body.into()) }
    }

    pub fn with_headers(self, headers: Value) -> Answer {
        Answer { headers, ..self }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers.as_object().into_iter().flatten() {
            let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            for value in values.iter().filter_map(Value::as_str) {
                let name =
                    HeaderName::from_bytes(name.as_bytes()).expect("a name that was recorded");
                headers
                    .append(name, HeaderValue::from_str(value).expect("a value that was recorded"));
            }
        }
        headers
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status as u16).expect("200 to 599");
        (status, self.headers(), self.body.unwrap_or_default()).into_response()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let reason = match self {
            Failure::Refused(answer) => return answer.into_response(),
            Failure::Database(error) => format!("{error:?}"),
            Failure::Pool(error) => format!("{error:?}"),
        };
        eprintln!("{reason}");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Database(error)
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Failure {
        Failure::Pool(error)
    }
}
