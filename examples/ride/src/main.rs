//! The worked example of leased claims; README.md tells its story.

mod payments;
mod ride;

use payments::Payments;
use postgres::{Client, NoTls};
use ride::{Request, Rides, step};
use std::env::{args, var};
use std::error::Error;
use std::io::{Write, stdout};
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let millis = |name: &str, otherwise: i32| var(name).map_or(Ok(otherwise), |ms| ms.parse());
    let timeout = Duration::from_millis(millis("TIMEOUT_MS", 10_000)?.unsigned_abs().into());
    let mut rides = Rides {
        db: Client::connect(&var("DATABASE_URL")?, NoTls)?,
        payments: Payments::at(var("PAYMENTS_URL")?, timeout),
        lease_ms: millis("LEASE_MS", 60_000)?,
    };
    step("connected");
    let arguments: Vec<String> = args().skip(1).collect();
    let answers = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["request", scope, key, body] => {
            let request = asked(&mut rides.db, scope, key, body)?;
            vec![rides.handle(&request)?]
        }
        ["complete"] => rides.complete_abandoned()?,
        _ => return Err("usage: ride request SCOPE KEY BODY | ride complete".into()),
    };
    for (status, body) in answers {
        print!("{status} ");
        stdout().write_all(&body)?;
        println!();
    }
    Ok(())
}

fn asked(db: &mut Client, scope: &str, key: &str, body: &str) -> Result<Request, Box<dyn Error>> {
    let sql = "SELECT idempotency_fingerprint('POST', '/rides', $1)";
    let fingerprint = db.query_one(sql, &[&body])?.get(0);
    let order = serde_json::from_str(body)?;
    Ok(Request { scope: scope.into(), key: key.into(), fingerprint, order })
}
