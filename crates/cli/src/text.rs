//! Keys and values as people write them, and bytes as people can read them.
//!
//! T1. Numbers become bytes whose order is the numbers' order: big-endian, the sign bit of signed ones inverted. They are
//!     the bytes that the library's typed tables use.
//! T2. What [`readable`] shows is one line of valid text, and different bytes never look alike.

use std::fmt::Write as _;

use crate::args::TextArgs;

/// What a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyType {
    /// Its text.
    Text,
    /// A number below 2^32: 4 bytes.
    U32,
    /// A number below 2^64: 8 bytes.
    U64,
    /// A number from -2^63 to 2^63 - 1: 8 bytes.
    I64,
}

const SIGN: u64 = 1 << 63;

/// A signed number as a key (T1).
pub(crate) fn i64_key(number: i64) -> [u8; 8] {
    ((number as u64) ^ SIGN).to_be_bytes()
}

impl TextArgs {
    /// The bytes of a key.
    pub(crate) fn key(&self, text: &str) -> Result<Vec<u8>, String> {
        let number = |what: &str| format!("{text:?} is no {what}");
        match self.key_type {
            _ if self.hex => from_hex(text),
            KeyType::Text => Ok(text.as_bytes().to_vec()),
            KeyType::U32 => {
                let key: u32 = text.trim().parse().map_err(|_| number("u32 (0 to 4294967295)"))?;
                Ok(key.to_be_bytes().to_vec())
            }
            KeyType::U64 => {
                let key: u64 = text.trim().parse().map_err(|_| number("u64 (0 to 18446744073709551615)"))?;
                Ok(key.to_be_bytes().to_vec())
            }
            KeyType::I64 => {
                let key: i64 = text.trim().parse().map_err(|_| number("i64"))?;
                Ok(i64_key(key).to_vec())
            }
        }
    }

    /// The bytes of a value.
    pub(crate) fn value(&self, text: &str) -> Result<Vec<u8>, String> {
        if self.hex { from_hex(text) } else { Ok(text.as_bytes().to_vec()) }
    }

    /// A key as its type writes it; bytes that are none of that type come as `None`.
    pub(crate) fn key_text(&self, key: &[u8]) -> Option<String> {
        match self.key_type {
            _ if self.hex => Some(to_hex(key)),
            KeyType::Text => String::from_utf8(key.to_vec()).ok(),
            KeyType::U32 => key.try_into().ok().map(|key| u32::from_be_bytes(key).to_string()),
            KeyType::U64 => key.try_into().ok().map(|key| u64::from_be_bytes(key).to_string()),
            KeyType::I64 => key.try_into().ok().map(|key| ((u64::from_be_bytes(key) ^ SIGN) as i64).to_string()),
        }
    }

    /// A value as text, if it is text.
    pub(crate) fn value_text(&self, value: &[u8]) -> Option<String> {
        if self.hex { Some(to_hex(value)) } else { String::from_utf8(value.to_vec()).ok() }
    }
}

/// Bytes as one line of text: as they are where they are text, `\xNN` where they are not, `\n`, `\t`, `\r` and `\\`.
pub(crate) fn readable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                '\r' => text.push_str("\\r"),
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => c.to_string().bytes().for_each(|byte| push_byte(&mut text, byte)),
                c => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|&byte| push_byte(&mut text, byte));
    }
    text
}

fn push_byte(text: &mut String, byte: u8) {
    let _ = write!(text, "\\x{byte:02x}"); // Writing to a string cannot fail.
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

pub(crate) fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let text = text.trim();
    let digits: Vec<u8> = text
        .chars()
        .enumerate()
        .map(|(at, c)| {
            let digit =
                c.to_digit(16).ok_or_else(|| format!("{c:?} at position {} is no hexadecimal digit", at + 1))?;
            Ok(digit as u8)
        })
        .collect::<Result<_, String>>()?;
    if digits.len() % 2 == 1 {
        return Err(format!("{} hexadecimal digits are no whole bytes: an even number is wanted", digits.len()));
    }
    Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: TextArgs = TextArgs { hex: false, key_type: KeyType::Text };

    #[test]
    fn numbers_keep_their_order_and_read_back() {
        let check = |key_type, numbers: &[&str]| {
            let args = TextArgs { key_type, ..TEXT };
            let keys: Vec<_> = numbers.iter().map(|number| args.key(number).unwrap()).collect();
            assert!(keys.is_sorted(), "{numbers:?}");
            let back: Vec<_> = keys.iter().map(|key| args.key_text(key).unwrap()).collect();
            assert_eq!(back, numbers);
        };
        check(KeyType::U32, &["0", "255", "256", "4294967295"]);
        check(KeyType::U64, &["0", "255", "256", "18446744073709551615"]);
        check(KeyType::I64, &["-9223372036854775808", "-256", "-1", "0", "7", "9223372036854775807"]);
        assert!(TextArgs { key_type: KeyType::U32, ..TEXT }.key("-1").unwrap_err().contains("no u32"));
        assert_eq!(TextArgs { key_type: KeyType::U64, ..TEXT }.key_text(b"short"), None);
    }

    #[test]
    fn bytes_are_shown_so_that_different_ones_look_different() {
        assert_eq!(readable("Ä b".as_bytes()), "Ä b");
        assert_eq!(readable(b"a\tb\n\\\x00\xff"), "a\\tb\\n\\\\\\x00\\xff");
        assert_eq!(readable(b"\\xff"), "\\\\xff");
        assert_eq!(readable("\u{85}".as_bytes()), "\\xc2\\x85");
    }

    #[test]
    fn hexadecimal_reads_back_and_names_what_is_wrong() {
        assert_eq!(from_hex(&to_hex(b"\x00\xfe~")), Ok(b"\x00\xfe~".to_vec()));
        assert_eq!(from_hex("C3a4"), Ok(vec![0xc3, 0xa4]));
        assert!(from_hex("abc").unwrap_err().contains("even number"));
        assert!(from_hex("0g").unwrap_err().contains("'g' at position 2"));
    }
}
