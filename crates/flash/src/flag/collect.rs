//! What CFC and AFC add to garbage collection (3.1.2, 3.2).

use super::chain::Own;
use super::{Mode, Tables};
use crate::Xid;
use crate::error::{FlashError, Result};
use crate::ftl::mount::rewrite;
use crate::ftl::spare::{Flag, Kind, Meta};
use crate::ftl::{Core, Protocol};
use crate::nand::{Nand, Pba};

impl<N: Nand> Protocol<N> for Tables {
    fn copy_meta(&mut self, _core: &mut Core<N>, from: Pba, meta: &Meta, _extra: &mut [u8]) -> Result<Meta> {
        let mut copy = *meta;
        if meta.kind != Kind::Data {
            return Ok(copy);
        }
        let Some(txn) = self.txns.get(&meta.xid) else {
            // Committed: each copy stands for itself, whatever becomes of its chain.
            copy.flag = if self.mode == Mode::Cfc { Flag::Set } else { Flag::Cleared };
            copy.back = 0;
            return Ok(copy);
        };
        let last = txn.chain.last().copied();
        if self.mode == Mode::Afc && !self.rules.running_chains_stay_false {
            let own = txn.chain.position(from).map(|i| txn.chain.0[i]);
            copy.flag = own.map_or(Flag::Cleared, |own| own.flag);
            return Ok(copy);
        }
        // Running: the copy joins the end of the chain, and so holds together what its going would tear (A2).
        copy.flag = Flag::Unset;
        copy.back = 1;
        if let Some(last) = last.filter(|last| last.pba != from) {
            copy.link = last.as_link();
        }
        Ok(copy)
    }

    fn copied(&mut self, _core: &mut Core<N>, from: Pba, to: Pba, meta: &Meta) {
        self.replace_verdict(from, to, meta.kind);
        if meta.kind != Kind::Data {
            return;
        }
        self.just_copied.push(from);
        for (_, winner) in self.pins.iter_mut().filter(|(_, winner)| *winner == from) {
            *winner = to;
        }
        if let Some(txn) = self.txns.get_mut(&meta.xid) {
            if let Some(index) = txn.chain.position(from) {
                txn.chain.0.remove(index);
                txn.chain.0.push(Own::new(to, meta));
            }
        } else if let Some(holder) = self.holders.get(&meta.lba)
            && let Some(txn) = self.txns.get_mut(holder)
        {
            for (_, previous) in txn.dirty.iter_mut().filter(|(_, previous)| *previous == from) {
                *previous = to;
            }
        }
    }

    fn before_erase(&mut self, core: &mut Core<N>, block: u32, pages: &[Option<Meta>]) -> Result<()> {
        let first = block * core.geometry.pages_per_block;
        let mut torn: Vec<Xid> = Vec::new();
        for (index, meta) in pages.iter().enumerate() {
            let pba = first + index as u32;
            let Some(meta) = meta.as_ref().filter(|m| m.kind == Kind::Data && core.is_written(pba)) else { continue };
            if self.txns.contains_key(&meta.xid) {
                if !torn.contains(&meta.xid) {
                    torn.push(meta.xid);
                }
            } else if self.mode == Mode::Cfc && !self.just_copied.contains(&pba) {
                self.hand_true_down(core, block, meta)?;
            }
        }
        if self.mode == Mode::Afc {
            for xid in &torn {
                self.mend_false(core, *xid, block)?;
            }
        }
        for xid in &torn {
            let Some(txn) = self.txns.get_mut(xid) else { continue };
            txn.chain.0.retain(|own| core.geometry.block_of(own.pba) != block);
        }
        self.just_copied.clear();
        Ok(())
    }

    fn erased(&mut self, core: &mut Core<N>, block: u32, pages: &[Option<Meta>]) {
        for meta in pages.iter().flatten() {
            if self.txns.get(&meta.xid).is_some_and(|t| !t.is_running && t.chain.0.is_empty()) {
                self.txns.remove(&meta.xid);
            }
        }
        self.unpin(core, block, pages);
        self.drop_verdicts(core);
    }
}

