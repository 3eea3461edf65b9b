//! Rebuilding the tables at start from what lies on flash (2.2, 3.1.3): block summaries where there are any, spare
//! areas where not.
//!
//! What a power cut leaves is put in order here, the same for all protocols (N4 allows exactly one operation in
//! flight):
//!
//! M1. A block without a readable summary is read page by page, whatever the reason: it was open, its summary was cut,
//!     or its erase was. What an interrupted erase leaves does no harm (F5). Blocks that look empty are erased before
//!     use.
//! M2. A readable page of such a block with an empty page after it may be one whose programming was cut, and may be
//!     unreadable next time. It is copied before anything relies on it (`Mounted::harden_suspects`).
//!     The youngest of these blocks in a unit goes on being its open block, but for one page, which may be half
//!     programmed and look empty.
//! M3. Before recovery ends these blocks are emptied and erased, as is one whose summary leaves pages out and may
//!     itself have been cut. From then on a page that was cut can never appear again. A summary that leaves the page
//!     out is not enough. If an erase is cut, the summary may go and the page stay, and another transaction may have
//!     been given its transaction's number.
//! M4. If a logical page has two copies with the same number, the copy written later counts, and the other is as if
//!     absent.

use super::collect::{collect_out_of_turn, make_room_in};
use super::spare::{Kind, Meta, is_erased};
use super::{BlockState, Core, FtlConfig, PAGE_DEAD, Protocol};
use crate::error::Result;
use crate::nand::{NO_PBA, Nand, Pba};
use crate::{Lba, Xid};

/// A page that a mount has found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub pba: Pba,
    pub meta: Meta,
}

/// What lies on the device, before a protocol has said what it means.
pub(crate) struct Mounted {
    /// Every page that counts, by logical page, then version (rising); after M4.
    pub pages: Vec<Found>,
    /// Copies of these that do not count (M4).
    pub losers: Vec<Found>,
    /// Verdicts, newest last.
    pub verdicts: Vec<Found>,
    /// Lowest transaction that may have been running when power failed; `Xid::MAX` if nothing is on flash.
    pub low: Xid,
    /// Highest transaction number seen.
    pub highest_xid: Xid,
    /// Pages whose programming may have been cut (M2).
    pub suspects: Vec<Pba>,
    /// Blocks to be emptied, each with its pages.
    unsealed: Vec<(u32, Vec<Option<Meta>>)>,
    /// Blocks in which nothing is readable now, but something may be later.
    garbage: Vec<u32>,
}

/// Reads the whole device.
///
/// # Errors
/// Those of the device; [`crate::FlashError::Corrupt`] for a summary that contradicts itself.
pub(crate) fn mount<N: Nand>(nand: N, config: FtlConfig) -> Result<(Core<N>, Mounted)> {
    let mut core = Core::new(nand, config)?;
    let units = core.geometry.units as usize;
    let mut pages = Vec::new();
    let mut unsealed: Vec<(u32, Vec<Option<Meta>>)> = Vec::new();
    let mut lists = Vec::new();
    let mut newest_summary = (0, u32::MAX);
    let mut suspects = Vec::new();
    let mut garbage = Vec::new();
    for block in 0..core.geometry.blocks {
        if core.state[block as usize] == BlockState::Bad {
            continue;
        }
        lists.clear();
        match core.read_summary(block, &mut lists)? {
            Some(sequence) => {
                core.raise_number(sequence);
                raise(&mut core, &lists);
                newest_summary = newest_summary.max((sequence, block));
                core.state[block as usize] = BlockState::Sealed;
                core.opened[block as usize] = smallest_number(&lists);
                collect_pages(&core, block, &lists, &mut pages);
            }
            None => {
                lists.clear();
                let (mut was_empty, mut is_garbage) = (true, false);
                for index in (0..core.data_pages()).rev() {
                    let pba = block * core.geometry.pages_per_block + index;
                    let meta = core.read_meta(pba)?;
                    let is_empty = is_erased(&core.spare);
                    if meta.is_some() && was_empty {
                        suspects.push(pba);
                    }
                    is_garbage |= !is_empty;
                    was_empty = is_empty;
                    lists.push(meta);
                }
                lists.reverse();
                if lists.iter().any(Option::is_some) {
                    raise(&mut core, &lists);
                    unsealed.push((block, lists.clone()));
                } else if is_garbage {
                    garbage.push(block);
                }
            }
        }
    }
    unsealed.sort_by_key(|(_, metas)| smallest_number(metas));
    for (block, metas) in &unsealed {
        core.state[*block as usize] = BlockState::Open;
        core.opened[*block as usize] = smallest_number(metas);
        collect_pages(&core, *block, metas, &mut pages);
    }
    let newest_page = pages.iter().map(|f| f.meta.sequence).max().unwrap_or(0);
    for unit in 0..core.geometry.units {
        core.go_on_with_youngest(unit, &mut unsealed)?;
    }
    if newest_summary.0 > newest_page {
        let (_, block) = newest_summary;
        lists.clear();
        core.read_summary(block, &mut lists)?;
        if lists.iter().any(Option::is_none) {
            unsealed.push((block, lists)); // M3
        }
    }
    for unit in 0..units {
        let state = &core.state;
        core.free[unit].retain(|&b| state[b as usize] == BlockState::Suspect);
    }
    let newest = pages.iter().copied().max_by_key(|f| f.meta.sequence);
    let highest_xid = pages.iter().map(|f| f.meta.xid).max().unwrap_or(0);
    // `low` is not part of a summary: read it from the page itself.
    let low = match newest {
        Some(found) => core.read_meta(found.pba)?.map_or(0, |m| m.low),
        None => Xid::MAX,
    };
    let mut verdicts: Vec<Found> = pages.iter().copied().filter(|f| f.meta.kind == Kind::Verdict).collect();
    verdicts.sort_by_key(|f| f.meta.sequence);
    pages.retain(|f| f.meta.kind != Kind::Verdict);
    let losers = deduplicate(&mut pages);
    Ok((core, Mounted { pages, losers, verdicts, low, highest_xid, suspects, unsealed, garbage }))
}

