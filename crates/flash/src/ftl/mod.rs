//! The translation layer below every protocol (2.2): where logical pages lie, which blocks are free, and collecting
//! them.
//!
//! F1. Pages of a block are written in ascending order. The last pages hold the block's summary. A block is *sealed*
//!     when it has one.
//! F2. Each unit has at most one open block, and fills it before it opens the next.
//! F3. A page that is live is never lost: it is copied before its block is erased, and the copy is newer.
//! F4. Sequence numbers only grow. A link to (page, number) is good as long as its block was opened before that number.
//! F5. Everything that must be on flash before a block may go is there before the erase begins. It stays right if the
//!     erase is interrupted and any of the block's pages survive.
//!
//! What makes a page dead, and what else has to happen before a block with dead pages may go, is the business of the
//! protocol above, through [`Protocol`].

pub mod collect;
pub mod mount;
pub(crate) mod outcome;
pub mod spare;

use std::collections::VecDeque;

use spare::{ENTRY_BYTES, FLAG_OFFSET, Flag, Kind, META_BYTES, Meta};

use crate::error::{FlashError, Result};
use crate::nand::{Geometry, NO_PBA, Nand, Pba, ecc};
use crate::{Lba, Xid};

/// What a protocol must add to garbage collection.
pub trait Protocol<N: Nand> {
    /// A live page is about to be copied: the meta data that the copy gets (flag and link may change; its sequence
    /// number is assigned by the layer). `extra` is the end of its spare area, where the extended protocols keep their
    /// records.
    ///
    /// # Errors
    /// Those of the device.
    fn copy_meta(&mut self, core: &mut Core<N>, from: Pba, meta: &Meta, extra: &mut [u8]) -> Result<Meta>;

    /// The copy is on flash; `from` no longer counts.
    fn copied(&mut self, core: &mut Core<N>, from: Pba, to: Pba, meta: &Meta);

    /// All pages of the block that had to be kept have been copied. Do now what has to be on flash before the rest may
    /// go. `pages` says what was in the block, by index.
    ///
    /// # Errors
    /// Those of the device.
    fn before_erase(&mut self, core: &mut Core<N>, block: u32, pages: &[Option<Meta>]) -> Result<()>;

    /// The block has been erased.
    fn erased(&mut self, core: &mut Core<N>, block: u32, pages: &[Option<Meta>]);
}

/// How the layer is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FtlConfig {
    /// Blocks kept back for collecting, in thousandths (the paper: 100).
    pub reserve_per_mille: u32,
    /// Collecting starts when fewer blocks than this are free, in thousandths (the paper: 50).
    pub threshold_per_mille: u32,
    /// Which block to collect.
    pub victim: Victim,
    /// A block that was erased this much less often than the average is collected for its low wear.
    pub wear_spread_max: u32,
}

impl Default for FtlConfig {
    fn default() -> Self {
        Self { reserve_per_mille: 100, threshold_per_mille: 50, victim: Victim::Greedy, wear_spread_max: 64 }
    }
}

/// How a block is chosen for collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The fewest live pages.
    Greedy,
    /// The best age times free space won by copying (Kawaguchi et al., 1995).
    CostBenefit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BlockState {
    Free,
    /// Looks free or holds nothing of value, but must be erased before use.
    Suspect,
    Open,
    Sealed,
    /// A program failed in it: copy what is live, then never use it again.
    Failing,
    Bad,
}

/// State of a physical page in one byte. Bits 0 and 1 say what it is, bits 2 and 3 are its flag, and bits 4 and 5 say
/// what is known about the flag.
const PAGE_FREE: u8 = 0;
const PAGE_LIVE: u8 = 1;
const PAGE_DEAD: u8 = 2;
const PAGE_KIND: u8 = 3;
const FLAG_KNOWN: u8 = 16;
/// The flag was programmed since the mount, so no power cut can have left it unstable.
const FLAG_STABLE: u8 = 32;

