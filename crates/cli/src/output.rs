//! Data on standard output, in one piece of buffer; notes for people on standard error.
//!
//! U1. Table names, keys and arguments may hold anything. No control character of theirs reaches a terminal, where it could
//!     hide or fake what is shown: each comes out as `\xNN`, but for line ends and tabs.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{BufWriter, Write};

use crate::text::readable;

/// Where a command writes, and how it was told to.
pub(crate) struct Output {
    pub(crate) is_json: bool,
    pub(crate) is_quiet: bool,
    out: RefCell<BufWriter<Box<dyn Write>>>,
}

impl Output {
    pub(crate) fn new(is_json: bool, is_quiet: bool) -> Output {
        Output::to(Box::new(std::io::stdout().lock()), is_json, is_quiet)
    }

    /// The same with data that goes elsewhere.
    pub(crate) fn to(out: Box<dyn Write>, is_json: bool, is_quiet: bool) -> Output {
        Output { is_json, is_quiet, out: RefCell::new(BufWriter::with_capacity(1 << 16, out)) }
    }

    /// A line of data. Control characters in it are escaped (U1).
    pub(crate) fn line(&self, line: impl std::fmt::Display) -> std::io::Result<()> {
        let mut out = self.out.borrow_mut();
        write_escaped(&mut *out, line).and_then(|()| out.write_all(b"\n")).map_err(stdout_error)
    }

    /// Data as it is.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> std::io::Result<()> {
        self.out.borrow_mut().write_all(bytes).map_err(stdout_error)
    }

    /// An object as one line of JSON.
    pub(crate) fn json(&self, value: &impl serde::Serialize) -> std::io::Result<()> {
        writeln!(self.out.borrow_mut(), "{}", json_text(value)?).map_err(stdout_error)
    }

    /// Says something that is no data.
    pub(crate) fn note(&self, note: impl std::fmt::Display) {
        if !self.is_quiet {
            say(note);
        }
    }

    /// Hands on what is gathered, so that it comes before what follows on standard error or from others.
    pub(crate) fn flush(&self) -> std::io::Result<()> {
        self.out.borrow_mut().flush().map_err(stdout_error)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = self.flush(); // Commands flush themselves where the result matters.
    }
}

/// An object as JSON on one line, with every control character escaped: JSON asks for that below U+0020 only (U1).
pub(crate) fn json_text(value: &impl serde::Serialize) -> std::io::Result<String> {
    let text = serde_json::to_string(value)?;
    if is_harmless(&text) {
        return Ok(text);
    }
    // They can only be inside of strings.
    let mut harmless = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            let _ = write!(harmless, "\\u{:04x}", u32::from(c)); // Writing to a string cannot fail.
        } else {
            harmless.push(c);
        }
    }
    Ok(harmless)
}

/// Prints a line on standard error, escaped (U1).
pub(crate) fn say(line: impl std::fmt::Display) {
    let mut text = String::new();
    let _ = writeln!(text, "{line}"); // Writing to a string cannot fail.
    let _ = write_escaped(&mut std::io::stderr().lock(), text); // There is no other place to say it.
}

/// What cannot be written, and why. The kind stays: a closed pipe is no error.
pub(crate) fn stdout_error(error: std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

/// Whether a terminal may see this text as it is.
pub(crate) fn is_harmless(text: &str) -> bool {
    // Nearly all text is settled by its bytes: 0xc2 begins the control characters from U+0080 on, and others.
    let is_suspect = |byte: u8| (byte < b' ' && byte != b'\n' && byte != b'\t') || byte == 0x7f || byte == 0xc2;
    if !text.bytes().any(is_suspect) {
        return true;
    }
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let is_line_end = c == '\r' && chars.peek() == Some(&'\n');
        if c.is_control() && !matches!(c, '\n' | '\t') && !is_line_end {
            return false;
        }
    }
    true
}

/// Control characters but line ends and tabs as `\xNN`.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && !matches!(c, '\n' | '\t') {
            shown.push_str(&readable(c.encode_utf8(&mut [0; 4]).as_bytes()));
        } else {
            shown.push(c);
        }
    }
    shown
}

fn write_escaped(out: &mut impl Write, text: impl std::fmt::Display) -> std::io::Result<()> {
    struct Escaped<'a, W> {
        out: &'a mut W,
        result: std::io::Result<()>,
    }
    impl<W: Write> std::fmt::Write for Escaped<'_, W> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.result = if is_harmless(text) {
                self.out.write_all(text.as_bytes())
            } else {
                self.out.write_all(escaped(text).as_bytes())
            };
            self.result.as_ref().map(|_| ()).map_err(|_| std::fmt::Error)
        }
    }
    let mut escaped = Escaped { out, result: Ok(()) };
    let formatted = write!(escaped, "{text}").map_err(|_| std::io::Error::other("a text cannot be formatted"));
    escaped.result.and(formatted)
}

/// Bytes for people: `1.5 MiB`.
pub(crate) fn bytes_readable(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} bytes") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::{bytes_readable, escaped, is_harmless, write_escaped};

    #[test]
    fn control_characters_are_escaped_and_nothing_else() {
        for plain in ["Ä©b\ttwo\nlines", "dos\r\n", "a\\b"] {
            assert!(is_harmless(plain), "{plain:?}");
        }
        for (bad, shown) in
            [("\x1b[2Ja", "\\x1b[2Ja"), ("a\rb", "a\\rb"), ("©\u{9b}", "©\\xc2\\x9b"), ("\x7f", "\\x7f")]
        {
            let mut out = Vec::new();
            write_escaped(&mut out, format_args!("[{bad}]")).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), format!("[{shown}]"));
            assert!(!is_harmless(bad) && escaped(bad) == shown);
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_below_them() {
        assert_eq!(bytes_readable(1023), "1023 bytes");
        assert_eq!(bytes_readable(1536), "1.5 KiB");
        assert_eq!(bytes_readable(64 << 20), "64.0 MiB");
        assert_eq!(bytes_readable(u64::MAX), "16777216.0 TiB");
    }
}
