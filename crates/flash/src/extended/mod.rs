//! The extended protocols CFC_ex and AFC_ex (4): no force, and several transactions in one page.
//!
//! A page that leaves the buffer while transactions that changed it are running carries *pending records*, one for
//! each such transaction. A pending record has the bytes that its transaction changed, a link to the page with the
//! record written before, and a flag of its own. The flag is read as in CFC or AFC. Changes that are in memory only at
//! a commit go into a redo log. There is no undo log: the versions before are the undo.
//!
//! E1. A transaction is committed if the log says so, or by the flags of its pending records: one TRUE (CFC), or no
//!     FALSE among at least one (AFC).
//! E2. The value of a pending record before its transaction is in the newest older version where no unfinished
//!     transaction has those bytes pending. `older` keeps these versions until the newest has only committed pending
//!     records, or none.
//! E3. A *clean* version has the changes of all running transactions taken out. It is written before a version with
//!     pending records where E2 would otherwise not hold: when a pending record lies over a committed change that is
//!     not on flash yet. (The paper restores an aborted record from flash, and loses such a change.)
//! E4. The version number of a page is higher than the LSN of every change in it, and lower than the LSN of any later
//!     change. A restart repeats a committed change if its LSN is higher than the version.
//! E5. AFC: of a running transaction with pending records on flash one in a live page is FALSE, as first programmed.
//! E6. At most `max_c` running transactions have changes in a page. Later ones wait.

mod collect;
mod flush;
mod recover;
mod slots;

use slots::{Range, Shape, Slot};

use crate::buffer::Buffer;
use crate::checkpoint::{self, Checkpoints, Due};
use crate::error::{FlashError, Result};
use crate::flag::Mode;
use crate::ftl::outcome::Outcomes;
use crate::ftl::spare::{Flag, Kind, Link, META_BYTES};
use crate::ftl::{Core, FtlConfig};
use crate::hash::IntMap;
use crate::log::{self, Log, LogRecord, RecordKind};
use crate::nand::{NO_PBA, Nand, Pba, ecc};
use crate::transact::Transactions;
use crate::{Lba, Xid};

/// How an extended store is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExtendedConfig {
    /// How flags are read.
    pub mode: Mode,
    /// The translation layer.
    pub ftl: FtlConfig,
    /// Logical pages in the buffer.
    pub buffer_pages: usize,
    /// Log pages between two checkpoints, at most: a 32nd of the device's reserve is the other bound.
    pub checkpoint_pages: u32,
    /// Transactions that may have changes in one page at the same time (5.3.1).
    pub max_c: u8,
}

impl ExtendedConfig {
    /// Bytes of spare area and programs a page that so many transactions in a page need.
    pub fn needs(max_c: u8, page_bytes: u32) -> (u32, u8) {
        let codes = (page_bytes as usize).div_ceil(ecc::SECTOR_BYTES) * ecc::CODE_BYTES;
        ((META_BYTES + codes + Shape::new(max_c).bytes()) as u32, max_c.saturating_add(1))
    }
}

/// A pending record's place on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Own {
    pba: Pba,
    sequence: u64,
    link: Link,
    flag: Flag,
}

/// A change of a running transaction, in memory.
#[derive(Clone, Debug)]
struct Change {
    lsn: u64,
    lba: Lba,
    offset: u16,
    before: Vec<u8>,
    after: Vec<u8>,
    /// Whole length, also of what a simulated device does not keep.
    len: u16,
    is_on_flash: bool,
}

impl Change {
    fn range(&self) -> Range {
        Range { offset: self.offset, len: self.len }
    }
}

#[derive(Clone, Debug, Default)]
struct Txn {
    is_running: bool,
    /// Its pending records on flash, in the order of writing.
    own: Vec<Own>,
    changes: Vec<Change>,
    /// Pages locked by [`Transactions::write`].
    pages: Vec<Lba>,
    last_lsn: u64,
}

/// What the buffer knows about a page.
#[derive(Clone, Debug, Default)]
struct State {
    /// First change that is not on flash.
    rec_lsn: Option<u64>,
    /// Committed changes that are not on flash.
    committed: Vec<Range>,
    /// During a restart: the LSN of the last change repeated, which becomes the page's version (E4).
    redo_lsn: Option<u64>,
}

