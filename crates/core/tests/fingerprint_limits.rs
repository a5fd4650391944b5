//! What large, deep, wide and hostile bodies cost: memory, chances to stop, and no way to end the
//! process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use idempotency_core::fingerprint::{
    CanonicalError, FingerprintError, MAX_DEPTH, Request, Violation, canonicalize, fingerprint,
};

/// Counts this thread's memory and can be told to fail.
struct Counting;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
    /// How many allocations succeed before all fail.
    static CREDIT: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn grow(size: usize) {
    LIVE.set(LIVE.get() + size);
    PEAK.set(PEAK.get().max(LIVE.get()));
}

fn spend_credit() -> bool {
    let credit = CREDIT.get();
    CREDIT.set(credit.saturating_sub(usize::from(credit < usize::MAX)));
    credit > 0
}

// SAFETY: everything is passed on to the system's allocator; a null pointer is a valid refusal.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !spend_credit() {
            return std::ptr::null_mut();
        }
        grow(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().saturating_sub(layout.size()));
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !spend_credit() {
            return std::ptr::null_mut();
        }
        LIVE.set(LIVE.get().saturating_sub(layout.size()));
        grow(size);
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn request(body: &[u8]) -> Request<'_> {
    Request { method: "POST", path: "/", body: Some(body), ..Request::default() }
}

/// The most memory that was taken meanwhile, in bytes.
fn peak_of(work: impl FnOnce()) -> usize {
    let before = LIVE.get();
    PEAK.set(before);
    work();
    PEAK.get() - before
}

/// `unit`, numbered, as often as it takes to fill `size` bytes, between `open` and `close`.
fn filled(size: usize, open: &str, close: &str, unit: impl Fn(usize) -> String) -> Vec<u8> {
    let mut body = String::from(open);
    let mut i = 0;
    while body.len() + close.len() < size {
        body.push_str(if i > 0 { "," } else { "" });
        body.push_str(&unit(i));
        i += 1;
    }
    (body + close).into_bytes()
}

