//! [`RawFile`]: an open file of a raw store.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::inode::{Body, Inode, Piece, pieces};
use super::planted::RawBug;
use super::shared::{Shared, lock};
use super::table::{EXTENTS_MAX, HOLE};
use crate::disk::DiskFile;
use crate::error::{DiskError, DiskErrorKind};

pub(super) struct RawFile {
    pub shared: Arc<Shared>,
    pub inode: Arc<Inode>,
    pub name: String,
    pub read_only: bool,
}

impl RawFile {
    fn error(&self, operation: &'static str, kind: DiskErrorKind) -> DiskError {
        DiskError::new(&self.name, operation, kind)
    }

    fn extent_bytes(&self) -> u64 {
        self.shared.superblock().extent_bytes
    }

    /// Refuses what a handle of an earlier opening asks for.
    fn check_epoch(&self, operation: &'static str) -> Result<(), DiskError> {
        match self.inode.epoch == self.shared.epoch() {
            true => Ok(()),
            false => Err(self.error(operation, DiskErrorKind::Closed)),
        }
    }

    fn check_writable(&self, operation: &'static str) -> Result<(), DiskError> {
        if self.read_only {
            return Err(self.error(operation, DiskErrorKind::Permission));
        }
        self.check_epoch(operation)
    }

    fn check_end(&self, operation: &'static str, offset: u64, len: u64) -> Result<u64, DiskError> {
        let end = offset.checked_add(len).filter(|end| end.div_ceil(self.extent_bytes()) <= EXTENTS_MAX);
        end.ok_or_else(|| self.error(operation, DiskErrorKind::OutOfRange).at(offset))
    }