#[derive(Clone, Debug)]
struct Tables {
    config: ExtendedConfig,
    shape: Shape,
    log: Log,
    /// Running transactions, and aborted ones with pending records on flash. A transaction that is missing here is
    /// committed.
    txns: IntMap<Xid, Txn>,
    /// Pending records by flash page, dead pages included until they are erased.
    slots: IntMap<Pba, Vec<Slot>>,
    /// Live versions below the newest, the newest of them first (E2).
    older: IntMap<Lba, Vec<Pba>>,
    /// Flags programmed since the mount, which no power cut can have left unstable.
    stable: IntMap<Pba, ()>,
    outcomes: Outcomes,
    just_copied: Vec<Pba>,
}

impl AsMut<Log> for Tables {
    fn as_mut(&mut self) -> &mut Log {
        &mut self.log
    }
}

impl Tables {
    fn is_committed(&self, xid: Xid) -> bool {
        !self.txns.contains_key(&xid)
    }

    fn is_running(&self, xid: Xid) -> bool {
        self.txns.get(&xid).is_some_and(|txn| txn.is_running)
    }

    /// Running transactions with changes in a page.
    fn writers(&self, lba: Lba) -> Vec<Xid> {
        let changes = |txn: &Txn| txn.is_running && txn.changes.iter().any(|change| change.lba == lba);
        let mut xids: Vec<Xid> = self.txns.iter().filter(|(_, txn)| changes(txn)).map(|(xid, _)| *xid).collect();
        xids.sort_unstable();
        xids
    }
}

/// A device with CFC_ex or AFC_ex transactions.
#[derive(Clone, Debug)]
pub struct ExtendedStore<N> {
    core: Core<N>,
    tables: Tables,
    buffer: Buffer<State>,
    holders: IntMap<Lba, Xid>,
    checkpoints: Checkpoints,
    next_xid: Xid,
}

impl<N: Nand> ExtendedStore<N> {
    /// Mounts a device. An empty one becomes an empty store.
    ///
    /// # Errors
    /// [`FlashError::Geometry`] if the spare area or the device's programs a page do not suffice for `max_c`;
    /// [`FlashError::Corrupt`], and those of the device.
    pub fn open(nand: N, config: ExtendedConfig) -> Result<Self> {
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
        let slots: usize = self.tables.slots.values().map(|slots| slots.len() * 24 + 4).sum();
        let older: usize = self.tables.older.values().map(|older| older.len() * 4 + 4).sum();
        (slots + older) as u64
    }

    /// Log pages written since the store was opened.
    pub fn log_pages(&self) -> u64 {
        self.tables.log.pages_written
    }

    /// Bytes of the records in them.
    pub fn log_bytes(&self) -> u64 {
        self.tables.log.bytes_written
    }

    /// Collects one block now, even if space is not short. Experiments use it.
    ///
    /// # Errors
    /// Those of the device.
    pub fn collect_block(&mut self, block: u32) -> Result<()> {
        if self.core.is_collectable(block) {
            crate::ftl::collect::collect(&mut self.core, &mut self.tables, block)?;
        }
        Ok(())
    }

    fn running(&mut self, xid: Xid) -> Result<&mut Txn> {
        self.tables.txns.get_mut(&xid).filter(|txn| txn.is_running).ok_or(FlashError::UnknownTransaction(xid))
    }

    /// Algorithm 1: changes bytes of a page, in which others may have changed other bytes.
    ///
    /// On a device that only simulates, bytes beyond what it keeps of a page count by their place and are not kept.
    ///
    /// # Errors
    /// [`FlashError::Conflict`] if another running transaction has changed some of these bytes, or if `max_c` others
    /// have changes in the page: the caller waits for the one that it names. Also [`FlashError::UnknownTransaction`],
    /// [`FlashError::UnknownPage`], [`FlashError::TooLong`], [`FlashError::Full`], and those of the device.
    pub fn update(&mut self, xid: Xid, lba: Lba, offset: usize, bytes: &[u8]) -> Result<()> {
        self.running(xid)?;
        let max = self.core.page_bytes();
        if offset + bytes.len() > max || bytes.len() > max / 2 {
            return Err(FlashError::TooLong { len: offset + bytes.len(), max });
        }
        let range = Range { offset: offset as u16, len: bytes.len() as u16 };
        self.check_writers(xid, lba, range)?;
        self.load(lba)?;
        let lsn = self.core.next_number();
        let Some(frame) = self.buffer.get(lba) else { return Ok(()) };
        let kept = &bytes[..bytes.len().min(frame.data.len().saturating_sub(offset))];
        let at = offset.min(frame.data.len());
        let place = &mut frame.data[at..at + kept.len()];
        let before = place.to_vec();
        place.copy_from_slice(kept);
        frame.state.rec_lsn.get_or_insert(lsn);
        let change =
            Change { lsn, lba, offset: range.offset, before, after: kept.to_vec(), len: range.len, is_on_flash: false };
        let record = LogRecord {
            lba,
            offset: range.offset,
            after: kept.to_vec(),
            ..LogRecord::mark(RecordKind::Redo, xid, lsn)
        };
        self.tables.log.append(&record);
        let txn = self.running(xid)?;
        txn.changes.push(change);
        txn.last_lsn = lsn;
        if self.tables.log.is_page_full(max) {
            self.force()?;
        }
        Ok(())
    }

