//! What the extended protocols add to garbage collection (4.3): the flags of pending records are moved as in CFC and
//! AFC.
//!
//! A page is obsolete here when a newer version holds all of it, so whatever an interrupted erase leaves of it does no
//! harm.

use super::{Own, Tables};
use crate::Xid;
use crate::error::{FlashError, Result};
use crate::flag::Mode;
use crate::ftl::spare::{Flag, Kind, Link, Meta};
use crate::ftl::{Core, Protocol};
use crate::nand::{Nand, Pba};

impl<N: Nand> Protocol<N> for Tables {
    fn copy_meta(&mut self, _core: &mut Core<N>, from: Pba, meta: &Meta, extra: &mut [u8]) -> Result<Meta> {
        let Some(slots) = self.slots.get(&from).filter(|_| meta.kind == Kind::Data) else { return Ok(*meta) };
        let mut slots = slots.clone();
        for slot in &mut slots {
            slot.flag = match (self.is_committed(slot.xid), self.config.mode) {
                (true, Mode::Cfc) => Flag::Set,
                (true, Mode::Afc) => Flag::Cleared,
                (false, _) => Flag::Unset,
            };
            // The copy joins the end of a running transaction's chain.
            if let Some(last) = self.txns.get(&slot.xid).and_then(|txn| txn.own.last()).filter(|own| own.pba != from) {
                slot.link = Link { page: last.pba, number: last.sequence };
            }
        }
        extra.copy_from_slice(&self.shape.encode(&slots));
        Ok(*meta)
    }

    fn copied(&mut self, core: &mut Core<N>, from: Pba, to: Pba, meta: &Meta) {
        match meta.kind {
            Kind::Log => {
                for page in self.log.pages.iter_mut().filter(|page| page.pba == from) {
                    page.pba = to;
                }
                return;
            }
            Kind::Verdict => {
                self.outcomes.moved(from, to);
                return;
            }
            Kind::Data | Kind::Summary => {}
        }
        if let Some(older) = self.older.get_mut(&meta.lba) {
            for pba in older.iter_mut().filter(|pba| **pba == from) {
                *pba = to;
            }
        }
        self.just_copied.push(from);
        let Some(slots) = self.slots.get(&from).cloned() else { return };
        let mut copies = slots;
        for slot in &mut copies {
            let is_committed = self.is_committed(slot.xid);
            slot.flag = match (is_committed, self.config.mode) {
                (true, Mode::Cfc) => Flag::Set,
                (true, Mode::Afc) => Flag::Cleared,
                (false, _) => Flag::Unset,
            };
            if let Some(txn) = self.own_of(slot.xid) {
                if let Some(last) = txn.own.last().filter(|own| own.pba != from) {
                    slot.link = Link { page: last.pba, number: last.sequence };
                }
                txn.own.retain(|own| own.pba != from);
                txn.own.push(Own { pba: to, sequence: meta.sequence, link: slot.link, flag: slot.flag });
            }
        }
        // What is left at the old place is on flash until it is erased, and no longer counts.
        self.slots.insert(to, copies);
        self.stable.insert(to, ());
        debug_assert!(core.is_written(to));
    }

    fn before_erase(&mut self, core: &mut Core<N>, block: u32, _pages: &[Option<Meta>]) -> Result<()> {
        let first = block * core.geometry.pages_per_block;
        let mut torn: Vec<Xid> = Vec::new();
        for pba in first..first + core.geometry.pages_per_block {
            if self.just_copied.contains(&pba) {
                continue;
            }
            for slot in self.slots.get(&pba).cloned().unwrap_or_default() {
                match self.config.mode {
                    Mode::Cfc if self.is_committed(slot.xid) => {
                        self.hand_true_down(core, block, slot.xid, slot.link)?
                    }
                    Mode::Afc if !self.is_committed(slot.xid) && !torn.contains(&slot.xid) => torn.push(slot.xid),
                    _ => {}
                }
            }
        }
        for xid in torn {
            self.mend_false(core, xid, block)?;
        }
        self.just_copied.clear();
        Ok(())
    }

    fn erased(&mut self, core: &mut Core<N>, block: u32, _pages: &[Option<Meta>]) {
        let first = block * core.geometry.pages_per_block;
        for pba in first..first + core.geometry.pages_per_block {
            self.stable.remove(&pba);
            for slot in self.slots.remove(&pba).unwrap_or_default() {
                let Some(txn) = self.txns.get_mut(&slot.xid) else { continue };
                txn.own.retain(|own| own.pba != pba);
                if !txn.is_running && txn.own.is_empty() {
                    self.txns.remove(&slot.xid);
                }
            }
        }
    }
}

impl Tables {
    /// CFC: the record before an obsolete committed one becomes TRUE before that one goes.
    fn hand_true_down<N: Nand>(&mut self, core: &mut Core<N>, block: u32, xid: Xid, link: Link) -> Result<()> {
        let target = link.page;
        if !core.is_link_good(link) || core.geometry.block_of(target) == block {
            return Ok(());
        }
        let flag = self.slots.get(&target).and_then(|s| s.iter().find(|slot| slot.xid == xid)).map(|slot| slot.flag);
        match flag {
            Some(Flag::Set) if !self.stable.contains_key(&target) => self.move_page(core, target),
            Some(Flag::Unset) => {
                core.stats.flags_moved += 1;
                match self.program_flag(core, target, xid, Flag::Set) {
                    Err(FlashError::ProgramLimit { .. }) => self.move_page(core, target),
                    other => other,
                }
            }
            _ => Ok(()),
        }
    }

    /// AFC: an unfinished or aborted transaction keeps a FALSE outside the block, if it keeps anything.
    fn mend_false<N: Nand>(&mut self, core: &mut Core<N>, xid: Xid, block: u32) -> Result<()> {
        let Some(txn) = self.txns.get(&xid) else { return Ok(()) };
        let stays: Vec<Own> = txn.own.iter().copied().filter(|own| core.geometry.block_of(own.pba) != block).collect();
        let is_false = |own: &Own| match own.flag {
            Flag::Unset => true,
            Flag::Cleared => false,
            Flag::Set => self.stable.contains_key(&own.pba),
        };
        if stays.iter().any(is_false) {
            return Ok(());
        }
        let Some(own) = stays.last() else { return Ok(()) };
        if txn.is_running {
            return self.move_page(core, own.pba); // The copy is FALSE from the start.
        }
        core.stats.flags_moved += 1;
        match self.program_flag(core, own.pba, xid, Flag::Set) {
            Err(FlashError::ProgramLimit { .. }) => self.move_page(core, own.pba),
            other => other,
        }
    }
}