#[derive(Clone, Debug)]
struct OpenBlock {
    block: u32,
    next: u32,
    pages: Vec<Option<Meta>>,
}

/// What the layer did, beside what the device counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FtlStats {
    /// Blocks collected.
    pub collections: u64,
    /// Live pages copied by collections.
    pub pages_copied: u64,
    /// Flags programmed because a page was about to be erased.
    pub flags_moved: u64,
    /// Data pages written for a client.
    pub pages_written: u64,
    /// Summaries written.
    pub summaries: u64,
    /// Pages read for clients.
    pub pages_read: u64,
    /// Bits that error correction has put right.
    pub bits_corrected: u64,
    /// Time spent collecting, by the device's clock.
    pub collection_ns: u64,
    /// Blocks that went bad in use.
    pub blocks_lost: u64,
}

/// The layer. Protocols own one and work on it.
#[derive(Clone, Debug)]
pub struct Core<N> {
    /// The device.
    pub nand: N,
    /// What was done.
    pub stats: FtlStats,
    pub(crate) geometry: Geometry,
    pub(crate) config: FtlConfig,
    pub(crate) map: Vec<Pba>,
    page: Vec<u8>,
    pub(crate) live: Vec<u16>,
    pub(crate) state: Vec<BlockState>,
    /// The sequence counter when the block was opened (F4).
    opened: Vec<u64>,
    erases: Vec<u32>,
    free: Vec<VecDeque<u32>>,
    open: Vec<Option<OpenBlock>>,
    next_unit: u32,
    next_sequence: u64,
    /// Lowest running transaction, written into every page.
    pub(crate) low: Xid,
    live_pages: u64,
    spare: Vec<u8>,
    /// Bytes of the end of the spare area that a protocol uses.
    pub(crate) extra_bytes: usize,
    extra: Vec<u8>,
    copy_buffer: Vec<u8>,
    failing_blocks: u32,
    /// During recovery full blocks wait to be sealed until what they leave out has been copied (M3).
    pub(crate) holds_seals: bool,
    held: Vec<OpenBlock>,
    collections_since_wear: Vec<u32>,
}

impl<N: Nand> Core<N> {
    /// A layer that believes the device to be empty. Blocks are erased before their first use.
    ///
    /// # Errors
    /// [`FlashError::Geometry`] if the geometry leaves no room for data, and those of the device.
    pub(crate) fn new(mut nand: N, config: FtlConfig) -> Result<Self> {
        let geometry = *nand.geometry();
        geometry.check()?;
        let (blocks, units) = (geometry.blocks as usize, geometry.units as usize);
        let mut state = vec![BlockState::Suspect; blocks];
        let mut free = vec![VecDeque::new(); units];
        let mut usable = 0;
        for block in 0..geometry.blocks {
            if nand.is_bad(block)? {
                state[block as usize] = BlockState::Bad;
            } else {
                free[geometry.unit_of(block) as usize].push_back(block);
                usable += 1;
            }
        }
        let count = logical_pages(&geometry, &config);
        if count == 0 || usable < geometry.units * 10 {
            return Err(FlashError::Geometry(format!("{usable} usable blocks leave no room beside the reserve")));
        }
        Ok(Self {
            nand,
            stats: FtlStats::default(),
            geometry,
            config,
            map: vec![NO_PBA; count as usize],
            page: vec![PAGE_FREE; geometry.pages() as usize],
            live: vec![0; blocks],
            state,
            opened: vec![0; blocks],
            erases: vec![0; blocks],
            free,
            open: vec![None; units],
            next_unit: 0,
            next_sequence: 1,
            low: 0,
            live_pages: 0,
            spare: vec![0xff; geometry.spare_bytes as usize],
            extra_bytes: 0,
            extra: Vec::new(),
            copy_buffer: Vec::new(),
            failing_blocks: 0,
            holds_seals: false,
            held: Vec::new(),
            collections_since_wear: vec![0; units],
        })
    }

