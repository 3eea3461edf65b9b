//! Index keys of JSON values, and where they are found in a value.
//!
//! ```text
//! text     its UTF-8, as it is
//! number   0xf8, then
//!          zero              1
//!          above zero        2, exponent, digits
//!          below zero        0, and every byte of the exponent and the digits inverted, 0xff
//!          exponent          2 bytes: e + 0x8000, big-endian, for the number 0.d1d2d3... * 10^e, d1 not 0. Below -32767 it is
//!                            0x0000 and above 32766 0xffff, and 8 bytes follow: e + 2^63
//!          digits            two a byte, as their number plus 1, so 1 to 100; the last of an odd count with a 0 behind it, and
//!                            no zeros at the end
//! truth    0xf9, then 0 or 1
//! ```
//! J1. Keys order as bytes: texts as their bytes, then numbers by their values, then false, then true. No text begins
//!     with 0xf8 or above.
//! J2. A number is what its decimal digits say, whatever their count: 10, 10.0 and 1e1 are one key, and so are 0 and
//!     -0. It never becomes a float, so neighbours beyond 2^53 stay apart.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::typed::{AsKey, DecodeError, EncodeError, Key, TypeName};

const NUMBER: u8 = 0xf8;
const TRUTH: u8 = 0xf9;
const BELOW_ZERO: u8 = 0;
const ZERO: u8 = 1;
const ABOVE_ZERO: u8 = 2;
/// Exponents that two bytes hold.
const SHORT_MIN: i64 = -0x7fff;
const SHORT_MAX: i64 = 0x7ffe;
/// Larger and smaller exponents count as this and its negative: parsing, encoding and writing agree.
const EXPONENT_MAX: i64 = 1 << 62;

/// A key of an index by a member of JSON values ([`IndexKeys::Json`](super::IndexKeys::Json)): a text, a number or a
/// truth value.
///
/// ```
/// use ledgerstone::JsonKey;
///
/// assert!(JsonKey::from(9) < JsonKey::from(10));
/// assert!(JsonKey::from("z") < JsonKey::from(-1) && JsonKey::from(1) < JsonKey::from(false));
/// assert_eq!("1e1".parse::<JsonKey>(), Ok(JsonKey::from(10)));
/// assert_eq!("Bern".parse::<JsonKey>(), Ok(JsonKey::from("Bern")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JsonKey {
    /// A string.
    Text(String),
    /// A number.
    Number(JsonNumber),
    /// A truth value.
    Bool(bool),
}

impl From<&str> for JsonKey {
    fn from(text: &str) -> JsonKey {
        JsonKey::Text(text.to_string())
    }
}

impl From<String> for JsonKey {
    fn from(text: String) -> JsonKey {
        JsonKey::Text(text)
    }
}

impl From<bool> for JsonKey {
    fn from(truth: bool) -> JsonKey {
        JsonKey::Bool(truth)
    }
}

impl From<JsonNumber> for JsonKey {
    fn from(number: JsonNumber) -> JsonKey {
        JsonKey::Number(number)
    }
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl From<$t> for JsonNumber {
            fn from(number: $t) -> JsonNumber {
                JsonNumber::of_text(&number.to_string()).unwrap_or_default()
            }
        }
        impl From<$t> for JsonKey {
            fn from(number: $t) -> JsonKey {
                JsonKey::Number(number.into())
            }
        }
    )*};
}

integers!(u32, u64, i32, i64);

/// A number or a truth value as JSON writes it, a text in double quotes, and any other text as itself.
impl FromStr for JsonKey {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<JsonKey, Self::Err> {
        Ok(match text {
            "true" => JsonKey::Bool(true),
            "false" => JsonKey::Bool(false),
            _ => match (JsonNumber::of_text(text), text.starts_with('"')) {
                (Some(number), _) => JsonKey::Number(number),
                (None, true) => JsonKey::Text(serde_json::from_str(text).unwrap_or_else(|_| text.to_string())),
                (None, false) => JsonKey::Text(text.to_string()),
            },
        })
    }
}

