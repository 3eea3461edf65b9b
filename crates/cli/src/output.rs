//! Data on standard output, in one piece of buffer; notes for people on standard error.
//!
//! U1. Table names, keys and arguments may hold anything. No character of theirs that a terminal obeys reaches it,
//!     where it could hide or fake what is shown: each comes out as `\xNN`, but for line ends and tabs.
//! U2. In JSON, an integer beyond 2^53 - 1 is a string of its digits, and so is any other number that differs from the
//!     double next to it. Most readers keep numbers as doubles: they would change a key without a word. It is always
//!     so, not by a flag, because a reader that needs the flag is the one that does not know of it.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ledgerstone::is_obeyed;
use ledgerstone_probe::Unit;
use ledgerstone_probe::show::quantity;
use serde_json::Value;

use crate::text::readable;

/// How notes and errors are written, wherever one comes from: set once, before anything is said.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Where a command writes, and how it was told to.
pub(crate) struct Output {
    pub(crate) is_json: bool,
    pub(crate) is_quiet: bool,
    out: RefCell<BufWriter<Box<dyn Write>>>,
    /// The last byte ended no line.
    is_in_line: Cell<bool>,
}

impl Output {
    pub(crate) fn new(is_json: bool, is_quiet: bool) -> Output {
        IS_JSON.store(is_json, Relaxed);
        Output::to(Box::new(std::io::stdout().lock()), is_json, is_quiet)
    }

    /// The same with data that goes elsewhere.
    pub(crate) fn to(out: Box<dyn Write>, is_json: bool, is_quiet: bool) -> Output {
        Output {
            is_json,
            is_quiet,
            out: RefCell::new(BufWriter::with_capacity(1 << 16, out)),
            is_in_line: Cell::new(false),
        }
    }

    /// A line of data. Control characters in it are escaped (U1).
    pub(crate) fn line(&self, line: impl std::fmt::Display) -> std::io::Result<()> {
        let mut out = self.out.borrow_mut();
        write_escaped(&mut *out, line).and_then(|()| out.write_all(b"\n")).map_err(stdout_error)
    }

