//! NAND flash as the paper describes it (2.1). A page has a data area and a spare area. It is programmed once, and
//! then a few times more, bit by bit from 1 to 0. Pages are erased a block at a time.
//!
//! N1. Programming only clears bits, and only an erase sets them.
//! N2. A page is programmed at most `programs_max` times between two erases of its block, the first time included.
//! N3. An operation returns when the device says that it is done. One operation is under way at a time.
//! N4. If power fails in the middle, a program may have done nothing or all of it, or it may read differently from one
//!     time to the next. An interrupted erase may have left any page of its block as it was, empty or unreadable.
//!
//! This module knows no logical pages, transactions or protocols.

pub mod ecc;
pub mod exercise;
pub mod file;
pub mod memory;
#[cfg(target_os = "linux")]
pub mod mtd;
mod spares;

use crate::error::{FlashError, Result};

/// A physical page: block number times pages a block, plus the page within its block.
pub type Pba = u32;

/// No physical page.
pub const NO_PBA: Pba = u32::MAX;

/// The shape of a device. A `page` here is what one call programs: on a device that runs `lanes` chips in lock-step,
/// that many flash pages, one on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Groups of chips that work independently of each other.
    pub units: u32,
    /// Chips of a unit that work in lock-step: a page is spread over all of them.
    pub lanes: u32,
    /// Blocks in all units together. Block `b` belongs to unit `b % units`.
    pub blocks: u32,
    /// Pages in a block.
    pub pages_per_block: u32,
    /// Bytes in the data area of a page.
    pub page_bytes: u32,
    /// Bytes in the spare area of a page.
    pub spare_bytes: u32,
    /// Programs a page takes between two erases, the first included (2 is the paper's basic level).
    pub programs_max: u8,
    /// Whether the pages of a block must be programmed in ascending order. Gaps are allowed, and flags are exempt.
    pub is_in_order: bool,
}

impl Geometry {
    /// The paper's device (5.1): 32 GB in 8 packages of 4 GB. An 8 KB logical page lies side by side on four packages.
    pub fn paper() -> Self {
        Self {
            units: 2,
            lanes: 4,
            blocks: 65_536,
            pages_per_block: 64,
            page_bytes: 8192,
            spare_bytes: 64,
            programs_max: 2,
            is_in_order: false,
        }
    }

    /// A small device for tests and demonstrations: 2 KB pages, one chip.
    pub fn small(blocks: u32) -> Self {
        Self {
            units: 1,
            lanes: 1,
            blocks,
            pages_per_block: 64,
            page_bytes: 2048,
            spare_bytes: 64,
            programs_max: 2,
            is_in_order: false,
        }
    }

    /// Pages in the whole device.
    pub fn pages(&self) -> u32 {
        self.blocks * self.pages_per_block
    }

    /// The block that a page lies in.
    #[inline]
    pub fn block_of(&self, pba: Pba) -> u32 {
        pba / self.pages_per_block
    }

    /// The unit that a block belongs to.
    #[inline]
    pub fn unit_of(&self, block: u32) -> u32 {
        block % self.units
    }

    /// # Errors
    /// [`FlashError::Geometry`] if some number makes no device or overflows page numbers.
    pub fn check(&self) -> Result<()> {
        let refuse = |why: &str| Err(FlashError::Geometry(why.to_string()));
        if self.units == 0 || self.lanes == 0 || self.blocks == 0 || self.pages_per_block < 4 || self.page_bytes < 8 {
            return refuse(
                "units, lanes and blocks must be at least 1, pages a block at least 4, page bytes at least 8",
            );
        }
        if u64::from(self.blocks) * u64::from(self.pages_per_block) >= u64::from(NO_PBA) {
            return refuse("more than 4,294,967,294 pages");
        }
        if self.spare_bytes < 64 || self.programs_max == 0 {
            return refuse("a spare area of at least 64 bytes and at least one program a page are needed");
        }
        if self.blocks < self.units * 12 || self.page_bytes > 1 << 20 || self.pages_per_block > 1 << 12 {
            return refuse("at least 12 blocks a unit, pages up to 1 MiB and blocks up to 4,096 pages are supported");
        }
        Ok(())
    }

    pub(crate) fn check_page(&self, pba: Pba) -> Result<()> {
        if pba < self.pages() {
            return Ok(());
        }
        Err(FlashError::OutOfRange { pba: u64::from(pba), count: u64::from(self.pages()) })
    }
}

/// What the operations take, in nanoseconds. One transfer moves a whole page, on all its lanes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Reading a page or its spare area.
    pub read_ns: u64,
    /// Programming a page.
    pub program_ns: u64,
    /// Clearing bits in a page that is programmed already. It keeps one lane busy.
    pub partial_ns: u64,
    /// Erasing a block.
    pub erase_ns: u64,
}