/// As it is parsed again: a text that would be something else is in double quotes.
impl fmt::Display for JsonKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonKey::Number(number) => number.fmt(f),
            JsonKey::Bool(truth) => truth.fmt(f),
            JsonKey::Text(text) if matches!(text.parse(), Ok(JsonKey::Text(same)) if same == *text) => {
                f.write_str(text)
            }
            JsonKey::Text(text) => write!(f, "{}", serde_json::Value::from(text.as_str())),
        }
    }
}

/// A decimal number of any length and size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct JsonNumber {
    is_negative: bool,
    /// The number is 0.d1d2d3... times ten to this; 0 of zero.
    exponent: i64,
    /// 0 to 9, the first and the last not 0; none of zero.
    digits: Vec<u8>,
}

impl JsonNumber {
    /// The nearest decimal number that is read back as this one. `None` for numbers that JSON cannot write.
    #[must_use]
    pub fn of_f64(number: f64) -> Option<JsonNumber> {
        if number.is_finite() { JsonNumber::of_text(&format!("{number:e}")) } else { None }
    }

    /// A number as JSON writes it.
    fn of_text(text: &str) -> Option<JsonNumber> {
        let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, power) = match text.split_once(['e', 'E']) {
            Some((mantissa, power)) => (mantissa, exponent_of(power)?),
            None => (text, 0),
        };
        let (whole, part) = mantissa.split_once('.').map_or((mantissa, None), |(whole, part)| (whole, Some(part)));
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || part.is_some_and(|part| !is_digits(part)) || whole.len() > 1 && whole.starts_with('0') {
            return None;
        }
        let all: Vec<u8> = whole.bytes().chain(part.unwrap_or_default().bytes()).map(|digit| digit - b'0').collect();
        let Some(first) = all.iter().position(|&digit| digit != 0) else { return Some(JsonNumber::default()) };
        let end = all.iter().rposition(|&digit| digit != 0).map_or(all.len(), |last| last + 1);
        let exponent = power.saturating_add(whole.len() as i64).saturating_sub(first as i64);
        let exponent = exponent.clamp(-EXPONENT_MAX, EXPONENT_MAX);
        Some(JsonNumber { is_negative, exponent, digits: all[first..end].to_vec() })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(NUMBER);
        if self.digits.is_empty() {
            return out.push(ZERO);
        }
        out.push(if self.is_negative { BELOW_ZERO } else { ABOVE_ZERO });
        let begin = out.len();
        let long = (self.exponent as u64 ^ (1 << 63)).to_be_bytes();
        match self.exponent {
            SHORT_MIN..=SHORT_MAX => out.extend_from_slice(&((self.exponent + 0x8000) as u16).to_be_bytes()),
            ..SHORT_MIN => out.extend([0; 2].iter().chain(&long)),
            _ => out.extend([0xff; 2].iter().chain(&long)),
        }
        out.extend(self.digits.chunks(2).map(|pair| pair[0] * 10 + pair.get(1).unwrap_or(&0) + 1));
        if self.is_negative {
            out[begin..].iter_mut().for_each(|byte| *byte = !*byte);
            out.push(0xff);
        }
    }

    /// The number that these bytes behind the tag are; `None` for any others.
    fn decode(bytes: &[u8]) -> Option<JsonNumber> {
        let (&sign, rest) = bytes.split_first()?;
        let rest: Vec<u8> = match (sign, rest) {
            (ZERO, []) => return Some(JsonNumber::default()),
            (ABOVE_ZERO, rest) => rest.to_vec(),
            (BELOW_ZERO, [rest @ .., 0xff]) => rest.iter().map(|byte| !byte).collect(),
            _ => return None,
        };
        let (short, rest) = rest.split_first_chunk::<2>()?;
        let (exponent, pairs) = match u16::from_be_bytes(*short) {
            0 | u16::MAX => {
                let (long, rest) = rest.split_first_chunk::<8>()?;
                let exponent = (u64::from_be_bytes(*long) ^ (1 << 63)) as i64;
                let is_low = *short == [0; 2];
                let range = if is_low { -EXPONENT_MAX..=SHORT_MIN - 1 } else { SHORT_MAX + 1..=EXPONENT_MAX };
                (exponent, range.contains(&exponent).then_some(rest)?)
            }
            short => (i64::from(short) - 0x8000, rest),
        };
        let mut digits = Vec::with_capacity(pairs.len() * 2);
        for &pair in pairs {
            let pair = pair.checked_sub(1).filter(|pair| *pair < 100)?;
            digits.extend([pair / 10, pair % 10]);
        }
        digits.pop_if(|last| *last == 0);
        // One number has one key.
        if digits.first().is_none_or(|first| *first == 0) || digits.last() == Some(&0) {
            return None;
        }
        Some(JsonNumber { is_negative: sign == BELOW_ZERO, exponent, digits })
    }
}

