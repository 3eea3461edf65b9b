//! Flag commit: CFC and AFC (3.1 to 3.4), with the corrections of docs/flash.md.
//!
//! C1. CFC: a transaction is committed if one of its pages is TRUE (definition 3.1). The first TRUE is programmed when
//!     all its pages are on flash, so a commit that was cut between two sub-chains is a commit.
//! C2. CFC: before a committed page is erased, the page that it links to becomes TRUE, unless it goes as well.
//! A1. AFC: a transaction is committed if none of its pages is FALSE (definition 3.3).
//! A2. AFC: while a block is erased, one of the pages that a running or aborted transaction keeps is FALSE. If the
//!     transaction keeps none, all its pages that go are FALSE.
//! A3. AFC: bits 00 (FALSE) never become TRUE again, so a running transaction's FALSE is always 11, programmed with the
//!     page.
//! V1. What a recovery has declared aborted and could look otherwise later is listed in a verdict page until no page of
//!     it is left.
//!
//! Pages of one transaction are written one after the other: a page never links to one that is not yet on flash.
//!
//! The block-based technique (3.4) is in C2 and A2: pages that are erased together need no flags among themselves.

mod chain;
mod collect;
mod recover;

use chain::{Chain, Own};

use crate::error::{FlashError, Result};
use crate::ftl::collect::make_room;
use crate::ftl::spare::{Flag, Kind, Link, Meta};
use crate::ftl::{Core, FtlConfig};
use crate::hash::IntMap;
use crate::nand::{NO_PBA, Nand, Pba};
use crate::transact::{Rules, Transactions};
use crate::{Lba, Xid};

/// Which way flags are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A TRUE flag commits.
    Cfc,
    /// A FALSE flag aborts.
    Afc,
}

impl Mode {
    /// As the paper writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cfc => "CFC",
            Self::Afc => "AFC",
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Txn {
    is_running: bool,
    chain: Chain,
    /// Logical pages it has written, each with the page that was current before (the dirty page table).
    dirty: Vec<(Lba, Pba)>,
}

#[derive(Clone, Debug)]
struct Tables {
    mode: Mode,
    rules: Rules,
    /// Whether pages that are erased together need no flags among themselves (3.4).
    by_block: bool,
    /// Running and aborted transactions with pages on flash. A transaction that is missing here is committed.
    txns: IntMap<Xid, Txn>,
    running: Vec<Xid>,
    holders: IntMap<Lba, Xid>,
    verdicts: Vec<Pba>,
    /// AFC: copies of one page, the one that does not count and the one that does and has to outlive it.
    pins: Vec<(Pba, Pba)>,
    doomed: Vec<Xid>,
    next_xid: Xid,
    /// Copies made by the collection under way.
    just_copied: Vec<Pba>,
}

/// A device with CFC or AFC transactions.
#[derive(Clone, Debug)]
pub struct FlagStore<N> {
    core: Core<N>,
    tables: Tables,
}

/// How a flag-commit store is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlagConfig {
    /// CFC or AFC.
    pub mode: Mode,
    /// The translation layer.
    pub ftl: FtlConfig,
    /// The block-based technique (3.4).
    pub by_block: bool,
    /// The corrections.
    pub rules: Rules,
}

impl FlagConfig {
    /// The paper's settings.
    pub fn new(mode: Mode) -> Self {
        Self { mode, ftl: FtlConfig::default(), by_block: true, rules: Rules::corrected() }
    }
}