    /// Logical pages that clients can use.
    pub fn page_count(&self) -> u32 {
        self.map.len() as u32
    }

    /// Bytes of a logical page.
    pub fn page_bytes(&self) -> usize {
        self.geometry.page_bytes as usize
    }

    /// Pages that the device has beside the logical ones.
    pub(crate) fn reserve_pages(&self) -> u32 {
        (self.geometry.blocks * self.data_pages()).saturating_sub(self.page_count())
    }

    /// Pages of a block that hold data.
    pub(crate) fn data_pages(&self) -> u32 {
        data_pages(&self.geometry)
    }

    /// The next number of the one counter for versions and writes.
    #[inline]
    pub(crate) fn next_number(&mut self) -> u64 {
        let number = self.next_sequence;
        self.next_sequence += 1;
        number
    }

    pub(crate) fn raise_number(&mut self, above: u64) {
        self.next_sequence = self.next_sequence.max(above + 1);
    }

    /// Where the newest version of a logical page lies.
    ///
    /// # Errors
    /// [`FlashError::UnknownPage`].
    #[inline]
    pub(crate) fn lookup(&self, lba: Lba) -> Result<Pba> {
        self.map.get(lba as usize).copied().ok_or(FlashError::UnknownPage { lba, count: self.map.len() as u32 })
    }

    /// Whether the page that a link names is still there (F4).
    #[inline]
    pub(crate) fn is_link_good(&self, link: spare::Link) -> bool {
        link.is_some()
            && link.page < self.geometry.pages()
            && self.page[link.page as usize] & PAGE_KIND != PAGE_FREE
            && link.number >= self.opened[self.geometry.block_of(link.page) as usize]
    }

    pub(crate) fn is_sealed(&self, block: u32) -> bool {
        self.state[block as usize] == BlockState::Sealed
    }

    /// Whether a block may be collected out of turn.
    pub(crate) fn is_collectable(&self, block: u32) -> bool {
        block < self.geometry.blocks && self.is_sealed(block) && self.free_blocks(self.geometry.unit_of(block)) > 0
    }

    /// Whether a block is sealed and can be collected out of turn: experiments ask.
    pub fn holds_pages(&self, block: u32) -> bool {
        self.is_collectable(block)
    }

    /// Reads a logical page for a client: as much as asked for, 0xFF where nothing was written.
    pub(crate) fn read_page(&mut self, pba: Pba, data: &mut [u8]) -> Result<()> {
        self.stats.pages_read += 1;
        let written = self.payload_bytes(Kind::Data);
        if pba == NO_PBA {
            data.fill(0xff);
            return Ok(());
        }
        if data.len() == written {
            return self.read(pba, data).map(drop);
        }
        let mut whole = vec![0xff; written];
        self.read(pba, &mut whole)?;
        let len = data.len().min(written);
        data[..len].copy_from_slice(&whole[..len]);
        data[len..].fill(0xff);
        Ok(())
    }

    pub(crate) fn is_live(&self, pba: Pba) -> bool {
        self.page[pba as usize] & PAGE_KIND == PAGE_LIVE
    }

    pub(crate) fn is_written(&self, pba: Pba) -> bool {
        self.page[pba as usize] & PAGE_KIND != PAGE_FREE
    }

    /// The page need not be kept any longer.
    #[inline]
    pub(crate) fn kill(&mut self, pba: Pba) {
        let state = &mut self.page[pba as usize];
        if *state & PAGE_KIND == PAGE_LIVE {
            *state = (*state & !PAGE_KIND) | PAGE_DEAD;
            self.live[self.geometry.block_of(pba) as usize] -= 1;
            self.live_pages -= 1;
        }
    }

