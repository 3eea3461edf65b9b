//! Reading a dump, ours or one of `db_dump` of Berkeley DB: line by line, in the memory of one record.
//!
//! ```text
//! VERSION=3
//! format=bytevalue
//! database=fruit
//! type=btree
//! HEADER=END
//!  6170706c65
//!  726564
//! DATA=END
//! ```
//! Several databases follow each other. What each keyword means is in `docs/format/dump.md`.

use std::io::{BufRead, Read};
use std::path::Path;

use ledgerstone::{Error, quoted};

use super::text::DumpFormat;

/// Longest key or value that is read: twice as many digits and a little more are the longest line.
const BYTES_MAX: u64 = 1 << 30;
/// Longest line of a header.
const HEADER_LINE_BYTES_MAX: u64 = 1 << 16;

/// The kind of database that was dumped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DumpType {
    /// Sorted by key.
    Btree,
    /// By hash. The order of the records means nothing.
    Hash,
    /// By record number.
    Recno,
    /// By record number, all of one length.
    Queue,
}

/// The header of a database in a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpHeader {
    /// Its name, if the dump gives one.
    pub database: Option<String>,
    /// Its kind.
    pub kind: DumpType,
    /// How its bytes are written.
    pub format: DumpFormat,
    /// It may hold a key several times.
    pub has_duplicates: bool,
    /// True if each record is a line for its key and a line for its value. Otherwise there are values only, numbered
    /// from 1.
    pub has_keys: bool,
    /// The line of the dump in which it begins, from 1.
    pub line: u64,
}

/// What comes next in a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DumpItem {
    /// A database begins.
    Database(DumpHeader),
    /// A record of it. Numbers of records are 4 bytes, big-endian.
    Record {
        /// Its key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// It ends.
    End,
}

/// A reader of dumps. It takes any bytes. If they are not a dump, it returns [`Error::BadDump`] with the line.
pub struct DumpReader<R> {
    from: R,
    line: u64,
    /// Bytes read.
    bytes: u64,
    inside: Option<DumpHeader>,
    next_number: u32,
}

impl<R: BufRead> DumpReader<R> {
    /// Reads from the beginning of a dump.
    pub fn new(from: R) -> DumpReader<R> {
        DumpReader { from, line: 0, bytes: 0, inside: None, next_number: 0 }
    }

