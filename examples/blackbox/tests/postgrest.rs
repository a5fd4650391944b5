//! docs/postgrest.md by PostgREST itself, which `tools/postgrest` fetches: the page's own SQL, over HTTP.

use blackbox::http::{self, Answer, Request};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::process::{self, Process};
use pg_idempotency_tests::{paths, wait};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::thread;

const SECRET: &str = "a secret of the test, which is long enough";

/// `{"alg":"HS256","typ":"JWT"}` and `{"role":"authenticated","sub":"…"}`, signed with the secret.
const ALICE: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJyb2xlIjoiYXV0aGVudGljYXRlZCIsInN1YiI6ImFsaWNlIn0.57tX2Zzfka09ly76JT4dFWxjL6T1f3mXsuMs15kKwSk";
const BOB: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJyb2xlIjoiYXV0aGVudGljYXRlZCIsInN1YiI6ImJvYiJ9.RzbfcTfGfNWzxgoJXjxkh1M7YkRtpEfehOw9gQfcpMA";

/// What a set-up of PostgREST has besides: whom it comes in as, and whom it takes strangers for.
const ROLES: &str = "
    CREATE ROLE authenticator LOGIN NOINHERIT;
    CREATE ROLE stranger;
    GRANT authenticated, stranger TO authenticator;
    GRANT USAGE ON SCHEMA api TO stranger";

struct PostgRest {
    db: Database<'static>,
    address: String,
    _process: Process,
}

static POSTGREST: LazyLock<PostgRest> = LazyLock::new(|| {
    static CLUSTER: LazyLock<Cluster> =
        LazyLock::new(|| Cluster::start(&format!("postgrest-{}", std::process::id()), &[]));
    let db = CLUSTER.database_with("TEMPLATE template0");
    set_up().iter().for_each(|sql| db.run(sql));
    db.run(ROLES);
    let port = paths::free_port();
    let log = File::create(log()).expect("a log");
    let mut command = Command::new(program());
    command.stdout(log.try_clone().expect("a log")).stderr(log);
    let (sockets, name) = (db.server().sockets().display(), db.name());
    command.env("PGRST_DB_URI", format!("host={sockets} user=authenticator dbname={name}"));
    command.env("PGRST_DB_SCHEMAS", "api").env("PGRST_DB_ANON_ROLE", "stranger");
    command.env("PGRST_DB_PRE_REQUEST", "private.before_request").env("PGRST_DB_POOL", "8");
    command.env("PGRST_JWT_SECRET", SECRET);
    command.env("PGRST_SERVER_HOST", "127.0.0.1").env("PGRST_SERVER_PORT", port.to_string());
    let mut process = Process::spawn(&mut command);
    let address = format!("http://127.0.0.1:{port}");
    wait::until("PostgREST knows the functions", || {
        assert!(!process.has_ended(), "{}", said());
        said().contains("Schema cache loaded").then_some(())
    });
    PostgRest { db, address, _process: process }
});

fn program() -> PathBuf {
    let cache = std::env::var_os("TOOLS_CACHE").expect("the environment of tools/env.sh");
    let program = PathBuf::from(cache).join("postgrest-12.0.2/postgrest");
    assert!(program.exists(), "{}: run tools/postgrest", program.display());
    program
}

fn log() -> PathBuf {
    let folder = paths::scratch("postgrest");
    process::remove_at_the_end(&folder);
    fs::create_dir_all(&folder).expect("a folder for the log");
    folder.join("log")
}

fn said() -> String {
    fs::read_to_string(paths::scratch("postgrest").join("log")).unwrap_or_default()
}

