//! The translation layer alone, without transactions: what every protocol is measured against before they are compared
//! with each other. Pages go through an LRU buffer and are written when they leave it. No page is ever forced or
//! flagged.

use crate::Lba;
use crate::buffer::Buffer;
use crate::error::{FlashError, Result};
use crate::ftl::collect::make_room;
use crate::ftl::spare::Meta;
use crate::ftl::{Core, FtlConfig, Protocol};
use crate::nand::memory::{Content, MemoryNand};
use crate::nand::{Geometry, Nand, Pba, Timing};
use crate::trace::Trace;

/// What one pass over a trace did to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pass {
    /// Pages copied a block collected.
    pub copied_per_block: f64,
    /// The part of the device's busy time that was spent collecting.
    pub collection_share: f64,
    /// The same without the time for reads of clients: of a stream of writes alone.
    pub collection_share_of_writes: f64,
    /// Pages written by clients.
    pub pages_written: u64,
    /// Different pages that the pass has written.
    pub pages_touched: u64,
}

/// Nothing has to be done for pages that no transaction owns.
#[derive(Clone, Copy, Debug)]
struct Nobody;

impl<N: Nand> Protocol<N> for Nobody {
    fn copy_meta(&mut self, _core: &mut Core<N>, _from: Pba, meta: &Meta, _extra: &mut [u8]) -> Result<Meta> {
        Ok(*meta)
    }

    fn copied(&mut self, _core: &mut Core<N>, _from: Pba, _to: Pba, _meta: &Meta) {}

    fn before_erase(&mut self, _core: &mut Core<N>, _block: u32, _pages: &[Option<Meta>]) -> Result<()> {
        Ok(())
    }

    fn erased(&mut self, _core: &mut Core<N>, _block: u32, _pages: &[Option<Meta>]) {}
}

fn write(core: &mut Core<MemoryNand>, lba: Lba) -> Result<()> {
    make_room(core, &mut Nobody)?;
    let version = core.next_number();
    core.write_settled(lba, version, &u64::from(lba).to_le_bytes())
}

/// Fills a device and sends a trace to it several times, one access after the other, through a buffer of so many pages.
///
/// # Errors
/// [`FlashError::UnknownPage`] if the trace names a page that the device does not have. [`FlashError::Geometry`].
pub fn passes(
    geometry: Geometry,
    config: FtlConfig,
    buffer_pages: usize,
    trace: &Trace,
    count: usize,
) -> Result<Vec<Pass>> {
    let nand = MemoryNand::new(geometry, Timing::paper(), Content::Fingerprint)?;
    let mut core = Core::new(nand, config)?;
    if trace.page_count() > core.page_count() {
        return Err(FlashError::UnknownPage { lba: trace.page_count() - 1, count: core.page_count() });
    }
    for lba in 0..core.page_count() {
        write(&mut core, lba)?;
    }
    let mut buffer: Buffer<bool> = Buffer::new(buffer_pages);
    let mut done = Vec::with_capacity(count);
    let mut touched = vec![0usize; core.page_count() as usize];
    for pass in 1..=count {
        let (before, began_ns) = (core.stats, core.nand.now_ns());
        let (mut read_ns, mut pages_touched) = (0, 0);
        for index in 0..trace.len() {
            for access in trace.get(index).0 {
                if buffer.get(access.lba).is_none() {
                    while let Some(victim) = buffer.victim() {
                        if buffer.remove(victim).is_some_and(|frame| frame.state) {
                            write(&mut core, victim)?;
                            pages_touched += u64::from(touched[victim as usize] != pass);
                            touched[victim as usize] = pass;
                        }
                    }
                    let at_ns = core.nand.now_ns();
                    core.read_page(core.lookup(access.lba)?, &mut [0; 8])?;
                    read_ns += core.nand.now_ns() - at_ns;
                    buffer.insert(access.lba, Box::default(), false);
                }
                if let Some(frame) = buffer.peek(access.lba) {
                    frame.state |= access.is_write;
                }
            }
        }
        let blocks = (core.stats.collections - before.collections).max(1) as f64;
        let busy_ns = (core.nand.now_ns() - began_ns).max(1);
        let collection_ns = (core.stats.collection_ns - before.collection_ns) as f64;
        done.push(Pass {
            copied_per_block: (core.stats.pages_copied - before.pages_copied) as f64 / blocks,
            collection_share: collection_ns / busy_ns as f64,
            collection_share_of_writes: collection_ns / (busy_ns - read_ns).max(1) as f64,
            pages_written: core.stats.pages_written - before.pages_written,
            pages_touched,
        });
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Access;

    /// A tenth of the pages is written again and again in turn: whole blocks die, and hardly anything is copied. At
    /// random, with the same room, blocks die unevenly.
    #[test]
    fn pages_written_in_turn_cost_hardly_a_copy_and_pages_written_at_random_do() {
        let geometry = Geometry { blocks: 160, units: 2, ..Geometry::small(160) };
        let copied = |pick: &mut dyn FnMut(u32) -> Lba| {
            let mut trace = Trace::default();
            for index in 0..20_000 {
                trace.push(&[Access { lba: pick(index), record: 0, is_write: true }], true);
            }
            passes(geometry, FtlConfig::default(), 4, &trace, 2).unwrap()[1].copied_per_block
        };
        let mut rng = crate::rng::Rng::new(3);
        let (in_turn, at_random) = (copied(&mut |index| index % 900), copied(&mut |_| rng.below(900) as Lba));
        assert!(in_turn < 1.0 && at_random > 5.0, "{in_turn} in turn, {at_random} at random");
    }
}
