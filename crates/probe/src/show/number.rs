//! Numbers in words: three digits and the unit that fits.

use crate::report::{Unit, Value};

/// A number of a unit, in the unit's multiple that suits it: `34.5 us`, `1.21 GiB/s`, `104k/s`.
#[must_use]
pub fn quantity(unit: Unit, number: f64) -> String {
    match unit {
        Unit::Nanoseconds => scaled(number, 1000.0, &[" ns", " us", " ms", " s"]),
        Unit::Bytes => scaled(number, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"]),
        Unit::BytesPerSecond => scaled(number, 1024.0, &[" B/s", " KiB/s", " MiB/s", " GiB/s", " TiB/s"]),
        Unit::PerSecond => scaled(number, 1000.0, &["/s", "k/s", "M/s", "G/s"]),
        Unit::Count => scaled(number, 1000.0, &["", "k", "M", "G"]),
    }
}

fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    let (mut number, mut at) = (number, 0);
    while number.abs() >= step * 0.9995 && at + 1 < units.len() {
        number /= step;
        at += 1;
    }
    let digits = digits(number);
    // Sizes that are whole stay whole.
    if number.fract() == 0.0 && number.abs() < step {
        format!("{number:.0}{}", units[at])
    } else {
        format!("{number:.digits$}{}", units[at])
    }
}

/// Digits behind the point, so that three count.
fn digits(number: f64) -> usize {
    match number.abs() {
        n if n >= 99.95 => 0,
        n if n >= 9.995 => 1,
        _ => 2,
    }
}

/// A value as it may be told: its median with the confidence interval, or that it is noisy and in which range it lay.
#[must_use]
pub fn value_words(unit: Unit, value: &Value) -> String {
    match value.median {
        Some(median) => quantity(unit, median),
        None => format!("noisy ({} to {})", quantity(unit, value.p10), quantity(unit, value.p90)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_the_unit_that_fits() {
        let check = |unit, number, expected: &str| assert_eq!(quantity(unit, number), expected);
        check(Unit::Nanoseconds, 0.4, "0.40 ns");
        check(Unit::Nanoseconds, 34_512.0, "34.5 us");
        check(Unit::Nanoseconds, 999_960.0, "1.00 ms");
        check(Unit::Nanoseconds, 3.2e12, "3200 s");
        check(Unit::Bytes, 4096.0, "4 KiB");
        check(Unit::BytesPerSecond, 1.3e9, "1.21 GiB/s");
        check(Unit::PerSecond, 104_321.0, "104k/s");
        check(Unit::Count, 0.0, "0");
        check(Unit::Count, f64::INFINITY, "infG");
    }
}
