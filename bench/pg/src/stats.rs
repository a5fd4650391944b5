//! A median and how far the rounds lie apart.

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    /// Half the distance between the quartiles.
    pub noise: f64,
}

impl Spread {
    /// # Panics
    /// Where there are no values.
    pub fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let noise = (quantile(&values, 0.75) - quantile(&values, 0.25)) / 2.0;
        Spread { median: quantile(&values, 0.5), noise }
    }
}

/// Between two values where none lies exactly there.
///
/// # Panics
/// Where there are no values.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (low, part) = (at as usize, at.fract());
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (sorted[high] - sorted[low]) * part
}
