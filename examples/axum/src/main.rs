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
    body: &'a str,
}

/// What the service reads of the body; the rest is kept as it came.
#[derive(Deserialize)]
struct Wanted {
    item: String,
}

impl Work for Order<'_> {
    async fn work(&self, db: &Transaction<'_>) -> Result<Answer, Failure> {
        let Ok(Wanted { item }) = serde_json::from_str(self.body) else {
            let error = r#"{"error": "a JSON object with an item is wanted"}"#;
            return Err(Failure::Refused(Answer::new(400, error.into())));
        };
        let id = self.insert(db, &item).await.map_err(|error| match error.code() {
            Some(code) if code.code().starts_with("23") => {
                Failure::Refused(Answer::new(409, r#"{"error": "not in stock"}"#.into()))
            }
            _ => error.into(),
        })?;
        let answer = Answer::new(201, format!(r#"{{"order": {id}, "request": {}}}"#, self.body));
        Ok(answer.with_headers(json!({ "Location": format!("/orders/{id}") })))
    }
}

impl Order<'_> {
    async fn insert(&self, db: &Transaction<'_>, item: &str) -> Result<i64, tokio_postgres::Error> {
        let sql = "INSERT INTO orders (owner, item, request) VALUES ($1, $2, $3::text::json) RETURNING id";
        let values: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] =
            &[(&self.owner, Type::TEXT), (&item, Type::TEXT), (&self.body, Type::TEXT)];
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
        key: headers.get("Idempotency-Key").map(HeaderValue::as_bytes).map(String::from_utf8_lossy),
        method: Method::POST.as_str(),
        path: uri.path(),
        body: &body,
    };
    let order = Order { owner: &owner, body: &String::from_utf8_lossy(&body) };
    keyed(&pool, &request, &order).await
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
        None => Answer::new(404, r#"{"error": "no such order"}"#.into()),
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
