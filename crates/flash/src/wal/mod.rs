//! Write-ahead logging (ARIES, Mohan et al. 1992) on the same device: what flag commit is compared with (5.3.2).
//!
//! Pages change in a buffer and go out whenever the buffer wants (steal), not at a commit (no force). The translation
//! layer below writes them elsewhere as it does every page, but nobody above makes use of that.
//!
//! W1. Before a page goes out, the log up to its last change is on flash.
//! W2. A transaction is committed when its commit record is on flash.
//! W3. A page on flash has as its version the LSN of the last change in it.
//! W4. A restart begins where the last checkpoint says, and repeats every change that the page does not have yet. Then
//!     it takes back the changes of transactions without a commit, and writes a compensation record for each.
//! W5. A checkpoint is fuzzy: it notes where a restart would have to begin. The pages that hold this back are written
//!     one by one later.

mod recover;

use crate::buffer::Buffer;
use crate::checkpoint::{self, Checkpoints, Due};
use crate::error::{FlashError, Result};
use crate::ftl::collect::make_room;
use crate::ftl::spare::{Kind, Meta};
use crate::ftl::{Core, FtlConfig, Protocol};
use crate::hash::IntMap;
use crate::log::{self, Log, LogRecord, RecordKind, force};
use crate::nand::{NO_PBA, Nand, Pba};
use crate::transact::Transactions;
use crate::{Lba, Xid};

/// How a WAL store is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WalConfig {
    /// The translation layer.
    pub ftl: FtlConfig,
    /// Logical pages in the buffer (table 2: 512).
    pub buffer_pages: usize,
    /// Log pages between two checkpoints, at most: a 32nd of the device's reserve is the other bound.
    pub checkpoint_pages: u32,
}

impl WalConfig {
    /// The paper's settings. It gives no rate of checkpoints: here they come every 1,024 log pages.
    pub fn new() -> Self {
        Self { ftl: FtlConfig::default(), buffer_pages: 512, checkpoint_pages: 1024 }
    }
}

impl Default for WalConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// What the buffer knows about a page: nothing if it is as on flash, else the LSNs of its first and last change since.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    rec_lsn: Option<u64>,
    page_lsn: u64,
}

#[derive(Clone, Debug)]
struct Undo {
    lsn: u64,
    lba: Lba,
    offset: u16,
    before: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct Txn {
    /// LSN of its begin record, or 0 before the first change.
    first_lsn: u64,
    undo: Vec<Undo>,
    pages: Vec<Lba>,
}

/// What collecting has to know: log pages move, nothing else is special.
#[derive(Clone, Debug, Default)]
struct Owner {
    log: Log,
}

impl AsMut<Log> for Owner {
    fn as_mut(&mut self) -> &mut Log {
        &mut self.log
    }
}

impl<N: Nand> Protocol<N> for Owner {
    fn copy_meta(&mut self, _core: &mut Core<N>, _from: Pba, meta: &Meta, _extra: &mut [u8]) -> Result<Meta> {
        Ok(*meta)
    }

    fn copied(&mut self, _core: &mut Core<N>, from: Pba, to: Pba, meta: &Meta) {
        if meta.kind == Kind::Log {
            for page in self.log.pages.iter_mut().filter(|page| page.pba == from) {
                page.pba = to;
            }
        }
    }

    fn before_erase(&mut self, _core: &mut Core<N>, _block: u32, _pages: &[Option<Meta>]) -> Result<()> {
        Ok(())
    }

    fn erased(&mut self, _core: &mut Core<N>, _block: u32, _pages: &[Option<Meta>]) {}
}

/// A device with write-ahead logging.
#[derive(Clone, Debug)]
pub struct WalStore<N> {
    core: Core<N>,
    owner: Owner,
    buffer: Buffer<Change>,
    txns: IntMap<Xid, Txn>,
    holders: IntMap<Lba, Xid>,
    /// W5.
    checkpoints: Checkpoints,
    next_xid: Xid,
}

impl<N: Nand> WalStore<N> {
    /// Mounts a device. An empty one becomes an empty store.
    ///
    /// # Errors
    /// [`FlashError::Geometry`], [`FlashError::Corrupt`], and those of the device.
    pub fn open(nand: N, config: WalConfig) -> Result<Self> {
        recover::open(nand, config)
    }

