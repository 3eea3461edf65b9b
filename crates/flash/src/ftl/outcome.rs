//! What a restart decides about transactions, written down before it changes anything that the decision rests on.
//!
//! A page that was being programmed when power failed may read one way at one restart and the other way at the next. So
//! a restart that finds a transaction uncommitted, begins to erase its pages and is cut could be followed by one that
//! finds it committed, and half of it gone. An *outcome page* prevents that: it is right, whatever flags, links and
//! logs say later. If there are two, the newer counts. It can go when nothing is left on flash that may change its
//! mind.
//!
//! An outcome page holds a count (4 bytes), then by transaction its number and 1 if it is committed, else 0 (4 bytes
//! each).

use super::Core;
use super::mount::Mounted;
use super::spare::{Kind, Meta};
use crate::Xid;
use crate::error::{FlashError, Result};
use crate::hash::IntMap;
use crate::nand::{Nand, Pba};

/// The outcome pages that count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes {
    pages: Vec<Pba>,
}

impl Outcomes {
    /// Reads what earlier restarts have decided. One that cannot be read was cut, before anything rested on it.
    ///
    /// # Errors
    /// [`FlashError::Corrupt`], and those of the device.
    pub fn read<N: Nand>(core: &mut Core<N>, mounted: &Mounted) -> Result<(Self, IntMap<Xid, bool>)> {
        let mut own = Self::default();
        let mut told = IntMap::default();
        let mut data = vec![0; core.page_bytes()];
        // The newest come last and win.
        for found in &mounted.verdicts {
            match core.read(found.pba, &mut data) {
                Ok(_) => {}
                Err(FlashError::Unreadable(_)) => continue,
                Err(error) => return Err(error),
            }
            core.revive(found.pba);
            own.pages.push(found.pba);
            let word = |at: usize| u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
            let count = word(0) as usize;
            if count > (data.len() - 4) / 8 {
                return Err(FlashError::Corrupt(format!("outcome page {} claims {count} transactions", found.pba)));
            }
            for index in 0..count {
                told.insert(word(4 + index * 8), word(8 + index * 8) == 1);
            }
        }
        Ok((own, told))
    }

    /// Writes the decisions of this restart, which take the place of all before.
    ///
    /// # Errors
    /// Those of the device.
    pub fn write<N: Nand>(&mut self, core: &mut Core<N>, mut fates: Vec<(Xid, bool)>) -> Result<()> {
        fates.sort_unstable();
        let old = std::mem::take(&mut self.pages);
        for chunk in fates.chunks((core.page_bytes() - 4) / 8) {
            let mut data = vec![0xff; core.page_bytes()];
            data[..4].copy_from_slice(&(chunk.len() as u32).to_le_bytes());
            for ((xid, fate), out) in chunk.iter().zip(data[4..].chunks_exact_mut(8)) {
                out[..4].copy_from_slice(&xid.to_le_bytes());
                out[4..].copy_from_slice(&u32::from(*fate).to_le_bytes());
            }
            let mut meta = Meta { kind: Kind::Verdict, ..Meta::data(u32::MAX, 0, 0) };
            self.pages.push(core.write(None, &mut meta, &data, &[])?);
        }
        for pba in old {
            core.kill(pba);
        }
        Ok(())
    }

    /// A page was copied. If it is not an outcome page, nothing happens.
    pub fn moved(&mut self, from: Pba, to: Pba) {
        for pba in self.pages.iter_mut().filter(|pba| **pba == from) {
            *pba = to;
        }
    }

    /// The restart is over: they are needed no longer.
    pub fn drop_all<N: Nand>(&mut self, core: &mut Core<N>) {
        for pba in std::mem::take(&mut self.pages) {
            core.kill(pba);
        }
    }
}