impl Mounted {
    /// M2: copies the pages that may be unstable to places where they are stable, with the meta data that `decide`
    /// gives them; without any they count no longer.
    pub(crate) fn harden_suspects<N: Nand>(
        &mut self,
        core: &mut Core<N>,
        decide: impl Fn(&Meta) -> Option<Meta>,
    ) -> Result<()> {
        core.low = self.low;
        core.holds_seals = true;
        let mut suspects = std::mem::take(&mut self.suspects);
        for &suspect in &suspects {
            let (block, index) = (core.geometry.block_of(suspect), suspect % core.geometry.pages_per_block);
            let unsealed = self.unsealed.iter_mut().filter(|(b, _)| *b == block).map(|(_, metas)| metas);
            let open = core.open.iter_mut().flatten().filter(|open| open.block == block).map(|open| &mut open.pages);
            for pages in unsealed.chain(open) {
                pages[index as usize] = None;
            }
        }
        // The newest first: it may be the one that commits all others.
        let number = |pba: &Pba| self.pages.iter().find(|f| f.pba == *pba).map_or(0, |f| f.meta.sequence);
        suspects.sort_by_key(|pba| std::cmp::Reverse(number(pba)));
        for suspect in suspects {
            self.harden(core, suspect, &decide)?;
        }
        core.release_seals()
    }

    fn harden<N: Nand>(
        &mut self,
        core: &mut Core<N>,
        suspect: Pba,
        decide: &impl Fn(&Meta) -> Option<Meta>,
    ) -> Result<()> {
        let Some(found) = self.pages.iter().find(|f| f.pba == suspect).copied() else {
            return Ok(()); // There is a newer copy, or it is a verdict, which every recovery writes anew.
        };
        let copy = match decide(&found.meta) {
            Some(meta) => rewrite(core, suspect, &meta)?,
            None => None,
        };
        if let Some(copy) = copy {
            for found in self.pages.iter_mut().filter(|f| f.pba == suspect) {
                *found = copy;
            }
        } else {
            self.pages.retain(|f| f.pba != suspect);
            core.disown(suspect);
        }
        Ok(())
    }

    /// M3: copies what is live in blocks that were not sealed elsewhere and erases them, so that nothing that could not
    /// be read comes back by an interrupted erase later.
    pub(crate) fn empty_blocks<N: Nand, P: Protocol<N>>(&mut self, core: &mut Core<N>, protocol: &mut P) -> Result<()> {
        let mut blocks: Vec<u32> = self.unsealed.drain(..).map(|(block, _)| block).collect();
        blocks.extend(core.open.iter().flatten().map(|open| open.block));
        for block in blocks {
            collect_out_of_turn(core, protocol, block)?;
        }
        self.erase_garbage(core)
    }

    fn erase_garbage<N: Nand>(&mut self, core: &mut Core<N>) -> Result<()> {
        for block in std::mem::take(&mut self.garbage) {
            if core.state[block as usize] == BlockState::Suspect {
                core.erase_block(block)?; // It stays in the list of free blocks.
            }
        }
        Ok(())
    }
}

/// The end of every recovery: free blocks as in normal operation, and nothing left open, so that restarting again finds
/// nothing to do.
pub(crate) fn finish<N: Nand, P: Protocol<N>>(core: &mut Core<N>, protocol: &mut P) -> Result<()> {
    for unit in 0..core.geometry.units {
        core.seal(unit)?;
    }
    for unit in 0..core.geometry.units {
        make_room_in(core, protocol, unit)?;
    }
    for unit in 0..core.geometry.units {
        core.seal(unit)?;
    }
    Ok(())
}