    /// E6, and that no bytes have two writers.
    fn check_writers(&mut self, xid: Xid, lba: Lba, range: Range) -> Result<()> {
        self.core.lookup(lba)?;
        let writers = self.tables.writers(lba);
        for &writer in writers.iter().filter(|writer| **writer != xid) {
            let txn = &self.tables.txns[&writer];
            if self.ranges_of(txn, lba).iter().any(|own| own.overlaps(range)) {
                return Err(FlashError::Conflict { lba, holder: writer });
            }
        }
        let others: Vec<Xid> = writers.iter().copied().filter(|writer| *writer != xid).collect();
        match others.first() {
            Some(&holder) if others.len() >= self.tables.shape.slots_max => Err(FlashError::Conflict { lba, holder }),
            Some(&holder) => {
                // What is pending may not have to be widened into others' bytes.
                let mut own = vec![range];
                own.extend(self.tables.txns[&xid].changes.iter().filter(|c| c.lba == lba).map(Change::range));
                let max = self.tables.shape.ranges_max / self.tables.shape.slots_max;
                let own = slots::join(own, max);
                let clashes = others.iter().any(|other| {
                    let theirs = self.ranges_of(&self.tables.txns[other], lba);
                    theirs.iter().any(|range| own.iter().any(|o| o.overlaps(*range)))
                });
                if clashes { Err(FlashError::Conflict { lba, holder }) } else { Ok(()) }
            }
            None => Ok(()),
        }
    }

    fn ranges_of(&self, txn: &Txn, lba: Lba) -> Vec<Range> {
        let ranges = txn.changes.iter().filter(|change| change.lba == lba).map(Change::range).collect();
        slots::join(ranges, self.tables.shape.ranges_max / self.tables.shape.slots_max)
    }

    fn force(&mut self) -> Result<()> {
        log::force(&mut self.core, &mut self.tables)
    }

    /// Algorithm 2, commit.
    fn commit_txn(&mut self, xid: Xid) -> Result<()> {
        let txn = self.running(xid)?;
        let needs_log = txn.changes.iter().any(|change| !change.is_on_flash);
        if needs_log {
            let lsn = self.core.next_number();
            self.tables.log.append(&LogRecord::mark(RecordKind::Commit, xid, lsn));
            self.force()?;
        }
        self.set_flags(xid)?;
        self.core.nand.sync()?;
        let Some(txn) = self.tables.txns.remove(&xid) else { return Ok(()) };
        for lba in &txn.pages {
            self.holders.remove(lba);
        }
        let mut pages: Vec<Lba> = Vec::new();
        for change in &txn.changes {
            if !pages.contains(&change.lba) {
                pages.push(change.lba);
            }
            if !change.is_on_flash
                && let Some(frame) = self.buffer.peek(change.lba)
            {
                frame.state.committed.push(change.range());
                frame.state.committed = slots::join(std::mem::take(&mut frame.state.committed), 16);
            }
        }
        for lba in pages {
            self.drop_older(lba);
        }
        self.lower_low();
        if needs_log {
            self.checkpoint_in_passing()?;
        }
        Ok(())
    }

    /// The flags of a transaction's records on flash say that it is committed.
    fn set_flags(&mut self, xid: Xid) -> Result<()> {
        let own = self.running(xid)?.own.clone();
        match self.tables.config.mode {
            Mode::Cfc => {
                let is_linked = |own_link: Link| own.iter().any(|o| o.link == own_link);
                for at in own.iter().filter(|o| !is_linked(Link { page: o.pba, number: o.sequence })) {
                    self.tables.program_flag(&mut self.core, at.pba, xid, Flag::Set)?;
                }
            }
            Mode::Afc => {
                for at in own.iter().filter(|o| o.flag == Flag::Unset) {
                    self.tables.program_flag(&mut self.core, at.pba, xid, Flag::Cleared)?;
                }
            }
        }
        Ok(())
    }

    /// E2: once the newest version needs no older ones they may go.
    fn drop_older(&mut self, lba: Lba) {
        let newest = self.core.map[lba as usize];
        let is_settled =
            self.tables.slots.get(&newest).is_none_or(|s| s.iter().all(|s| self.tables.is_committed(s.xid)));
        if is_settled && newest != NO_PBA {
            for pba in self.tables.older.remove(&lba).unwrap_or_default() {
                self.core.kill(pba);
            }
        }
    }

