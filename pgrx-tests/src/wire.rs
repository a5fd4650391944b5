//! A few messages of the wire protocol, for what drivers do and our driver does not: several
//! statements between two Syncs (pipelining), which PostgreSQL runs as one transaction.

use crate::server::Server;
use crate::session::Role;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

pub struct Wire {
    stream: UnixStream,
}

/// How one pipeline ended.
#[derive(Debug, PartialEq)]
pub struct Pipelined {
    /// The command tags received, for example `INSERT 0 1`.
    pub tags: Vec<String>,
    /// SQLSTATE of the error, if there was one.
    pub code: Option<String>,
}

impl Wire {
    pub fn open(server: &Server, database: &str, role: Role) -> Wire {
        let socket = server.sockets().join(".s.PGSQL.5432");
        let mut wire = Wire { stream: UnixStream::connect(socket).expect("the server's socket") };
        let startup = format!("\0\u{3}\0\0user\0{}\0database\0{database}\0\0", role.name());
        wire.send_untyped(startup.as_bytes());
        assert_eq!(wire.until_ready().code, None, "the server lets us in");
        wire
    }

    /// Runs the statements as one pipeline.
    pub fn pipeline(&mut self, statements: &[&str]) -> Pipelined {
        self.start(statements);
        self.until_ready()
    }

    /// Sends Parse, Bind and Execute for each statement, and one Sync behind the last; reads nothing.
    pub fn start(&mut self, statements: &[&str]) {
        for sql in statements {
            self.send(b'P', format!("\0{sql}\0\0\0").as_bytes());
            self.send(b'B', b"\0\0\0\0\0\0\0\0");
            self.send(b'E', b"\0\0\0\0\0");
        }
        self.send(b'S', b"");
    }

    fn send(&mut self, kind: u8, payload: &[u8]) {
        self.stream.write_all(&[kind]).expect("the server listens");
        self.send_untyped(payload);
    }

    fn send_untyped(&mut self, payload: &[u8]) {
        let length = u32::try_from(payload.len() + 4).expect("a short message");
        self.stream.write_all(&length.to_be_bytes()).expect("the server listens");
        self.stream.write_all(payload).expect("the server listens");
    }

    fn receive(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).expect("the server speaks");
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut payload = vec![0; length as usize - 4];
        self.stream.read_exact(&mut payload).expect("the server speaks");
        (head[0], payload)
    }

    fn until_ready(&mut self) -> Pipelined {
        let mut seen = Pipelined { tags: Vec::new(), code: None };
        loop {
            match self.receive() {
                (b'C', tag) => seen.tags.push(text(&tag)),
                (b'E', fields) => seen.code = sqlstate(&fields),
                (b'Z', _) => return seen,
                _ => {}
            }
        }
    }
}

fn text(zero_terminated: &[u8]) -> String {
    String::from_utf8_lossy(zero_terminated).trim_end_matches('\0').to_owned()
}

/// The field `C` of an ErrorResponse.
fn sqlstate(fields: &[u8]) -> Option<String> {
    fields.split(|&byte| byte == 0).find_map(|field| field.strip_prefix(b"C").map(text))
}
