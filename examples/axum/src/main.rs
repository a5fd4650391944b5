//! Orders, executed at most once per idempotency key: axum and tokio-postgres.

mod keyed;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header, request::Parts};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Transaction};
use keyed::{Answer, Failure, Request, Work, keyed};
use serde::Deserialize;
use serde_json::json;
use std::env::{VarError, var};
use tokio::net::TcpListener;
use tokio_postgres::NoTls;
use tokio_postgres::types::Type;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Asked, not only looked at: that the server has ended a connection may not have been noticed yet.
    let config = ManagerConfig { recycling_method: RecyclingMethod::Verified };
    let manager = Manager::from_config(var("DATABASE_URL")?.parse()?, NoTls, config);
    let pool = Pool::builder(manager).max_size(8).build()?;
    let app = Router::new()
        .route("/orders", post(create))
        .route("/orders/{id}", get(show))
        .with_state(pool);
    let port = var("PORT").or_else(|none: VarError| match none {
        VarError::NotPresent => Ok("0".into()),
        unreadable => Err(unreadable),
    })?;
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}

/// `POST /orders`: the body, and whose it is.
struct Order<'a> {
    owner: &'a str,
    body: &'a [u8],
}

/// What the service reads of the body; the rest is kept as it came.
#[derive(Deserialize)]
struct Wanted {
    item: String,
}

impl Work for Order<'_> {
    async fn work(&self, db: &Transaction<'_>) -> Result<Answer, Failure> {
        let refused = |status, error| Failure::Refused(Answer::new(status, error));
        let senseless = || refused(400, r#"{"error": "a JSON object with an item is wanted"}"#);
        let Wanted { item } = serde_json::from_slice(self.body).map_err(|_| senseless())?;
        let id = self.insert(db, &item).await.map_err(|error| match error.code() {
            // Data exception: not UTF-8, for example. Integrity constraint violation.
            Some(code) if code.code().starts_with("22") => senseless(),
            Some(code) if code.code().starts_with("23") => {
                refused(409, r#"{"error": "not in stock"}"#)
            }
            _ => error.into(),
        })?;
        let body =
            [format!(r#"{{"order": {id}, "request": "#).as_bytes(), self.body, b"}"].concat();
        Ok(Answer::new(201, body).with_headers(json!({ "Location": format!("/orders/{id}") })))
    }
}

impl Order<'_> {
    async fn insert(&self, db: &Transaction<'_>, item: &str) -> Result<i64, tokio_postgres::Error> {
        let sql = "INSERT INTO orders (owner, item, request) VALUES ($1, $2, convert_from($3, 'UTF8')::json) RETURNING id";
        let values: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] =
            &[(&self.owner, Type::TEXT), (&item, Type::TEXT), (&self.body, Type::BYTEA)];
        let id = db.query_typed_one(sql, values).await?.get("id");
        let sql = "UPDATE stock SET pieces = pieces - 1 WHERE item = $1";
        db.query_typed(sql, &[(&item, Type::TEXT)]).await?;
        Ok(id)
    }
}

async fn create(
    State(pool): State<Pool>,
    User(owner): User,
    uri: Uri,
    headers: axum::http::HeaderMap,
    body: Bytes,
) -> Result<Answer, Failure> {
    let request = Request {
        scope: &owner,
        operation: "POST /orders",
        key: key(&headers),
        method: Method::POST.as_str(),
        path: uri.path(),
        body: &body,
    };
    let order = Order { owner: &owner, body: &body };
    keyed(&pool, &request, &order).await
}

/// The header as it came, all of its lines: of two keys the extension says that they are not valid. A
/// character for each byte, as most servers have it: so no two headers are the same text.
fn key(headers: &axum::http::HeaderMap) -> Option<String> {
    let lines = headers.get_all("Idempotency-Key").iter().map(HeaderValue::as_bytes);
    let lines: Vec<String> =
        lines.map(|line| line.iter().copied().map(char::from).collect()).collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}

async fn show(
    State(pool): State<Pool>,
    User(owner): User,
    Path(id): Path<i64>,
) -> Result<Answer, Failure> {
    let sql = "SELECT request::text FROM orders WHERE id = $1 AND owner = $2";
    let values: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] =
        &[(&id, Type::INT8), (&owner, Type::TEXT)];
    let rows = pool.get().await?.query_typed(sql, values).await?;
    let answer = match rows.first() {
        Some(row) => {
            let request: &str = row.get("request");
            Answer::new(200, format!(r#"{{"order": {id}, "request": {request}}}"#))
        }
        None => Answer::new(404, r#"{"error": "no such order"}"#),
    };
    Ok(answer.with_headers(json!({ "Content-Type": "application/json" })))
}

/// Whoever the key belongs to. A real service checks the token.
struct User(String);

impl<S: Sync> FromRequestParts<S> for User {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<User, Response> {
        let header = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        match header.and_then(|header| header.strip_prefix("Bearer ")) {
            Some(user) => Ok(User(user.to_owned())),
            None => {
                let headers = [(header::CONTENT_TYPE, "application/json")];
                let error = r#"{"error": "a bearer is wanted"}"#;
                Err((StatusCode::UNAUTHORIZED, headers, error).into_response())
            }
        }
    }
}
