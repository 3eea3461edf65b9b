//! Bytes as lines of a dump: two hexadecimal digits a byte, or printable characters with escapes.
//!
//! ```text
//! bytevalue  6170706c65
//! print      apple\00\5c   printable ASCII as it is, a backslash doubled, all else as \ and two hexadecimal digits
//! ```

use std::io::{self, Write};

/// How bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DumpFormat {
    /// Two hexadecimal digits a byte.
    #[default]
    ByteValue,
    /// Readable where it can be.
    Print,
}

const HEX: &[u8; 16] = b"0123456789abcdef";
/// Bytes that are turned into text at once.
const PIECE_BYTES: usize = 16 << 10;

impl DumpFormat {
    /// Writes bytes, without anything around them.
    pub(crate) fn write(self, bytes: &[u8], to: &mut dyn Write) -> io::Result<()> {
        let mut text = Vec::with_capacity(3 * PIECE_BYTES.min(bytes.len()));
        for piece in bytes.chunks(PIECE_BYTES) {
            text.clear();
            for &byte in piece {
                let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                match self {
                    DumpFormat::ByteValue => text.extend_from_slice(&digits),
                    DumpFormat::Print if byte == b'\\' => text.extend_from_slice(b"\\\\"),
                    DumpFormat::Print if byte == b' ' || byte.is_ascii_graphic() => text.push(byte),
                    DumpFormat::Print => text.extend_from_slice(&[b'\\', digits[0], digits[1]]),
                }
            }
            to.write_all(&text)?;
        }
        Ok(())
    }

    /// Turns text into bytes, in place. For any text.
    pub(crate) fn read(self, text: &mut Vec<u8>) -> Result<(), &'static str> {
        match self {
            DumpFormat::ByteValue => {
                if !text.len().is_multiple_of(2) {
                    return Err("an odd number of hexadecimal digits");
                }
                for at in 0..text.len() / 2 {
                    text[at] = byte_of(text[2 * at], text[2 * at + 1])?;
                }
                text.truncate(text.len() / 2);
            }
            DumpFormat::Print => {
                let (mut from, mut to) = (0, 0);
                while from < text.len() {
                    let (byte, used) = match (text[from], text.get(from + 1), text.get(from + 2)) {
                        (b'\\', Some(b'\\'), _) => (b'\\', 2),
                        (b'\\', Some(&high), Some(&low)) => (byte_of(high, low)?, 3),
                        (b'\\', ..) => return Err("a backslash without two hexadecimal digits behind it"),
                        (byte, ..) => (byte, 1),
                    };
                    text[to] = byte;
                    (from, to) = (from + used, to + 1);
                }
                text.truncate(to);
            }
        }
        Ok(())
    }
}

fn byte_of(high: u8, low: u8) -> Result<u8, &'static str> {
    let digit = |c: u8| char::from(c).to_digit(16).ok_or("a character that is not a hexadecimal digit");
    Ok((digit(high)? << 4 | digit(low)?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_survive_in_both_formats() {
        let all: Vec<u8> = (0..=255).chain(*b"\\\\5c \\").collect();
        for format in [DumpFormat::ByteValue, DumpFormat::Print] {
            let mut text = Vec::new();
            format.write(&all, &mut text).unwrap();
            assert!(text.iter().all(|b| *b == b' ' || b.is_ascii_graphic()));
            format.read(&mut text).unwrap();
            assert_eq!(text, all);
        }
    }

    #[test]
    fn text_that_is_none_is_refused() {
        for (format, text) in [
            (DumpFormat::ByteValue, "abc"),
            (DumpFormat::ByteValue, "0g"),
            (DumpFormat::Print, "a\\"),
            (DumpFormat::Print, "a\\4"),
            (DumpFormat::Print, "a\\zz"),
        ] {
            assert!(format.read(&mut text.as_bytes().to_vec()).is_err(), "{text}");
        }
    }
}
