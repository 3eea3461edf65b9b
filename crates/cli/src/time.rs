//! Moments as people write them: `2026-11-21T12:00:00Z`, or seconds since 1970. UTC unless they name another offset.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use ledgerstone::quoted;

/// Nanoseconds since 1970.
pub(crate) fn parse_time(text: &str) -> Result<u64, String> {
    let moment = if text.contains(['T', ' ']) {
        let as_utc = |_| text.parse::<DateTime>()?.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp());
        text.parse::<Timestamp>().or_else(as_utc).ok()
    } else {
        seconds(text)
    };
    moment
        .and_then(|moment| u64::try_from(moment.as_nanosecond()).ok())
        .ok_or_else(|| format!("{} is not a time: write 2026-11-21T12:00:00Z, or seconds since 1970", quoted(text)))
}

/// Seconds with up to nine digits behind the point.
fn seconds(text: &str) -> Option<Timestamp> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let seconds: u64 = seconds.parse().ok()?;
    Timestamp::new(seconds.try_into().ok()?, format!("{fraction:0<9}").parse().ok()?).ok()
}

/// The moment as [`parse_time`] reads it.
pub(crate) fn time_text(ns: u64) -> String {
    format!("{:.9}", Timestamp::from_nanosecond(ns.into()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_back() {
        let check = |text: &str, ns: u64| {
            assert_eq!(parse_time(text), Ok(ns), "{text}");
            assert_eq!(parse_time(&time_text(ns)), Ok(ns), "{text}");
        };
        check("1970-01-01T00:00:00Z", 0);
        check("2000-02-29T23:59:59.5Z", 951_868_799_500_000_000);
        check("2026-11-21 12:00:00", 1_795_262_400_000_000_000);
        check("2026-11-21T14:00:00+02:00", 1_795_262_400_000_000_000);
        check("2554-07-21T23:34:33.709551615Z", u64::MAX);
        check("1795262400", 1_795_262_400_000_000_000);
        check("12.000000001", 12_000_000_001);
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "soon",
            "2026-13-01T00:00:00Z",
            "2026-02-30T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "1969-12-31T23:59:59Z",
            "2554-07-21T23:34:34Z",
            "1.0000000001",
            "-1",
            "1.-5",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
