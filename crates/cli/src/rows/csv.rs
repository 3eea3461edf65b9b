//! CSV as RFC 4180 has it: fields between delimiters, quoted where they hold one, a quote inside quotes doubled.
//!
//! The `csv` crate writes our exports, but is not used here. To that crate, a quote that is never closed begins a field
//! that holds the rest of the file, without an error. Here the line where the quote opened is reported, and reading
//! goes on with the line behind it, so that one slip costs one line.
//!
//! A quote inside an unquoted field stands for itself (`5" pipe`). Blank lines are skipped.

use std::io::BufRead;

use super::lines::{Line, Lines};
use super::{BadLine, Reason, Record, RowsError, utf8};

pub(super) fn next<R: BufRead>(lines: &mut Lines<R>, delimiter: u8) -> Result<Option<Record>, RowsError> {
    let (first_no, mut bytes) = loop {
        let Some(line) = lines.next()? else { return Ok(None) };
        match line.bytes {
            None => return Ok(Some(Err(too_long(line.no, lines.bytes_max)))),
            Some(bytes) if Line::text(&bytes).is_empty() => {}
            Some(bytes) => break (line.no, bytes),
        }
    };
    let mut parser = Parser { delimiter, fields: vec![Vec::new()], state: State::Start };
    let mut taken_bytes = 0;
    let mut behind = Vec::new(); // The lines of the record behind its first, in case that it is none.
    loop {
        taken_bytes += bytes.len();
        let refused = match parser.push(&bytes) {
            Ok(true) => break,
            Ok(false) if taken_bytes > lines.bytes_max => Some(Reason::TooLong { max: lines.bytes_max }),
            Ok(false) => None,
            Err(reason) => Some(reason),
        };
        let line = match refused {
            Some(reason) => Err(reason),
            None => match lines.next()? {
                Some(line) => Ok(line),
                None => Err(Reason::OpenQuote { column: parser.fields.len() }),
            },
        };
        match line {
            Ok(Line { no, bytes: Some(next) }) => {
                bytes.clone_from(&next);
                behind.push(Line { no, bytes: Some(next) });
            }
            Ok(line @ Line { bytes: None, .. }) => {
                behind.push(line);
                lines.give_back(behind);
                return Ok(Some(Err(too_long(first_no, lines.bytes_max))));
            }
            Err(reason) => {
                lines.give_back(behind);
                return Ok(Some(Err(BadLine { line: first_no, reason })));
            }
        }
    }
    let mut fields = Vec::with_capacity(parser.fields.len());
    for field in parser.fields {
        match utf8(field, first_no) {
            Ok(field) => fields.push(field),
            Err(bad) => {
                lines.give_back(behind);
                return Ok(Some(Err(bad)));
            }
        }
    }
    Ok(Some(Ok((first_no, fields))))
}

fn too_long(line: u64, max: usize) -> BadLine {
    BadLine { line, reason: Reason::TooLong { max } }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Before the first byte of a field.
    Start,
    /// In a field without quotes.
    Bare,
    /// Between quotes: delimiters and line endings are bytes like others.
    Quoted,
    /// Behind a quote inside quotes: it closed the field, or the next byte is a quote and both are one.
    Closed,
}

struct Parser {
    delimiter: u8,
    fields: Vec<Vec<u8>>,
    state: State,
}

impl Parser {
    /// Takes one line with its ending; true when the record ends with it.
    fn push(&mut self, line: &[u8]) -> Result<bool, Reason> {
        let text_bytes = Line::text(line).len();
        for (at, &byte) in line.iter().enumerate() {
            if at >= text_bytes && self.state != State::Quoted {
                break;
            }
            self.push_byte(byte)?;
        }
        Ok(self.state != State::Quoted)
    }

    fn push_byte(&mut self, byte: u8) -> Result<(), Reason> {
        let column = self.fields.len();
        let Some(field) = self.fields.last_mut() else { return Ok(()) }; // There is always one.
        match (self.state, byte) {
            (State::Start, b'"') => self.state = State::Quoted,
            (State::Quoted, b'"') => self.state = State::Closed,
            (State::Quoted, _) => field.push(byte),
            (State::Closed, b'"') => {
                field.push(byte);
                self.state = State::Quoted;
            }
            (_, _) if byte == self.delimiter => {
                self.fields.push(Vec::new());
                self.state = State::Start;
            }
            (State::Closed, _) => return Err(Reason::TextAfterQuote { column }),
            (State::Start | State::Bare, _) => {
                field.push(byte);
                self.state = State::Bare;
            }
        }
        Ok(())
    }
}