    /// The translation layer, for its counters.
    pub fn core(&self) -> &Core<N> {
        &self.core
    }

    /// The translation layer, for its clock.
    pub fn core_mut(&mut self) -> &mut Core<N> {
        &mut self.core
    }

    /// Gives the device back. What is not on flash is lost.
    pub fn into_device(self) -> N {
        self.core.nand
    }

    /// Bytes of memory that the protocol's tables take beside those of the layer and the buffer.
    pub fn table_bytes(&self) -> u64 {
        let undo: usize = self.txns.values().map(|t| t.undo.len() * 32 + t.pages.len() * 4).sum();
        (undo + self.owner.log.pages.len() * 16) as u64
    }

    /// Log pages written since the store was opened.
    pub fn log_pages(&self) -> u64 {
        self.owner.log.pages_written
    }

    /// Bytes of the records in them.
    pub fn log_bytes(&self) -> u64 {
        self.owner.log.bytes_written
    }

    /// Collects one block now, even if space is not short. Experiments use it.
    ///
    /// # Errors
    /// Those of the device.
    pub fn collect_block(&mut self, block: u32) -> Result<()> {
        if self.core.is_collectable(block) {
            crate::ftl::collect::collect(&mut self.core, &mut self.owner, block)?;
        }
        Ok(())
    }

    /// Changes bytes of a page, which others may be changing elsewhere at the same time: callers lock the records.
    ///
    /// On a device that only simulates, bytes beyond what it keeps of a page are logged by their length and not kept.
    ///
    /// # Errors
    /// [`FlashError::UnknownTransaction`], [`FlashError::UnknownPage`], [`FlashError::TooLong`], [`FlashError::Full`];
    /// those of the device.
    pub fn update(&mut self, xid: Xid, lba: Lba, offset: usize, bytes: &[u8]) -> Result<()> {
        self.running(xid)?;
        let max = self.core.page_bytes();
        if offset + bytes.len() > max {
            return Err(FlashError::TooLong { len: offset + bytes.len(), max });
        }
        self.load(lba)?;
        let kept = self.core.payload_bytes(Kind::Data);
        let bytes = &bytes[..bytes.len().min(kept.saturating_sub(offset))];
        self.begin_in_log(xid)?;
        // Before and after of a piece fit into one log page.
        let mut done = 0;
        loop {
            let piece = &bytes[done..bytes.len().min(done + max / 4)];
            self.update_piece(xid, lba, offset + done, piece)?;
            done += piece.len();
            if done >= bytes.len() {
                break;
            }
        }
        if self.owner.log.is_page_full(max) {
            self.force()?;
        }
        Ok(())
    }

    fn update_piece(&mut self, xid: Xid, lba: Lba, offset: usize, after: &[u8]) -> Result<()> {
        let lsn = self.core.next_number();
        let Some(frame) = self.buffer.get(lba) else { return Ok(()) };
        let kept = frame.data.len();
        let place = &mut frame.data[offset.min(kept)..];
        let before = place[..after.len()].to_vec();
        place[..after.len()].copy_from_slice(after);
        frame.state.rec_lsn.get_or_insert(lsn);
        frame.state.page_lsn = lsn;
        let offset = offset as u16;
        let record = LogRecord {
            lba,
            offset,
            after: after.to_vec(),
            before: before.clone(),
            ..LogRecord::mark(RecordKind::Update, xid, lsn)
        };
        self.owner.log.append(&record);
        self.running(xid)?.undo.push(Undo { lsn, lba, offset, before });
        Ok(())
    }

    fn begin_in_log(&mut self, xid: Xid) -> Result<()> {
        if self.running(xid)?.first_lsn == 0 {
            let lsn = self.core.next_number();
            self.running(xid)?.first_lsn = lsn;
            self.owner.log.append(&LogRecord::mark(RecordKind::Begin, xid, lsn));
        }
        Ok(())
    }