    /// The page must be kept after all.
    pub(crate) fn revive(&mut self, pba: Pba) {
        let state = &mut self.page[pba as usize];
        if *state & PAGE_KIND != PAGE_LIVE {
            *state = (*state & !PAGE_KIND) | PAGE_LIVE;
            self.live[self.geometry.block_of(pba) as usize] += 1;
            self.live_pages += 1;
        }
    }

    /// Free blocks of a unit, the open one not counted.
    pub(crate) fn free_blocks(&self, unit: u32) -> usize {
        self.free[unit as usize].len()
    }

    /// Pages that hold live data now.
    pub fn live_pages(&self) -> u64 {
        self.live_pages
    }

    /// Writes a page somewhere in `unit`, or in the unit whose turn it is. The sequence number is assigned here.
    ///
    /// A block in which programming fails is taken out of service and the write goes elsewhere.
    ///
    /// # Errors
    /// [`FlashError::Full`] if no block is free, and those of the device.
    pub(crate) fn write(&mut self, unit: Option<u32>, meta: &mut Meta, data: &[u8], extra: &[u8]) -> Result<Pba> {
        if data.len() > self.geometry.page_bytes as usize {
            return Err(FlashError::TooLong { len: data.len(), max: self.geometry.page_bytes as usize });
        }
        let padded;
        let expected = self.payload_bytes(meta.kind);
        let data = if data.len() < expected {
            padded = [data, &vec![0xff; expected - data.len()]].concat();
            &padded
        } else {
            data
        };
        loop {
            let (unit, pba) = self.allocate(unit)?;
            meta.sequence = self.next_number();
            meta.low = self.low;
            self.encode_spare(meta, data, extra);
            match self.nand.program(pba, data, &self.spare) {
                Ok(()) => {}
                Err(FlashError::ProgramFailed(_)) => {
                    self.fail_open_block(unit);
                    continue;
                }
                Err(error) => return Err(error),
            }
            let block = self.geometry.block_of(pba);
            self.page[pba as usize] = PAGE_LIVE | (meta.flag as u8) << 2 | FLAG_KNOWN | FLAG_STABLE;
            self.live[block as usize] += 1;
            self.live_pages += 1;
            if let Some(open) = &mut self.open[unit as usize] {
                open.pages.push(Some(*meta));
                open.next += 1;
                if open.next == data_pages(&self.geometry) {
                    self.seal(unit)?;
                }
            }
            return Ok(pba);
        }
    }

    /// Writes a new version of a logical page that no transaction has to answer for; the one before goes. There must be
    /// room.
    ///
    /// # Errors
    /// As [`Core::write`].
    pub(crate) fn write_settled(&mut self, lba: Lba, version: u64, data: &[u8]) -> Result<()> {
        let mut meta = Meta::data(lba, 0, version);
        let pba = self.write(None, &mut meta, data, &[])?;
        self.stats.pages_written += 1;
        let older = std::mem::replace(&mut self.map[lba as usize], pba);
        if older != NO_PBA {
            self.kill(older);
        }
        Ok(())
    }

    fn encode_spare(&mut self, meta: &Meta, data: &[u8], extra: &[u8]) {
        meta.encode(crc32c::crc32c(data), &mut self.spare);
        let mut at = META_BYTES;
        if data.len() > 8 {
            for sector in data.chunks(ecc::SECTOR_BYTES) {
                if at + ecc::CODE_BYTES <= self.spare.len() {
                    self.spare[at..at + ecc::CODE_BYTES].copy_from_slice(&ecc::encode(sector));
                }
                at += ecc::CODE_BYTES;
            }
        }
        let at = at.min(self.spare.len());
        self.spare[at..].fill(0xff);
        if !extra.is_empty() {
            let start = self.spare.len() - extra.len();
            self.spare[start..].copy_from_slice(extra);
        }
    }