/// The page's fences of SQL but those that play PostgREST themselves.
fn set_up() -> Vec<String> {
    let page = fs::read_to_string(paths::repository().join("docs/postgrest.md")).expect("the page");
    let fences = page.split("\n```sql\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    let fences: Vec<_> =
        fences.filter(|sql| !sql.starts_with("BEGIN;")).map(str::to_owned).collect();
    assert!(fences.len() >= 3, "{fences:?}");
    fences
}

fn order(path: &str, jwt: &str, item: &str) -> Request {
    let body = format!("{{ \"item\":\"{item}\" }}");
    Request::post(path, body).with("Authorization", format!("Bearer {jwt}"))
}

#[track_caller]
fn answer(request: &Request) -> Answer {
    http::send(&POSTGREST.address, request).unwrap_or_else(|error| panic!("{error}\n{}", said()))
}

#[track_caller]
fn orders(item: &str) -> i64 {
    POSTGREST.db.value(&format!("SELECT count(*) FROM api.orders WHERE item = '{item}'"))
}

#[test]
fn a_function_answers_once_and_is_replayed() {
    let request = order("/rpc/create_order", ALICE, "book").keyed("function");
    let first = answer(&request);
    assert_eq!(first.status, 201, "{first:?}");
    let id: i64 = POSTGREST.db.value("SELECT id FROM api.orders WHERE item = 'book'");
    assert_eq!(first.text(), format!("{{\"order\": {id}}}"));
    assert_eq!(first.header("location"), Some(&*format!("/orders?id=eq.{id}")));
    assert_eq!(first.header("content-type"), Some("application/json"));
    let links = first.headers.iter().filter(|(name, _)| name == "link");
    let links: Vec<_> = links.map(|(_, value)| value.as_str()).collect();
    assert_eq!(links, ["</items>; rel=related", "</orders>; rel=collection"]);
    assert_eq!(answer(&request), first.replayed());
    let again = Request::post("/rpc/create_order", "{\"item\": \"book\"}");
    let again = again.with("Authorization", format!("Bearer {ALICE}")).keyed("\"function\"");
    assert_eq!(answer(&again), first.replayed(), "another spelling of the same");
    assert_eq!(orders("book"), 1);
}

#[test]
fn refusals_are_whole_answers() {
    let first = answer(&order("/rpc/create_order", ALICE, "pen").keyed("refused"));
    assert_eq!(first.status, 201);
    let other = answer(&order("/rpc/create_order", ALICE, "pot").keyed("refused"));
    other.expect_problem(422, "This idempotency key was used with another request.");
    let bad = answer(&order("/rpc/create_order", ALICE, "pot").keyed("\"no end"));
    let detail = "The idempotency key is not a string in quotation marks, as RFC 8941 defines it.";
    bad.expect_problem(400, detail);
    assert_eq!(orders("pot"), 0);
    let bobs = answer(&order("/rpc/create_order", BOB, "pot").keyed("refused"));
    assert_eq!((bobs.status, bobs.is_replay()), (201, false), "his key is another one");
}

#[test]
fn without_a_key_every_request_is_executed() {
    for _ in 0..2 {
        let answer = answer(&order("/rpc/create_order", ALICE, "cup"));
        assert_eq!((answer.status, answer.is_replay()), (201, false));
    }
    assert_eq!(orders("cup"), 2);
}

/// The functions of the extension are in no schema that PostgREST shows.
#[test]
fn nobody_calls_the_extension_itself() {
    for path in ["/rpc/idempotency_claim", "/rpc/idempotency_complete", "/rpc/before_request"] {
        assert_eq!(answer(&order(path, ALICE, "x")).status, 404, "{path}");
    }
    let stranger = Request::post("/rpc/create_order", "{\"item\": \"ball\"}").keyed("stranger");
    assert_eq!(answer(&stranger).status, 401);
    assert_eq!(orders("ball"), 0);
}

#[test]
fn what_fails_leaves_nothing_and_is_executed_again() {
    let senseless = Request::post("/rpc/create_order", "{\"item\": null}");
    let senseless = senseless.with("Authorization", format!("Bearer {ALICE}")).keyed("failed");
    assert_eq!(answer(&senseless).status, 400);
    let order = order("/rpc/create_order", ALICE, "jug").keyed("failed");
    let first = answer(&order);
    assert_eq!((first.status, first.is_replay()), (201, false));
    assert_eq!(answer(&order), first.replayed());
}

/// One stands in its work, the others wait for the key.
#[test]
fn duplicates_at_once_have_one_effect() {
    let mut holder = POSTGREST.db.session_as(Role::Superuser, "holder");
    holder.run("BEGIN; LOCK TABLE api.orders IN SHARE MODE");
    let request = order("/rpc/create_order", ALICE, "hat").keyed("at once");
    let answers: Vec<_> = thread::scope(|scope| {
        let all: Vec<_> = (0..20).map(|_| scope.spawn(|| answer(&request))).collect();
        POSTGREST.db.wait_until(
            "(SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0) >= 3",
        );
        holder.run("COMMIT");
        all.into_iter().map(|one| one.join().expect("no thread panics")).collect()
    });
    let executed: Vec<_> = answers.iter().filter(|answer| !answer.is_replay()).collect();
    assert_eq!(executed.len(), 1, "{answers:?}");
    let replay = executed[0].replayed();
    assert!(answers.iter().all(|answer| answer == executed[0] || *answer == replay));
    assert_eq!(orders("hat"), 1);
}

/// A replay has the status and the place of the first answer, and PostgREST's own object as body.
#[test]
fn a_table_is_written_once() {
    let request = order("/orders", ALICE, "lamp").keyed("table");
    let request = request.with("Prefer", "return=headers-only");
    let first = answer(&request);
    let id: i64 = POSTGREST.db.value("SELECT id FROM api.orders WHERE item = 'lamp'");
    let location = format!("/orders?id=eq.{id}");
    assert_eq!((first.status, first.header("location")), (201, Some(&*location)), "{first:?}");
    assert!(!first.is_replay());
    for _ in 0..2 {
        let replay = answer(&request);
        assert_eq!((replay.status, replay.header("location")), (201, Some(&*location)));
        assert!(replay.is_replay() && replay.text().contains("\"replayed\""), "{replay:?}");
    }
    let bad = answer(&order("/orders", ALICE, "lamp").keyed("\"no end"));
    assert_eq!(bad.status, 400, "{bad:?}");
    assert_eq!(orders("lamp"), 1);
}
