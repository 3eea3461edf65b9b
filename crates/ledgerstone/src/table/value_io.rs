//! Values read and written in parts, without ever being whole in memory.

use std::io::{self, Read, Seek, SeekFrom, Write};

use ledgerstone_lock::Mode;
use ledgerstone_structures::{FoundValue, VALUE_BYTES_MAX};
use ledgerstone_txn::Txn;

use crate::{BytesTable, Error};

/// Bytes that one call of `read` or `write` handles, at most.
const CALL_BYTES_MAX: usize = 256 << 10;

/// Reads a value from any position on. Made by [`BytesTable::value_reader`]. It is owned, and can be sent.
///
/// Each call reads as the transaction's isolation level says. A serializable transaction has the key locked until it
/// ends.
#[derive(Debug)]
pub struct ValueReader {
    table: BytesTable,
    key: Vec<u8>,
    position: u64,
    found: FoundValue,
}

/// Writes parts of a value: overwrites, appends, cuts off. Made by [`BytesTable::value_writer`]. It is owned, and can
/// be sent.
///
/// What is written belongs to the transaction at once, and there is nothing to flush. Only what changes is logged. In a
/// table with indexes, each call reads the whole value, to know its index keys before and after. Put large values there
/// in one call.
#[derive(Debug)]
pub struct ValueWriter {
    table: BytesTable,
    key: Vec<u8>,
    position: u64,
}

impl BytesTable {
    /// The value of `key`, to be read in parts. None if the key has no value.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn value_reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>, Error> {
        let key = key.as_ref();
        let len = self.value_len(key)?;
        Ok(len.map(|_| ValueReader {
            table: self.clone(),
            key: key.to_vec(),
            position: 0,
            found: FoundValue::default(),
        }))
    }

    /// The value of `key`, to be written in parts. If the key has no value, an empty one is made.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use std::io::{Read, Seek, SeekFrom, Write};
    /// let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
    /// let txn = env.begin()?;
    /// let films = txn.bytes_or_create("films")?;
    /// let mut film = films.value_writer(b"night")?;
    /// film.write_all(&[0; 100_000])?;
    /// film.seek(SeekFrom::Start(50_000))?;
    /// film.write_all(b"the middle")?;
    /// txn.commit()?;
    ///
    /// let txn = env.begin()?;
    /// let mut film = txn.bytes("films")?.value_reader(b"night")?.ok_or("no such film")?;
    /// film.seek(SeekFrom::Start(50_004))?;
    /// let mut middle = [0; 6];
    /// film.read_exact(&mut middle)?;
    /// assert_eq!(&middle, b"middle");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn value_writer(&self, key: impl AsRef<[u8]>) -> Result<ValueWriter, Error> {
        let key = key.as_ref();
        self.open_value(key)?;
        Ok(ValueWriter { table: self.clone(), key: key.to_vec(), position: 0 })
    }

    /// The length of the value of `key` in bytes, without reading it. None if the key has no value.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn value_len(&self, key: impl AsRef<[u8]>) -> Result<Option<u64>, Error> {
        let key = key.as_ref();
        self.look(|txn, sight| Ok(self.tree().value_len(txn, key, sight.read())?))
    }
}

impl BytesTable {
    /// Makes an empty value if there is none; gives its length.
    fn open_value(&self, key: &[u8]) -> Result<u64, Error> {
        self.enter(Mode::IX, |txn| {
            let open = |txn: &mut Txn| Ok(self.tree().open_value(txn, key)?);
            self.info().edit_value(txn, key, |_| (), open)
        })
    }
}

impl ValueReader {
    /// The length of the value in bytes. 0 if it was deleted meanwhile.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn len(&self) -> Result<u64, Error> {
        Ok(self.table.value_len(&self.key)?.unwrap_or(0))
    }

    /// True if the value has no bytes.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len()? == 0)
    }
}

impl Read for ValueReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = buf.len().min(CALL_BYTES_MAX);
        let mut part = Vec::with_capacity(len);
        let (table, key, found) = (&self.table, &self.key, &mut self.found);
        let range = (self.position, len as u64);
        table
            .look(|txn, sight| Ok(table.tree().read_part(txn, key, sight.read(), range, found, &mut part)?))
            .map_err(io::Error::other)?;
        buf[..part.len()].copy_from_slice(&part);
        self.position += part.len() as u64;
        Ok(part.len())
    }
}

impl Seek for ValueReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = sought(to, self.position, || self.len())?;
        Ok(self.position)
    }
}

impl ValueWriter {
    /// The length of the value in bytes.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn len(&self) -> Result<u64, Error> {
        self.table.open_value(&self.key)
    }

    /// True if the value has no bytes.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len()? == 0)
    }

    /// Makes the value shorter, or longer by zeros. The position stays. The pages of the part that is cut off are given
    /// back when the value is replaced or deleted, or by a compaction.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn set_len(&mut self, len: u64) -> Result<(), Error> {
        let (table, key) = (&self.table, &self.key);
        table.enter(Mode::IX, |txn| {
            let set = |txn: &mut Txn| Ok(table.tree().set_value_len(txn, key, len)?);
            table.info().edit_value(txn, key, |value| resize(value, len), set)
        })
    }
}

impl Write for ValueWriter {
    /// Writes at the position, over what is there or beyond its end; a gap is zeros.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(CALL_BYTES_MAX)];
        let (table, key, position) = (&self.table, &self.key, self.position);
        if !part.is_empty() {
            table
                .enter(Mode::IX, |txn| {
                    let write = |txn: &mut Txn| Ok(table.tree().write_part(txn, key, position, part)?);
                    table.info().edit_value(txn, key, |value| overwrite(value, position, part), write)
                })
                .map_err(io::Error::other)?;
        }
        self.position += part.len() as u64;
        Ok(part.len())
    }

    /// Does nothing: what was written belongs to the transaction already.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for ValueWriter {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = sought(to, self.position, || self.len())?;
        Ok(self.position)
    }
}

/// What another length makes of a value. One that cannot be is refused by the tree afterwards.
fn resize(value: &mut Vec<u8>, len: u64) {
    if len <= VALUE_BYTES_MAX as u64 {
        value.resize(len as usize, 0);
    }
}

/// What a write of `part` makes of a value; likewise.
fn overwrite(value: &mut Vec<u8>, position: u64, part: &[u8]) {
    let end = position.saturating_add(part.len() as u64);
    if end <= VALUE_BYTES_MAX as u64 {
        resize(value, end.max(value.len() as u64));
        value[position as usize..end as usize].copy_from_slice(part);
    }
}

fn sought(to: SeekFrom, position: u64, len: impl FnOnce() -> Result<u64, Error>) -> io::Result<u64> {
    let (from, by) = match to {
        SeekFrom::Start(at) => return Ok(at),
        SeekFrom::Current(by) => (position, by),
        SeekFrom::End(by) => (len().map_err(io::Error::other)?, by),
    };
    from.checked_add_signed(by).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}
