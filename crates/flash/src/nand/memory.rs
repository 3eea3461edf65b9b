//! A NAND device in memory, with a clock, power cuts and worn-out blocks.
//!
//! It keeps every spare area as real bytes and enforces N1 and N2 on them. It keeps all bytes of the data, or only the
//! bytes that were given, so that the paper's 32 GB fit below 1 GiB (see [`Content`]).
//!
//! The clock: each lane of each unit is busy until some time. An operation starts when all the lanes that it needs are
//! free and not before the caller's `now`, and moves `now` to its end. A caller that plays many clients sets `now`
//! before each client's turn. Operations of different clients then overlap wherever they need different chips.
//!
//! Power cuts (N4): the `n`-th operation from now is cut in one of the ways of [`CutShape`]. A page whose program or
//! erase was cut may be *unstable*: it may read differently after each restart. That lasts until its block is erased or
//! the same bits are programmed again.

use super::spares::Spares;
use super::{Geometry, Nand, NandStats, Pba, Timing};
use crate::error::{FlashError, Result};
use crate::hash::IntMap;

/// Where data areas are not kept, spare areas have room for this much each. Few pages have more.
const KEPT_SPARE_BYTES: u32 = 64;

/// How much of the data areas the device remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// All bytes.
    Full,
    /// The first 8 bytes of short writes; longer ones (summaries, logs, verdicts) as they were given.
    Fingerprint,
}

/// What a power cut in the middle of an operation leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutShape {
    /// The operation has not happened.
    Nothing,
    /// A program left a page that fails every check, or an erase left every page of the block unreadable.
    Garbage,
    /// It has happened, and power failed right after.
    Whole,
    /// Reads as done after an odd number of restarts and as not done (a page: unreadable) after an even one.
    UnstableNew,
    /// Reads as not done after an odd number of restarts and as done after an even one.
    UnstableOld,
    /// Only for an erase: page `i` of the block is left as it was if bit `i % 64` is set, and is erased otherwise.
    Subset(u64),
}

#[derive(Clone, Debug)]
struct Unstable {
    /// The restart count at the time of the cut.
    since: u32,
    reads_new_first: bool,
    /// The spare area before the cut. `None` if the page was erased: then it is unreadable.
    before: Option<Box<[u8]>>,
}

/// The device. `Clone` copies the whole medium: an experiment can be run twice from the same state.
#[derive(Clone, Debug)]
pub struct MemoryNand {
    geometry: Geometry,
    timing: Timing,
    content: Content,
    spares: Spares,
    inline: Vec<u64>,
    long: IntMap<Pba, Box<[u8]>>,
    programs: Vec<u8>,
    /// Per block: one more than the highest page programmed since its erase.
    frontier: Vec<u16>,
    erases: Vec<u32>,
    bad: Vec<bool>,
    endurance: Option<u32>,
    unreadable: IntMap<Pba, ()>,
    unstable: IntMap<Pba, Unstable>,
    restarts: u32,
    is_off: bool,
    cut: Option<(u64, CutShape)>,
    operations: u64,
    now_ns: u64,
    busy_until: Vec<u64>,
    stats: NandStats,
}

impl MemoryNand {
    /// An erased device.
    ///
    /// # Errors
    /// [`FlashError::Geometry`].
    pub fn new(geometry: Geometry, timing: Timing, content: Content) -> Result<Self> {
        geometry.check()?;
        let pages = geometry.pages() as usize;
        let blocks = geometry.blocks as usize;
        let kept_bytes = if content == Content::Full { geometry.spare_bytes } else { KEPT_SPARE_BYTES } as usize;
        Ok(Self {
            geometry,
            timing,
            content,
            spares: Spares::new(pages, geometry.spare_bytes as usize, kept_bytes),
            inline: if content == Content::Fingerprint { vec![0; pages] } else { Vec::new() },
            long: IntMap::default(),
            programs: vec![0; pages],
            frontier: vec![0; blocks],
            erases: vec![0; blocks],
            bad: vec![false; blocks],
            endurance: None,
            unreadable: IntMap::default(),
            unstable: IntMap::default(),
            restarts: 0,
            is_off: false,
            cut: None,
            operations: 0,
            now_ns: 0,
            busy_until: vec![0; (geometry.units * geometry.lanes) as usize],
            stats: NandStats::default(),
        })
    }

