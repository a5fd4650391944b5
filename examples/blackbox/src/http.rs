//! Requests and answers, as bytes.

use std::time::Duration;
use ureq::Agent;

/// A request takes no longer, or it has failed.
const PATIENCE: Duration = Duration::from_secs(40);

/// Headers that tell of the connection or the library, and not of the answer.
const NOT_OF_THE_ANSWER: [&str; 6] =
    ["connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"];

#[derive(Clone, Debug)]
pub struct Request {
    method: &'static str,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

/// Status, headers by name in lower case, body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn post(path: &str, body: impl AsRef<[u8]>) -> Request {
        let body = body.as_ref().to_vec();
        Request { method: "POST", path: path.into(), headers: Vec::new(), body }
    }

    pub fn get(path: &str) -> Request {
        Request { method: "GET", path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Request {
        self.headers.push((name.into(), value.as_ref().to_vec()));
        self
    }

    /// The same request to another path.
    pub fn to(self, path: &str) -> Request {
        Request { path: path.into(), ..self }
    }

    pub fn keyed(self, key: impl AsRef<[u8]>) -> Request {
        self.with("Idempotency-Key", key)
    }
}

/// Sends a request over a connection of its own.
///
/// # Errors
/// What keeps the answer from coming.
pub fn send(address: &str, request: &Request) -> Result<Answer, ureq::Error> {
    let config = Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false);
    let agent = Agent::new_with_config(config.max_redirects(0).build());
    let url = format!("{address}{}", request.path);
    let headers = || request.headers.iter().map(|(name, value)| (name, &value[..]));
    let mut response = if request.method == "GET" {
        let start = agent.get(url);
        headers().fold(start, |to, (name, value)| to.header(name, value)).call()?
    } else {
        let start = agent.post(url).header("Content-Type", "application/json");
        let with = headers().fold(start, |to, (name, value)| to.header(name, value));
        with.send(&request.body[..])?
    };
    let mut headers = Vec::new();
    for (name, value) in response.headers() {
        if !NOT_OF_THE_ANSWER.contains(&name.as_str()) {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            headers.push((name.as_str().to_owned(), value));
        }
    }
    headers.sort();
    let status = response.status().as_u16();
    Ok(Answer { status, headers, body: response.body_mut().read_to_vec()? })
}

impl Answer {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The same answer as it is sent again.
    pub fn replayed(&self) -> Answer {
        let mut replay = self.clone();
        replay.headers.push(("idempotent-replayed".into(), "true".into()));
        replay.headers.sort();
        replay
    }

    /// These headers and no others.
    #[track_caller]
    pub fn expect_headers(&self, expected: &[(&str, &str)]) {
        let mut expected: Vec<(String, String)> =
            expected.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        expected.sort();
        assert_eq!(self.headers, expected);
    }

    /// A plain JSON answer, by the service or replayed.
    #[track_caller]
    pub fn expect_json(&self, status: u16, body: &str) {
        assert_eq!((self.status, self.text()), (status, body), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"));
    }

    /// A problem answer of the extension's whose detail is this.
    #[track_caller]
    pub fn expect_problem(&self, status: u16, detail: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let detail = format!("{{\"detail\":\"{detail}\"");
        assert!(self.text().starts_with(&detail), "{}", self.text());
    }
}
