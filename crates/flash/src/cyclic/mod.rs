//! Cyclic commit: SCC and BPCC (Prabhakaran, Rodeheffer, Zhou, "Transactional Flash", OSDI 2008), as the paper compares
//! with them (1, 5.2).
//!
//! The pages of a transaction form a circle: each names the logical page and version that the transaction writes next,
//! the last one names the first. So each page waits in memory until the next is known, and the last until the commit.
//! No flag is ever programmed: a transaction is committed exactly if its circle is closed.
//!
//! S1. SCC: of each logical page the highest version decides. It is committed if its circle is closed, or has lost only
//!     pages that newer versions have replaced.
//! S2. SCC: before a version of Q is programmed, every uncommitted record of Q, and every uncommitted record that names
//!     Q, has been erased. So at most one transaction's records of a page lie above its committed version.
//! B1. BPCC: a record also carries `back`, the version of its page that was committed when it was written. A record P_m
//!     *straddles* version i of P if back < i < m: i was never committed.
//! B2. BPCC: an obsolete committed record Q_l stays while an uncommitted record names a version k of Q with back(Q_l)
//!     < k < l. Q_l is the only witness against that record.
//! Y1. Version numbers come from the device's one counter and are never given twice, also not those that only the link
//!     of a dead transaction mentions.
//! Y2. A transaction may write a page twice: its later record stands for the earlier one. The transaction number in
//!     the spare area tells which records belong to one transaction. Records of one transaction neither straddle nor
//!     vouch for each other.
//! Y3. A restart writes its decisions into an outcome page before it erases anything. An interrupted erase may leave
//!     the record that closes a circle. By Y2, that circle can look whole without the records between. The closing
//!     record may have been unreadable when the erase began.

mod collect;
mod recover;

use crate::error::{FlashError, Result};
use crate::ftl::collect::{collect_out_of_turn, make_room, make_room_in};
use crate::ftl::outcome::Outcomes;
use crate::ftl::spare::{Link, Meta};
use crate::ftl::{Core, FtlConfig};
use crate::hash::IntMap;
use crate::nand::{NO_PBA, Nand, Pba};
use crate::transact::Transactions;
use crate::{Lba, Xid};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cycle {
    /// Simple cyclic commit.
    Scc,
    /// Back pointer cyclic commit.
    Bpcc,
}

/// How a cyclic store is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CyclicConfig {
    /// SCC or BPCC.
    pub cycle: Cycle,
    /// The translation layer.
    pub ftl: FtlConfig,
    /// S2 also for records that only name the page. Without it, SCC loses data (tests show it).
    pub erases_what_names_the_page: bool,
    /// B2. Without it, BPCC invents commits (tests show it).
    pub keeps_witnesses: bool,
}

impl CyclicConfig {
    /// The paper's settings.
    pub fn new(cycle: Cycle) -> Self {
        Self { cycle, ftl: FtlConfig::default(), erases_what_names_the_page: true, keeps_witnesses: true }
    }
}

/// A record of a transaction that lies on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    pba: Pba,
    lba: Lba,
    link: Link,
}

/// The page that waits for the next one.
#[derive(Clone, Debug)]
struct Pending {
    lba: Lba,
    version: u64,
    data: Box<[u8]>,
}

#[derive(Clone, Debug, Default)]
struct Txn {
    records: Vec<Record>,
    first: Option<(Lba, u64)>,
    pending: Option<Pending>,
    /// Logical pages it has written, each with the page that was current before, and the newest own version.
    dirty: Vec<Dirty>,
}

#[derive(Clone, Copy, Debug)]
struct Dirty {
    lba: Lba,
    previous: Pba,
    version: u64,
}

/// An obsolete committed record that has to stay (B2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Witness {
    pba: Pba,
    back: u64,
    version: u64,
}

#[derive(Clone, Debug)]
struct Tables {
    config: CyclicConfig,
    txns: IntMap<Xid, Txn>,
    holders: IntMap<Lba, Xid>,
    /// Records of dead transactions that are still on flash.
    leftovers: IntMap<Pba, Record>,
    /// Of these, by their logical page (S2).
    of_page: IntMap<Lba, Vec<Pba>>,
    /// Of these, by the logical page that they name (S2, B2).
    naming: IntMap<Lba, Vec<Pba>>,
    witnesses: IntMap<Lba, Vec<Witness>>,
    /// BPCC: the committed version of each logical page. Empty for SCC.
    committed: Vec<u64>,
    outcomes: Outcomes,
    next_xid: Xid,
}