impl<N: Nand> FlagStore<N> {
    /// Mounts a device. An empty one becomes an empty store.
    ///
    /// # Errors
    /// [`FlashError::Geometry`], [`FlashError::Corrupt`], and those of the device.
    pub fn open(nand: N, config: FlagConfig) -> Result<Self> {
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
        let chains: usize = self.tables.txns.values().map(|t| t.chain.0.len() * 16 + t.dirty.len() * 8 + 16).sum();
        chains as u64
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

    fn write_page(&mut self, xid: Xid, lba: Lba, data: &[u8], commits: bool) -> Result<()> {
        let current = self.core.lookup(lba)?;
        if let Some(&holder) = self.tables.holders.get(&lba)
            && holder != xid
        {
            return Err(FlashError::Conflict { lba, holder });
        }
        self.tables.running_txn(xid)?;
        make_room(&mut self.core, &mut self.tables)?;
        let current = if current == NO_PBA { NO_PBA } else { self.core.lookup(lba)? };
        let version = self.core.next_number();
        let mode = self.tables.mode;
        let txn = self.tables.running_txn(xid)?;
        let mut meta = Meta::data(lba, xid, version);
        meta.link = txn.chain.last().map_or(Link::NONE, Own::as_link);
        meta.flag = match mode {
            Mode::Cfc if commits => Flag::Set,
            Mode::Cfc => Flag::Unset,
            Mode::Afc if txn.chain.0.is_empty() => Flag::Unset,
            Mode::Afc => Flag::Cleared,
        };
        meta.back = u64::from(meta.flag == Flag::Unset);
        let pba = self.core.write(None, &mut meta, data, &[])?;
        self.core.stats.pages_written += 1;
        let txn = self.tables.running_txn(xid)?;
        txn.chain.0.push(Own::new(pba, &meta));
        if self.tables.holders.insert(lba, xid).is_some() {
            self.core.kill(current); // Its own earlier version.
        } else if let Ok(txn) = self.tables.running_txn(xid) {
            txn.dirty.push((lba, current));
        }
        self.core.map[lba as usize] = pba;
        Ok(())
    }

    /// CFC: sets TRUE on the heads of a transaction's sub-chains. The first commits.
    fn set_heads_true(&mut self, xid: Xid) -> Result<()> {
        if self.tables.mode == Mode::Afc {
            return Ok(());
        }
        let chain = &self.tables.running_txn(xid)?.chain;
        for index in chain.heads() {
            let own = self.tables.running_txn(xid)?.chain.0[index];
            if own.flag != Flag::Set {
                self.core.set_flag(own.pba, Flag::Set)?;
                self.tables.running_txn(xid)?.chain.0[index].flag = Flag::Set;
            }
        }
        Ok(())
    }

    /// AFC: takes FALSE away from the pages of a transaction.
    fn clear_false(&mut self, xid: Xid) -> Result<()> {
        let pages = self.tables.running_txn(xid)?.chain.0.clone();
        for own in pages.iter().filter(|own| own.flag == Flag::Unset) {
            self.core.set_flag(own.pba, Flag::Cleared)?;
        }
        Ok(())
    }

    fn finish_commit(&mut self, xid: Xid) -> Result<()> {
        let Some(txn) = self.tables.txns.remove(&xid) else { return Ok(()) };
        for (lba, previous) in txn.dirty {
            self.tables.holders.remove(&lba);
            if previous != NO_PBA && self.tables.pins.iter().all(|(_, winner)| *winner != previous) {
                self.core.kill(previous);
            }
        }
        self.stop(xid);
        Ok(())
    }

    fn stop(&mut self, xid: Xid) {
        self.tables.running.retain(|&x| x != xid);
        self.core.low = self.tables.running.iter().copied().min().unwrap_or(self.tables.next_xid);
    }
}

impl Tables {
    fn running_txn(&mut self, xid: Xid) -> Result<&mut Txn> {
        self.txns.get_mut(&xid).filter(|t| t.is_running).ok_or(FlashError::UnknownTransaction(xid))
    }
}

impl<N: Nand> Transactions for FlagStore<N> {
    fn begin(&mut self) -> Xid {
        let xid = self.tables.next_xid;
        self.tables.next_xid += 1;
        self.tables.txns.insert(xid, Txn { is_running: true, ..Txn::default() });
        self.tables.running.push(xid);
        self.core.low = self.tables.running.iter().copied().min().unwrap_or(xid);
        xid
    }