    /// The line that was read last, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes
    }

    /// The next item, or `None` at the end of the dump.
    ///
    /// # Errors
    /// [`Error::BadDump`], [`Error::Disk`].
    #[allow(clippy::should_implement_trait)] // Not an iterator: what follows an error is not an item.
    pub fn next(&mut self) -> Result<Option<DumpItem>, Error> {
        match self.inside.take() {
            None => {
                let header = self.read_header()?;
                self.inside.clone_from(&header);
                Ok(header.map(DumpItem::Database))
            }
            Some(header) => self.read_record(header).map(Some),
        }
    }

    fn read_record(&mut self, header: DumpHeader) -> Result<DumpItem, Error> {
        let Some(first) = self.read_bytes(&header)? else { return Ok(DumpItem::End) };
        let is_numbered = matches!(header.kind, DumpType::Recno | DumpType::Queue);
        let (key, value) = if header.has_keys {
            let line = self.line;
            let value = self.read_bytes(&header)?;
            let value = value.ok_or_else(|| self.bad("a key without a value"))?;
            let key = if is_numbered {
                let number = std::str::from_utf8(&first).ok().and_then(|text| text.trim().parse::<u32>().ok());
                let number = number.ok_or_else(|| bad(line, "a record number from 1 to 4294967295 is expected"))?;
                number.to_be_bytes().to_vec()
            } else {
                first
            };
            (key, value)
        } else {
            self.next_number = self.next_number.checked_add(1).ok_or_else(|| self.bad("too many records"))?;
            (self.next_number.to_be_bytes().to_vec(), first)
        };
        self.inside = Some(header);
        Ok(DumpItem::Record { key, value })
    }

    /// A line of data; `None` for the line that ends them.
    fn read_bytes(&mut self, header: &DumpHeader) -> Result<Option<Vec<u8>>, Error> {
        let line = self.read_line(3 * BYTES_MAX + 2)?;
        let mut line = line.ok_or_else(|| self.bad("the dump ends before DATA=END"))?;
        if line == b"DATA=END" {
            return Ok(None);
        }
        if line.first() != Some(&b' ') {
            return Err(self.bad("a line of data begins with a space; DATA=END ends them"));
        }
        line.drain(..1);
        header.format.read(&mut line).map_err(|what| self.bad(what))?;
        if line.len() as u64 > BYTES_MAX {
            return Err(self.bad("longer than 1 GiB"));
        }
        Ok(Some(line))
    }

    fn read_header(&mut self) -> Result<Option<DumpHeader>, Error> {
        let mut header = DumpHeader {
            database: None,
            kind: DumpType::Btree,
            format: DumpFormat::ByteValue,
            has_duplicates: false,
            has_keys: true,
            line: self.line + 1,
        };
        let (mut kind, mut format, mut has_keys, mut is_first) = (None, None, None, true);
        loop {
            let Some(line) = self.read_line(HEADER_LINE_BYTES_MAX)? else {
                return if is_first { Ok(None) } else { Err(self.bad("the dump ends before HEADER=END")) };
            };
            if is_first && line.is_empty() {
                continue; // Between databases.
            }
            let line = std::str::from_utf8(&line).map_err(|_| self.bad("a header that is not text"))?;
            let Some((name, value)) = line.split_once('=') else {
                return Err(self.bad("not a dump: a line KEYWORD=VALUE is expected"));
            };
            if is_first && name != "VERSION" {
                return Err(self.bad("not a dump: it begins with VERSION=3"));
            }
            is_first = false;
            match (name, value) {
                ("VERSION", "1" | "2" | "3") => {}
                ("VERSION", _) => return Err(self.bad("versions 1 to 3 of the format are known")),
                ("format", "bytevalue") => format = Some(DumpFormat::ByteValue),
                ("format", "print") => format = Some(DumpFormat::Print),
                ("format", _) => return Err(self.bad("formats bytevalue and print are known")),
                ("type", "btree") => kind = Some(DumpType::Btree),
                ("type", "hash") => kind = Some(DumpType::Hash),
                ("type", "recno") => kind = Some(DumpType::Recno),
                ("type", "queue") => kind = Some(DumpType::Queue),
                ("type", "heap") => {
                    return Err(self.bad("a heap has no keys that could be kept: dump its secondary index instead"));
                }
                ("type", _) => return Err(self.bad("types btree, hash, recno and queue are known")),
                ("database" | "subdatabase", name) => header.database = Some(self.read_name(name)?),
                ("duplicates" | "dupsort", value) => header.has_duplicates |= self.read_flag(value)?,
                ("keys", value) => has_keys = Some(self.read_flag(value)?),
                ("HEADER", "END") => break,
                // What only tells Berkeley DB how to lay the records out.
                (
                    "db_pagesize" | "db_lorder" | "bt_minkey" | "bt_maxkey" | "chksum" | "extentsize" | "h_ffactor"
                    | "h_nelem" | "re_len" | "re_pad" | "recnum" | "renumber" | "bt_compress" | "blob_threshold"
                    | "ext_threshold" | "partitioned" | "nparts" | "heap_bytes" | "heap_gbytes" | "heap_regionsize",
                    _,
                ) => {}
                _ => return Err(self.bad(&format!("unknown keyword {}", quoted(name)))),
            }
        }
        header.kind = kind.ok_or_else(|| self.bad("the header says no type"))?;
        header.format = format.ok_or_else(|| self.bad("the header says no format"))?;
        let is_numbered = matches!(header.kind, DumpType::Recno | DumpType::Queue);
        header.has_keys = has_keys.unwrap_or(!is_numbered);
        if !header.has_keys && !is_numbered {
            return Err(self.bad("a btree or hash without keys"));
        }
        self.next_number = 0;
        Ok(Some(header))
    }

    fn read_name(&self, text: &str) -> Result<String, Error> {
        let mut bytes = text.as_bytes().to_vec();
        // Older versions of db_dump write names as they are.
        if DumpFormat::Print.read(&mut bytes).is_err() {
            bytes = text.as_bytes().to_vec();
        }
        String::from_utf8(bytes).map_err(|_| self.bad("the name of the database is not UTF-8 text"))
    }

    fn read_flag(&self, value: &str) -> Result<bool, Error> {
        match value {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(self.bad("0 or 1 is expected")),
        }
    }

    /// A line without its end; `None` at the end of the dump.
    fn read_line(&mut self, bytes_max: u64) -> Result<Option<Vec<u8>>, Error> {
        let mut line = Vec::new();
        let read = (&mut self.from).take(bytes_max).read_until(b'\n', &mut line);
        let count = read.map_err(|error| Error::of_io("read", Path::new("the dump"), &error))?;
        if count == 0 {
            return Ok(None);
        }
        self.line += 1;
        self.bytes += count as u64;
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        } else if count as u64 == bytes_max {
            return Err(self.bad("the line is too long"));
        }
        Ok(Some(line))
    }

    fn bad(&self, what: &str) -> Error {
        bad(self.line, what)
    }
}

