//! Keys as messages show them: text as text, numbers as numbers, all other bytes as hexadecimal digits.
//!
//! S1. What a key is comes from the name of its type in the catalog. Without a name, bytes are text if they are UTF-8
//!     without control characters other than tabs and line ends.
//! S2. The result is one line of printable text, however the bytes look, and it is short: long text and long bytes are
//!     cut.

use std::fmt::{Display, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ledgerstone_disk::{Readable, is_obeyed, quoted};
use ledgerstone_page::Hex;

use super::Key;

/// Characters of text, or bytes, that are shown of one part.
const SHOWN_MAX: usize = 64;

/// Elements of an array that are shown.
const ELEMENTS_MAX: usize = 64;

/// A key of the type that the catalog calls `type_name`. Bytes that are not of that type are shown as if it had none.
pub fn shown(type_name: Option<&str>, key: &[u8]) -> String {
    let (mut out, mut rest) = (String::new(), key);
    if let Some(name) = type_name
        && show(name, true, &mut rest, &mut out).is_some()
        && rest.is_empty()
    {
        return out;
    }
    out.clear();
    match std::str::from_utf8(key) {
        Ok(text) if text.chars().all(|c| !is_obeyed(c) || matches!(c, '\t' | '\n' | '\r')) => show_text(text, &mut out),
        _ => show_bytes(key, &mut out),
    }
    out
}

/// Takes a part of a key off `bytes`: one that is not the last tells where it ends. `None`: the type is not known here,
/// or the bytes are not of it.
fn show(name: &str, is_last: bool, bytes: &mut &[u8], out: &mut String) -> Option<()> {
    let between = |begin: &str, end: char| name.strip_prefix(begin)?.strip_suffix(end);
    if let Some(parts) = between("(", ')') {
        let parts = listed(parts);
        out.push('(');
        for (no, part) in parts.iter().enumerate() {
            out.push_str(if no == 0 { "" } else { ", " });
            show(part, is_last && no + 1 == parts.len(), bytes, out)?;
        }
        out.push(')');
        return Some(());
    }
    if let Some(element) = between("[", ']') {
        let (element, count) = element.rsplit_once("; ")?;
        let count: usize = count.parse().ok().filter(|&count| count <= ELEMENTS_MAX)?;
        out.push('[');
        for no in 0..count {
            out.push_str(if no == 0 { "" } else { ", " });
            show(element, is_last && no + 1 == count, bytes, out)?;
        }
        out.push(']');
        return Some(());
    }
    if let Some(some) = between("option<", '>') {
        match take(bytes, 1)? {
            [0] => out.push_str("None"),
            [1] => {
                out.push_str("Some(");
                show(some, is_last, bytes, out)?;
                out.push(')');
            }
            _ => return None,
        }
        return Some(());
    }
    if let Some(len) = between("bytes[", ']') {
        show_bytes(take(bytes, len.parse().ok()?)?, out);
        return Some(());
    }
    match name {
        "u8" => plain::<u8>(bytes, out),
        "u16" => plain::<u16>(bytes, out),
        "u32" => plain::<u32>(bytes, out),
        "u64" => plain::<u64>(bytes, out),
        "u128" => plain::<u128>(bytes, out),
        "i8" => plain::<i8>(bytes, out),
        "i16" => plain::<i16>(bytes, out),
        "i32" => plain::<i32>(bytes, out),
        "i64" => plain::<i64>(bytes, out),
        "i128" => plain::<i128>(bytes, out),
        "f32" => plain::<f32>(bytes, out),
        "f64" => plain::<f64>(bytes, out),
        "bool" => plain::<bool>(bytes, out),
        "char" => character(bytes, out),
        "duration" => duration(bytes, out),
        "time" => time(bytes, out),
        "string" => variable::<String>(is_last, bytes).map(|text| show_text(&text, out)),
        "bytes" => variable::<Vec<u8>>(is_last, bytes).map(|bytes| show_bytes(&bytes, out)),
        _ => None,
    }
}

/// The names of a list of types, which have lists of their own in brackets.
fn listed(names: &str) -> Vec<&str> {
    let (mut found, mut depth, mut begin) = (Vec::new(), 0_u32, 0);
    for (at, c) in names.char_indices() {
        match c {
            '(' | '[' | '<' => depth += 1,
            ')' | ']' | '>' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(names[begin..at].trim_start());
                begin = at + 1;
            }
            _ => {}
        }
    }
    if !names.is_empty() {
        found.push(names[begin..].trim_start());
    }
    found
}

fn take<'b>(bytes: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    let (part, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(part)
}

fn plain<K: Key + Display>(bytes: &mut &[u8], out: &mut String) -> Option<()> {
    write!(out, "{}", K::decode_part(bytes).ok()?).ok()
}