    /// Data as it is.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> std::io::Result<()> {
        if let Some(last) = bytes.last() {
            self.is_in_line.set(*last != b'\n');
        }
        self.out.borrow_mut().write_all(bytes).map_err(stdout_error)
    }

    /// Ends the line, if data as it is has left one open.
    pub(crate) fn end_line(&self) -> std::io::Result<()> {
        if self.is_in_line.get() { self.bytes(b"\n") } else { Ok(()) }
    }

    /// An object as one line of JSON.
    pub(crate) fn json(&self, value: &impl serde::Serialize) -> std::io::Result<()> {
        writeln!(self.out.borrow_mut(), "{}", json_text(value)?).map_err(stdout_error)
    }

    /// What a command that changes something answers to programs: what it was asked for, and whether there was anything
    /// to do.
    pub(crate) fn done(&self, mut what: Value, is_done: bool) -> std::io::Result<()> {
        if !self.is_json {
            return Ok(());
        }
        what["done"] = is_done.into();
        self.json(&what)?;
        self.flush()
    }

    /// Says something that is not data.
    pub(crate) fn note(&self, note: impl std::fmt::Display) {
        if !self.is_quiet {
            say_note(note);
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

/// Prints a note on standard error: for a program as an object, as errors are.
pub(crate) fn say_note(note: impl std::fmt::Display) {
    if IS_JSON.load(Relaxed) {
        say(json_text(&serde_json::json!({ "note": note.to_string() })).unwrap_or_default());
    } else {
        say(note);
    }
}

/// Prints an error, one word for its kind, and what to do. For a program it is one object, and comes on standard error,
/// too, so that standard output holds nothing but data.
pub(crate) fn say_error(error: &str, kind: &str, advice: Option<&str>) {
    if IS_JSON.load(Relaxed) {
        let told = serde_json::json!({ "error": error, "kind": kind, "advice": advice });
        return say(json_text(&told).unwrap_or_default());
    }
    say(format_args!("ledgerstone: {error}"));
    if let Some(advice) = advice {
        say(format_args!("  {advice}"));
    }
}

/// An object as JSON on one line, with every control character escaped: JSON asks for that below U+0020 only (U1).
/// Numbers that lose digits in a reader's doubles are strings (U2).
pub(crate) fn json_text(value: &impl serde::Serialize) -> std::io::Result<String> {
    let mut text = serde_json::to_string(value)?;
    if may_lose_digits(&text) {
        let mut value = serde_json::to_value(value)?;
        long_numbers_to_strings(&mut value);
        text = value.to_string();
    }
    if is_harmless(&text) {
        return Ok(text);
    }
    // They can only be inside of strings.
    let mut harmless = String::with_capacity(text.len());
    for c in text.chars() {
        if is_obeyed(c) {
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

/// What cannot be written, and why. The kind stays: a closed pipe is not an error.
pub(crate) fn stdout_error(error: std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

/// Whether a terminal may see this text as it is.
pub(crate) fn is_harmless(text: &str) -> bool {
    // Nearly all text is settled by its bytes: 0xc2 begins the control characters from U+0080 on, 0xe2 those that turn
    // the direction, and each begins others.
    let is_suspect = |byte: u8| (byte < b' ' && byte != b'\n' && byte != b'\t') || matches!(byte, 0x7f | 0xc2 | 0xe2);
    if !text.bytes().any(is_suspect) {
        return true;
    }
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let is_line_end = c == '\r' && chars.peek() == Some(&'\n');
        if is_obeyed(c) && !matches!(c, '\n' | '\t') && !is_line_end {
            return false;
        }
    }
    true
}

/// Control characters but line ends and tabs as `\xNN`.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_obeyed(c) && !matches!(c, '\n' | '\t') {
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

/// Whether a number in this JSON may be one for [`long_numbers_to_strings`]. All short ones are settled without a
/// second look.
fn may_lose_digits(json: &str) -> bool {
    let bytes = json.as_bytes();
    let is_of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    let is_long = |run: &[u8]| {
        run.len() >= 16 || run.windows(2).any(|pair| pair[0].is_ascii_digit() && matches!(pair[1], b'e' | b'E'))
    };
    bytes.split(|byte| !is_of_number(byte)).any(is_long)
}

/// See U2.
fn long_numbers_to_strings(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let text = number.to_string();
            if !is_safe_number(&text) {
                *value = Value::String(text);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(long_numbers_to_strings),
        Value::Object(members) => members.values_mut().for_each(long_numbers_to_strings),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Whether every reader has the same number from this text.
fn is_safe_number(text: &str) -> bool {
    const INTEGER_MAX: i64 = (1 << 53) - 1;
    if !text.contains(['.', 'e', 'E']) {
        return text.parse::<i64>().is_ok_and(|number| (-INTEGER_MAX..=INTEGER_MAX).contains(&number));
    }
    text.parse::<f64>().is_ok_and(|double| double.is_finite() && decimal(&format!("{double:e}")) == decimal(text))
}

/// A decimal number as its sign, its digits without zeros around them, and the power of ten of the first one.
fn decimal(text: &str) -> (bool, String, i64) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (is_negative, mantissa) = mantissa.strip_prefix('-').map_or((false, mantissa), |digits| (true, digits));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let zeros = (digits.len() - significant.len()) as i64;
    let exponent = exponent.parse::<i64>().unwrap_or(i64::MAX / 2) + whole.len() as i64 - zeros;
    match significant.trim_end_matches('0') {
        "" => (false, String::new(), 0),
        significant => (is_negative, significant.to_owned(), exponent),
    }
}

/// A file that is read, as messages name it: `-` is standard input.
pub(crate) fn file_named(name: &str) -> &str {
    if name == "-" { "standard input" } else { name }
}

/// How many for people: `1 table`, `2 tables`, `0 indexes`.
pub(crate) fn counted(count: u64, one: &str) -> String {
    let plural = match one.ends_with('x') {
        true => "es",
        false => "s",
    };
    format!("{count} {one}{}", if count == 1 { "" } else { plural })
}

/// Bytes in the unit that fits, as everywhere in what the command prints: `1.50 KiB`.
pub(crate) fn bytes_readable(bytes: u64) -> String {
    quantity(Unit::Bytes, bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::{counted, escaped, is_harmless, json_text, write_escaped};

    #[test]
    fn numbers_that_a_double_does_not_hold_are_strings() {
        let check = |number: &str, is_kept: bool| {
            let value = serde_json::from_str::<serde_json::Value>(&format!("[{number}]")).unwrap();
            let text = json_text(&value).unwrap();
            let exact = serde_json::from_str::<Vec<serde_json::Number>>(&format!("[{number}]")).unwrap()[0].to_string();
            assert_eq!(text, if is_kept { format!("[{exact}]") } else { format!("[\"{exact}\"]") });
        };
        for kept in
            ["0", "-1", "9007199254740991", "-9007199254740991", "0.1", "-0.0", "1e300", "0.30000000000000004", "1.50"]
        {
            check(kept, true);
        }
        for string in [
            "9007199254740992",
            "-9007199254740993",
            "123456789012345678901234567890",
            "1e400",
            "1.2345678901234567890123456789e+29",
            "0.12345678901234567890123",
            "12345678.123456789012",
        ] {
            check(string, false);
        }
    }

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
    fn one_of_a_thing_is_not_many() {
        let check = |count, one, text| assert_eq!(counted(count, one), text);
        check(0, "table", "0 tables");
        check(1, "table", "1 table");
        check(1, "index", "1 index");
        check(2, "index", "2 indexes");
        check(7, "large value", "7 large values");
    }
}
