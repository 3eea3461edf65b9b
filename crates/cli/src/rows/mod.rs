//! Files of rows: what `import` reads. CSV, TSV and JSON lines become [`Row`]s; a row that cannot be read becomes a
//! [`BadLine`] with its number and its reason, and reading goes on behind it.
//!
//! W1. Any bytes are an input: nothing here panics, and nothing is allocated by a number that the input names.
//! W2. What is held at once is one record of at most [`RECORD_BYTES_MAX`], however long the file.
//! W3. Every line of the input belongs to exactly one row, bad line, header or blank line, and they come in order.
//!
//! This folder knows text. It does not know tables, keys or transactions.

mod column;
mod csv;
mod json;
mod lines;
mod tsv;

pub use column::{ColumnType, FieldType};
pub(crate) use json::kind as json_kind;
pub(crate) use lines::Lines;
pub(crate) use tsv::escape as tsv_escape;

use std::io::BufRead;
use std::sync::Arc;

use ledgerstone::quoted;
use thiserror::Error;

use crate::output::counted;

/// The longest record that is read: a value of 64 MiB and something for the other columns.
pub const RECORD_BYTES_MAX: usize = (64 << 20) + (1 << 20);

/// How the names of files end that are compressed.
pub(crate) const GZIP_ENDING: &str = ".gz";

/// How rows are written in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Comma-separated values with quotes (RFC 4180), the first record naming the columns.
    Csv,
    /// Tab-separated values, `\t`, `\n`, `\r` and `\\` written as such, the first line naming the columns.
    Tsv,
    /// One JSON object a line.
    Jsonl,
}

impl Format {
    /// The format that a file's name promises.
    pub fn of_name(name: &str) -> Option<Format> {
        let name = name.strip_suffix(GZIP_ENDING).unwrap_or(name);
        match name.rsplit_once('.')?.1.to_ascii_lowercase().as_str() {
            "csv" => Some(Format::Csv),
            "tsv" | "tab" => Some(Format::Tsv),
            "jsonl" | "ndjson" | "json" => Some(Format::Jsonl),
            _ => None,
        }
    }
}

/// One row: either the fields of the named columns, or a JSON object with its own text.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// As many fields as there are columns.
    Fields {
        /// Names, shared by all rows of a file.
        columns: Arc<[String]>,
        /// Their values, in the same order.
        fields: Vec<String>,
    },
    /// A JSON object, and the text it was read from without the blanks around it.
    Object {
        /// What the line says, byte for byte.
        text: String,
        /// The same, parsed.
        object: serde_json::Map<String, serde_json::Value>,
    },
}

/// Why a line is not a row. The number of the line is beside it, in [`BadLine`].
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The record has more or fewer fields than the header.
    #[error("{} where the header names {expected}", counted(*found as u64, "field"))]
    FieldCount {
        /// Columns of the header.
        expected: usize,
        /// Fields of this record.
        found: usize,
    },
    /// The file, or the longest allowed record, ended inside quotes.
    #[error("the quote opened in column {column} is never closed")]
    OpenQuote {
        /// Counted from 1.
        column: usize,
    },
    /// Something other than a comma follows a closing quote.
    #[error("text after the closing quote in column {column}")]
    TextAfterQuote {
        /// Counted from 1.
        column: usize,
    },
    /// Bytes that are not UTF-8.
    #[error("not UTF-8 from byte {offset} on")]
    NotUtf8 {
        /// Counted from 0, in the field (CSV) or the line.
        offset: usize,
    },
    /// A record above [`RECORD_BYTES_MAX`].
    #[error("longer than {max} bytes")]
    TooLong {
        /// The limit.
        max: usize,
    },
    /// The line is not JSON.
    #[error("not JSON: {what} at column {column}")]
    Json {
        /// The parser's word for it.
        what: String,
        /// Counted from 1.
        column: usize,
    },
    /// The line is JSON, but no object.
    #[error("a JSON {found}, and a row has to be an object")]
    NotAnObject {
        /// What it is instead.
        found: &'static str,
    },
    /// The row has no such column, or nothing in it.
    #[error("nothing in column {column}")]
    NothingIn {
        /// The column's name.
        column: String,
    },
    /// A list or an object stands where one value is wanted.
    #[error("column {column} holds a {found}, which cannot be a key")]
    NoKey {
        /// The column's name.
        column: String,
        /// What it holds.
        found: &'static str,
    },
    /// The text of a key or value is not what its type says.
    #[error("column {column}: {what}")]
    Typed {
        /// The column's name.
        column: String,
        /// What is wrong with the text.
        what: String,
    },
    /// The table refuses the row.
    #[error("{what}")]
    Refused {
        /// The table's word for it.
        what: String,
    },
}