pub(super) fn bad(line: u64, what: &str) -> Error {
    Error::BadDump { line, what: what.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(text: &str) -> Result<Vec<DumpItem>, Error> {
        let mut reader = DumpReader::new(text.as_bytes());
        let mut items = Vec::new();
        while let Some(item) = reader.next()? {
            items.push(item);
        }
        Ok(items)
    }

    fn records(text: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        let record = |item| match item {
            DumpItem::Record { key, value } => Some((key, value)),
            _ => None,
        };
        items(text).unwrap().into_iter().filter_map(record).collect()
    }

    #[test]
    fn databases_of_both_formats_and_all_kinds_are_read() {
        let text = "VERSION=3\nformat=print\ndatabase=a\\0ab\ntype=btree\ndb_pagesize=4096\nHEADER=END\n k\\00\n v\\\\\n \n \nDATA=END\n\
                    VERSION=3\nformat=bytevalue\ntype=recno\nrenumber=1\nHEADER=END\n 61\n 62\nDATA=END\n\
                    VERSION=3\nformat=bytevalue\ntype=queue\nre_len=2\nkeys=1\nHEADER=END\n 3130\n 6364\nDATA=END\n";
        let found = items(text).unwrap();
        let names: Vec<_> = found
            .iter()
            .filter_map(|item| match item {
                DumpItem::Database(header) => Some((header.kind, header.database.clone(), header.has_keys)),
                _ => None,
            })
            .collect();
        assert_eq!(
            names,
            [
                (DumpType::Btree, Some("a\nb".to_string()), true),
                (DumpType::Recno, None, false),
                (DumpType::Queue, None, true)
            ]
        );
        let expected: [(&[u8], &[u8]); 5] =
            [(b"k\0", b"v\\"), (b"", b""), (&[0, 0, 0, 1], b"a"), (&[0, 0, 0, 2], b"b"), (&[0, 0, 0, 10], b"cd")];
        assert_eq!(records(text), expected.map(|(key, value)| (key.to_vec(), value.to_vec())));
    }

    #[test]
    fn what_is_no_dump_is_refused_with_its_line() {
        let check = |text: &str, expected: u64| match items(text) {
            Err(Error::BadDump { line, .. }) => assert_eq!(line, expected, "{text}"),
            other => panic!("{text}: {other:?}"),
        };
        check("hello\n", 1);
        check("format=print\n", 1);
        check("VERSION=9\n", 1);
        check("VERSION=3\nformat=xml\n", 2);
        check("VERSION=3\nfoo=1\n", 2);
        check("VERSION=3\ntype=heap\n", 2);
        check("VERSION=3\nformat=print\ntype=btree\n", 3);
        check("VERSION=3\nformat=print\nHEADER=END\n", 3);
        let head = "VERSION=3\nformat=bytevalue\ntype=btree\nHEADER=END\n";
        check(&format!("{head} 61\n"), 5);
        check(&format!("{head} 61\nDATA=END\n"), 6);
        check(&format!("{head}61\n"), 5);
        check(&format!("{head} 6\n 61\n"), 5);
        check("VERSION=3\nformat=bytevalue\ntype=recno\nkeys=1\nHEADER=END\n 61\n 61\nDATA=END\n", 6);
    }
}