/// The power of ten behind the e of a number; beyond all bounds, a bound.
fn exponent_of(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let exponent = digits.parse::<i64>().unwrap_or(i64::MAX);
    Some(if is_negative { -exponent } else { exponent })
}

impl FromStr for JsonNumber {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<JsonNumber, DecodeError> {
        JsonNumber::of_text(text).ok_or(DecodeError::of::<JsonNumber>(text.as_bytes()))
    }
}

impl Ord for JsonNumber {
    fn cmp(&self, other: &JsonNumber) -> Ordering {
        let sign =
            |number: &JsonNumber| if number.digits.is_empty() { 0 } else { 1 - 2 * i8::from(number.is_negative) };
        let size = (self.exponent, &self.digits).cmp(&(other.exponent, &other.digits));
        sign(self).cmp(&sign(other)).then(if self.is_negative { size.reverse() } else { size })
    }
}

impl PartialOrd for JsonNumber {
    fn partial_cmp(&self, other: &JsonNumber) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As JSON writes it: up to twenty places whole, more with a power of ten.
impl fmt::Display for JsonNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = |digits: &[u8]| digits.iter().map(|digit| char::from(b'0' + digit)).collect::<String>();
        if self.is_negative {
            f.write_str("-")?;
        }
        let count = self.digits.len() as i64;
        match self.exponent {
            _ if count == 0 => f.write_str("0"),
            whole @ 1..=20 if whole >= count => {
                write!(f, "{}{}", digits(&self.digits), "0".repeat((whole - count) as usize))
            }
            whole @ 1..=20 => {
                let (whole, part) = self.digits.split_at(whole as usize);
                write!(f, "{}.{}", digits(whole), digits(part))
            }
            zeros @ -5..=0 => write!(f, "0.{}{}", "0".repeat(-zeros as usize), digits(&self.digits)),
            exponent => {
                let (first, rest) = self.digits.split_at(1);
                let point = if rest.is_empty() { "" } else { "." };
                write!(f, "{}{point}{}e{}", digits(first), digits(rest), exponent - 1)
            }
        }
    }
}

impl JsonKey {
    /// The bytes of the key in an index.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append(&mut bytes);
        bytes
    }

    fn append(&self, out: &mut Vec<u8>) {
        match self {
            JsonKey::Text(text) => out.extend_from_slice(text.as_bytes()),
            JsonKey::Number(number) => number.encode(out),
            JsonKey::Bool(truth) => out.extend_from_slice(&[TRUTH, u8::from(*truth)]),
        }
    }
}

impl AsKey<JsonKey> for JsonKey {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.append(out);
        Ok(())
    }

    fn encode_part(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut whole = Vec::new();
        self.append(&mut whole);
        AsKey::<Vec<u8>>::encode_part(&whole, out)
    }
}

impl Key for JsonKey {
    const TYPE: TypeName = TypeName::Named(super::JSON);

