//! Pages into the buffer, merged from their versions, and out of it, with what is pending in them.

use super::slots::{Range, Slot};
use super::{ExtendedStore, Own, State, Tables, Txn};
use crate::error::{FlashError, Result};
use crate::flag::Mode;
use crate::ftl::collect::make_room;
use crate::ftl::spare::{Flag, Kind, Link, Meta};
use crate::ftl::{Core, Protocol};
use crate::nand::{NO_PBA, Nand, Pba};
use crate::{Lba, Xid};

/// Versions below the newest before a clean one is written, which ends them.
const OLDER_MAX: usize = 2;

impl<N: Nand> ExtendedStore<N> {
    /// Brings a page into the buffer.
    pub(super) fn load(&mut self, lba: Lba) -> Result<()> {
        self.core.lookup(lba)?;
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
        self.tables.read_merged(&mut self.core, lba, &mut data)?;
        // Running transactions' changes, in memory as well: those on flash were taken along or out by the merge.
        let mut changes: Vec<_> = self
            .tables
            .txns
            .values()
            .filter(|txn| txn.is_running)
            .flat_map(|txn| txn.changes.iter().filter(|change| change.lba == lba))
            .collect();
        changes.sort_unstable_by_key(|change| change.lsn);
        for change in changes {
            let at = usize::from(change.offset).min(data.len());
            data[at..at + change.after.len()].copy_from_slice(&change.after);
        }
        self.buffer.insert(lba, data.into(), State::default());
        Ok(())
    }

    /// Writes a page out if it was changed.
    pub(super) fn write_back(&mut self, lba: Lba) -> Result<()> {
        if self.buffer.peek(lba).is_none_or(|frame| frame.state.rec_lsn.is_none()) {
            return Ok(());
        }
        make_room(&mut self.core, &mut self.tables)?;
        let Some(frame) = self.buffer.peek(lba) else { return Ok(()) };
        let data = frame.data.clone();
        let committed = frame.state.committed.clone();
        let redo_lsn = frame.state.redo_lsn;
        let writers = self.tables.writers(lba);
        let ranges: Vec<(Xid, Vec<Range>)> =
            writers.iter().map(|xid| (*xid, self.ranges_of(&self.tables.txns[xid], lba))).collect();
        let is_over = |range: &Range| committed.iter().any(|committed| committed.overlaps(*range));
        let needs_clean = ranges.iter().flat_map(|(_, ranges)| ranges).any(is_over)
            || self.tables.older.get(&lba).is_some_and(|older| older.len() >= OLDER_MAX);
        // Nothing is collected between the two: what the clean version replaces stays on flash until the other is there
        // (E5).
        if writers.is_empty() || needs_clean {
            let mut clean = data.clone();
            for xid in &writers {
                for change in self.tables.txns[xid].changes.iter().rev().filter(|change| change.lba == lba) {
                    let at = usize::from(change.offset).min(clean.len());
                    clean[at..at + change.before.len()].copy_from_slice(&change.before);
                }
            }
            let version = redo_lsn.unwrap_or_else(|| self.core.next_number());
            self.write_clean(lba, &clean, version)?;
        }
        if !writers.is_empty() {
            self.write_pending(lba, &data, ranges)?;
        }
        self.tables.log.forget_page(lba);
        if let Some(frame) = self.buffer.peek(lba) {
            frame.state = State::default();
        }
        for xid in writers {
            if let Some(txn) = self.tables.txns.get_mut(&xid) {
                for change in txn.changes.iter_mut().filter(|change| change.lba == lba) {
                    change.is_on_flash = true;
                }
            }
        }
        Ok(())
    }

    fn write_clean(&mut self, lba: Lba, data: &[u8], version: u64) -> Result<()> {
        self.core.write_settled(lba, version, data)?;
        for pba in self.tables.older.remove(&lba).unwrap_or_default() {
            self.core.kill(pba);
        }
        Ok(())
    }

    /// Writes a page that nobody has written or read yet, past the log: how a database is loaded.
    pub(crate) fn load_page(&mut self, lba: Lba, data: &[u8]) -> Result<()> {
        make_room(&mut self.core, &mut self.tables)?;
        let version = self.core.next_number();
        self.core.write_settled(lba, version, data)
    }

