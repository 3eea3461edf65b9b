//! Units: how the number of a setting is written, read and shown.
//!
//! A plain number counts what the setting's name ends with (bytes, milliseconds, microseconds). A text carries its own
//! unit, as people write it: `"64M"`, `"10 ms"`.
//!
//! ```text
//! sizes   B (or bytes), K, M, G, T, each also as KB or KiB: always powers of 1024
//! times   us, ms, s, min, h
//! ```
//! Case does not matter in sizes. A time that is not a whole number of the setting's unit is refused, not rounded.

use ledgerstone_disk::quoted;

use ledgerstone_core::typed::byte_count;

/// The unit of a setting's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Things that the setting's name says.
    Count,
}

/// Sizes, largest first.
const SIZES: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
/// Times in microseconds, largest first.
const TIMES: [(&str, u64); 5] = [("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1000), ("us", 1)];

impl Unit {
    /// Reads a text that carries its unit.
    ///
    /// # Errors
    /// What is wrong with the text, and what it might look like.
    pub fn parse(self, text: &str) -> Result<u64, String> {
        let digits_end = text.trim_start().find(|c: char| !c.is_ascii_digit()).unwrap_or(text.trim_start().len());
        let (digits, unit) = text.trim_start().split_at(digits_end);
        let unit = unit.trim();
        let number = || digits.parse::<u64>().map_err(|_| format!("{} is not a {}", quoted(text), self.wanted()));
        let strange = || format!("{} is not a {}", quoted(text), self.wanted());
        let too_large = || format!("{} is more than 64 bits can hold", quoted(text));
        match self {
            Unit::Count if unit.is_empty() => number(),
            Unit::Count => Err(strange()),
            Unit::Bytes => {
                let shift = match unit.to_ascii_uppercase().as_str() {
                    "" | "B" | "BYTE" | "BYTES" => 0,
                    "K" | "KB" | "KIB" => 10,
                    "M" | "MB" | "MIB" => 20,
                    "G" | "GB" | "GIB" => 30,
                    "T" | "TB" | "TIB" => 40,
                    _ => return Err(strange()),
                };
                number()?.checked_mul(1 << shift).ok_or_else(too_large)
            }
            Unit::Milliseconds | Unit::Microseconds => {
                let own = self.microseconds();
                let each = match TIMES.iter().find(|(name, _)| *name == unit) {
                    Some((_, each)) => *each,
                    None if unit.is_empty() => own,
                    None => return Err(strange()),
                };
                let all = u128::from(number()?) * u128::from(each);
                if !all.is_multiple_of(u128::from(own)) {
                    return Err(format!("{} is not a whole number of {}", quoted(text), self.name()));
                }
                u64::try_from(all / u128::from(own)).map_err(|_| too_large())
            }
        }
    }

    /// The number with the largest unit that leaves it whole. [`Unit::parse`] reads it back.
    #[must_use]
    pub fn show(self, number: u64) -> String {
        let largest = |units: &[(&str, u64)], all: u64| {
            units
                .iter()
                .find(|(_, each)| all >= *each && all.is_multiple_of(*each))
                .map(|(n, e)| format!("{} {n}", all / e))
        };
        match self {
            Unit::Count => number.to_string(),
            Unit::Bytes => largest(&SIZES, number).unwrap_or_else(|| byte_count(number)),
            Unit::Milliseconds | Unit::Microseconds => {
                let in_unit = || format!("{number} {}", if self == Unit::Milliseconds { "ms" } else { "us" });
                number.checked_mul(self.microseconds()).and_then(|all| largest(&TIMES, all)).unwrap_or_else(in_unit)
            }
        }
    }

    /// Its name, in the plural.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Milliseconds => "milliseconds",
            Unit::Microseconds => "microseconds",
            Unit::Count => "count",
        }
    }

    /// What is wanted of a value, with an example.
    pub(super) fn wanted(self) -> &'static str {
        match self {
            Unit::Bytes => "size: write a number of bytes, or a text with K, M, G or T like \"64M\"",
            Unit::Milliseconds => {
                "time: write a number of milliseconds, or a text with its unit like \"10ms\" or \"5s\""
            }
            Unit::Microseconds => {
                "time: write a number of microseconds, or a text with its unit like \"50us\" or \"1ms\""
            }
            Unit::Count => "whole number",
        }
    }

    fn microseconds(self) -> u64 {
        if self == Unit::Milliseconds { 1000 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_units_are_read() {
        assert_eq!(Unit::Bytes.parse("64M"), Ok(64 << 20));
        assert_eq!(Unit::Bytes.parse(" 1 gib "), Ok(1 << 30));
        assert_eq!(Unit::Bytes.parse("4096"), Ok(4096));
        assert_eq!(Unit::Milliseconds.parse("10s"), Ok(10_000));
        assert_eq!(Unit::Milliseconds.parse("2000us"), Ok(2));
        assert_eq!(Unit::Microseconds.parse("5 ms"), Ok(5000));
        assert_eq!(Unit::Microseconds.parse("7"), Ok(7));
        assert_eq!(Unit::Count.parse("12"), Ok(12));
    }

    #[test]
    fn what_is_no_value_of_the_unit_is_refused_and_told() {
        let check = |unit: Unit, text: &str, said: &str| {
            let what = unit.parse(text).unwrap_err();
            assert!(what.contains(said), "{text:?}: {what}");
        };
        check(Unit::Bytes, "64Q", "like \"64M\"");
        check(Unit::Bytes, "M", "is not a size");
        check(Unit::Bytes, "-1", "is not a size");
        check(Unit::Bytes, "1.5G", "is not a size");
        check(Unit::Bytes, "99999999999T", "64 bits");
        check(Unit::Milliseconds, "500us", "not a whole number of milliseconds");
        check(Unit::Milliseconds, "5 years", "is not a time");
        check(Unit::Count, "5ms", "is not a whole number");
    }

    #[test]
    fn what_is_shown_reads_back() {
        for number in [0, 1, 999, 1000, 1024, 1536, 60_000, 64 << 20, 3_600_000, 1 << 40, u64::MAX] {
            for unit in [Unit::Bytes, Unit::Milliseconds, Unit::Microseconds, Unit::Count] {
                assert_eq!(unit.parse(&unit.show(number)), Ok(number), "{unit:?} {number}: {}", unit.show(number));
            }
        }
        assert_eq!(Unit::Bytes.show(64 << 20), "64 MiB");
        assert_eq!(Unit::Milliseconds.show(10_000), "10 s");
    }
}
