//! The ES6 number test of <https://github.com/cyberphone/json-canonicalization>: the canonical
//! forms of a fixed sequence of doubles, checked by the published checksums over the first 10^n.
//!
//! Each double is given as Rust writes it with an exponent, so both the reading and the writing
//! of numbers are under test. The line for 10^8 takes minutes: set `ES6_NUMBERS=100000000`.

use std::fmt::Write;

use idempotency_core::fingerprint::canonicalize;
use sha2::{Digest, Sha256};

/// How many lines, and the SHA-256 of them.
const CHECKSUMS: [(usize, &str); 6] = [
    (1_000, "be18b62b6f69cdab33a7e0dae0d9cfa869fda80ddc712221570f9f40a5878687"),
    (10_000, "b9f7a8e75ef22a835685a52ccba7f7d6bdc99e34b010992cbc5864cd12be6892"),
    (100_000, "22776e6d4b49fa294a0d0f349268e5c28808fe7e0cb2bcbe28f63894e494d4c7"),
    (1_000_000, "49415fee2c56c77864931bd3624faad425c3c577d6d74e89a83bc725506dad16"),
    (10_000_000, "b9f8a44a91d46813b21b9602e72f112613c91408db0b8341fb94603d9db135e0"),
    (100_000_000, "0f7dda6b0837dde083c5d6b896f7d62340c8a2415b0c7121d83145e08a755272"),
];

/// The sequence: some awkward doubles, 2,000 from the smallest normal one on, and then eight bytes
/// at a time of a chain of SHA-256 digests that starts from 32 zeros, zeros and what is not finite
/// left out.
fn doubles() -> impl Iterator<Item = f64> {
    let awkward = include_str!("data/es6_numbers.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
        .map(|hex| u64::from_str_radix(hex.trim_start_matches("0x"), 16).unwrap());
    let serial = (0..2_000).map(|i| 0x0010_0000_0000_0000 + i);
    let random = std::iter::successors(Some([0; 32]), |block| Some(Sha256::digest(block).into()))
        .skip(1)
        .flat_map(|block: [u8; 32]| {
            let (eights, _) = block.as_chunks::<8>();
            eights.iter().map(|eight| u64::from_le_bytes(*eight)).collect::<Vec<_>>()
        })
        .filter(|&bits| f64::from_bits(bits).is_finite() && f64::from_bits(bits) != 0.0);
    awkward.chain(serial).chain(random).map(f64::from_bits)
}

/// The lines for some doubles: bits and canonical form. They are canonicalized as one array.
fn lines(doubles: &[f64]) -> String {
    let mut body = String::from("[");
    for double in doubles {
        let comma = if body.len() > 1 { "," } else { "" };
        write!(body, "{comma}{double:e}").unwrap();
    }
    body.push(']');
    let form = String::from_utf8(canonicalize(body.as_bytes(), || ()).unwrap()).unwrap();
    let forms = form.trim_matches(['[', ']']).split(',');
    let mut lines = String::new();
    for (double, form) in doubles.iter().zip(forms) {
        writeln!(lines, "{:x},{form}", double.to_bits()).unwrap();
    }
    lines
}

#[test]
fn published_checksums() {
    let most = std::env::var("ES6_NUMBERS").map_or(10_000_000, |most| most.parse().unwrap());
    let (mut hash, mut done) = (Sha256::new(), 0);
    let mut doubles = doubles();
    for (count, checksum) in CHECKSUMS.into_iter().filter(|&(count, _)| count <= most) {
        while done < count {
            let batch: Vec<f64> = doubles.by_ref().take((count - done).min(1_000)).collect();
            hash.update(lines(&batch));
            done += batch.len();
        }
        let found: String =
            hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, checksum, "{count} lines");
    }
}
