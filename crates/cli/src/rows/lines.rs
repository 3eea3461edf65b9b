//! Lines with their numbers, which can be given back: a record that turns out to be none is read again line by line.
//!
//! L1. A line comes with its ending, so that a quoted field keeps its bytes; [`Line::text`] is without it.
//! L2. A line above the limit comes as `None` bytes; what it held is skipped, not held.

use std::collections::VecDeque;
use std::io::{BufRead, Read};

use super::RowsError;

pub(crate) struct Lines<R> {
    input: R,
    read_count: u64,
    given_back: VecDeque<Line>,
    pub(super) bytes_max: usize,
}

pub(crate) struct Line {
    pub(super) no: u64,
    /// With the ending; `None` when the line was too long.
    pub(crate) bytes: Option<Vec<u8>>,
}

impl Line {
    pub(super) fn text(bytes: &[u8]) -> &[u8] {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        bytes.strip_suffix(b"\r").unwrap_or(bytes)
    }
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(input: R, bytes_max: usize) -> Lines<R> {
        Lines { input, read_count: 0, given_back: VecDeque::new(), bytes_max }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Line>, RowsError> {
        if let Some(line) = self.given_back.pop_front() {
            return Ok(Some(line));
        }
        let failed = |source| RowsError::Read { after_line: self.read_count, source };
        let mut bytes = Vec::new();
        let limit = self.bytes_max as u64 + 1;
        let count = self.input.by_ref().take(limit).read_until(b'\n', &mut bytes).map_err(failed)?;
        if count == 0 {
            return Ok(None);
        }
        let is_too_long = count as u64 == limit && bytes.last() != Some(&b'\n');
        if is_too_long {
            skip_line(&mut self.input).map_err(failed)?;
        }
        self.read_count += 1;
        if self.read_count == 1 && bytes.starts_with(b"\xEF\xBB\xBF") {
            bytes.drain(..3); // The mark that some editors put in front of UTF-8.
        }
        Ok(Some(Line { no: self.read_count, bytes: (!is_too_long).then_some(bytes) }))
    }

    /// The lines will come again, in this order, before the rest of the input.
    pub(super) fn give_back(&mut self, lines: Vec<Line>) {
        for line in lines.into_iter().rev() {
            self.given_back.push_front(line);
        }
    }
}

fn skip_line(input: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let held = input.fill_buf()?;
        if held.is_empty() {
            return Ok(());
        }
        let (count, is_end) = match held.iter().position(|&byte| byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (held.len(), false),
        };
        input.consume(count);
        if is_end {
            return Ok(());
        }
    }
}
