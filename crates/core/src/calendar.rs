//! Adding a length of time to an instant, always in UTC: as PostgreSQL adds an `interval` to a
//! `timestamp` (timestamp.c), and never in the time zone of a session, which belongs to nobody's record.
//!
//! It is not monotone: January 30th 23:59 and a month is February 28th 23:59, January 31st 00:01 and a
//! month is February 28th 00:01. So a later one of two instants is chosen after the adding.

use crate::Micros;
use crate::policy::Span;

const DAY: Micros = 86_400_000_000;

/// Days from 0000-03-01 to 2000-01-01.
const EPOCH: i64 = 730_425;

/// Days in 400 years of the Gregorian calendar.
const ERA: i64 = 146_097;

/// Milliseconds from 1970 to 2000.
const UNIX_EPOCH: i64 = 946_684_800_000;

/// `instant` and so many months, days and microseconds, in this order. Where the month has no such
/// day it is the last one.
pub fn plus(instant: Micros, span: Span) -> Micros {
    let (day, time) = (instant.div_euclid(DAY), instant.rem_euclid(DAY));
    let day = plus_months(day, i64::from(span.months)) + i64::from(span.days);
    day.saturating_mul(DAY).saturating_add(time).saturating_add(span.micros)
}

/// From milliseconds since 1970.
pub fn from_unix_millis(millis: u64) -> Micros {
    (millis as i64).saturating_sub(UNIX_EPOCH).saturating_mul(1000)
}

/// To milliseconds since 1970, rounded down; 0 before.
pub fn to_unix_millis(instant: Micros) -> u64 {
    (instant.div_euclid(1000) + UNIX_EPOCH).max(0) as u64
}

fn plus_months(day: i64, months: i64) -> i64 {
    if months == 0 {
        return day;
    }
    let (year, month, of_month) = date(day);
    let months = year * 12 + month + months;
    let (first, next) = (first_day(months), first_day(months + 1));
    first + of_month.min(next - first - 1)
}

/// The first day of a month, counted from January of the year 0.
fn first_day(months: i64) -> i64 {
    // Years from March on, so that a leap day is a year's last.
    let (year, month) = ((months - 2).div_euclid(12), (months - 2).rem_euclid(12));
    let of_era = year.rem_euclid(400);
    let days = of_era * 365 + of_era / 4 - of_era / 100 + (153 * month + 2) / 5;
    year.div_euclid(400) * ERA + days - EPOCH
}

/// Year, month and day of a day, month and day counted from 0.
fn date(day: i64) -> (i64, i64, i64) {
    let day = day + EPOCH;
    let of_era = day.rem_euclid(ERA);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5;
    let months = month + 2;
    (day.div_euclid(ERA) * 400 + year + months / 12, months % 12, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn months(months: i32) -> Span {
        Span { months, days: 0, micros: 0 }
    }

    /// Microseconds of a day of the year 2000 or later, by counting days.
    fn at(year: i64, month: i64, day: i64) -> Micros {
        let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let of_year: i64 = (2000..year).map(|year| 365 + i64::from(is_leap(year))).sum();
        let february = 28 + i64::from(is_leap(year));
        let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let of_month: i64 = lengths[..month as usize - 1].iter().sum();
        (of_year + of_month + day - 1) * DAY
    }

    #[test]
    fn months_end_on_their_last_day() {
        assert_eq!(plus(at(2027, 1, 31), months(1)), at(2027, 2, 28));
        assert_eq!(plus(at(2028, 1, 31), months(1)), at(2028, 2, 29));
        assert_eq!(plus(at(2100, 1, 29), months(1)), at(2100, 2, 28));
        assert_eq!(plus(at(2028, 2, 29), months(12)), at(2029, 2, 28));
        assert_eq!(plus(at(2028, 2, 29), months(48)), at(2032, 2, 29));
        assert_eq!(plus(at(2027, 3, 31) + 5, months(1)), at(2027, 4, 30) + 5);
        assert_eq!(plus(at(2027, 12, 31), months(2)), at(2028, 2, 29));
    }

    #[test]
    fn every_day_of_some_centuries_is_where_it_is_counted() {
        for year in 2000..2401 {
            for month in 1..=12 {
                let first = at(year, month, 1);
                assert_eq!(
                    plus(at(2000, 1, 1), months((year as i32 - 2000) * 12 + month as i32 - 1)),
                    first
                );
                assert_eq!(date(first / DAY), (year, month - 1, 0));
                assert_eq!(date(first / DAY - 1).1, (month + 10) % 12);
            }
        }
    }

    #[test]
    fn a_later_instant_may_come_out_earlier() {
        let (earlier, later) = (at(2027, 3, 30) + DAY - 1, at(2027, 3, 31) + 1);
        assert!(plus(later, months(1)) < plus(earlier, months(1)));
    }

    #[test]
    fn before_the_epoch_and_at_the_ends() {
        assert_eq!(plus(-1, Span { months: 0, days: 1, micros: 1 }), DAY);
        assert_eq!(plus(-DAY, months(1)), at(2000, 1, 31));
        assert_eq!(plus(Micros::MAX, Span { months: 0, days: 1, micros: 1 }), Micros::MAX);
    }

    #[test]
    fn milliseconds_since_1970() {
        assert_eq!(from_unix_millis(946_684_800_000), 0);
        assert_eq!(to_unix_millis(-1), 946_684_799_999);
        assert_eq!(to_unix_millis(from_unix_millis(1)), 1);
        assert_eq!(to_unix_millis(Micros::MIN), 0);
    }
}