    fn decode(bytes: &[u8]) -> Result<JsonKey, DecodeError> {
        let found = match bytes {
            [NUMBER, number @ ..] => JsonNumber::decode(number).map(JsonKey::Number),
            [TRUTH, truth @ (0 | 1)] => Some(JsonKey::Bool(*truth == 1)),
            text => std::str::from_utf8(text).ok().map(JsonKey::from),
        };
        found.ok_or_else(|| DecodeError::of::<JsonKey>(bytes))
    }

    fn decode_part(bytes: &mut &[u8]) -> Result<JsonKey, DecodeError> {
        JsonKey::decode(&Vec::<u8>::decode_part(bytes)?)
    }
}

/// Calls `emit` with each index key of the member of a JSON object, which is a JSON pointer if it begins with `/`.
pub(super) fn keys_of(value: &[u8], member: &str, emit: &mut dyn FnMut(&[u8])) {
    let Ok(text) = std::str::from_utf8(value) else { return };
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        return;
    }
    let json = Json(text.trim_ascii());
    let found = match member.strip_prefix('/') {
        None => json.member(member),
        Some(path) => path.split('/').try_fold(json, |json, step| {
            let step = step.replace("~1", "/").replace("~0", "~");
            if json.0.starts_with('[') {
                let is_number = !step.starts_with('+') && (step.len() == 1 || !step.starts_with('0'));
                json.elements().nth(step.parse().ok().filter(|_| is_number)?)
            } else {
                json.member(&step)
            }
        }),
    };
    let Some(found) = found else { return };
    let mut emit_one = |json: Json<'_>| {
        let key = match json.0.as_bytes().first() {
            Some(b'"') => serde_json::from_str(json.0).ok().map(JsonKey::Text),
            Some(b'-' | b'0'..=b'9') => JsonNumber::of_text(json.0).map(JsonKey::Number),
            Some(b't') => Some(JsonKey::Bool(true)),
            Some(b'f') => Some(JsonKey::Bool(false)),
            _ => None,
        };
        if let Some(key) = key {
            let mut bytes = Vec::new();
            key.append(&mut bytes);
            emit(&bytes);
        }
    };
    if found.0.starts_with('[') { found.elements().for_each(emit_one) } else { emit_one(found) }
}

/// The text of a value that is well-formed JSON, without blanks around it.
#[derive(Clone, Copy)]
struct Json<'a>(&'a str);

impl<'a> Json<'a> {
    /// The last member of this name of an object.
    fn member(self, name: &str) -> Option<Json<'a>> {
        if !self.0.starts_with('{') {
            return None;
        }
        let mut parts = self.elements();
        let mut found = None;
        while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
            let is_it = match key.0.contains('\\') {
                true => serde_json::from_str::<String>(key.0).is_ok_and(|key| key == name),
                false => key.0.get(1..key.0.len() - 1) == Some(name),
            };
            found = if is_it { Some(value) } else { found };
        }
        found
    }

    /// The values in an array; in an object, names and values in turn.
    fn elements(self) -> impl Iterator<Item = Json<'a>> {
        let mut rest = self.0.get(1..).unwrap_or_default();
        std::iter::from_fn(move || {
            rest = rest.trim_start_matches([' ', '\t', '\n', '\r', ',', ':']);
            if rest.is_empty() || rest.starts_with([']', '}']) {
                return None;
            }
            let (value, behind) = rest.split_at_checked(value_len(rest.as_bytes()))?;
            rest = behind;
            Some(Json(value))
        })
    }
}