    fn allocate(&mut self, unit: Option<u32>) -> Result<(u32, Pba)> {
        let units = self.geometry.units;
        let first = unit.unwrap_or(self.next_unit);
        if unit.is_none() {
            self.next_unit = if self.next_unit + 1 == units { 0 } else { self.next_unit + 1 };
        }
        for step in 0..units {
            let unit = (first + step) % units;
            if let Some(open) = &self.open[unit as usize] {
                return Ok((unit, open.block * self.geometry.pages_per_block + open.next));
            }
            if let Some(block) = self.take_free(unit)? {
                self.opened[block as usize] = self.next_sequence;
                self.state[block as usize] = BlockState::Open;
                self.open[unit as usize] = Some(OpenBlock { block, next: 0, pages: Vec::new() });
                return Ok((unit, block * self.geometry.pages_per_block));
            }
        }
        Err(self.full())
    }

    pub(crate) fn full(&self) -> FlashError {
        let data_pages = u64::from(self.geometry.blocks) * u64::from(self.data_pages());
        FlashError::Full { live_pages: self.live_pages, data_pages }
    }

    /// Takes a free block, erased.
    fn take_free(&mut self, unit: u32) -> Result<Option<u32>> {
        while let Some(block) = self.free[unit as usize].pop_front() {
            let state = self.state[block as usize];
            if state == BlockState::Bad || state == BlockState::Suspect && !self.erase_block(block)? {
                continue;
            }
            return Ok(Some(block));
        }
        Ok(None)
    }

    /// Erases a block. False if that was its end.
    pub(crate) fn erase_block(&mut self, block: u32) -> Result<bool> {
        let is_good = match self.nand.erase(block) {
            Ok(()) => true,
            Err(FlashError::EraseFailed(_)) => {
                self.nand.mark_bad(block)?;
                self.stats.blocks_lost += 1;
                false
            }
            Err(error) => return Err(error),
        };
        self.erase_counts_as_done(block, if is_good { BlockState::Free } else { BlockState::Bad });
        Ok(is_good)
    }

    fn erase_counts_as_done(&mut self, block: u32, state: BlockState) {
        let first = (block * self.geometry.pages_per_block) as usize;
        self.page[first..first + self.geometry.pages_per_block as usize].fill(PAGE_FREE);
        self.live[block as usize] = 0;
        self.erases[block as usize] += 1;
        self.state[block as usize] = state;
    }

    pub(crate) fn give_free(&mut self, block: u32) {
        self.free[self.geometry.unit_of(block) as usize].push_back(block);
    }

    fn fail_open_block(&mut self, unit: u32) {
        if let Some(open) = self.open[unit as usize].take() {
            self.state[open.block as usize] = BlockState::Failing;
            self.failing_blocks += 1;
        }
    }

    /// Writes the summary of a unit's open block and closes it.
    fn seal(&mut self, unit: u32) -> Result<()> {
        let Some(open) = self.open[unit as usize].take() else { return Ok(()) };
        if self.holds_seals {
            self.held.push(open);
            return Ok(());
        }
        self.write_summary(open.block, &open.pages)
    }

    /// Seals what was held back.
    pub(crate) fn release_seals(&mut self) -> Result<()> {
        self.holds_seals = false;
        for open in std::mem::take(&mut self.held) {
            self.write_summary(open.block, &open.pages)?;
        }
        Ok(())
    }

