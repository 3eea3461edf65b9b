//! What a replay does to a store: pages in a buffer above the force protocols, or the buffer that WAL has itself.

use crate::buffer::Buffer;
use crate::error::Result;
use crate::hash::IntMap;
use crate::nand::memory::MemoryNand;
use crate::protocol::AnyStore;
use crate::transact::Transactions;
use crate::{Lba, Xid};

/// A store with the paper's buffer (5.1): steal for all protocols, and force for those without a log.
#[derive(Clone, Debug)]
pub(super) struct BufferedStore {
    pub store: AnyStore<MemoryNand>,
    is_write_through: bool,
    /// WAL and the extended protocols buffer for themselves.
    has_own_buffer: bool,
    /// Who has changed the page since it was written out.
    buffer: Buffer<Option<Xid>>,
    /// Pages that a transaction has changed.
    changed: IntMap<Xid, Vec<Lba>>,
    next_value: u64,
}

impl BufferedStore {
    pub fn new(store: AnyStore<MemoryNand>, buffer_pages: usize, is_write_through: bool) -> Self {
        let has_own_buffer = matches!(store, AnyStore::Wal(_) | AnyStore::Extended(_));
        Self {
            store,
            is_write_through,
            has_own_buffer,
            buffer: Buffer::new(buffer_pages),
            changed: IntMap::default(),
            next_value: 0,
        }
    }

    pub fn begin(&mut self) -> Xid {
        self.store.begin()
    }

    pub fn read(&mut self, xid: Xid, lba: Lba) -> Result<()> {
        if self.has_own_buffer {
            return self.store.read(Some(xid), lba, &mut [0; 8]);
        }
        self.load(xid, lba)
    }

    pub fn write(&mut self, xid: Xid, lba: Lba, record: u16) -> Result<()> {
        self.next_value += 1;
        let value = self.next_value.to_le_bytes();
        if self.has_own_buffer {
            // Four bytes for each record. The device keeps only those of the first two.
            return self.store.update(xid, lba, usize::from(record) * 4 % self.store.page_bytes(), &value[..4]);
        }
        self.load(xid, lba)?;
        if let Some(frame) = self.buffer.get(lba) {
            frame.data.copy_from_slice(&value);
            frame.state = if self.is_write_through { None } else { Some(xid) };
        }
        if self.is_write_through {
            self.store.write(xid, lba, &value)?;
        }
        let changed = self.changed.entry(xid).or_default();
        if !changed.contains(&lba) {
            changed.push(lba);
        }
        Ok(())
    }

    fn load(&mut self, xid: Xid, lba: Lba) -> Result<()> {
        if self.buffer.get(lba).is_some() {
            return Ok(());
        }
        while let Some(victim) = self.buffer.victim() {
            if let Some(frame) = self.buffer.remove(victim)
                && let Some(writer) = frame.state
            {
                self.store.write(writer, victim, &frame.data)?;
            }
        }
        let mut data = [0; 8];
        self.store.read(Some(xid), lba, &mut data)?;
        self.buffer.insert(lba, data.into(), None);
        Ok(())
    }

    pub fn commit(&mut self, xid: Xid) -> Result<()> {
        let changed = self.changed.remove(&xid).unwrap_or_default();
        let mut last: Vec<(Lba, Box<[u8]>)> = Vec::with_capacity(changed.len());
        for lba in changed {
            if let Some(frame) = self.buffer.peek(lba).filter(|frame| frame.state == Some(xid)) {
                frame.state = None;
                last.push((lba, frame.data.clone()));
            }
        }
        let last: Vec<(Lba, &[u8])> = last.iter().map(|(lba, data)| (*lba, &data[..])).collect();
        self.store.commit_with(xid, &last)
    }

    pub fn abort(&mut self, xid: Xid) -> Result<()> {
        for lba in self.changed.remove(&xid).unwrap_or_default() {
            self.buffer.remove(lba);
        }
        self.store.abort(xid)
    }
}
