//! What SCC and BPCC add to garbage collection: hardly anything, since nothing is programmed. Records of dead
//! transactions may go at any time; what B2 keeps is live, and moves like any other page.

use super::{Tables, Witness};
use crate::error::Result;
use crate::ftl::spare::Meta;
use crate::ftl::{Core, Protocol};
use crate::nand::{Nand, Pba};

impl<N: Nand> Protocol<N> for Tables {
    fn copy_meta(&mut self, _core: &mut Core<N>, _from: Pba, meta: &Meta, _extra: &mut [u8]) -> Result<Meta> {
        Ok(*meta)
    }

    fn copied(&mut self, _core: &mut Core<N>, from: Pba, to: Pba, meta: &Meta) {
        self.outcomes.moved(from, to);
        if let Some(txn) = self.txns.get_mut(&meta.xid) {
            for record in txn.records.iter_mut().filter(|r| r.pba == from) {
                record.pba = to;
            }
        }
        if let Some(txn) = self.holders.get(&meta.lba).and_then(|holder| self.txns.get_mut(holder)) {
            for dirty in txn.dirty.iter_mut().filter(|d| d.lba == meta.lba && d.previous == from) {
                dirty.previous = to;
            }
        }
        if let Some(witnesses) = self.witnesses.get_mut(&meta.lba) {
            for witness in witnesses.iter_mut().filter(|w| w.pba == from) {
                witness.pba = to;
            }
        }
    }

    fn before_erase(&mut self, _core: &mut Core<N>, _block: u32, _pages: &[Option<Meta>]) -> Result<()> {
        Ok(())
    }

    fn erased(&mut self, core: &mut Core<N>, block: u32, pages: &[Option<Meta>]) {
        let first = block * core.geometry.pages_per_block;
        for pba in first..first + core.geometry.pages_per_block {
            self.drop_leftover(core, pba);
        }
        for meta in pages.iter().flatten() {
            if let Some(txn) = self.txns.get_mut(&meta.xid) {
                txn.records.retain(|record| core.geometry.block_of(record.pba) != block);
            }
        }
    }
}

impl Tables {
    /// A record of a dead transaction is gone, and with it the need for witnesses against it.
    fn drop_leftover<N: Nand>(&mut self, core: &mut Core<N>, pba: Pba) {
        let Some(record) = self.leftovers.remove(&pba) else { return };
        for (table, lba) in [(&mut self.of_page, record.lba), (&mut self.naming, record.link.page)] {
            if let Some(list) = table.get_mut(&lba) {
                list.retain(|&p| p != pba);
                if list.is_empty() {
                    table.remove(&lba);
                }
            }
        }
        let lba = record.link.page;
        let Some(witnesses) = self.witnesses.remove(&lba) else { return };
        let (kept, released): (Vec<Witness>, Vec<Witness>) =
            witnesses.into_iter().partition(|w| self.is_witness(lba, w.back, w.version));
        for witness in released {
            core.kill(witness.pba);
        }
        if !kept.is_empty() {
            self.witnesses.insert(lba, kept);
        }
    }
}