/// The length of the value that well-formed JSON begins with.
fn value_len(json: &[u8]) -> usize {
    let (mut depth, mut is_text, mut is_escaped) = (0_u32, false, false);
    for (at, byte) in json.iter().enumerate() {
        if is_text {
            is_text = is_escaped || *byte != b'"';
            is_escaped = !is_escaped && *byte == b'\\';
            if !is_text && depth == 0 {
                return at + 1;
            }
            continue;
        }
        match byte {
            b'"' => is_text = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => return if depth == 0 { at } else { at + 1 },
            b'}' | b']' => depth -= 1,
            b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return at,
            _ => {}
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(key: &JsonKey) -> Vec<u8> {
        let mut out = Vec::new();
        key.append(&mut out);
        out
    }

    fn key(text: &str) -> JsonKey {
        let Ok(key) = text.parse();
        key
    }

    /// These bytes are in files: a change of one is a new format.
    #[test]
    fn golden_bytes_of_json_keys() {
        for (text, expected) in [
            ("Bern", &b"Bern"[..]),
            ("0", &[0xf8, 1]),
            ("-0.0e9", &[0xf8, 1]),
            ("9", &[0xf8, 2, 0x80, 1, 91]),
            ("10", &[0xf8, 2, 0x80, 2, 11]),
            ("123.4", &[0xf8, 2, 0x80, 3, 13, 35]),
            ("-9", &[0xf8, 0, 0x7f, 0xfe, !91, 0xff]),
            ("1e40000", &[0xf8, 2, 0xff, 0xff, 0x80, 0, 0, 0, 0, 0, 0x9c, 0x41, 11]),
            ("1e-40000", &[0xf8, 2, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0x63, 0xc1, 11]),
            ("false", &[0xf9, 0]),
            ("true", &[0xf9, 1]),
        ] {
            assert_eq!(bytes(&key(text)), expected, "{text}");
            assert_eq!(JsonKey::decode(expected), Ok(key(text)), "{text}");
        }
    }

    #[test]
    fn all_kinds_of_keys_are_in_order() {
        let ordered = [
            "\"\"",
            "\"10\"",
            "\"9\"",
            "Bern",
            "\u{10ffff}",
            "-1e99999999999999999999",
            "-1e40000",
            "-18446744073709551617",
            "-18446744073709551616",
            "-10.5",
            "-10",
            "-9",
            "-1.5e-3",
            "-1e-40000",
            "0",
            "1e-40000",
            "0.001",
            "0.1",
            "0.12",
            "0.123",
            "1",
            "9",
            "9.5",
            "10",
            "100",
            "9007199254740992",
            "9007199254740993",
            "18446744073709551616",
            "18446744073709551617",
            "1e40",
            "1.00000000000000000000001e40",
            "1e40000",
            "1e99999999999999999999",
            "false",
            "true",
        ];
        let keys: Vec<JsonKey> = ordered.iter().map(|text| key(text)).collect();
        for (a, one) in keys.iter().enumerate() {
            for (b, other) in keys.iter().enumerate() {
                assert_eq!(one.cmp(other), a.cmp(&b), "{one} {other}");
                assert_eq!(bytes(one).cmp(&bytes(other)), a.cmp(&b), "{one} {other}");
            }
            assert_eq!(key(&one.to_string()), *one, "{one}");
        }
        for same in [["10", "1e1"], ["10", "10.0"], ["0", "-0"], ["0.5", "5E-1"], ["100", "0.1e+3"]] {
            assert_eq!(key(same[0]), key(same[1]));
        }
        assert!(["01", "1.", ".5", "+1", "1e", "- 1", "1 "].iter().all(|text| matches!(key(text), JsonKey::Text(_))));
    }

    #[test]
    fn members_are_found_however_they_are_written() {
        let check = |member: &str, json: &str, expected: &[&str]| {
            let mut found = Vec::new();
            keys_of(json.as_bytes(), member, &mut |key| found.push(JsonKey::decode(key).unwrap().to_string()));
            assert_eq!(found, expected, "{member} of {json}");
        };
        check("a", " { \"b\" : [1,{\"a\":2}] , \"a\" : 3.50 } ", &["3.5"]);
        check("a", r#"{"a":1,"a":2}"#, &["2"]);
        check("a\"]}", r#"{"x":"\"]}\\","a\"]}":"\\"}"#, &["\\"]);
        check("ä", r#"{"\u00e4":[true,null,"x",[1],{"y":2},-0,"7"]}"#, &["true", "x", "0", "\"7\""]);
        check("/b/1/a", r#"{"b":[1,{"a":2}]}"#, &["2"]);
        check("/b/01", r#"{"b":[1,2]}"#, &[]);
        check("/a~1b/~0", r#"{"a/b":{"~":1e400}}"#, &["1e400"]);
        check("/", r#"{"":7}"#, &["7"]);
        check("a", r#"["a",1]"#, &[]);
        check("a", "\"a\"", &[]);
        check("a", r#"{"a":1}}"#, &[]);
        check("a", r#"{"a":01}"#, &[]);
        check("a", "", &[]);
    }

    /// Numbers of few digits and powers, so that neighbours meet.
    fn number() -> impl Strategy<Value = String> {
        "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,3})?(e-?[0-9]{1,2})?"
    }

    /// Exponents near all the bounds that there are, and beyond.
    fn extreme() -> impl Strategy<Value = String> {
        let near = [0, i128::from(i16::MAX), 1 << 62, 1 << 63, 1 << 64].map(|bound| (bound - 5..bound + 5).boxed());
        let all = prop::strategy::Union::new(near);
        (all, any::<bool>()).prop_map(|(bound, below)| if below { (-bound).to_string() } else { bound.to_string() })
    }

    proptest! {
        #[test]
        fn numbers_order_as_they_are(a in number(), b in number()) {
            let (x, y) = (key(&a), key(&b));
            prop_assert_eq!(bytes(&x).cmp(&bytes(&y)), x.cmp(&y));
            // Ten digits at most are exact as floats, or far enough apart.
            let of = |text: &str| text.parse::<f64>().unwrap();
            prop_assert_eq!(x.cmp(&y), of(&a).partial_cmp(&of(&b)).unwrap());
            prop_assert_eq!(JsonKey::decode(&bytes(&x)), Ok(x));
        }

        #[test]
        fn integers_and_floats_come_back(a: i64, b: i64, c in prop::num::f64::NORMAL) {
            prop_assert_eq!(bytes(&a.into()).cmp(&bytes(&b.into())), a.cmp(&b));
            prop_assert_eq!(JsonKey::from(a).to_string(), a.to_string());
            prop_assert_eq!(JsonNumber::of_f64(c).unwrap().to_string().parse::<f64>(), Ok(c));
        }

        #[test]
        fn numbers_of_any_exponent_are_written_read_and_compared_alike(
            a in extreme(), b in extreme(), sign in "-?", digits in "[1-9]{1,3}",
        ) {
            let (x, y) = (key(&format!("{sign}{digits}e{a}")), key(&format!("{sign}{digits}e{b}")));
            prop_assert_eq!(bytes(&x).cmp(&bytes(&y)), x.cmp(&y));
            for number in [&x, &y] {
                prop_assert_eq!(&JsonKey::decode(&bytes(number)).unwrap(), number);
                prop_assert_eq!(&key(&number.to_string()), number);
            }
        }

        #[test]
        fn any_exponent_on_disk_is_a_number_or_none(exponent: i64, edge in extreme(), long: bool, below: bool) {
            for exponent in [exponent, edge.parse().unwrap_or(i64::MAX), i64::MIN, i64::MAX, 0] {
                let mut disk = if long { vec![0; 2] } else { vec![0xff; 2] };
                disk.extend((exponent as u64 ^ (1 << 63)).to_be_bytes());
                disk.push(51);
                if below {
                    disk.iter_mut().for_each(|byte| *byte = !*byte);
                    disk.push(0xff);
                }
                let disk = [&[NUMBER, if below { BELOW_ZERO } else { ABOVE_ZERO }][..], &disk].concat();
                if let Ok(found) = JsonKey::decode(&disk) {
                    prop_assert_eq!(bytes(&found), disk);
                    prop_assert_eq!(key(&found.to_string()), found);
                }
            }
        }

        #[test]
        fn any_bytes_are_a_key_or_none(any: Vec<u8>) {
            if let Ok(key) = JsonKey::decode(&any) {
                prop_assert_eq!(key.to_string().parse(), Ok(key));
            }
            keys_of(&any, "a", &mut |_| {});
        }
    }
}
