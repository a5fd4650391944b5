//! Orders as a shop's client would send them: members in the order a programmer writes them,
//! prices with two digits, coordinates with all of a double's, some text outside ASCII, which is
//! written in escapes as Python and PHP do by default.

use std::fmt::Write;

/// A small generator of the same numbers in every run (xorshift64, Marsaglia 2003).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// From `-limit` to `limit`, with as many digits as a double has.
    fn degrees(&mut self, limit: f64) -> f64 {
        let unit = self.below(1 << 53) as f64 / (1u64 << 53) as f64;
        (unit - 0.5) * 2.0 * limit
    }

    fn price(&mut self) -> f64 {
        self.below(50_000) as f64 / 100.0
    }
}

const TITLES: [&str; 5] = [
    r#"Tea \"green\""#,
    r"Path C:\\tmp",
    r"Caf\u00e9 cr\u00e8me",
    r"\u7dd1\u8336",
    "Notebook, ruled, 80 pages",
];

/// One order of at least `size` bytes, as a client sends it: minified, members not sorted.
pub fn unsorted(size: usize) -> Vec<u8> {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut order = head(&mut numbers);
    loop {
        item(&mut order, &mut numbers);
        if order.len() + 2 >= size {
            break;
        }
        order.push(',');
    }
    order.push_str("]}");
    order.into_bytes()
}

/// An order of 200 bytes: one without a list of items.
pub fn small() -> Vec<u8> {
    br#"{"sku":"SKU-73370","qty":8,"unit_price":226.19,"title":"Tea \"green\"","currency":"CHF","placed_at":"2026-10-12T08:15:30.123Z","paid":false,"coupon":null,"id":"0190b3a2-7c1e-7011-8000-000000000001"}"#
        .to_vec()
}

fn head(numbers: &mut Numbers) -> String {
    format!(
        concat!(
            r#"{{"customer":{{"name":"Zo\u00eb \u010capek","email":"zoe{}@example.com","#,
            r#""address":{{"city":"Z\u00fcrich","zip":"8001","lines":["Bahnhofstr. 1",""]}}}},"#,
            r#""id":"0190b3a2-7c1e-7011-8000-{:012x}","currency":"CHF","#,
            r#""placed_at":"2026-10-12T08:15:30.123Z","total":{},"paid":false,"coupon":null,"items":["#
        ),
        numbers.below(100),
        numbers.below(1 << 48),
        numbers.price() * 4.0,
    )
}

fn item(order: &mut String, numbers: &mut Numbers) {
    let title = TITLES[numbers.below(5) as usize];
    let (sku, quantity, price) = (numbers.below(100_000), 1 + numbers.below(8), numbers.price());
    let (latitude, longitude) = (numbers.degrees(90.0), numbers.degrees(180.0));
    // Infallible: a String takes everything.
    let _ = write!(
        order,
        concat!(
            r#"{{"sku":"SKU-{:05}","qty":{},"unit_price":{},"title":"{}","geo":[{},{}],"#,
            r#""attrs":{{"size":"M","color":"red","b2b":true}}}}"#
        ),
        sku, quantity, price, title, latitude, longitude
    );
}

/// The canonical form of a body.
pub fn canonical(body: &[u8]) -> Vec<u8> {
    idempotency_core::fingerprint::canonicalize(body, || ()).expect("an order is JSON")
}

/// A body written with indents of two.
pub fn pretty(body: &[u8]) -> Vec<u8> {
    let value: serde_json::Value = serde_json::from_slice(body).expect("an order is JSON");
    serde_json::to_vec_pretty(&value).expect("what was read can be written")
}