    /// Blocks fail at their `endurance`-th erase from now on.
    pub fn set_endurance(&mut self, endurance: Option<u32>) {
        self.endurance = endurance;
    }

    /// Marks a block as bad from the maker.
    pub fn set_bad(&mut self, block: u32) {
        self.bad[block as usize] = true;
    }

    /// The time, in nanoseconds since the device was made.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Moves the caller's time, forwards or backwards: the turn of another client.
    pub fn set_now_ns(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Programs, partial programs and erases since the device was made: the places where power can be cut.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Cuts the power in the `after`-th changing operation from now (0 is the next one).
    pub fn cut_power_after(&mut self, after: u64, shape: CutShape) {
        self.cut = Some((self.operations + after, shape));
    }

    /// Takes back a planned power cut.
    pub fn cancel_cut(&mut self) {
        self.cut = None;
    }

    /// Cuts the power between two operations.
    pub fn cut_power_now(&mut self) {
        self.is_off = true;
    }

    /// Switches the power on again. The user of the device must mount it afresh.
    pub fn restore_power(&mut self) {
        self.is_off = false;
        self.cut = None;
        self.restarts += 1;
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.is_off
    }

    /// Flips a bit of a data area, as age and radiation do.
    pub fn flip_data_bit(&mut self, pba: Pba, bit: usize) {
        if let Some(data) = self.long.get_mut(&pba)
            && let Some(byte) = data.get_mut(bit / 8)
        {
            *byte ^= 1 << (bit % 8);
        }
    }

    /// Flips a bit of a spare area.
    pub fn flip_spare_bit(&mut self, pba: Pba, bit: usize) {
        self.spares.flip_bit(pba, bit);
    }

    /// How often each block was erased.
    pub fn erase_counts(&self) -> &[u32] {
        &self.erases
    }

    /// What the device did so far.
    pub fn stats(&self) -> NandStats {
        self.stats
    }

    /// The latencies.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    #[inline]
    fn power(&self) -> Result<()> {
        if self.is_off { Err(FlashError::PowerCut) } else { Ok(()) }
    }

    /// Counts a changing operation, and says how it is to be cut if its turn has come.
    #[inline]
    fn count_operation(&mut self) -> Option<CutShape> {
        let number = self.operations;
        self.operations += 1;
        match self.cut {
            Some((at, shape)) if at == number => Some(shape),
            _ => None,
        }
    }

    /// Occupies all lanes of a unit.
    #[inline]
    fn occupy_unit(&mut self, block: u32, duration_ns: u64) {
        let lanes = self.geometry.lanes as usize;
        let first = self.geometry.unit_of(block) as usize * lanes;
        let busy = &mut self.busy_until[first..first + lanes];
        let start = busy.iter().copied().fold(self.now_ns, u64::max);
        busy.fill(start + duration_ns);
        self.stats.busy_ns += duration_ns * lanes as u64;
        self.now_ns = start + duration_ns;
    }

    /// Occupies the one lane that holds a page's spare area (they take turns, so that flags spread).
    #[inline]
    fn occupy_lane(&mut self, pba: Pba, duration_ns: u64) {
        let lanes = self.geometry.lanes;
        let unit = self.geometry.unit_of(self.geometry.block_of(pba));
        let busy = &mut self.busy_until[(unit * lanes + pba % lanes) as usize];
        let start = self.now_ns.max(*busy);
        *busy = start + duration_ns;
        self.stats.busy_ns += duration_ns;
        self.now_ns = start + duration_ns;
    }

    fn whole_spare(&self, pba: Pba) -> Box<[u8]> {
        let mut area = vec![0; self.geometry.spare_bytes as usize];
        self.spares.read(pba, &mut area);
        area.into()
    }

    /// Delivers the spare area. False if the page is unreadable right now.
    #[inline]
    fn deliver_spare(&self, pba: Pba, out: &mut [u8]) -> bool {
        if self.programs[pba as usize] == 0 {
            out.fill(0xff);
            return true;
        }
        if !self.unstable.is_empty()
            && let Some(unstable) = self.unstable.get(&pba)
        {
            let odd = self.restarts.wrapping_sub(unstable.since) % 2 == 1;
            if odd != unstable.reads_new_first {
                match &unstable.before {
                    Some(before) => out.copy_from_slice(&before[..out.len()]),
                    None => out.fill(0x5a),
                }
                return unstable.before.is_some();
            }
        }
        if !self.unreadable.is_empty() && self.unreadable.contains_key(&pba) {
            out.fill(0x5a); // Neither erased nor any checksum's child.
            return false;
        }
        self.spares.read(pba, out);
        true
    }

    fn store(&mut self, pba: Pba, data: &[u8], spare: &[u8]) {
        let (page, block) = (pba as usize, self.geometry.block_of(pba) as usize);
        self.spares.set(pba, spare);
        if self.content == Content::Fingerprint && data.len() <= 8 {
            let mut bytes = [0xff; 8];
            bytes[..data.len()].copy_from_slice(data);
            self.inline[page] = u64::from_le_bytes(bytes);
        } else {
            // Bytes never programmed need no memory. Tests flip bits of whole pages only where all is kept.
            let used = data.iter().rposition(|&byte| byte != 0xff).map_or(0, |at| at + 1);
            let kept = if self.content == Content::Full { data } else { &data[..used] };
            self.long.insert(pba, kept.into());
        }
        self.programs[page] = 1;
        self.frontier[block] = self.frontier[block].max((pba % self.geometry.pages_per_block) as u16 + 1);
    }

    fn wipe(&mut self, pba: Pba) {
        self.programs[pba as usize] = 0;
        self.spares.clear_tail(pba);
        if !self.long.is_empty() {
            self.long.remove(&pba);
        }
        if !self.unreadable.is_empty() {
            self.unreadable.remove(&pba);
        }
        if !self.unstable.is_empty() {
            self.unstable.remove(&pba);
        }
    }

    fn cut_program(&mut self, pba: Pba, data: &[u8], spare: &[u8], shape: CutShape) {
        self.is_off = true;
        if shape == CutShape::Nothing {
            return;
        }
        self.store(pba, data, spare);
        let reads_new_first = match shape {
            CutShape::UnstableNew => true,
            CutShape::UnstableOld => false,
            CutShape::Whole => return,
            _ => {
                self.unreadable.insert(pba, ());
                return;
            }
        };
        self.unstable.insert(pba, Unstable { since: self.restarts, reads_new_first, before: None });
    }

    fn cut_erase(&mut self, block: u32, shape: CutShape) {
        self.is_off = true;
        let first = block * self.geometry.pages_per_block;
        for index in 0..self.geometry.pages_per_block {
            let pba = first + index;
            match shape {
                CutShape::Nothing => {}
                CutShape::Whole => self.wipe(pba),
                CutShape::Subset(kept) if kept >> (index % 64) & 1 == 1 => {}
                CutShape::Subset(_) => self.wipe(pba),
                // Half-erased cells: programmed as far as the device is concerned, and readable by nobody.
                _ => {
                    self.programs[pba as usize] = self.geometry.programs_max;
                    self.unreadable.insert(pba, ());
                }
            }
        }
    }
}

impl Nand for MemoryNand {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn payload_bytes(&self) -> usize {
        if self.content == Content::Fingerprint { 8 } else { self.geometry.page_bytes as usize }
    }