impl Tables {
    /// C2: the page before an out-of-date committed page becomes TRUE before that page goes.
    fn hand_true_down<N: Nand>(&mut self, core: &mut Core<N>, block: u32, meta: &Meta) -> Result<()> {
        let target = meta.link.page;
        let is_good = if self.rules.links_are_numbered {
            core.is_link_good(meta.link)
        } else {
            meta.link.is_some() && core.is_written(target)
        };
        if !is_good || (core.geometry.block_of(target) == block && self.by_block) {
            return Ok(());
        }
        let flag = core.flag(target)?;
        if flag == Some(Flag::Set) && self.rules.unstable_is_hardened && !core.is_flag_stable(target) {
            return self.write_true(core, target); // Rule 4.
        }
        if flag == Some(Flag::Unset) {
            core.stats.flags_moved += 1;
            match core.set_flag(target, Flag::Set) {
                Err(FlashError::ProgramLimit { .. }) => self.write_true(core, target)?,
                other => other?,
            }
        }
        Ok(())
    }

    /// A flag that was cut once cannot be programmed again within the device's limit: the page is written again.
    pub(super) fn write_true<N: Nand>(&mut self, core: &mut Core<N>, pba: Pba) -> Result<()> {
        let Some(meta) = core.read_meta(pba)? else { return Ok(()) };
        let meta = Meta { flag: Flag::Set, back: 0, ..meta };
        if let Some(copy) = rewrite(core, pba, &meta)? {
            if core.map[meta.lba as usize] == pba {
                core.map[meta.lba as usize] = copy.pba;
            }
            <Self as Protocol<N>>::copied(self, core, pba, copy.pba, &copy.meta);
        }
        Ok(())
    }

    /// A2: makes sure of a FALSE that outlives the block, or that nothing in the block looks committed.
    fn mend_false<N: Nand>(&mut self, core: &mut Core<N>, xid: Xid, block: u32) -> Result<()> {
        let Some(txn) = self.txns.get(&xid) else { return Ok(()) };
        let goes = |own: &Own| core.geometry.block_of(own.pba) == block;
        let pages = &txn.chain.0;
        // FALSE programmed before the last restart may have been cut.
        let is_false = |own: &Own| match own.flag {
            Flag::Unset => true,
            Flag::Cleared => false,
            Flag::Set => !self.rules.unstable_is_hardened || core.is_flag_stable(own.pba),
        };
        if pages.iter().any(|own| !goes(own) && is_false(own)) {
            return Ok(());
        }
        let is_running = txn.is_running;
        let last = pages.iter().rposition(|own| !goes(own));
        let to_set: Vec<usize> = match last {
            Some(last) => vec![last],
            None if !self.rules.erases_may_be_cut => Vec::new(),
            None => (0..pages.len()).filter(|&i| !is_false(&pages[i])).collect(),
        };
        for index in to_set {
            if is_running && last.is_some() && self.rules.running_chains_stay_false {
                self.write_false(core, xid, index)?; // A3
                continue;
            }
            let Some(txn) = self.txns.get_mut(&xid) else { continue };
            core.stats.flags_moved += 1;
            match core.set_flag(txn.chain.0[index].pba, Flag::Set) {
                Ok(()) => txn.chain.0[index].flag = Flag::Set,
                Err(FlashError::ProgramLimit { .. }) => self.write_false(core, xid, index)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A3: writes a running transaction's page again, with FALSE from the start.
    fn write_false<N: Nand>(&mut self, core: &mut Core<N>, xid: Xid, head: usize) -> Result<()> {
        let Some(txn) = self.txns.get(&xid) else { return Ok(()) };
        let own = txn.chain.0[head];
        let mut data = vec![0xff; core.payload_bytes(Kind::Data)];
        let mut meta = core.read(own.pba, &mut data)?;
        (meta.flag, meta.back) = (Flag::Unset, 1);
        let unit = core.geometry.unit_of(core.geometry.block_of(own.pba));
        let was_live = core.is_live(own.pba);
        let to = core.write(Some(unit), &mut meta, &data, &[])?;
        core.stats.pages_copied += 1;
        if core.map[own.lba as usize] == own.pba {
            core.map[own.lba as usize] = to;
        }
        core.kill(own.pba);
        if !was_live {
            core.kill(to);
        }
        if let Some(txn) = self.txns.get_mut(&xid) {
            // The old copy stays in the list as long as it is on flash.
            txn.chain.0.push(Own::new(to, &meta));
        }
        Ok(())
    }
}
