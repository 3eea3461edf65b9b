//! Moments as people write them: `2026-11-21T12:00:00Z`, or seconds since 1970. Always UTC.

const NS: u64 = 1_000_000_000;
const DAY_S: u64 = 86_400;

/// Nanoseconds since 1970.
pub(crate) fn parse_time(text: &str) -> Result<u64, String> {
    let wanted = || format!("{text:?} is no time: 2026-11-21T12:00:00Z or seconds since 1970 are expected");
    if let Some((date, time)) = text.split_once(['T', ' ']) {
        let number = |text: &str| text.parse::<u64>().map_err(|_| wanted());
        let date: Vec<u64> = date.split('-').map(number).collect::<Result<_, _>>()?;
        let time = time.strip_suffix('Z').unwrap_or(time);
        let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
        let time: Vec<u64> = time.split(':').map(number).collect::<Result<_, _>>()?;
        let (&[year, month, day], &[hour, minute, second]) = (&date[..], &time[..]) else { return Err(wanted()) };
        let is_in_range = (1970..2554).contains(&year)
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        if !is_in_range || date_of(days_of(year, month, day)) != (year, month, day) {
            return Err(wanted());
        }
        let seconds = days_of(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second;
        return Ok(seconds * NS + parse_fraction(fraction).ok_or_else(wanted)?);
    }
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: u64 = seconds.parse().map_err(|_| wanted())?;
    let ns = seconds.checked_mul(NS).ok_or_else(wanted)?;
    ns.checked_add(parse_fraction(fraction).ok_or_else(wanted)?).ok_or_else(wanted)
}

/// Digits behind the point, as nanoseconds.
fn parse_fraction(digits: &str) -> Option<u64> {
    if digits.len() > 9 || !digits.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    format!("{digits:0<9}").parse().ok()
}

/// The moment as [`parse_time`] reads it.
pub(crate) fn time_text(ns: u64) -> String {
    let (seconds, fraction) = (ns / NS, ns % NS);
    let (year, month, day) = date_of(seconds / DAY_S);
    let s = seconds % DAY_S;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{fraction:09}Z", s / 3600, s / 60 % 60, s % 60)
}

/// Days since 1970 of a date of the Gregorian calendar. Years are counted from March, so that the leap day comes last.
fn days_of(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let months_since_march = (month + 9) % 12;
    let day_of_year = (153 * months_since_march + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

fn date_of(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months_since_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months_since_march + 2) / 5 + 1;
    let month = if months_since_march < 10 { months_since_march + 3 } else { months_since_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
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
        check("1795262400", 1_795_262_400_000_000_000);
        check("12.000000001", 12_000_000_001);
        for day in (0..200_000).step_by(17) {
            let (year, month, date) = date_of(day);
            assert_eq!(days_of(year, month, date), day);
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in ["", "soon", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-01-01T24:00:00Z", "1.0000000001"]
        {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
