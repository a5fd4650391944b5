//! A payment service on 127.0.0.1 that keeps its charges in memory, one per idempotency key. It can
//! be told to misbehave, and remembers who called.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

/// How the service answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// It charges and says so.
    #[default]
    Good,
    /// It says no, finally.
    Declining,
    /// It fails before it has charged.
    Failing,
    /// It charges and fails then.
    FailingLate,
    /// It charges and says nothing, until it is told to speak.
    Silent,
}

/// One call: derived key, attempt, amount.
pub type Call = (String, String, String);

#[derive(Default)]
struct State {
    mood: Mood,
    may_speak: bool,
    charges: BTreeMap<String, String>,
    calls: Vec<Call>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    told_to_speak: Condvar,
}

pub struct Service {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Service {
    pub fn start() -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let state = Arc::clone(&shared);
        // Ends with the test process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&state);
                thread::spawn(move || state.serve(stream));
            }
        });
        Service { address, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}/charges", self.address)
    }

    pub fn be(&self, mood: Mood) {
        self.shared.state().mood = mood;
    }

    /// Has all that were not answered answered now.
    pub fn speak(&self) {
        self.shared.state().may_speak = true;
        self.shared.told_to_speak.notify_all();
    }

    /// All charges ever made: key and id.
    pub fn charges(&self) -> Vec<(String, String)> {
        self.shared.state().charges.clone().into_iter().collect()
    }

    pub fn calls(&self) -> Vec<Call> {
        self.shared.state().calls.clone()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no call panics")
    }

    fn serve(&self, mut stream: TcpStream) {
        let Some((key, attempt, body)) = read(&stream) else { return };
        let answer = self.answer(key, attempt, body);
        let length = answer.1.len();
        let head =
            format!("HTTP/1.1 {}\r\nContent-Length: {length}\r\nConnection: close", answer.0);
        // Whoever asked may be dead.
        let _sent = write!(stream, "{head}\r\n\r\n{}", answer.1);
    }

    fn answer(&self, key: String, attempt: String, body: String) -> (&'static str, String) {
        let mut state = self.state();
        state.calls.push((key.clone(), attempt, body));
        match state.mood {
            Mood::Declining => return ("402 Payment Required", String::new()),
            Mood::Failing => return ("500 Internal Server Error", String::new()),
            Mood::Good | Mood::FailingLate | Mood::Silent => {}
        }
        let next = format!("ch-{}", state.charges.len() + 1);
        let charge = state.charges.entry(key).or_insert(next).clone();
        match state.mood {
            Mood::FailingLate => return ("503 Service Unavailable", String::new()),
            Mood::Silent => {
                drop(
                    self.told_to_speak
                        .wait_while(state, |state| !state.may_speak)
                        .expect("no call panics"),
                );
            }
            Mood::Good | Mood::Declining | Mood::Failing => {}
        }
        ("201 Created", charge)
    }
}

/// Derived key, attempt and body of one HTTP request.
fn read(stream: &TcpStream) -> Option<Call> {
    let mut reader = BufReader::new(stream);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_owned()),
            None if line.trim_end().is_empty() => break,
            None => None,
        };
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8(body).ok()?;
    Some((headers.remove("idempotency-key")?, headers.remove("attempt")?, body))
}
