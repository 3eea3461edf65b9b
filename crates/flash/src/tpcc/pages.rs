//! Pages for TPC-C: in memory, on a transactional store, and a recorder in front of either.

use super::Pages;
use crate::Xid;
use crate::error::{FlashError, Result};
use crate::trace::{Access, Trace};
use crate::transact::Transactions;

/// Pages in memory. Pages that were never written take no room and read as 0xFF. One transaction at a time.
#[derive(Clone, Debug)]
pub struct MemoryPages {
    pages: Vec<Option<Box<[u8]>>>,
    page_bytes: usize,
    /// Page, offset and bytes before, of the transaction under way.
    undo: Vec<(u32, usize, Box<[u8]>)>,
}

impl MemoryPages {
    /// So many pages of a size.
    pub fn new(count: u32, page_bytes: usize) -> Self {
        Self { pages: vec![None; count as usize], page_bytes, undo: Vec::new() }
    }

    /// What was written stays.
    pub fn commit(&mut self) {
        self.undo.clear();
    }

    /// Takes back what was written since the last commit.
    pub fn roll_back(&mut self) {
        for (page, offset, before) in self.undo.drain(..).rev() {
            if let Some(own) = &mut self.pages[page as usize] {
                own[offset..offset + before.len()].copy_from_slice(&before);
            }
        }
    }

    fn unknown(&self, lba: u32) -> FlashError {
        FlashError::UnknownPage { lba, count: self.pages.len() as u32 }
    }
}

impl Pages for MemoryPages {
    fn read(&mut self, page: u32, _record: u16, offset: usize, out: &mut [u8]) -> Result<()> {
        let unknown = self.unknown(page);
        match self.pages.get(page as usize).ok_or(unknown)? {
            Some(bytes) => out.copy_from_slice(&bytes[offset..offset + out.len()]),
            None => out.fill(0xff),
        }
        Ok(())
    }

    fn write(&mut self, page: u32, _record: u16, offset: usize, bytes: &[u8]) -> Result<()> {
        let (unknown, page_bytes) = (self.unknown(page), self.page_bytes);
        let own = self.pages.get_mut(page as usize).ok_or(unknown)?;
        let own = own.get_or_insert_with(|| vec![0xff; page_bytes].into());
        let place = &mut own[offset..offset + bytes.len()];
        self.undo.push((page, offset, (&*place).into()));
        place.copy_from_slice(bytes);
        Ok(())
    }
}

/// Pages of a store within a transaction, the one begun last.
#[derive(Debug)]
pub struct StorePages<T> {
    /// The store.
    pub store: T,
    txn: Xid,
}

impl<T: Transactions> StorePages<T> {
    /// A store, with a transaction begun.
    pub fn new(mut store: T) -> Self {
        let txn = store.begin();
        Self { store, txn }
    }

    /// Commits and begins the next transaction.
    ///
    /// # Errors
    /// Those of the store.
    pub fn commit(&mut self) -> Result<()> {
        self.store.commit(self.txn)?;
        self.txn = self.store.begin();
        Ok(())
    }

    /// Aborts and begins the next transaction.
    ///
    /// # Errors
    /// Those of the store.
    pub fn abort(&mut self) -> Result<()> {
        self.store.abort(self.txn)?;
        self.txn = self.store.begin();
        Ok(())
    }
}

impl<T: Transactions> Pages for StorePages<T> {
    fn read(&mut self, page: u32, _record: u16, offset: usize, out: &mut [u8]) -> Result<()> {
        let mut bytes = vec![0; offset + out.len()];
        self.store.read(Some(self.txn), page, &mut bytes)?;
        out.copy_from_slice(&bytes[offset..]);
        Ok(())
    }

    fn write(&mut self, page: u32, _record: u16, offset: usize, bytes: &[u8]) -> Result<()> {
        let mut whole = vec![0; self.store.page_bytes()];
        self.store.read(Some(self.txn), page, &mut whole)?;
        whole[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.store.write(self.txn, page, &whole)
    }
}

/// What a recorder notes of a row that is read and later changed by the same transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// One change, where it was read: as if a database locked such rows for writing at once.
    WriteAtOnce,
    /// The reading, and later the change: as the requests come. A lock is then first shared and later raised, and two
    /// who hold it shared and both want to change are a deadlock.
    AsMade,
}

/// Notes every access, each kind once a row.
#[derive(Debug)]
pub struct Recorder<P> {
    /// What is below.
    pub pages: P,
    requests: Requests,
    accesses: Vec<Access>,
}

impl<P: Pages> Recorder<P> {
    /// In front of `pages`.
    pub fn new(pages: P, requests: Requests) -> Self {
        Self { pages, requests, accesses: Vec::new() }
    }

    /// Adds what was noted since the last call to a trace as one transaction.
    pub fn end_transaction(&mut self, trace: &mut Trace, commits: bool) {
        trace.push(&self.accesses, commits);
        self.accesses.clear();
    }

    /// Forgets what was noted.
    pub fn forget(&mut self) {
        self.accesses.clear();
    }

    fn note(&mut self, lba: u32, record: u16, is_write: bool) {
        match self.accesses.iter_mut().rfind(|a| a.lba == lba && a.record == record) {
            Some(access) if access.is_write || !is_write => {}
            Some(access) if self.requests == Requests::WriteAtOnce => access.is_write = true,
            _ => self.accesses.push(Access { lba, record, is_write }),
        }
    }
}

impl<P: Pages> Pages for Recorder<P> {
    fn read(&mut self, page: u32, record: u16, offset: usize, out: &mut [u8]) -> Result<()> {
        self.note(page, record, false);
        self.pages.read(page, record, offset, out)
    }

    fn write(&mut self, page: u32, record: u16, offset: usize, bytes: &[u8]) -> Result<()> {
        self.note(page, record, true);
        self.pages.write(page, record, offset, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_read_and_then_changed_is_one_request_or_two() {
        let noted = |requests| {
            let mut recorder = Recorder::new(MemoryPages::new(2, 16), requests);
            recorder.read(1, 3, 0, &mut [0; 4]).unwrap();
            recorder.read(0, 0, 0, &mut [0; 4]).unwrap();
            for _ in 0..2 {
                recorder.write(1, 3, 0, &[7; 4]).unwrap();
                recorder.read(1, 3, 0, &mut [0; 4]).unwrap();
            }
            let mut trace = Trace::default();
            recorder.end_transaction(&mut trace, true);
            trace.get(0).0.iter().map(|a| (a.lba, a.record, a.is_write)).collect::<Vec<_>>()
        };
        assert_eq!(noted(Requests::WriteAtOnce), [(1, 3, true), (0, 0, false)]);
        assert_eq!(noted(Requests::AsMade), [(1, 3, false), (0, 0, false), (1, 3, true)]);
    }
}
