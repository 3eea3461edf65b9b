//! Names and bytes as messages show them: on one line, and so that different bytes look different.
//!
//! Text is shown as it is. Of everything else, and of the characters that a terminal obeys, each byte is `\xNN`, but
//! for `\n`, `\t`, `\r` and `\\`.
//!
//! It stands in the lowest crate whose messages have names in them. All messages above use it, so that a name is
//! spelled the same wherever it is seen, and as the shell reads it.

use std::fmt::{self, Write};

/// Whether a terminal obeys a character instead of showing it: control characters, and those that turn the direction of
/// what follows, with which one name can look like another.
///
/// ```
/// assert!(ledgerstone_disk::is_obeyed('\u{202e}') && !ledgerstone_disk::is_obeyed('Ä'));
/// ```
#[must_use]
pub fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Bytes as one line of text.
///
/// ```
/// assert_eq!(ledgerstone_disk::Readable(b"a\tb\x00\xff").to_string(), r"a\tb\x00\xff");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Readable<'a>(pub &'a [u8]);

/// The same in double quotes, with `\"` for a quote.
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'a>(pub &'a [u8]);

/// A name in double quotes, as messages show it.
///
/// ```
/// assert_eq!(ledgerstone_disk::quoted("say \"a\"\x1b[31m").to_string(), r#""say \"a\"\x1b[31m""#);
/// ```
#[must_use]
pub fn quoted(name: &str) -> Quoted<'_> {
    Quoted(name.as_bytes())
}

impl fmt::Display for Readable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self.0, None, f)
    }
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        show(self.0, Some('"'), f)?;
        f.write_char('"')
    }
}

fn show(bytes: &[u8], quote: Option<char>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                '\r' => f.write_str("\\r")?,
                '\\' => f.write_str("\\\\")?,
                c if Some(c) == quote => write!(f, "\\{c}")?,
                c if is_obeyed(c) => show_bytes(c.encode_utf8(&mut [0; 4]).as_bytes(), f)?,
                c => f.write_char(c)?,
            }
        }
        show_bytes(chunk.invalid(), f)?;
    }
    Ok(())
}

fn show_bytes(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_so_that_different_ones_look_different() {
        let check = |bytes: &[u8], shown: &str| assert_eq!(Readable(bytes).to_string(), shown);
        check("Ä b \"c\"".as_bytes(), "Ä b \"c\"");
        check(b"a\tb\r\n\\\x00\xff", r"a\tb\r\n\\\x00\xff");
        check(b"\\xff", r"\\xff");
        check("\u{85}".as_bytes(), r"\xc2\x85");
        check("txt.\u{202e}exe\u{2066}".as_bytes(), r"txt.\xe2\x80\xaeexe\xe2\x81\xa6");
    }

    #[test]
    fn names_are_shown_in_quotes() {
        let check = |name: &str, shown: &str| assert_eq!(quoted(name).to_string(), shown);
        check("fruit", r#""fruit""#);
        check("no\x1b[31m", r#""no\x1b[31m""#);
        check("a\"b\\c\n", r#""a\"b\\c\n""#);
        check(r"\u{1b}", r#""\\u{1b}""#);
    }
}
