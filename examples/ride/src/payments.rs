//! The client of the payment service: one call, which may be made again by the same key.

use serde_json::{Value, json};
use std::time::Duration;
use ureq::{Agent, Error};

pub struct Payments {
    agent: Agent,
    url: String,
}

/// The service's final word. Everything else (no answer, an error of its own) is an [`Err`]: then
/// nobody knows whether the charge was made.
pub enum Charge {
    Made(String),
    Declined,
}

impl Payments {
    pub fn at(url: String, timeout: Duration) -> Payments {
        let config = Agent::config_builder().timeout_global(Some(timeout));
        Payments { agent: config.http_status_as_error(false).build().into(), url }
    }

    /// Charges an amount. Under one key the service charges once, however often it is called.
    pub fn charge(&self, key: &str, attempt: i32, cents: &Value) -> Result<Charge, Error> {
        let request = self.agent.post(&self.url).header("Idempotency-Key", key);
        let request = request.header("Attempt", attempt.to_string());
        let mut response = request.send(json!({ "cents": cents }).to_string())?;
        match response.status().as_u16() {
            201 => Ok(Charge::Made(response.body_mut().read_to_string()?)),
            402 => Ok(Charge::Declined),
            status => Err(Error::StatusCode(status)),
        }
    }
}