/// A device with SCC or BPCC transactions.
#[derive(Clone, Debug)]
pub struct CyclicStore<N> {
    core: Core<N>,
    tables: Tables,
}

impl<N: Nand> CyclicStore<N> {
    /// Mounts a device. An empty one becomes an empty store.
    ///
    /// # Errors
    /// [`FlashError::Geometry`], [`FlashError::Corrupt`], and those of the device.
    pub fn open(nand: N, config: CyclicConfig) -> Result<Self> {
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

    /// Bytes of memory that the protocol's tables take beside those of the layer.
    pub fn table_bytes(&self) -> u64 {
        let leftovers = self.tables.leftovers.len() * 22;
        let witnesses: usize = self.tables.witnesses.values().map(|w| w.len() * 16).sum();
        (self.tables.committed.len() * 6 + leftovers + witnesses) as u64
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

    fn write_page(&mut self, xid: Xid, lba: Lba, data: &[u8]) -> Result<()> {
        let current = self.core.lookup(lba)?;
        if data.len() > self.core.page_bytes() {
            return Err(FlashError::TooLong { len: data.len(), max: self.core.page_bytes() });
        }
        if let Some(&holder) = self.tables.holders.get(&lba)
            && holder != xid
        {
            return Err(FlashError::Conflict { lba, holder });
        }
        let txn = self.tables.running_txn(xid)?;
        if let Some(pending) = txn.pending.as_mut().filter(|p| p.lba == lba) {
            pending.data = data.into();
            return Ok(());
        }
        let version = self.core.next_number();
        self.flush_pending(xid, Link { page: lba, number: version })?;
        let current = if current == NO_PBA { NO_PBA } else { self.core.lookup(lba)? };
        let is_first_time = self.tables.holders.insert(lba, xid).is_none();
        let txn = self.tables.running_txn(xid)?;
        txn.first.get_or_insert((lba, version));
        txn.pending = Some(Pending { lba, version, data: data.into() });
        if is_first_time {
            txn.dirty.push(Dirty { lba, previous: current, version });
        } else {
            for dirty in txn.dirty.iter_mut().filter(|d| d.lba == lba) {
                dirty.version = version;
            }
            if current != NO_PBA {
                self.core.kill(current); // Y2: its own earlier record.
            }
        }
        self.core.map[lba as usize] = NO_PBA;
        Ok(())
    }

    /// Programs the page that waits, naming the next one. It goes on waiting if that fails.
    fn flush_pending(&mut self, xid: Xid, next: Link) -> Result<()> {
        let Some(Pending { lba, version, data }) = self.tables.running_txn(xid)?.pending.clone() else {
            return Ok(());
        };
        self.erase_leftovers(lba)?;
        make_room(&mut self.core, &mut self.tables)?;
        let mut meta = Meta::data(lba, xid, version);
        meta.link = next;
        meta.back = self.tables.committed.get(lba as usize).copied().unwrap_or(0);
        let pba = self.core.write(None, &mut meta, &data, &[])?;
        self.core.stats.pages_written += 1;
        self.core.map[lba as usize] = pba;
        let txn = self.tables.running_txn(xid)?;
        txn.pending = None;
        txn.records.push(Record { pba, lba, link: next });
        Ok(())
    }

    /// S2.
    fn erase_leftovers(&mut self, lba: Lba) -> Result<()> {
        if self.tables.config.cycle == Cycle::Bpcc {
            return Ok(());
        }
        while let Some(pba) = self.tables.leftover_against(lba) {
            let block = self.core.geometry.block_of(pba);
            let unit = self.core.geometry.unit_of(block);
            make_room_in(&mut self.core, &mut self.tables, unit)?;
            if self.tables.leftovers.contains_key(&pba) {
                collect_out_of_turn(&mut self.core, &mut self.tables, block)?;
            }
        }
        Ok(())
    }

    fn finish_commit(&mut self, xid: Xid) -> Result<()> {
        let Some(txn) = self.tables.txns.remove(&xid) else { return Ok(()) };
        for Dirty { lba, previous, version } in txn.dirty {
            self.tables.holders.remove(&lba);
            if let Some(committed) = self.tables.committed.get_mut(lba as usize) {
                *committed = version;
            }
            if previous != NO_PBA && !self.tables.keep_as_witness(&mut self.core, lba, previous)? {
                self.core.kill(previous);
            }
        }
        Ok(())
    }
}

impl Tables {
    fn running_txn(&mut self, xid: Xid) -> Result<&mut Txn> {
        self.txns.get_mut(&xid).ok_or(FlashError::UnknownTransaction(xid))
    }

    fn leftover_against(&self, lba: Lba) -> Option<Pba> {
        let first = |list: Option<&Vec<Pba>>| list.and_then(|l| l.first().copied());
        let naming = if self.config.erases_what_names_the_page { first(self.naming.get(&lba)) } else { None };
        first(self.of_page.get(&lba)).or(naming)
    }

    fn add_leftover(&mut self, record: Record) {
        self.leftovers.insert(record.pba, record);
        self.of_page.entry(record.lba).or_default().push(record.pba);
        self.naming.entry(record.link.page).or_default().push(record.pba);
    }

    /// Whether some uncommitted record names a version of `lba` that only this record can testify against (B2).
    fn is_witness(&self, lba: Lba, back: u64, version: u64) -> bool {
        self.naming.get(&lba).is_some_and(|list| {
            let named = |pba: &Pba| self.leftovers.get(pba).map_or(0, |record| record.link.number);
            list.iter().any(|pba| back < named(pba) && named(pba) < version)
        })
    }

    fn keep_as_witness<N: Nand>(&mut self, core: &mut Core<N>, lba: Lba, pba: Pba) -> Result<bool> {
        let is_needed = self.config.cycle == Cycle::Bpcc && self.config.keeps_witnesses;
        if !is_needed || !self.naming.contains_key(&lba) {
            return Ok(false);
        }
        let Some(Meta { back, version, .. }) = core.read_meta(pba)? else { return Ok(false) };
        if !self.is_witness(lba, back, version) {
            return Ok(false);
        }
        self.witnesses.entry(lba).or_default().push(Witness { pba, back, version });
        Ok(true)
    }
}

impl<N: Nand> Transactions for CyclicStore<N> {
    fn begin(&mut self) -> Xid {
        let xid = self.tables.next_xid;
        self.tables.next_xid += 1;
        self.tables.txns.insert(xid, Txn::default());
        xid
    }

    fn read(&mut self, txn: Option<Xid>, lba: Lba, data: &mut [u8]) -> Result<()> {
        let mut pba = self.core.lookup(lba)?;
        if let Some(&holder) = self.tables.holders.get(&lba) {
            let entry = self.tables.running_txn(holder)?;
            if Some(holder) != txn {
                pba = entry.dirty.iter().find(|d| d.lba == lba).map_or(NO_PBA, |d| d.previous);
            } else if let Some(pending) = entry.pending.as_ref().filter(|p| p.lba == lba) {
                let len = pending.data.len().min(data.len());
                data[..len].copy_from_slice(&pending.data[..len]);
                data[len..].fill(0xff);
                return Ok(());
            }
        }
        self.core.read_page(pba, data)
    }

    fn write(&mut self, txn: Xid, lba: Lba, data: &[u8]) -> Result<()> {
        self.write_page(txn, lba, data)
    }

    fn commit_with(&mut self, txn: Xid, last: &[(Lba, &[u8])]) -> Result<()> {
        self.tables.running_txn(txn)?;
        for (lba, data) in last {
            self.write_page(txn, *lba, data)?;
        }
        if let Some((page, number)) = self.tables.running_txn(txn)?.first {
            self.flush_pending(txn, Link { page, number })?;
        }
        self.core.nand.sync()?;
        self.finish_commit(txn)
    }

    fn abort(&mut self, txn: Xid) -> Result<()> {
        let entry = self.tables.txns.remove(&txn).ok_or(FlashError::UnknownTransaction(txn))?;
        for record in entry.records {
            self.core.kill(record.pba);
            self.tables.add_leftover(record);
        }
        for Dirty { lba, previous, .. } in entry.dirty {
            self.tables.holders.remove(&lba);
            self.core.map[lba as usize] = previous;
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