    fn read(&mut self, txn: Option<Xid>, lba: Lba, data: &mut [u8]) -> Result<()> {
        let mut pba = self.core.lookup(lba)?;
        if let Some(&holder) = self.tables.holders.get(&lba)
            && Some(holder) != txn
        {
            let previous = self.tables.running_txn(holder)?.dirty.iter().find(|(l, _)| *l == lba);
            pba = previous.map_or(NO_PBA, |&(_, previous)| previous);
        }
        self.core.read_page(pba, data)
    }

    fn write(&mut self, txn: Xid, lba: Lba, data: &[u8]) -> Result<()> {
        self.write_page(txn, lba, data, false)
    }

    fn commit_with(&mut self, txn: Xid, last: &[(Lba, &[u8])]) -> Result<()> {
        self.tables.running_txn(txn)?;
        let is_cfc = self.tables.mode == Mode::Cfc;
        for (index, (lba, data)) in last.iter().enumerate() {
            self.write_page(txn, *lba, data, is_cfc && index + 1 == last.len())?;
        }
        if !is_cfc {
            self.clear_false(txn)?;
        } else {
            self.set_heads_true(txn)?;
        }
        self.core.nand.sync()?;
        self.finish_commit(txn)
    }

    fn abort(&mut self, txn: Xid) -> Result<()> {
        let entry = self.tables.running_txn(txn)?;
        entry.is_running = false;
        let dirty = std::mem::take(&mut entry.dirty);
        let pages: Vec<Pba> = entry.chain.0.iter().map(|own| own.pba).collect();
        if pages.is_empty() {
            self.tables.txns.remove(&txn);
        }
        for pba in pages {
            self.core.kill(pba);
        }
        for (lba, previous) in dirty {
            self.tables.holders.remove(&lba);
            self.core.map[lba as usize] = previous;
        }
        self.stop(txn);
        Ok(())
    }

    fn page_count(&self) -> u32 {
        self.core.page_count()
    }

    fn page_bytes(&self) -> usize {
        self.core.page_bytes()
    }
}

impl Tables {
    /// A verdict page is needed no longer once no page of its transactions is left.
    fn drop_verdicts<N: Nand>(&mut self, core: &mut Core<N>) {
        if self.doomed.is_empty() {
            return;
        }
        let txns = &self.txns;
        self.doomed.retain(|xid| txns.contains_key(xid));
        if self.doomed.is_empty() {
            for pba in self.verdicts.drain(..) {
                core.kill(pba);
            }
        }
    }

    /// Keeps `winner` until `loser` has been erased.
    fn pin<N: Nand>(&mut self, core: &mut Core<N>, loser: Pba, winner: Pba) {
        self.pins.push((loser, winner));
        core.revive(winner);
    }

    /// A loser is gone: its winner stays only if it is current.
    fn unpin<N: Nand>(&mut self, core: &mut Core<N>, block: u32, pages: &[Option<Meta>]) {
        let first = block * core.geometry.pages_per_block;
        let is_in = |pba: Pba| pba >= first && pba - first < core.geometry.pages_per_block;
        let gone: Vec<Pba> = self.pins.iter().filter(|(loser, _)| is_in(*loser)).map(|(_, winner)| *winner).collect();
        if pages.is_empty() || gone.is_empty() {
            return;
        }
        self.pins.retain(|(loser, _)| !is_in(*loser));
        for winner in gone {
            let is_needed = self.pins.iter().any(|(_, w)| *w == winner)
                || core.map.contains(&winner)
                || self.txns.values().any(|t| t.dirty.iter().any(|(_, previous)| *previous == winner));
            if !is_needed {
                core.kill(winner);
            }
        }
    }

    fn replace_verdict(&mut self, from: Pba, to: Pba, kind: Kind) {
        if kind == Kind::Verdict {
            for pba in self.verdicts.iter_mut().filter(|pba| **pba == from) {
                *pba = to;
            }
        }
    }
}
