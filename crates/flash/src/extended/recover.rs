//! Restart of an extended store (algorithm 3).
//!
//! Flags that were being programmed when power failed may read one way now and the other way next time. So this
//! restart first writes into an outcome page what it decides about transactions that may have been running (see
//! [`crate::ftl::outcome`]). Then it writes every page with pending records of these transactions again, without such
//! records. In between, the blocks that were open are emptied and erased.

use super::slots::{Shape, Slot};
use super::{ExtendedConfig, ExtendedStore, Own, Tables};
use crate::Xid;
use crate::buffer::Buffer;
use crate::checkpoint::Checkpoints;
use crate::error::{FlashError, Result};
use crate::flag::Mode;
use crate::ftl::Core;
use crate::ftl::mount::{Found, Mounted, finish, mount};
use crate::ftl::outcome::Outcomes;
use crate::ftl::spare::{Flag, Kind};
use crate::hash::IntMap;
use crate::log::{Log, LogRecord, RecordKind};
use crate::nand::{NO_PBA, Nand, Pba};
use crate::transact::Transactions;

pub(super) fn open<N: Nand>(nand: N, config: ExtendedConfig) -> Result<ExtendedStore<N>> {
    let shape = Shape::new(config.max_c);
    check_geometry(&nand, &config)?;
    let (mut core, mut mounted) = mount(nand, config.ftl)?;
    core.extra_bytes = shape.bytes();
    core.adopt(&mounted.pages);
    core.adopt(&mounted.verdicts);
    mounted.harden_suspects(&mut core, |meta| Some(*meta))?;
    let mut tables = Tables {
        config,
        shape,
        log: Log::default(),
        txns: IntMap::default(),
        slots: IntMap::default(),
        older: IntMap::default(),
        stable: IntMap::default(),
        outcomes: Outcomes::default(),
        just_copied: Vec::new(),
    };
    let records = tables.log.read(&mut core, &mounted)?;
    read_slots(&mut core, &mut tables, &mut mounted)?;
    let (outcomes, told) = Outcomes::read(&mut core, &mounted)?;
    tables.outcomes = outcomes;
    let fates = judge(&tables, &records, &told);
    let highest = fates.keys().chain(told.keys()).copied().chain(records.iter().map(|r| r.xid)).max().unwrap_or(0);
    let low = mounted.low;
    let is_recent = |xid: Xid| xid >= low || told.contains_key(&xid);
    core.low = low.min(highest + 1);
    let recent = fates.iter().filter(|(xid, _)| is_recent(**xid)).map(|(xid, fate)| (*xid, *fate)).collect();
    tables.outcomes.write(&mut core, recent)?;
    let settle = place(&mut core, &mut tables, &mounted, &fates, is_recent);
    // Only now is it certain what was committed: a log page that could not be read is gone for good. What follows
    // writes versions that are newer than the changes which such a page might have told of (E4).
    mounted.empty_blocks(&mut core, &mut tables)?;
    let checkpoints = Checkpoints::new(config.checkpoint_pages, core.reserve_pages());
    let mut store = ExtendedStore {
        core,
        tables,
        buffer: Buffer::new(config.buffer_pages),
        holders: IntMap::default(),
        checkpoints,
        next_xid: highest + 1,
    };
    let had_work = !records.is_empty() || !settle.is_empty();
    store.redo(&records, &fates)?;
    for lba in settle {
        store.load(lba)?;
        let lsn = store.core.next_number();
        if let Some(frame) = store.buffer.peek(lba) {
            frame.state.rec_lsn.get_or_insert(lsn);
        }
    }
    if had_work {
        for lba in store.buffer.lbas() {
            store.write_back(lba)?;
        }
        store.checkpoint()?;
        store.checkpoints.is_over();
    }
    store.tables.outcomes.drop_all(&mut store.core);
    store.core.low = store.next_xid;
    finish(&mut store.core, &mut store.tables)?;
    Ok(store)
}

fn check_geometry<N: Nand>(nand: &N, config: &ExtendedConfig) -> Result<()> {
    let geometry = nand.geometry();
    let (spare_bytes, programs) = ExtendedConfig::needs(config.max_c, geometry.page_bytes);
    if geometry.spare_bytes < spare_bytes || geometry.programs_max < programs {
        let (max_c, has_bytes, has_programs) = (config.max_c, geometry.spare_bytes, geometry.programs_max);
        return Err(FlashError::Geometry(format!(
            "{max_c} transactions a page need {spare_bytes} bytes of spare area and {programs} programs a page, not {has_bytes} and {has_programs}"
        )));
    }
    Ok(())
}