    fn running(&mut self, xid: Xid) -> Result<&mut Txn> {
        self.txns.get_mut(&xid).ok_or(FlashError::UnknownTransaction(xid))
    }

    fn force(&mut self) -> Result<()> {
        force(&mut self.core, &mut self.owner)
    }

    /// Brings a page into the buffer.
    fn load(&mut self, lba: Lba) -> Result<()> {
        let pba = self.core.lookup(lba)?;
        if self.buffer.get(lba).is_some() {
            return Ok(());
        }
        while let Some(victim) = self.buffer.victim() {
            let clean = match self.write_back(victim) {
                Ok(()) => Some(victim),
                // A full device can still be read: a page goes that need not be written.
                Err(FlashError::Full { .. }) => self.buffer.oldest(|state| state.rec_lsn.is_none()),
                Err(error) => return Err(error),
            };
            let Some(clean) = clean else { break };
            self.buffer.remove(clean);
        }
        let mut data = vec![0xff; self.core.payload_bytes(Kind::Data)];
        // Writing back may have collected, and collecting moves pages.
        let pba = if pba == NO_PBA { NO_PBA } else { self.core.lookup(lba)? };
        self.core.read_page(pba, &mut data)?;
        self.buffer.insert(lba, data.into(), Change::default());
        Ok(())
    }

    /// Writes a page out if it was changed (W1, W3).
    fn write_back(&mut self, lba: Lba) -> Result<()> {
        let Some(page_lsn) = self.buffer.peek(lba).filter(|f| f.state.rec_lsn.is_some()).map(|f| f.state.page_lsn)
        else {
            return Ok(());
        };
        if !self.owner.log.is_durable(page_lsn) {
            self.force()?;
        }
        make_room(&mut self.core, &mut self.owner)?;
        let Some(frame) = self.buffer.peek(lba) else { return Ok(()) };
        self.core.write_settled(lba, page_lsn, &frame.data)?;
        frame.state = Change::default();
        Ok(())
    }

    /// Writes a page that nobody has written or read yet, past the log: how a database is loaded.
    pub(crate) fn load_page(&mut self, lba: Lba, data: &[u8]) -> Result<()> {
        make_room(&mut self.core, &mut self.owner)?;
        let version = self.core.next_number();
        self.core.write_settled(lba, version, data)
    }

    /// W5, and a step of what the last one left to do.
    fn checkpoint_in_passing(&mut self) -> Result<()> {
        match self.checkpoints.due(&self.owner.log) {
            Some(Due::Page(lba)) => self.write_back(lba),
            Some(Due::Checkpoint) => self.checkpoint(),
            None => Ok(()),
        }
    }

    /// Notes in the log where a restart would begin, and drops the log before.
    ///
    /// # Errors
    /// Those of the device.
    pub fn checkpoint(&mut self) -> Result<()> {
        let lsn = self.core.next_number();
        let mut start = self.checkpoints.note(lsn, &mut self.buffer, |state| state.rec_lsn);
        for txn in self.txns.values().filter(|t| t.first_lsn != 0) {
            start = start.min(txn.first_lsn);
        }
        checkpoint::mark(&mut self.core, &mut self.owner, lsn, start)
    }

    /// Takes changes back, the last first. Each leaves a compensation record.
    fn roll_back(&mut self, xid: Xid, undo: Vec<Undo>) -> Result<()> {
        let mut seen = NO_PBA;
        for Undo { lsn, lba, offset, before } in undo.into_iter().rev() {
            if self.owner.log.is_durable(lsn)
                && let Some(pba) = self.owner.log.page_of(lsn).filter(|pba| *pba != seen)
            {
                // The record is on flash only: a rollback has to read its page.
                log::read_page(&mut self.core, pba)?;
                seen = pba;
            }
            self.load(lba)?;
            let own_lsn = self.core.next_number();
            if let Some(frame) = self.buffer.get(lba) {
                let at = usize::from(offset).min(frame.data.len());
                frame.data[at..at + before.len()].copy_from_slice(&before);
                frame.state.rec_lsn.get_or_insert(own_lsn);
                frame.state.page_lsn = own_lsn;
            }
            let mark = LogRecord::mark(RecordKind::Compensation, xid, own_lsn);
            self.owner.log.append(&LogRecord { other_lsn: lsn, lba, offset, after: before, ..mark });
        }
        let lsn = self.core.next_number();
        self.owner.log.append(&LogRecord::mark(RecordKind::End, xid, lsn));
        Ok(())
    }
}

impl<N: Nand> Transactions for WalStore<N> {
    fn begin(&mut self) -> Xid {
        let xid = self.next_xid;
        self.next_xid += 1;
        self.txns.insert(xid, Txn::default());
        xid
    }