impl Timing {
    /// Table 2 of the paper.
    pub fn paper() -> Self {
        Self { read_ns: 80_000, program_ns: 200_000, partial_ns: 200_000, erase_ns: 1_500_000 }
    }
}

/// What a device did since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NandStats {
    /// Pages read, whole.
    pub reads: u64,
    /// Spare areas read alone.
    pub spare_reads: u64,
    /// Pages programmed for the first time.
    pub programs: u64,
    /// Later programs of spare areas (flags).
    pub partials: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Time that chips were busy, added up over all chips. It stays 0 where time is real.
    pub busy_ns: u64,
}

impl NandStats {
    /// Operations as single 2 KB chips see them: a page on `lanes` chips counts once for each.
    pub fn chip_operations(&self, lanes: u32) -> u64 {
        (self.reads + self.spare_reads + self.programs + self.erases) * u64::from(lanes) + self.partials
    }
}

/// A raw NAND device.
///
/// Every call is synchronous (N3). `data` may be shorter than a page: the rest is left erased when programming, and not
/// delivered when reading.
pub trait Nand {
    /// The shape of the device, which never changes.
    fn geometry(&self) -> &Geometry;

    /// Bytes of client data that the device keeps of each page: all, unless it only simulates.
    fn payload_bytes(&self) -> usize {
        self.geometry().page_bytes as usize
    }

    /// The device's clock, in nanoseconds. It stands still where time is real.
    fn now_ns(&self) -> u64 {
        0
    }

    /// Reads the data and the spare area of a page. Bytes that were never programmed are 0xFF.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`], [`FlashError::Unreadable`] if the device itself knows so, [`FlashError::Io`].
    fn read(&mut self, pba: Pba, data: &mut [u8], spare: &mut [u8]) -> Result<()>;

    /// Reads the first bytes of a spare area.
    ///
    /// # Errors
    /// As [`Nand::read`].
    fn read_spare(&mut self, pba: Pba, spare: &mut [u8]) -> Result<()>;

    /// Programs an erased page.
    ///
    /// # Errors
    /// [`FlashError::ProgramFailed`] if the block is worn out, [`FlashError::OutOfOrder`],
    /// [`FlashError::ProgramLimit`].
    fn program(&mut self, pba: Pba, data: &[u8], spare: &[u8]) -> Result<()>;

    /// Clears bits in the spare area of a programmed page, from byte `offset` on (partial page programming).
    ///
    /// # Errors
    /// [`FlashError::ProgramLimit`] (N2), [`FlashError::ProgramFailed`].
    fn program_spare(&mut self, pba: Pba, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Erases a block: all its bits become 1.
    ///
    /// # Errors
    /// [`FlashError::EraseFailed`] if the block is worn out.
    fn erase(&mut self, block: u32) -> Result<()>;

    /// Whether the maker or [`Nand::mark_bad`] has marked the block as bad.
    ///
    /// # Errors
    /// As [`Nand::read`].
    fn is_bad(&mut self, block: u32) -> Result<bool>;

    /// Marks a block as bad for ever.
    ///
    /// # Errors
    /// As [`Nand::program`].
    fn mark_bad(&mut self, block: u32) -> Result<()>;

    /// Makes everything that was programmed so far survive. Devices that are their own medium have nothing to do.
    ///
    /// # Errors
    /// [`FlashError::Io`] if the medium refuses. The state is then unknown, and the device must be mounted again.
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
}

impl<N: Nand + ?Sized> Nand for &mut N {
    fn geometry(&self) -> &Geometry {
        (**self).geometry()
    }
    fn payload_bytes(&self) -> usize {
        (**self).payload_bytes()
    }
    fn now_ns(&self) -> u64 {
        (**self).now_ns()
    }
    fn read(&mut self, pba: Pba, data: &mut [u8], spare: &mut [u8]) -> Result<()> {
        (**self).read(pba, data, spare)
    }
    fn read_spare(&mut self, pba: Pba, spare: &mut [u8]) -> Result<()> {
        (**self).read_spare(pba, spare)
    }
    fn program(&mut self, pba: Pba, data: &[u8], spare: &[u8]) -> Result<()> {
        (**self).program(pba, data, spare)
    }
    fn program_spare(&mut self, pba: Pba, offset: usize, bytes: &[u8]) -> Result<()> {
        (**self).program_spare(pba, offset, bytes)
    }
    fn erase(&mut self, block: u32) -> Result<()> {
        (**self).erase(block)
    }
    fn is_bad(&mut self, block: u32) -> Result<bool> {
        (**self).is_bad(block)
    }
    fn mark_bad(&mut self, block: u32) -> Result<()> {
        (**self).mark_bad(block)
    }
    fn sync(&mut self) -> Result<()> {
        (**self).sync()
    }
}
