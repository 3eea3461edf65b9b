//! JSON lines: one object a line. The text is kept beside the object, so that what is stored is what was written: the
//! order of the members and the digits of a number survive.

use std::io::BufRead;

use serde_json::Value;

use super::lines::{Line, Lines};
use super::{BadLine, Reason, Row, RowsError, utf8};

#[allow(clippy::type_complexity)]
pub(super) fn next<R: BufRead>(lines: &mut Lines<R>) -> Result<Option<Result<(u64, Row), BadLine>>, RowsError> {
    loop {
        let Some(line) = lines.next()? else { return Ok(None) };
        let no = line.no;
        let Some(bytes) = line.bytes else {
            return Ok(Some(Err(BadLine { line: no, reason: Reason::TooLong { max: lines.bytes_max } })));
        };
        let text = Line::text(&bytes).trim_ascii();
        if text.is_empty() {
            continue;
        }
        return Ok(Some(utf8(text.to_vec(), no).and_then(|text| match parse(text) {
            Ok(row) => Ok((no, row)),
            Err(reason) => Err(BadLine { line: no, reason }),
        })));
    }
}

fn parse(text: String) -> Result<Row, Reason> {
    // serde_json bounds the depth, so that nested brackets cannot exhaust the stack.
    match serde_json::from_str(&text) {
        Ok(Value::Object(object)) => Ok(Row::Object { text, object }),
        Ok(other) => Err(Reason::NotAnObject { found: kind(&other) }),
        Err(e) => {
            let what = e.to_string();
            let what = what.split(" at line ").next().unwrap_or_default().to_owned();
            Err(Reason::Json { what, column: e.column() })
        }
    }
}

pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}