    fn read(&mut self, pba: Pba, data: &mut [u8], spare: &mut [u8]) -> Result<()> {
        self.power()?;
        self.geometry.check_page(pba)?;
        self.stats.reads += 1;
        self.occupy_unit(self.geometry.block_of(pba), self.timing.read_ns);
        let is_readable = self.deliver_spare(pba, spare);
        if self.programs[pba as usize] == 0 {
            data.fill(0xff);
        } else if !is_readable {
            data.fill(0x5a);
        } else if self.content == Content::Full || self.long.contains_key(&pba) {
            data.fill(0xff);
            if let Some(stored) = self.long.get(&pba) {
                let len = stored.len().min(data.len());
                data[..len].copy_from_slice(&stored[..len]);
            }
        } else {
            let bytes = self.inline[pba as usize].to_le_bytes();
            let len = data.len().min(8);
            data[..len].copy_from_slice(&bytes[..len]);
            data[len..].fill(0xff);
        }
        Ok(())
    }

    fn read_spare(&mut self, pba: Pba, spare: &mut [u8]) -> Result<()> {
        self.power()?;
        self.geometry.check_page(pba)?;
        self.stats.spare_reads += 1;
        self.occupy_lane(pba, self.timing.read_ns);
        self.deliver_spare(pba, spare);
        Ok(())
    }