fn character(bytes: &mut &[u8], out: &mut String) -> Option<()> {
    let c = char::decode_part(bytes).ok()?;
    let shown = Readable(c.encode_utf8(&mut [0; 4]).as_bytes()).to_string();
    write!(out, "'{}{shown}'", if c == '\'' { "\\" } else { "" }).ok()
}

fn duration(bytes: &mut &[u8], out: &mut String) -> Option<()> {
    write!(out, "{:?}", Duration::decode_part(bytes).ok()?).ok()
}

fn time(bytes: &mut &[u8], out: &mut String) -> Option<()> {
    match SystemTime::decode_part(bytes).ok()?.duration_since(UNIX_EPOCH) {
        Ok(since) => write!(out, "{since:?} since 1970").ok(),
        Err(before) => write!(out, "{:?} before 1970", before.duration()).ok(),
    }
}

fn variable<K: Key>(is_last: bool, bytes: &mut &[u8]) -> Option<K> {
    if is_last { K::decode(std::mem::take(bytes)) } else { K::decode_part(bytes) }.ok()
}

fn show_text(text: &str, out: &mut String) {
    let end = text.char_indices().nth(SHOWN_MAX).map_or(text.len(), |(at, _)| at);
    let _ = write!(out, "{}", quoted(&text[..end]));
    if end < text.len() {
        let _ = write!(out, "... ({} bytes)", text.len());
    }
}

fn show_bytes(bytes: &[u8], out: &mut String) {
    let _ = write!(out, "0x{}", Hex(&bytes[..bytes.len().min(SHOWN_MAX)]));
    if bytes.len() > SHOWN_MAX {
        let _ = write!(out, "... ({} bytes)", bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::typed::AsKey;

    fn check<K: Key>(key: impl AsKey<K>, expected: &str) {
        let mut bytes = Vec::new();
        key.encode(&mut bytes).unwrap();
        assert_eq!(shown(Some(&K::TYPE.to_string()), &bytes), expected);
    }

    #[test]
    fn keys_are_shown_as_their_types_say() {
        check::<u64>(7, "7");
        check::<i32>(-7, "-7");
        check::<f64>(-0.5, "-0.5");
        check::<char>('ß', "'ß'");
        check::<String>("bolt \"M8\"\n", r#""bolt \"M8\"\n""#);
        check::<Vec<u8>>("bolt", "0x626f6c74");
        check::<[u8; 3]>([0, 1, 255], "0x0001ff");
        check::<(String, u32)>(("bolt", 8), r#"("bolt", 8)"#);
        check::<(u32, String)>((8, "bo\0lt"), r#"(8, "bo\x00lt")"#);
        check::<(char, char, char)>(('a', '\'', '\x1b'), r"('a', '\'', '\x1b')");
        check::<((u8, String), String)>(((1, "a"), "b"), r#"((1, "a"), "b")"#);
        check::<(Option<String>, Option<u8>, bool)>(
            (Some("a".to_string()), None::<u8>, true),
            r#"(Some("a"), None, true)"#,
        );
        check::<()>((), "()");
        check::<(u8, [(String, i8); 2])>((1, [("a", -1), ("b", 2)]), r#"(1, [("a", -1), ("b", 2)])"#);
        check::<Duration>(Duration::from_millis(1500), "1.5s");
        let second = Duration::from_secs(1);
        check::<(SystemTime, u64)>((UNIX_EPOCH + second * 90, 3), "(90s since 1970, 3)");
        check::<SystemTime>(UNIX_EPOCH - second / 2, "500ms before 1970");
        let long = "x".repeat(100);
        check::<String>(long.as_str(), &format!("{:?}... (100 bytes)", "x".repeat(64)));
    }

    #[test]
    fn other_bytes_are_text_or_digits() {
        for type_name in [None, Some("shop.number"), Some("u64"), Some("(u64"), Some("option<"), Some("bytes[9999]")] {
            assert_eq!(shown(type_name, "Äpfel".as_bytes()), "\"Äpfel\"", "{type_name:?}");
            assert_eq!(shown(type_name, b"\x00\xff"), "0x00ff", "{type_name:?}");
            assert_eq!(shown(type_name, b"a\nb"), r#""a\nb""#, "{type_name:?}");
        }
        assert_eq!(shown(None, &[0xff; 100]), format!("0x{}... (100 bytes)", "ff".repeat(64)));
        assert_eq!(shown(None, b""), "\"\"");
    }

    proptest::proptest! {
        /// Whatever the catalog says and the bytes are: one short line of printable text.
        #[test]
        fn a_key_is_one_line(name in "[(\\[]{0,99}[a-z0-9()<>, \\[\\];]{0,20}[)\\]]{0,99}", key: Vec<u8>) {
            let text = shown(Some(&name), &key);
            proptest::prop_assert!(!text.is_empty() && !text.chars().any(is_obeyed));
        }
    }
}