    fn write(&self, operation: &'static str, offset: u64, bytes: &[u8], durably: bool) -> Result<(), DiskError> {
        self.check_writable(operation)?;
        let range = offset..self.check_end(operation, offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let in_place = {
            let body = self.inode.body.lock();
            let is_durable = !durably || body.changed_at <= self.shared.durable_seq();
            (is_durable && body.is_plain(&range, self.extent_bytes())).then(|| Arc::clone(&body.extents))
        };
        if let Some(extents) = in_place {
            return self.write_in_place(&extents, offset, bytes, durably);
        }
        self.shared.make_whole()?;
        self.with_space(operation, || self.write_growing(offset, bytes))?;
        if durably { self.sync() } else { Ok(()) }
    }

    /// Bytes whose place is the file's already. Successive extents are written by one call.
    fn write_in_place(&self, extents: &[u32], offset: u64, bytes: &[u8], durably: bool) -> Result<(), DiskError> {
        let end = offset + bytes.len() as u64;
        let mut done = 0;
        for (at, len) in self.shared.joined(extents, offset..end) {
            let piece = &bytes[done..done + len as usize];
            match durably {
                true => self.shared.write_durable_at(at, piece)?,
                false => self.shared.flat.write_at(at, piece)?,
            }
            done += piece.len();
        }
        Ok(())
    }

    /// Bytes of which some have no place yet, or a place that is not the file's (R1).
    fn write_growing(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let _growing = lock(&self.inode.growing);
        let (range, extent_bytes) = (offset..offset + bytes.len() as u64, self.extent_bytes());
        self.shared.give(&self.inode, range.clone()).map_err(|kind| self.error("write", kind).at(offset))?;
        let mut done = 0;
        for piece in pieces(range, extent_bytes) {
            let count = (piece.end - piece.start) as usize;
            let written = self.write_piece(piece, &bytes[done..done + count]);
            if let Err(error) = written {
                self.shared.give_back(&self.inode); // What lies behind the length now.
                return Err(error);
            }
            done += count;
        }
        Ok(())
    }

    /// Called with `growing` held.
    fn write_piece(&self, piece: Piece, bytes: &[u8]) -> Result<(), DiskError> {
        let (at, mark) = {
            let body = self.inode.body.lock();
            (self.shared.place_of(body.extent(piece.extent)), body.marks.get(piece.extent as u64).copied())
        };
        if let Some(mark) = mark.filter(|mark| *mark < piece.start) {
            self.shared.flat.zero(at + mark, piece.start - mark)?;
        }
        self.shared.flat.write_at(at + piece.start, bytes)?;
        let end = piece.extent as u64 * self.extent_bytes() + piece.end;
        self.shared.change(&self.inode, |body, seq| {
            body.raise_mark(piece.extent, piece.end, self.extent_bytes());
            if end > body.len {
                (body.len, body.changed_at) = (end, seq);
            }
            None
        });
        Ok(())
    }

    /// Runs a call that may need space. If there is too little, what was given up is made free, and it runs once more.
    fn with_space(
        &self,
        operation: &'static str,
        mut call: impl FnMut() -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        match call() {
            Err(error) if error.is_no_space() && self.shared.has_given_up() => {
                self.shared.commit(operation)?;
                call()
            }
            done => done,
        }
    }
}

impl DiskFile for RawFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.check_epoch("read")?;
        let short = || self.error("read", DiskErrorKind::ShortRead).at(offset);
        let end = offset.checked_add(buf.len() as u64).ok_or_else(short)?;
        let extent_bytes = self.extent_bytes();
        let (extents, marks) = {
            let body = self.inode.body.lock();
            if end > body.len {
                return Err(short());
            }
            let numbers = offset / extent_bytes..end.div_ceil(extent_bytes);
            let marks: Vec<_> = body.marks.range(numbers).map(|(number, mark)| (number as usize, *mark)).collect();
            let is_whole =
                marks.is_empty() && pieces(offset..end, extent_bytes).all(|piece| body.extent(piece.extent) != HOLE);
            (Arc::clone(&body.extents), (!is_whole).then_some(marks))
        };
        let mut done = 0;
        let Some(marks) = marks else {
            for (at, len) in self.shared.joined(&extents, offset..end) {
                self.shared.flat.read_at(at, &mut buf[done..done + len as usize])?;
                done += len as usize;
            }
            return Ok(());
        };
        for piece in pieces(offset..end, extent_bytes) {
            let to = &mut buf[done..done + (piece.end - piece.start) as usize];
            done += to.len();
            let extent = extents.get(piece.extent).copied().unwrap_or(HOLE);
            let mark = marks.iter().find(|(number, _)| *number == piece.extent).map_or(extent_bytes, |(_, mark)| *mark);
            let ours = if extent == HOLE { 0 } else { mark.clamp(piece.start, piece.end) - piece.start };
            let (ours, zeros) = to.split_at_mut(ours as usize);
            if !ours.is_empty() {
                self.shared.flat.read_at(self.shared.place_of(extent) + piece.start, ours)?;
            }
            zeros.fill(0);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write("write", offset, bytes, false)
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write("write durably", offset, bytes, true)
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.check_epoch("sync")?;
        let changed_at = self.inode.body.lock().changed_at;
        // A file without a name is in no table.
        let has_changed = changed_at > self.shared.durable_seq() && !RawBug::LengthUnsynced.is_on();
        match has_changed && self.inode.has_name.load(Relaxed) {
            true => self.shared.commit("sync"),
            false => self.shared.sync("sync"),
        }
    }

    fn settle(&self) -> Result<(), DiskError> {
        self.check_epoch("sync")?;
        let changed_at = self.inode.body.lock().changed_at;
        match changed_at > self.shared.durable_seq() {
            true => self.sync(),
            false => self.shared.settle(), // A store that is only read is not written (W1).
        }
    }

    fn len(&self) -> Result<u64, DiskError> {
        Ok(self.inode.body.lock().len)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.check_writable("allocate")?;
        let end = self.check_end("allocate", offset, len)?;
        if len == 0 {
            return Ok(());
        }
        self.shared.make_whole()?;
        self.with_space("allocate", || {
            let _growing = lock(&self.inode.growing);
            let given = self.shared.give(&self.inode, offset..end);
            given.map_err(|kind| self.error("allocate", kind).at(offset))?;
            self.shared.change(&self.inode, |body: &mut Body, seq| {
                if end > body.len {
                    (body.len, body.changed_at) = (end, seq);
                }
                None
            });
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.check_writable("set length")?;
        self.check_end("set length", 0, len)?;
        let _growing = lock(&self.inode.growing);
        self.shared.change(&self.inode, |body, seq| {
            if len == body.len {
                return None;
            }
            body.changed_at = seq;
            body.set_len(len, self.extent_bytes())
        });
        Ok(())
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for RawFile {
    fn drop(&mut self) {
        self.shared.close(&self.inode);
    }
}