/// A line that is not a row.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("line {line}: {reason}")]
pub struct BadLine {
    /// The number of the line where the record begins, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: Reason,
}

/// What ends the reading of a file before its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RowsError {
    /// The file cannot be read.
    #[error("it cannot be read after line {after_line}")]
    Read {
        /// The last line that was read.
        after_line: u64,
        /// The system's word for it.
        source: std::io::Error,
    },
    /// The header cannot be used.
    #[error("the header is malformed: {0}")]
    Header(BadLine),
    /// Two columns have one name.
    #[error("the header names column {} twice", quoted(.name))]
    ColumnTwice {
        /// The name.
        name: String,
    },
    /// There is no header: the file is empty.
    #[error("the file is empty: its first line must name the columns")]
    Empty,
}

/// Reads rows, one call each.
pub struct Rows<R> {
    lines: lines::Lines<R>,
    how: How,
}

enum How {
    Csv { columns: Arc<[String]>, delimiter: u8 },
    Tsv { columns: Arc<[String]> },
    Jsonl,
}

impl<R: BufRead> Rows<R> {
    /// Begins to read; for CSV and TSV this reads the header. `columns` names them instead, when the file has none.
    pub fn open(input: R, format: Format, delimiter: u8, columns: Option<Vec<String>>) -> Result<Rows<R>, RowsError> {
        let mut lines = lines::Lines::new(input, RECORD_BYTES_MAX);
        let how = match format {
            Format::Jsonl => How::Jsonl,
            Format::Csv => How::Csv { columns: header(columns, || csv::next(&mut lines, delimiter))?, delimiter },
            Format::Tsv => How::Tsv { columns: header(columns, || tsv::next(&mut lines))? },
        };
        Ok(Rows { lines, how })
    }

    /// The columns that the header names; none for JSON lines, where every row names its own.
    pub fn columns(&self) -> Option<&[String]> {
        match &self.how {
            How::Csv { columns, .. } | How::Tsv { columns } => Some(columns),
            How::Jsonl => None,
        }
    }

    /// The next row with the number of its first line; `None` at the end. After a [`BadLine`] reading can go on.
    ///
    /// # Errors
    /// Only what ends the reading: the file cannot be read.
    #[allow(clippy::type_complexity)]
    pub fn next_row(&mut self) -> Result<Option<Result<(u64, Row), BadLine>>, RowsError> {
        let (columns, record) = match &self.how {
            How::Jsonl => return json::next(&mut self.lines),
            How::Csv { columns, delimiter } => (columns, csv::next(&mut self.lines, *delimiter)?),
            How::Tsv { columns } => (columns, tsv::next(&mut self.lines)?),
        };
        Ok(record.map(|record| {
            let (line, fields) = record?;
            if fields.len() != columns.len() {
                let reason = Reason::FieldCount { expected: columns.len(), found: fields.len() };
                return Err(BadLine { line, reason });
            }
            Ok((line, Row::Fields { columns: Arc::clone(columns), fields }))
        }))
    }
}

/// A record of fields, with the number of its first line.
type Record = Result<(u64, Vec<String>), BadLine>;

fn header(
    given: Option<Vec<String>>,
    read: impl FnOnce() -> Result<Option<Record>, RowsError>,
) -> Result<Arc<[String]>, RowsError> {
    let columns = match given {
        Some(columns) => columns,
        None => read()?.ok_or(RowsError::Empty)?.map_err(RowsError::Header)?.1,
    };
    let mut sorted: Vec<&String> = columns.iter().collect();
    sorted.sort();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(RowsError::ColumnTwice { name: pair[0].clone() });
    }
    Ok(columns.into())
}

fn utf8(bytes: Vec<u8>, line: u64) -> Result<String, BadLine> {
    String::from_utf8(bytes)
        .map_err(|e| BadLine { line, reason: Reason::NotUtf8 { offset: e.utf8_error().valid_up_to() } })
}

/// What the fuzz target calls: reads any bytes to their end in every format, and checks W3 on the way.
pub fn exercise(bytes: &[u8]) {
    for (format, delimiter) in [(Format::Csv, b','), (Format::Csv, b';'), (Format::Tsv, b'\t'), (Format::Jsonl, b',')] {
        let Ok(mut rows) = Rows::open(bytes, format, delimiter, None) else { continue };
        let mut last = 0;
        while let Ok(Some(row)) = rows.next_row() {
            let line = match &row {
                Ok((line, _)) => *line,
                Err(bad) => bad.line,
            };
            assert!(line > last, "line {line} comes after line {last}");
            last = line;
        }
    }
}

#[cfg(test)]
mod tests;
