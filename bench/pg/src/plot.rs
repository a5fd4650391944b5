//! The ratios as a picture: one bar for each contender, a line where the ratio is one.

use crate::ratios::Entry;
use std::fmt::Write;

const ROW: usize = 18;
const LEFT: usize = 330;
const WIDTH: usize = 760;
/// Pixels for a ratio of one; bars that would be longer than the picture are cut.
const ONE: f64 = 160.0;

pub fn svg(entries: &[Entry]) -> String {
    let mut body = String::new();
    let mut y = 10;
    let mut game = "";
    for entry in entries {
        if entry.game != game {
            game = &entry.game;
            y += ROW + 8;
            let _ = writeln!(
                body,
                r#"<text class="game" x="10" y="{y}">{game} (relative to {})</text>"#,
                entry.by
            );
        }
        y += ROW;
        bar(&mut body, entry, y);
    }
    frame(&body, y + ROW)
}

fn bar(body: &mut String, entry: &Entry, y: usize) {
    let class = if entry.is_ours() { "ours" } else { "other" };
    let length = (entry.spread.median * ONE).min((WIDTH - LEFT - 60) as f64);
    let (top, height, end) = (y - ROW + 5, ROW - 4, LEFT as f64 + length + 6.0);
    let _ = writeln!(
        body,
        r#"<text class="name" x="{}" y="{y}">{}</text><rect class="{class}" x="{LEFT}" y="{top}" width="{length:.1}" height="{height}"/><text x="{end:.1}" y="{y}">{:.2}</text>"#,
        LEFT - 8,
        entry.contender,
        entry.spread.median
    );
}

fn frame(body: &str, height: usize) -> String {
    let one = LEFT as f64 + ONE;
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">
<style>.name {{ text-anchor: end }} .game {{ font-weight: bold }} .ours {{ fill: #2b7a5b }} .other {{ fill: #b8b8b8 }}</style>
<rect width="{WIDTH}" height="{height}" fill="white"/>
{body}<line x1="{one}" x2="{one}" y1="10" y2="{height}" stroke="black" stroke-dasharray="3 3"/>
</svg>
"#
    )
}