fn read_slots<N: Nand>(core: &mut Core<N>, tables: &mut Tables, mounted: &mut Mounted) -> Result<()> {
    let mut gone: Vec<Pba> = Vec::new();
    for found in mounted.pages.iter().chain(&mounted.losers) {
        if found.meta.kind != Kind::Data || found.meta.xid == 0 {
            continue;
        }
        match core.read_extra(found.pba)? {
            None => gone.push(found.pba),
            Some(extra) => {
                // Not a page to do without: its flags may be the only ones that tell of a commit.
                let slots = tables.shape.decode(&extra).ok_or(FlashError::Unreadable(found.pba))?;
                tables.slots.insert(found.pba, slots);
            }
        }
    }
    mounted.pages.retain(|found| !gone.contains(&found.pba));
    Ok(())
}

/// E1, where no restart has decided before.
fn judge(tables: &Tables, records: &[LogRecord], told: &IntMap<Xid, bool>) -> IntMap<Xid, bool> {
    let mut fates: IntMap<Xid, bool> = IntMap::default();
    for slot in tables.slots.values().flatten() {
        let is_true = match tables.config.mode {
            Mode::Cfc => slot.flag == Flag::Set,
            Mode::Afc => slot.flag == Flag::Cleared,
        };
        let fate = fates.entry(slot.xid).or_insert(tables.config.mode == Mode::Afc);
        match tables.config.mode {
            Mode::Cfc => *fate |= is_true,
            Mode::Afc => *fate &= is_true,
        }
    }
    for record in records.iter().filter(|record| record.kind == RecordKind::Commit) {
        fates.insert(record.xid, true);
    }
    for (xid, fate) in told {
        if let Some(own) = fates.get_mut(xid) {
            *own = *fate;
        }
    }
    fates
}

/// Lines 2 to 5 of algorithm 3: the newest version of each page, and those below that it needs. Returns the pages to be
/// settled.
fn place<N: Nand>(
    core: &mut Core<N>,
    tables: &mut Tables,
    mounted: &Mounted,
    fates: &IntMap<Xid, bool>,
    is_recent: impl Fn(Xid) -> bool,
) -> Vec<u32> {
    let is_committed = |slot: &Slot| fates.get(&slot.xid).copied().unwrap_or(false);
    let data = |found: &&Found| found.meta.kind == Kind::Data && found.meta.lba < core.page_count();
    let pages: Vec<Found> = mounted.pages.iter().filter(data).copied().collect();
    let mut settle = Vec::new();
    for versions in pages.chunk_by(|a, b| a.meta.lba == b.meta.lba) {
        let lba = versions[0].meta.lba;
        for (index, found) in versions.iter().rev().enumerate() {
            let slots = tables.slots.get(&found.pba).map(Vec::as_slice).unwrap_or_default();
            if index == 0 {
                core.set_current(lba, found.pba);
                if slots.iter().any(|slot| is_recent(slot.xid)) {
                    settle.push(lba);
                }
            } else {
                core.revive(found.pba);
                tables.older.entry(lba).or_default().push(found.pba);
            }
            if slots.iter().all(is_committed) {
                break;
            }
        }
        for found in versions {
            for slot in tables.slots.get(&found.pba).cloned().unwrap_or_default() {
                if !is_committed(&slot) {
                    let own = Own { pba: found.pba, sequence: found.meta.sequence, link: slot.link, flag: slot.flag };
                    tables.txns.entry(slot.xid).or_default().own.push(own);
                }
            }
        }
    }
    for txn in tables.txns.values_mut() {
        txn.own.sort_unstable_by_key(|own| own.sequence);
    }
    settle
}

impl<N: Nand> ExtendedStore<N> {
    /// Line 6 of algorithm 3.
    fn redo(&mut self, records: &[LogRecord], fates: &IntMap<Xid, bool>) -> Result<()> {
        let mut versions: IntMap<u32, u64> = IntMap::default();
        for record in records.iter().filter(|record| record.kind == RecordKind::Redo) {
            if !fates.get(&record.xid).copied().unwrap_or(false) || record.lba >= self.page_count() {
                continue;
            }
            let pba = self.core.lookup(record.lba)?;
            let version = match versions.get(&record.lba) {
                Some(&version) => version,
                None if pba == NO_PBA => 0,
                None => self.core.read_meta(pba)?.map_or(0, |meta| meta.version),
            };
            versions.insert(record.lba, version);
            if record.lsn <= version {
                continue;
            }
            self.load(record.lba)?;
            if let Some(frame) = self.buffer.get(record.lba) {
                let place = frame.data.get_mut(usize::from(record.offset)..).unwrap_or_default();
                let len = place.len().min(record.after.len());
                place[..len].copy_from_slice(&record.after[..len]);
                frame.state.rec_lsn.get_or_insert(record.lsn);
                frame.state.redo_lsn = Some(record.lsn);
            }
        }
        Ok(())
    }
}
