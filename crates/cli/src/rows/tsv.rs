//! TSV: fields between tabs, one record a line, no quotes. `\t`, `\n`, `\r` and `\\` stand for what a field cannot hold
//! otherwise; any other backslash stands for itself.

use std::io::BufRead;

use super::lines::{Line, Lines};
use super::{BadLine, Reason, Record, RowsError, utf8};

pub(super) fn next<R: BufRead>(lines: &mut Lines<R>) -> Result<Option<Record>, RowsError> {
    loop {
        let Some(line) = lines.next()? else { return Ok(None) };
        let Some(bytes) = line.bytes else {
            let reason = Reason::TooLong { max: lines.bytes_max };
            return Ok(Some(Err(BadLine { line: line.no, reason })));
        };
        let text = Line::text(&bytes);
        if text.is_empty() {
            continue;
        }
        let record = utf8(text.to_vec(), line.no).map(|text| (line.no, text.split('\t').map(unescape).collect()));
        return Ok(Some(record));
    }
}

fn unescape(field: &str) -> String {
    let mut text = String::with_capacity(field.len());
    let mut chars = field.chars().peekable();
    while let Some(c) = chars.next() {
        let meant = match (c, chars.peek()) {
            ('\\', Some('t')) => Some('\t'),
            ('\\', Some('n')) => Some('\n'),
            ('\\', Some('r')) => Some('\r'),
            ('\\', Some('\\')) => Some('\\'),
            _ => None,
        };
        if meant.is_some() {
            chars.next();
        }
        text.push(meant.unwrap_or(c));
    }
    text
}

/// The field as [`next`] would read it back.
pub(crate) fn escape(field: &str) -> String {
    field.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}