/// A number that looks random, the same for the same `i`.
fn scattered(i: usize) -> u64 {
    (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

/// So large that what every body needs does not count.
const LARGE: usize = 4 << 20;

/// Bodies of one shape, and the memory they may take besides, in hundredths of their size: never more
/// than 200. The hostile ones are the densest that we know: as many members, containers or levels as
/// there can be in a byte, and a space that forbids to take the body itself for the text.
fn shapes(size: usize) -> Vec<(&'static str, usize, Vec<u8>)> {
    let quantity = |i| i % 9;
    let order = |i| {
        format!(r#"{{"sku":"SKU-{i}","qty":{},"attrs":{{"size":"M","color":"red"}}}}"#, quantity(i))
    };
    let indented =
        |i| format!("\n  {{\n    \"sku\": \"SKU-{i}\",\n    \"qty\": {}\n  }}", quantity(i));
    let ordered = |i| format!(r#"{{"a":{i},"b":[true,null]}}"#);
    let member = |i| format!("\"{:011x}\":{}", scattered(i), quantity(i));
    let short = |i| format!("\"{:x}\":1", scattered(i) & 0xff_ffff);
    let twins = |i| format!("\"{}\":1", if i % 2 > 0 { "a" } else { "" });
    vec![
        ("orders", 101, filled(size, "[", "]", order)),
        ("orders, indented", 101, filled(size, "[", "\n]", indented)),
        ("canonical", 1, filled(size, "[", "]", ordered)),
        ("small numbers", 1, filled(size, "[", "]", |_| "1".into())),
        ("small numbers, spaced", 101, filled(size, "[ ", " ]", |_| " 1 ".into())),
        ("numbers that grow", 150, filled(size, "[", "]", |_| "1e20".into())),
        ("one string", 1, filled(size, "\"", "\"", |_| "x".repeat(1000))),
        ("one string, escaped", 101, filled(size, "\"", "\"", |_| r"\u00e9".into())),
        ("deep", 200, nested(size, r#"{"b":0,"a":["#, "]}")),
        ("deep, denser", 200, nested(size, r#"{"a":0,"":"#, "}")),
        ("deep, spaced", 200, [b" ", &nested(size, r#"{"a":0,"":"#, "}")[..]].concat()),
        ("deep in single members", 200, nested(size, r#"{"":"#, "}")),
        ("deep arrays", 10, nested(size, "[", "]")),
        ("many names", 180, filled(size, "{", "}", member)),
        ("many names, spaced", 200, filled(size, "{", "}", |i| format!(" {} ", member(i)))),
        ("short names", 200, filled(size, "{", "}", short)),
        ("shortest names", 200, filled(size, " {", "}", shortest)),
        ("shortest names, numbers that grow", 200, filled(size, "{", "}", growing)),
        ("two names again and again", 200, filled(size, "{", "}", twins)),
        ("two names, spaced", 200, filled(size, " {", "}", twins)),
        ("many objects of shortest names", 200, filled(size, "[ ", "]", |_| names_of_one())),
        ("tiny objects", 101, filled(size, "[", "]", |_| r#"{"b":1,"a":1}"#.into())),
        ("tiny objects, spaced", 101, filled(size, "[ ", "]", |_| r#"{"a":1,"":1}"#.into())),
        ("dense, then one string", 101, dense_beginning(size)),
        ("members, then tiny objects", 200, members_then_objects(size)),
        ("not JSON", 1, filled(size, "[", "}", |_| "1".into())),
    ]
}

/// As deep as may be, again and again.
fn nested(size: usize, open: &str, close: &str) -> Vec<u8> {
    let levels = MAX_DEPTH / open.matches(['[', '{']).count() - 1;
    let (opening, closing) = (open.repeat(levels), close.repeat(levels));
    filled(size, "[", "]", |_| format!("{opening}0{closing}"))
}

/// The `i`-th of the shortest names, not in order.
fn shortest(i: usize) -> String {
    const LETTERS: &[u8] = b"zyxwvutsrqponmlkjihgfedcbaZYXWVUTSRQPONMLKJIHGFEDCBA9876543210~}|{_^][@?>=<;:/.-,+*)('&%$#! ";
    let (mut name, mut rest) = (String::new(), i);
    while rest > 0 {
        rest -= 1;
        name.push(char::from(LETTERS[rest % LETTERS.len()]));
        rest /= LETTERS.len();
    }
    format!("\"{name}\":1")
}

fn growing(i: usize) -> String {
    shortest(i) + "e9"
}

fn names_of_one() -> String {
    let members: Vec<String> = (0..90).map(shortest).collect();
    format!("{{{}}}", members.join(","))
}

/// What a tenth of the body needs is no measure for the rest.
fn dense_beginning(size: usize) -> Vec<u8> {
    let tiny = filled(size / 10, "[ ", "", |_| r#"{"a":1,"":1}"#.into());
    [&tiny[..], b",\"", "x".repeat(size * 9 / 10).as_bytes(), b"\"]"].concat()
}

/// Lists that grow one after the other.
fn members_then_objects(size: usize) -> Vec<u8> {
    let members = filled(size / 4, " {", "", shortest);
    let objects = filled(size * 3 / 4, ",\"the rest\":[", "]}", |_| r#"{"a":1,"":1}"#.into());
    [members, objects].concat()
}

#[test]
fn memory_is_bounded_by_the_size_of_the_body() {
    for (name, percent, body) in shapes(LARGE) {
        let peak = peak_of(|| {
            fingerprint(&request(&body), || ()).unwrap();
        });
        let share = peak as f64 / body.len() as f64;
        println!("{name}: {share:.2}");
        assert!(
            peak <= body.len() * percent / 100,
            "{name}: {share:.2} of the body, {percent} % allowed"
        );
    }
}

/// Elements that a pointer could name take no more than others.
#[test]
fn pointers_need_no_memory() {
    for (body, pointer) in [
        (filled(LARGE, "[", "]", |_| "1".into()), "/1000000"),
        (filled(LARGE, "[[", "]]", |_| "1".into()), "/0/7"),
        (filled(LARGE, "[ ", "]", |_| r#"{"a":1,"":1}"#.into()), "/5/a"),
        (nested(LARGE, "[", "]"), "/0/0/0/0/0"),
    ] {
        let exclude = [pointer];
        let request = Request { exclude: &exclude, ..request(&body) };
        let peak = peak_of(|| {
            fingerprint(&request, || ()).unwrap();
        });
        let share = peak as f64 / body.len() as f64;
        assert!(peak <= 2 * body.len(), "{pointer}: {share:.2} of the body");
    }
}

/// What is left out in one place makes nothing dearer in another.
#[test]
fn what_is_left_out_needs_no_memory() {
    let ordered = |i| format!(r#"{{"a":{i},"b":[true,null]}}"#);
    let small = |i| format!(r#"{{"b":{i},"a":[true,null]}}"#);
    for (percent, list) in
        [(1, filled(LARGE, "[", "]", ordered)), (101, filled(LARGE, "[", "]", small))]
    {
        let body = [br#"{"at":0,"list":"#, &list[..], b"}"].concat();
        let request = Request { exclude: &["/at"], ..request(&body) };
        let peak = peak_of(|| {
            fingerprint(&request, || ()).unwrap();
        });
        let share = peak as f64 / body.len() as f64;
        assert!(peak <= body.len() * percent / 100, "{share:.2} of the body, {percent} % allowed");
    }
}

/// The interrupt comes in every phase: at least every 256 KiB of what is read, and again of what
/// is written.
#[test]
fn the_interrupt_comes_often_enough() {
    for (name, _, body) in shapes(LARGE) {
        let (mut fingerprints, mut forms) = (0, 0);
        fingerprint(&request(&body), || fingerprints += 1).unwrap();
        let form = canonicalize(&body, || forms += 1);
        let steps = |bytes: usize| bytes / (256 * 1024);
        let written = form.map_or(body.len(), |form| form.len().min(body.len()));
        let least = steps(body.len()) + steps(written);
        assert!(fingerprints >= least, "{name}: {fingerprints} of {least}");
        assert!(forms >= steps(body.len()), "{name}: {forms}");
    }
}

/// An interrupt that ends the work by a panic, at any of its calls, leaves nothing behind.
#[test]
fn the_interrupt_may_unwind() {
    let body = filled(1 << 20, "{ ", "}", |i| format!("\"{:011x}\":\"\\u0041\"", scattered(i)));
    let mut calls = 0;
    fingerprint(&request(&body), || calls += 1).unwrap();
    let before = LIVE.get();
    for last in 0..calls {
        let mut left = last;
        let interrupt = || match left {
            // As the server does it: without a message.
            0 => resume_unwind(Box::new("cancelled")),
            _ => left -= 1,
        };
        let work = AssertUnwindSafe(|| fingerprint(&request(&body), interrupt));
        assert!(catch_unwind(work).is_err(), "{last} of {calls}");
    }
    assert!(LIVE.get() <= before + 4096, "{} bytes lost", LIVE.get() - before);
}

/// Lets each allocation fail in turn: the answer is an error, not the end of the process.
#[test]
fn memory_that_runs_out_is_an_error() {
    let long = "9".repeat(2000);
    let body = format!(
        r#"{{ "order_number_2": [1e20, 2.50, "\u0041", {long}e-1999], "order_number_1": {{"\u0062":1,"a":[{{"d":[[]],"c":0}}]}},
        "é": {{"y":1,"x":2}}, "out": {{"z":1}}, "list": [1,2,3] }}"#
    );
    let exclude = ["/out/z", "/list/1", "/order_number_1/a/0/c"];
    let request = Request { exclude: &exclude, hmac_key: Some(b"key"), ..request(body.as_bytes()) };
    let fingerprint = || fingerprint(&request, || ());
    let canonicalize = || canonicalize(body.as_bytes(), || ());
    let (print, form) = (fingerprint().unwrap(), canonicalize().unwrap());
    let failures = failing(fingerprint, Err(FingerprintError::OutOfMemory), Ok(print));
    assert!(failures > 8, "{failures}");
    let failures = failing(canonicalize, Err(CanonicalError::OutOfMemory), Ok(form));
    assert!(failures > 8, "{failures}");
}

/// Grants one allocation more each time until `work` succeeds; how often it failed.
fn failing<T: PartialEq + std::fmt::Debug>(work: impl Fn() -> T, failure: T, success: T) -> usize {
    for credit in 0.. {
        CREDIT.set(credit);
        let result = work();
        CREDIT.set(usize::MAX);
        if result == success {
            return credit;
        }
        assert_eq!(result, failure, "allocation {credit}");
    }
    unreachable!("it succeeds some time")
}

#[test]
fn nesting_ends_where_it_should() {
    for (open, close) in [("[", "]"), (r#"{"b":0,"a":"#, "}"), ("[ ", " ]"), (r#"[{"a":"#, "}]")] {
        let levels = open.matches(['[', '{']).count();
        let deepest = open.repeat(MAX_DEPTH / levels) + "1" + &close.repeat(MAX_DEPTH / levels);
        let form = canonicalize(deepest.as_bytes(), || ()).unwrap();
        assert_eq!(canonicalize(&form, || ()).unwrap(), form);
        let deeper = format!("[{deepest}]");
        let at = 1 + deepest.rfind(['[', '{']).unwrap();
        let too_deep = CanonicalError::Invalid { violation: Violation::TooDeep, at };
        assert_eq!(canonicalize(deeper.as_bytes(), || ()), Err(too_deep));
    }
}

/// A deep body needs no stack: this thread has next to none.
#[test]
fn the_stack_is_small() {
    let work = || {
        let body = nested(LARGE / 2, r#"{"b":0,"a":["#, "]}");
        fingerprint(&request(&body), || ()).unwrap();
        fingerprint(&request(&vec![b'['; 1 << 20]), || ()).unwrap();
    };
    std::thread::Builder::new().stack_size(64 * 1024).spawn(work).unwrap().join().unwrap();
}
