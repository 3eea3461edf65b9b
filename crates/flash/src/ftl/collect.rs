//! Garbage collection and wear levelling (2.2): in the foreground, before a write that finds too few free blocks.
//!
//! Collecting a block: copy its live pages into the open block of its unit, let the protocol do what must be on flash
//! before the dead ones go, erase it. A power cut leaves each page in its old place, its new one, or both.

use super::spare::{Kind, Meta};
use super::{BlockState, Core, Protocol, Victim};
use crate::error::{FlashError, Result};
use crate::nand::Nand;

/// Makes sure that the next write finds a page, in the unit whose turn it is.
///
/// # Errors
/// [`FlashError::Full`] if nothing can be collected and no block is left but those that collecting needs.
pub(crate) fn make_room<N: Nand, P: Protocol<N>>(core: &mut Core<N>, protocol: &mut P) -> Result<()> {
    make_room_in(core, protocol, core.next_unit)
}

/// Makes sure that a unit has as many free blocks as the threshold asks for.
///
/// # Errors
/// As [`make_room`].
pub(crate) fn make_room_in<N: Nand, P: Protocol<N>>(core: &mut Core<N>, protocol: &mut P, unit: u32) -> Result<()> {
    let wanted = threshold(core);
    if let Some(block) = core.failing_block(unit) {
        collect(core, protocol, block)?;
    }
    while core.free_blocks(unit) < wanted {
        match choose(core, unit) {
            Some(victim) => collect(core, protocol, victim)?,
            None if core.free_blocks(unit) > 1 || core.open[unit as usize].is_some() && core.free_blocks(unit) > 0 => {
                break;
            }
            None => return Err(core.full()),
        }
    }
    Ok(())
}

fn threshold<N: Nand>(core: &Core<N>) -> usize {
    let per_unit = u64::from(core.geometry.blocks / core.geometry.units);
    ((per_unit * u64::from(core.config.threshold_per_mille)) / 1000).max(5) as usize
}

impl<N: Nand> Core<N> {
    /// A block of the unit in which a program failed.
    fn failing_block(&self, unit: u32) -> Option<u32> {
        if self.failing_blocks == 0 {
            return None;
        }
        let step = self.geometry.units as usize;
        (unit..self.geometry.blocks).step_by(step).find(|&b| self.state[b as usize] == BlockState::Failing)
    }
}

/// The block to collect: `None` if none would win a page.
fn choose<N: Nand>(core: &mut Core<N>, unit: u32) -> Option<u32> {
    if let Some(block) = choose_for_wear(core, unit) {
        return Some(block);
    }
    let full = core.data_pages() as u16;
    let step = core.geometry.units as usize;
    let candidates = (unit..core.geometry.blocks)
        .step_by(step)
        .filter(|&b| core.state[b as usize] == BlockState::Sealed && core.live[b as usize] < full);
    match core.config.victim {
        Victim::Greedy => candidates.min_by_key(|&b| (core.live[b as usize], core.erases[b as usize])),
        Victim::CostBenefit => {
            let now = core.next_sequence;
            let benefit = |b: u32| {
                let used = f64::from(core.live[b as usize]) / f64::from(full);
                (now - core.opened[b as usize]) as f64 * (1.0 - used) / (2.0 * used + f64::EPSILON)
            };
            candidates.max_by(|&a, &b| benefit(a).total_cmp(&benefit(b)))
        }
    }
}

/// Every 64th collection of a unit looks for a block whose data never moves. Such a block was erased far less often
/// than the others, and joins them again if its data is moved elsewhere.
fn choose_for_wear<N: Nand>(core: &mut Core<N>, unit: u32) -> Option<u32> {
    core.collections_since_wear[unit as usize] += 1;
    if core.collections_since_wear[unit as usize] < 64 || core.free_blocks(unit) < 2 {
        return None;
    }
    core.collections_since_wear[unit as usize] = 0;
    let step = core.geometry.units as usize;
    let in_unit = || (unit..core.geometry.blocks).step_by(step);
    let most = in_unit().map(|b| core.erases[b as usize]).max()?;
    let coldest =
        in_unit().filter(|&b| core.state[b as usize] == BlockState::Sealed).min_by_key(|&b| core.erases[b as usize])?;
    (most - core.erases[coldest as usize] > core.config.wear_spread_max).then_some(coldest)
}