    fn write_pending(&mut self, lba: Lba, data: &[u8], ranges: Vec<(Xid, Vec<Range>)>) -> Result<()> {
        let mut meta = Meta::data(lba, ranges.first().map_or(0, |(xid, _)| *xid), self.core.next_number());
        let mode = self.tables.config.mode;
        let mut slots = Vec::with_capacity(ranges.len());
        for (xid, ranges) in ranges {
            let txn = &self.tables.txns[&xid];
            let has_false = txn.own.iter().any(|own| own.flag == Flag::Unset && self.core.is_live(own.pba));
            let flag = if mode == Mode::Afc && has_false { Flag::Cleared } else { Flag::Unset };
            let link = txn.own.last().map_or(Link::NONE, |own| Link { page: own.pba, number: own.sequence });
            slots.push(Slot { xid, link, flag, ranges });
        }
        meta.back = self.tables.older.get(&lba).map_or(0, |older| older.len() as u64);
        let extra = self.tables.shape.encode(&slots);
        let pba = self.core.write(None, &mut meta, data, &extra)?;
        self.core.stats.pages_written += 1;
        for slot in &slots {
            if let Some(txn) = self.tables.txns.get_mut(&slot.xid) {
                txn.own.push(Own { pba, sequence: meta.sequence, link: slot.link, flag: slot.flag });
            }
        }
        self.tables.slots.insert(pba, slots);
        let newest = std::mem::replace(&mut self.core.map[lba as usize], pba);
        if newest != NO_PBA {
            self.tables.older.entry(lba).or_default().insert(0, newest);
        }
        Ok(())
    }
}

impl Tables {
    /// The page with the records of aborted transactions taken out (E2).
    pub(super) fn read_merged<N: Nand>(&mut self, core: &mut Core<N>, lba: Lba, data: &mut [u8]) -> Result<()> {
        let newest = core.map[lba as usize];
        core.read_page(newest, data)?;
        let is_dead = |xid: Xid| !self.is_committed(xid) && !self.is_running(xid);
        let Some(slots) = self.slots.get(&newest) else { return Ok(()) };
        let mut wanted: Vec<u16> = Vec::new();
        for slot in slots.iter().filter(|slot| is_dead(slot.xid)) {
            for range in &slot.ranges {
                wanted.extend(range.offset..range.offset.saturating_add(range.len).min(data.len() as u16));
            }
        }
        let mut page = vec![0xff; data.len()];
        for pba in self.older.get(&lba).cloned().unwrap_or_default() {
            if wanted.is_empty() {
                break;
            }
            core.read_page(pba, &mut page)?;
            let pending: Vec<Range> = self
                .slots
                .get(&pba)
                .into_iter()
                .flatten()
                .filter(|slot| !self.is_committed(slot.xid))
                .flat_map(|slot| slot.ranges.iter().copied())
                .collect();
            wanted.retain(|&at| {
                let is_pending = pending.iter().any(|range| range.overlaps(Range { offset: at, len: 1 }));
                if !is_pending {
                    data[usize::from(at)] = page[usize::from(at)];
                }
                is_pending
            });
        }
        for at in wanted {
            data[usize::from(at)] = 0xff; // There was no version before.
        }
        Ok(())
    }

    /// Programs the flag of one pending record.
    pub(super) fn program_flag<N: Nand>(&mut self, core: &mut Core<N>, pba: Pba, xid: Xid, flag: Flag) -> Result<()> {
        let Some(index) = self.slots.get(&pba).and_then(|slots| slots.iter().position(|slot| slot.xid == xid)) else {
            return Ok(());
        };
        let offset = self.shape.flag_offset(core.geometry.spare_bytes as usize, index);
        core.nand.program_spare(pba, offset, &[flag.to_byte()])?;
        self.stable.insert(pba, ());
        if let Some(slot) = self.slots.get_mut(&pba).and_then(|slots| slots.get_mut(index)) {
            slot.flag = flag;
        }
        if let Some(own) = self.txns.get_mut(&xid).and_then(|txn| txn.own.iter_mut().find(|own| own.pba == pba)) {
            own.flag = flag;
        }
        Ok(())
    }

    /// Copies a page elsewhere, with flags as they should be from the start.
    pub(super) fn move_page<N: Nand>(&mut self, core: &mut Core<N>, pba: Pba) -> Result<()> {
        let mut data = vec![0xff; core.payload_bytes(Kind::Data)];
        let mut meta = core.read(pba, &mut data)?;
        let mut extra = self.slots.get(&pba).map(|slots| self.shape.encode(slots)).unwrap_or_default();
        meta = <Self as Protocol<N>>::copy_meta(self, core, pba, &meta, &mut extra)?;
        let was_live = core.is_live(pba);
        let unit = core.geometry.unit_of(core.geometry.block_of(pba));
        let to = core.write(Some(unit), &mut meta, &data, &extra)?;
        if core.map[meta.lba as usize] == pba {
            core.map[meta.lba as usize] = to;
        }
        core.kill(pba);
        if !was_live {
            core.kill(to);
        }
        <Self as Protocol<N>>::copied(self, core, pba, to, &meta);
        Ok(())
    }

    pub(super) fn own_of(&mut self, xid: Xid) -> Option<&mut Txn> {
        self.txns.get_mut(&xid)
    }
}