impl<N: Nand> Core<N> {
    /// Makes the youngest unsealed block of a unit its open block again if it has a page left after the one to be
    /// skipped.
    fn go_on_with_youngest(&mut self, unit: u32, unsealed: &mut Vec<(u32, Vec<Option<Meta>>)>) -> Result<()> {
        let Some(at) = unsealed.iter().rposition(|(b, _)| self.geometry.unit_of(*b) == unit) else { return Ok(()) };
        let block = unsealed[at].0;
        let first = block * self.geometry.pages_per_block;
        let mut next = 0;
        for index in 0..self.data_pages() {
            self.nand.read_spare(first + index, &mut self.spare)?;
            if !is_erased(&self.spare) {
                next = index + 1;
            }
        }
        next += 1;
        if next < self.data_pages() && self.is_summary_free(block)? {
            let (_, mut pages) = unsealed.remove(at);
            pages.truncate(next as usize);
            self.open[unit as usize] = Some(super::OpenBlock { block, next, pages });
        }
        Ok(())
    }

    fn is_summary_free(&mut self, block: u32) -> Result<bool> {
        let first = block * self.geometry.pages_per_block;
        for pba in first + self.data_pages()..first + self.geometry.pages_per_block {
            self.nand.read_spare(pba, &mut self.spare)?;
            if !is_erased(&self.spare) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes what the mount found over into the tables. Everything is dead at first, and the protocol revives what
    /// counts.
    pub(crate) fn adopt(&mut self, pages: &[Found]) {
        for found in pages {
            let state = &mut self.page[found.pba as usize];
            if *state & super::PAGE_KIND == super::PAGE_FREE {
                *state = (*state & !super::PAGE_KIND) | PAGE_DEAD;
            }
        }
    }

    /// The page is as if it were not there.
    fn disown(&mut self, pba: Pba) {
        self.page[pba as usize] &= !super::PAGE_KIND;
    }

    /// Makes a page the current version of its logical page.
    pub(crate) fn set_current(&mut self, lba: Lba, pba: Pba) {
        if let Some(entry) = self.map.get_mut(lba as usize) {
            *entry = pba;
            if pba != NO_PBA {
                self.revive(pba);
            }
        }
    }
}

/// Writes a page again elsewhere, with the flag in `meta`; `None` if it has become unreadable.
pub(crate) fn rewrite<N: Nand>(core: &mut Core<N>, pba: Pba, meta: &Meta) -> Result<Option<Found>> {
    let mut data = vec![0xff; core.payload_bytes(meta.kind)];
    let mut copy = match core.read(pba, &mut data) {
        Ok(_) => *meta,
        Err(crate::FlashError::Unreadable(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let extra = core.spare[core.spare.len() - core.extra_bytes..].to_vec();
    let unit = core.geometry.unit_of(core.geometry.block_of(pba));
    let to = core.write(Some(unit), &mut copy, &data, &extra)?;
    if !core.is_live(pba) {
        core.kill(to);
    }
    core.kill(pba);
    Ok(Some(Found { pba: to, meta: copy }))
}

fn smallest_number(metas: &[Option<Meta>]) -> u64 {
    metas.iter().flatten().map(|m| m.sequence).min().unwrap_or(0)
}

fn raise<N: Nand>(core: &mut Core<N>, metas: &[Option<Meta>]) {
    for meta in metas.iter().flatten() {
        core.raise_number(meta.sequence.max(meta.version).max(meta.link.number).max(meta.back) + 64);
    }
}

fn collect_pages<N: Nand>(core: &Core<N>, block: u32, metas: &[Option<Meta>], pages: &mut Vec<Found>) {
    let first = block * core.geometry.pages_per_block;
    for (index, meta) in metas.iter().enumerate() {
        if let Some(meta) = meta {
            pages.push(Found { pba: first + index as u32, meta: *meta });
        }
    }
}

/// M4, and the order that [`Mounted::pages`] promises.
fn deduplicate(pages: &mut Vec<Found>) -> Vec<Found> {
    pages.sort_unstable_by_key(|f| (f.meta.lba, f.meta.version, f.meta.kind as u8, std::cmp::Reverse(f.meta.sequence)));
    let mut losers = Vec::new();
    pages.dedup_by(|later, first| {
        let is_copy = (later.meta.lba, later.meta.version, later.meta.kind)
            == (first.meta.lba, first.meta.version, first.meta.kind);
        if is_copy {
            losers.push(*later);
        }
        is_copy
    });
    losers
}