/// Collects one block.
///
/// # Errors
/// Those of the device. A live page that cannot be read is lost and the error names it.
pub(crate) fn collect<N: Nand, P: Protocol<N>>(core: &mut Core<N>, protocol: &mut P, block: u32) -> Result<()> {
    let began_ns = core.nand.now_ns();
    let mut pages = Vec::with_capacity(core.data_pages() as usize);
    core.block_pages(block, &mut pages)?;
    let reading_ns = core.nand.now_ns() - began_ns;
    core.stats.collection_ns += reading_ns;
    collect_listed(core, protocol, block, &pages)
}

/// Collects a block now, even if it is the open one of its unit, which is then given up.
///
/// # Errors
/// As [`collect`]; [`FlashError::Full`] if its unit has no free block to copy to.
pub(crate) fn collect_out_of_turn<N: Nand, P: Protocol<N>>(
    core: &mut Core<N>,
    protocol: &mut P,
    block: u32,
) -> Result<()> {
    let unit = core.geometry.unit_of(block);
    if core.free_blocks(unit) == 0 {
        return Err(core.full());
    }
    match core.open[unit as usize].take_if(|open| open.block == block) {
        Some(open) => collect_listed(core, protocol, block, &open.pages),
        None => collect(core, protocol, block),
    }
}

fn collect_listed<N: Nand, P: Protocol<N>>(
    core: &mut Core<N>,
    protocol: &mut P,
    block: u32,
    pages: &[Option<Meta>],
) -> Result<()> {
    let began_ns = core.nand.now_ns();
    let first = block * core.geometry.pages_per_block;
    let mut data = std::mem::take(&mut core.copy_buffer);
    for (index, meta) in pages.iter().enumerate() {
        let pba = first + index as u32;
        if core.is_live(pba)
            && let Some(meta) = meta
        {
            let copied = move_page(core, protocol, pba, meta, &mut data);
            if let Err(error) = copied {
                core.copy_buffer = data;
                return Err(error);
            }
        }
    }
    core.copy_buffer = data;
    protocol.before_erase(core, block, pages)?;
    let was_failing = core.state[block as usize] == BlockState::Failing;
    if was_failing {
        core.retire_block(block)?;
    } else if core.erase_block(block)? {
        core.give_free(block);
    }
    protocol.erased(core, block, pages);
    core.stats.collections += 1;
    core.stats.collection_ns += core.nand.now_ns() - began_ns;
    Ok(())
}

/// Copies one page to the open block of its unit.
pub(crate) fn move_page<N: Nand, P: Protocol<N>>(
    core: &mut Core<N>,
    protocol: &mut P,
    from: u32,
    meta: &Meta,
    data: &mut Vec<u8>,
) -> Result<u32> {
    let unit = core.geometry.unit_of(core.geometry.block_of(from));
    let len = core.payload_bytes(meta.kind);
    data.resize(len.max(data.len()), 0xff);
    core.read(from, &mut data[..len])?;
    let mut extra = core.take_extra();
    let result = protocol.copy_meta(core, from, meta, &mut extra).and_then(|mut copy| {
        let to = core.write(Some(unit), &mut copy, &data[..len], &extra)?;
        Ok((copy, to))
    });
    core.extra = extra;
    let (copy, to) = result?;
    if copy.kind == Kind::Data && core.map[copy.lba as usize] == from {
        core.map[copy.lba as usize] = to;
    }
    core.kill(from);
    protocol.copied(core, from, to, &copy);
    core.stats.pages_copied += 1;
    Ok(to)
}

impl<N: Nand> Core<N> {
    /// The end of the spare area that was read last.
    fn take_extra(&mut self) -> Vec<u8> {
        let mut extra = std::mem::take(&mut self.extra);
        extra.clear();
        extra.extend_from_slice(&self.spare[self.spare.len() - self.extra_bytes..]);
        extra
    }

    /// Never uses a block again.
    fn retire_block(&mut self, block: u32) -> Result<()> {
        match self.nand.erase(block) {
            Ok(()) | Err(FlashError::EraseFailed(_)) => {}
            Err(error) => return Err(error),
        }
        self.nand.mark_bad(block)?;
        self.erase_counts_as_done(block, BlockState::Bad);
        self.failing_blocks -= 1;
        self.stats.blocks_lost += 1;
        Ok(())
    }
}
