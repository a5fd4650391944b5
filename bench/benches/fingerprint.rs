//! The fingerprint against SHA-256 alone and against the obvious pipeline.
//!
//! `cargo bench -p idempotency-bench` prints criterion's figures, then a table of ratios that
//! were measured in turn. `-- --table` prints the table alone.

use criterion::{BenchmarkId, Criterion, Throughput};
use idempotency_bench::medians::medians;
use idempotency_bench::{orders, pipelines};

fn bodies() -> Vec<(&'static str, Vec<u8>)> {
    let [small, large] = [orders::unsorted(2_000), orders::unsorted(1_000_000)];
    vec![
        ("200 B", orders::small()),
        ("2 KB", small.clone()),
        ("50 KB", orders::unsorted(50_000)),
        ("1 MB", large.clone()),
        ("2 KB canonical", orders::canonical(&small)),
        ("1 MB canonical", orders::canonical(&large)),
        ("1 MB, indented", orders::pretty(&large)),
    ]
}

fn criterion(c: &mut Criterion) {
    for (name, body) in bodies() {
        let mut group = c.benchmark_group("fingerprint");
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_with_input(BenchmarkId::from_parameter(name), &body, |b, body| {
            b.iter(|| pipelines::ours(body))
        });
        group.finish();
    }
}

fn table() {
    println!("{:16} {:>9} {:>9} {:>9} {:>9}", "", "MB/s", "SHA-256", "of SHA", "x obvious");
    for (name, body) in bodies() {
        assert_eq!(pipelines::ours(&body), pipelines::obvious(&body), "{name}");
        let seconds = medians(&[pipelines::ours, pipelines::hash, pipelines::obvious], &body);
        let rate = |seconds: f64| body.len() as f64 / seconds / 1e6;
        println!(
            "{name:16} {:9.0} {:9.0} {:9.3} {:9.1}",
            rate(seconds[0]),
            rate(seconds[1]),
            seconds[1] / seconds[0],
            seconds[2] / seconds[0]
        );
    }
}

fn main() {
    let has = |wanted| std::env::args().any(|argument| argument == wanted);
    if !has("--table") {
        let mut c = Criterion::default().configure_from_args();
        criterion(&mut c);
        c.final_summary();
    }
    // Not when cargo only tests that the benchmark runs.
    if has("--bench") {
        table();
    }
}