    /// Writes a block's summary into its last pages (F1).
    pub(crate) fn write_summary(&mut self, block: u32, pages: &[Option<Meta>]) -> Result<()> {
        let count = data_pages(&self.geometry) as usize;
        let mut bytes = vec![0xff; count * ENTRY_BYTES];
        for (meta, entry) in pages.iter().zip(bytes.chunks_mut(ENTRY_BYTES)) {
            if let Some(meta) = meta {
                spare::encode_entry(meta, entry);
            }
        }
        let first = block * self.geometry.pages_per_block + count as u32;
        for (pba, part) in (first..).zip(bytes.chunks(self.geometry.page_bytes as usize)) {
            let mut meta = Meta { kind: Kind::Summary, ..Meta::data(block, 0, 0) };
            meta.sequence = self.next_number();
            meta.low = self.low;
            self.encode_spare(&meta, part, &[]);
            match self.nand.program(pba, part, &self.spare) {
                Ok(()) => {}
                Err(FlashError::ProgramFailed(_)) => {
                    self.state[block as usize] = BlockState::Failing;
                    self.failing_blocks += 1;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            self.stats.summaries += 1;
        }
        self.state[block as usize] = BlockState::Sealed;
        Ok(())
    }

    /// Bytes of data that pages of a kind are written with.
    pub(crate) fn payload_bytes(&self, kind: Kind) -> usize {
        match kind {
            Kind::Data => self.nand.payload_bytes(),
            Kind::Summary | Kind::Verdict | Kind::Log => self.geometry.page_bytes as usize,
        }
    }

    /// Reads a page's data, corrects it, and returns what its spare area says. `data` is as long as what was written.
    ///
    /// # Errors
    /// [`FlashError::Unreadable`] if more bits are wrong than the code corrects, and those of the device.
    pub(crate) fn read(&mut self, pba: Pba, data: &mut [u8]) -> Result<Meta> {
        let mut spare = std::mem::take(&mut self.spare);
        let answer = self.nand.read(pba, data, &mut spare);
        let meta = answer.and_then(|()| {
            let meta = Meta::decode(&spare).ok_or(FlashError::Unreadable(pba))?;
            if crc32c::crc32c(data) != spare::data_crc(&spare) {
                self.correct(pba, data, &spare)?;
            }
            Ok(meta)
        });
        self.spare = spare;
        meta
    }

    fn correct(&mut self, pba: Pba, data: &mut [u8], spare: &[u8]) -> Result<()> {
        let codes = spare[META_BYTES..].chunks_exact(ecc::CODE_BYTES);
        for (sector, code) in data.chunks_mut(ecc::SECTOR_BYTES).zip(codes) {
            if ecc::correct(sector, [code[0], code[1], code[2]]) == ecc::Checked::Corrected {
                self.stats.bits_corrected += 1;
            }
        }
        if crc32c::crc32c(data) == spare::data_crc(spare) { Ok(()) } else { Err(FlashError::Unreadable(pba)) }
    }

    /// The spare area of a page; `None` if it is erased or unreadable.
    pub(crate) fn read_meta(&mut self, pba: Pba) -> Result<Option<Meta>> {
        self.nand.read_spare(pba, &mut self.spare[..META_BYTES])?;
        let meta = Meta::decode(&self.spare[..META_BYTES]);
        if let Some(meta) = &meta {
            let state = &mut self.page[pba as usize];
            *state = (*state & PAGE_KIND) | (meta.flag as u8) << 2 | FLAG_KNOWN;
        }
        Ok(meta)
    }

    /// The end of a page's spare area that the protocol uses; `None` if the page is erased or unreadable.
    pub(crate) fn read_extra(&mut self, pba: Pba) -> Result<Option<Vec<u8>>> {
        self.nand.read_spare(pba, &mut self.spare)?;
        let is_whole = Meta::decode(&self.spare).is_some();
        Ok(is_whole.then(|| self.spare[self.spare.len() - self.extra_bytes..].to_vec()))
    }

    /// The flag of a page: from memory if it is known, else from flash; `None` if the page has become unreadable.
    pub(crate) fn flag(&mut self, pba: Pba) -> Result<Option<Flag>> {
        let state = self.page[pba as usize];
        if state & FLAG_KNOWN == 0 {
            return Ok(self.read_meta(pba)?.map(|meta| meta.flag));
        }
        Ok(Some(match state >> 2 & 3 {
            0b11 => Flag::Unset,
            0b00 => Flag::Set,
            _ => Flag::Cleared,
        }))
    }

    /// Programs the flag of a page (partial page programming).
    pub(crate) fn set_flag(&mut self, pba: Pba, flag: Flag) -> Result<()> {
        self.nand.program_spare(pba, FLAG_OFFSET, &[flag.to_byte()])?;
        let state = &mut self.page[pba as usize];
        *state = (*state & PAGE_KIND) | (flag as u8) << 2 | FLAG_KNOWN | FLAG_STABLE;
        Ok(())
    }

    /// Whether the flag was programmed since the mount.
    pub(crate) fn is_flag_stable(&self, pba: Pba) -> bool {
        self.page[pba as usize] & FLAG_STABLE != 0
    }

    /// What the pages of a block are, read from its summary, or from the pages themselves if it has none.
    pub(crate) fn block_pages(&mut self, block: u32, out: &mut Vec<Option<Meta>>) -> Result<()> {
        out.clear();
        let first = block * self.geometry.pages_per_block;
        if self.state[block as usize] == BlockState::Sealed && self.read_summary(block, out)?.is_some() {
            return Ok(());
        }
        out.clear();
        for pba in first..first + self.data_pages() {
            let meta = if self.is_written(pba) { self.read_meta(pba)? } else { None };
            out.push(meta);
        }
        Ok(())
    }

    /// Reads a block's summary. `None` if it has no whole one, otherwise the number of the summary.
    pub(crate) fn read_summary(&mut self, block: u32, out: &mut Vec<Option<Meta>>) -> Result<Option<u64>> {
        let count = self.data_pages() as usize;
        let mut bytes = vec![0; count * ENTRY_BYTES];
        let first = block * self.geometry.pages_per_block + count as u32;
        let mut sequence = 0;
        for (pba, part) in (first..).zip(bytes.chunks_mut(self.geometry.page_bytes as usize)) {
            let mut spare = std::mem::take(&mut self.spare);
            let answer = self.nand.read(pba, part, &mut spare);
            let meta = Meta::decode(&spare);
            let is_whole = crc32c::crc32c(part) == spare::data_crc(&spare) || self.correct(pba, part, &spare).is_ok();
            self.spare = spare;
            answer?;
            match meta {
                Some(meta) if meta.kind == Kind::Summary && meta.lba == block && is_whole => {
                    sequence = meta.sequence;
                }
                _ => return Ok(None),
            }
        }
        for entry in bytes.chunks(ENTRY_BYTES) {
            out.push(spare::decode_entry(entry)?);
        }
        Ok(Some(sequence))
    }

    /// Erases by block: smallest, largest and the sum, of the blocks that are not bad.
    pub fn wear(&self) -> (u32, u32, u64) {
        let good = || self.erases.iter().zip(&self.state).filter(|(_, s)| **s != BlockState::Bad).map(|(&e, _)| e);
        (good().min().unwrap_or(0), good().max().unwrap_or(0), good().map(u64::from).sum())
    }

    /// Bytes of memory that the layer's own tables take.
    pub fn table_bytes(&self) -> u64 {
        (self.map.len() * 4 + self.page.len() + self.live.len() * (2 + 1 + 8 + 4)) as u64
    }
}

/// Pages of a block that hold data: as many as leave room for a summary with an entry for each.
pub fn data_pages(geometry: &Geometry) -> u32 {
    let per_page = geometry.page_bytes / ENTRY_BYTES as u32;
    (1..geometry.pages_per_block)
        .rev()
        .find(|&n| n.div_ceil(per_page.max(1)) <= geometry.pages_per_block - n)
        .unwrap_or(1)
}

/// Logical pages of a device: what is left beside the reserve, which has at least eight blocks a unit.
pub fn logical_pages(geometry: &Geometry, config: &FtlConfig) -> u32 {
    let reserve = (u64::from(geometry.blocks) * u64::from(config.reserve_per_mille)).div_ceil(1000) as u32;
    geometry.blocks.saturating_sub(reserve.max(8 * geometry.units)) * data_pages(geometry)
}