    fn program(&mut self, pba: Pba, data: &[u8], spare: &[u8]) -> Result<()> {
        self.power()?;
        self.geometry.check_page(pba)?;
        let block = self.geometry.block_of(pba);
        if self.programs[pba as usize] != 0 {
            return Err(FlashError::ProgramLimit { pba, limit: 1 });
        }
        if self.geometry.is_in_order && pba % self.geometry.pages_per_block < u32::from(self.frontier[block as usize]) {
            return Err(FlashError::OutOfOrder(pba));
        }
        if self.bad[block as usize] {
            return Err(FlashError::ProgramFailed(pba));
        }
        if let Some(shape) = self.count_operation() {
            self.cut_program(pba, data, spare, shape);
            return Err(FlashError::PowerCut);
        }
        self.stats.programs += 1;
        self.occupy_unit(block, self.timing.program_ns);
        self.store(pba, data, spare);
        Ok(())
    }

    fn program_spare(&mut self, pba: Pba, offset: usize, bytes: &[u8]) -> Result<()> {
        self.power()?;
        self.geometry.check_page(pba)?;
        if self.programs[pba as usize] >= self.geometry.programs_max {
            return Err(FlashError::ProgramLimit { pba, limit: self.geometry.programs_max });
        }
        let shape = self.count_operation();
        if shape == Some(CutShape::Nothing) {
            self.is_off = true;
            return Err(FlashError::PowerCut);
        }
        let before: Box<[u8]> =
            if shape.is_some() || !self.unstable.is_empty() { self.whole_spare(pba) } else { Box::default() };
        self.spares.clear_bits(pba, offset, bytes);
        self.programs[pba as usize] = self.programs[pba as usize].max(1) + 1;
        match shape {
            None => {
                // Programming the very same bits again, uncut, makes an unstable flag stable.
                if !self.unstable.is_empty() && self.unstable.get(&pba).is_some_and(|u| u.before.is_some()) {
                    self.unstable.remove(&pba);
                }
            }
            Some(CutShape::UnstableOld | CutShape::UnstableNew | CutShape::Garbage) => {
                let reads_new_first = shape == Some(CutShape::UnstableNew);
                let unstable = Unstable { since: self.restarts, reads_new_first, before: Some(before) };
                self.unstable.entry(pba).or_insert(unstable);
            }
            Some(_) => {}
        }
        if shape.is_some() {
            self.is_off = true;
            return Err(FlashError::PowerCut);
        }
        self.stats.partials += 1;
        self.occupy_lane(pba, self.timing.partial_ns);
        Ok(())
    }

    fn erase(&mut self, block: u32) -> Result<()> {
        self.power()?;
        self.geometry.check_page(block.saturating_mul(self.geometry.pages_per_block))?;
        if self.bad[block as usize] || self.endurance.is_some_and(|limit| self.erases[block as usize] >= limit) {
            return Err(FlashError::EraseFailed(block));
        }
        if let Some(shape) = self.count_operation() {
            self.cut_erase(block, shape);
            return Err(FlashError::PowerCut);
        }
        let first = block * self.geometry.pages_per_block;
        for pba in first..first + self.geometry.pages_per_block {
            self.wipe(pba);
        }
        self.frontier[block as usize] = 0;
        self.erases[block as usize] += 1;
        self.stats.erases += 1;
        self.occupy_unit(block, self.timing.erase_ns);
        Ok(())
    }

    fn is_bad(&mut self, block: u32) -> Result<bool> {
        self.power()?;
        self.geometry.check_page(block.saturating_mul(self.geometry.pages_per_block))?;
        Ok(self.bad[block as usize])
    }

    fn mark_bad(&mut self, block: u32) -> Result<()> {
        self.power()?;
        self.geometry.check_page(block.saturating_mul(self.geometry.pages_per_block))?;
        self.bad[block as usize] = true;
        Ok(())
    }
}