    fn lower_low(&mut self) {
        let running = self.tables.txns.iter().filter(|(_, txn)| txn.is_running).map(|(xid, _)| *xid);
        self.core.low = running.min().unwrap_or(self.next_xid);
    }

    /// Algorithm 2, abort.
    fn abort_txn(&mut self, xid: Xid) -> Result<()> {
        self.running(xid)?;
        self.tables.log.forget_txn(xid);
        let Some(mut txn) = self.tables.txns.remove(&xid) else { return Ok(()) };
        for lba in std::mem::take(&mut txn.pages) {
            self.holders.remove(&lba);
        }
        for change in std::mem::take(&mut txn.changes).into_iter().rev() {
            if let Some(frame) = self.buffer.peek(change.lba) {
                let at = usize::from(change.offset).min(frame.data.len());
                frame.data[at..at + change.before.len()].copy_from_slice(&change.before);
                if frame.state.committed.is_empty() && self.tables.writers(change.lba).is_empty() {
                    self.buffer.remove(change.lba); // Lines 5 and 6: nothing in it that is not on flash.
                }
            }
        }
        if !txn.own.is_empty() {
            self.tables.txns.insert(xid, Txn { is_running: false, ..txn });
        }
        self.lower_low();
        Ok(())
    }

    fn checkpoint_in_passing(&mut self) -> Result<()> {
        match self.checkpoints.due(&self.tables.log) {
            Some(Due::Page(lba)) => self.write_back(lba),
            Some(Due::Checkpoint) => self.checkpoint(),
            None => Ok(()),
        }
    }

    /// A fuzzy checkpoint (4.3): notes the changed pages, which are written out later, and where a restart would begin.
    ///
    /// # Errors
    /// Those of the device.
    pub fn checkpoint(&mut self) -> Result<()> {
        let lsn = self.core.next_number();
        let start = self.checkpoints.note(lsn, &mut self.buffer, |state| state.rec_lsn);
        checkpoint::mark(&mut self.core, &mut self.tables, lsn, start)
    }
}

impl<N: Nand> Transactions for ExtendedStore<N> {
    fn begin(&mut self) -> Xid {
        let xid = self.next_xid;
        self.next_xid += 1;
        self.tables.txns.insert(xid, Txn { is_running: true, ..Txn::default() });
        self.lower_low();
        xid
    }

    fn read(&mut self, txn: Option<Xid>, lba: Lba, data: &mut [u8]) -> Result<()> {
        self.load(lba)?;
        let Some(frame) = self.buffer.get(lba) else { return Ok(()) };
        let mut page = frame.data.to_vec();
        // What others have changed and not committed is taken out of the copy.
        for other in self.tables.writers(lba).into_iter().filter(|other| Some(*other) != txn) {
            for change in self.tables.txns[&other].changes.iter().rev().filter(|change| change.lba == lba) {
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
                if let Some(holder) = self.tables.writers(lba).into_iter().find(|writer| *writer != txn) {
                    return Err(FlashError::Conflict { lba, holder });
                }
                self.holders.insert(lba, txn);
                self.running(txn)?.pages.push(lba);
            }
        }
        self.load(lba)?;
        let Some(frame) = self.buffer.get(lba) else { return Ok(()) };
        let mut page = vec![0xff; self.core.payload_bytes(Kind::Data)];
        let len = data.len().min(page.len());
        page[..len].copy_from_slice(&data[..len]);
        let old = frame.data.to_vec();
        let differs = |at: &usize| page[*at] != old[*at];
        let Some(start) = (0..page.len()).find(differs) else { return Ok(()) };
        let end = (0..page.len()).rfind(differs).map_or(start, |last| last + 1);
        let piece = (self.core.page_bytes() / 4).max(1);
        for at in (start..end).step_by(piece) {
            self.update(txn, lba, at, &page[at..end.min(at + piece)])?;
        }
        Ok(())
    }

    fn commit_with(&mut self, txn: Xid, last: &[(Lba, &[u8])]) -> Result<()> {
        self.running(txn)?;
        for (lba, data) in last {
            self.write(txn, *lba, data)?;
        }
        self.commit_txn(txn)
    }

    fn abort(&mut self, txn: Xid) -> Result<()> {
        self.abort_txn(txn)
    }

    fn page_count(&self) -> u32 {
        self.core.page_count()
    }

    fn page_bytes(&self) -> usize {
        self.core.page_bytes()
    }
}