    fn read(&mut self, txn: Option<Xid>, lba: Lba, data: &mut [u8]) -> Result<()> {
        self.load(lba)?;
        let Some(frame) = self.buffer.get(lba) else { return Ok(()) };
        let mut page = frame.data.to_vec();
        // What others have changed and not committed is taken out of the copy.
        let holders = self.holders.get(&lba).filter(|holder| Some(**holder) != txn);
        if let Some(undo) = holders.and_then(|holder| self.txns.get(holder)).map(|txn| &txn.undo) {
            for change in undo.iter().rev().filter(|u| u.lba == lba) {
                let at = usize::from(change.offset).min(page.len());
                page[at..at + change.before.len()].copy_from_slice(&change.before);
            }
        }
        let len = page.len().min(data.len());
        data[..len].copy_from_slice(&page[..len]);
        data[len..].fill(0xff);
        Ok(())
    }

    fn write(&mut self, txn: Xid, lba: Lba, data: &[u8]) -> Result<()> {
        self.core.lookup(lba)?;
        self.running(txn)?;
        if data.len() > self.core.page_bytes() {
            return Err(FlashError::TooLong { len: data.len(), max: self.core.page_bytes() });
        }
        match self.holders.get(&lba) {
            Some(&holder) if holder != txn => return Err(FlashError::Conflict { lba, holder }),
            Some(_) => {}
            None => {
                self.holders.insert(lba, txn);
                self.running(txn)?.pages.push(lba);
            }
        }
        self.load(lba)?;
        let Some(frame) = self.buffer.get(lba) else { return Ok(()) };
        let mut page = vec![0xff; frame.data.len()];
        let len = data.len().min(page.len());
        page[..len].copy_from_slice(&data[..len]);
        // Only what differs is logged.
        let differs = |at: &usize| page[*at] != frame.data[*at];
        let Some(start) = (0..page.len()).find(differs) else { return Ok(()) };
        let end = (0..page.len()).rfind(differs).map_or(start, |last| last + 1);
        self.update(txn, lba, start, &page[start..end])
    }

    fn commit_with(&mut self, txn: Xid, last: &[(Lba, &[u8])]) -> Result<()> {
        self.running(txn)?;
        for (lba, data) in last {
            self.write(txn, *lba, data)?;
        }
        let has_changed = self.running(txn)?.first_lsn != 0;
        if has_changed {
            let lsn = self.core.next_number();
            self.owner.log.append(&LogRecord::mark(RecordKind::Commit, txn, lsn));
            self.force()?;
            self.core.nand.sync()?;
        }
        if let Some(ended) = self.txns.remove(&txn) {
            for lba in ended.pages {
                self.holders.remove(&lba);
            }
        }
        if has_changed {
            let lsn = self.core.next_number();
            self.owner.log.append(&LogRecord::mark(RecordKind::End, txn, lsn));
            self.checkpoint_in_passing()?;
        }
        Ok(())
    }

    fn abort(&mut self, txn: Xid) -> Result<()> {
        if self.running(txn)?.first_lsn != 0 {
            let lsn = self.core.next_number();
            self.owner.log.append(&LogRecord::mark(RecordKind::Abort, txn, lsn));
            let undo = self.running(txn)?.undo.clone();
            self.roll_back(txn, undo)?;
        }
        if let Some(ended) = self.txns.remove(&txn) {
            for lba in ended.pages {
                self.holders.remove(&lba);
            }
        }
        Ok(())
    }

    fn page_count(&self) -> u32 {
        self.core.page_count()
    }

    fn page_bytes(&self) -> usize {
        self.core.page_bytes()
    }
}
