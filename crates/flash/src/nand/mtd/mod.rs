//! Raw NAND behind the Linux MTD character device (`/dev/mtd0`).
//!
//! The kernel's error correction is left out: pages are read and written raw. The spare area holds codes of our own,
//! and a flag is programmed into it later. [`Calls`] are the few system calls that this takes. [`device::Device`]
//! makes them. [`record`] writes them down and plays them back, so that this file is tested where there is no chip.
//!
//! M1. Byte 0 of the spare area is the maker's mark and is always written as 0xFF.
//! M2. The kernel does not count programs. A page programmed before the device was opened is taken to have one program
//!     left.

pub mod device;
pub mod record;

use std::io;

use super::{Geometry, Nand, Pba};
use crate::error::{FlashError, Result};

/// What the kernel says about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Whether it is NAND with one bit in a cell: others cannot be programmed twice.
    pub is_slc: bool,
    /// Bytes of all data areas.
    pub size: u64,
    /// Bytes of the data areas of a block.
    pub erase_bytes: u32,
    /// Bytes of the data area of a page.
    pub page_bytes: u32,
    /// Bytes of the spare area of a page.
    pub spare_bytes: u32,
}

/// The system calls. Places are bytes of data area from the start of the device.
pub trait Calls {
    /// `MEMGETINFO`.
    ///
    /// # Errors
    /// The system's.
    fn info(&mut self) -> io::Result<Info>;

    /// Reads a data area.
    ///
    /// # Errors
    /// The system's.
    fn read(&mut self, at: u64, data: &mut [u8]) -> io::Result<()>;

    /// `MEMREADOOB64`: reads a spare area.
    ///
    /// # Errors
    /// The system's.
    fn read_spare(&mut self, at: u64, spare: &mut [u8]) -> io::Result<()>;

    /// `MEMWRITE`: programs both areas of a page at once.
    ///
    /// # Errors
    /// The system's.
    fn write(&mut self, at: u64, data: &[u8], spare: &[u8]) -> io::Result<()>;

    /// `MEMWRITEOOB64`: clears bits of a spare area.
    ///
    /// # Errors
    /// The system's.
    fn write_spare(&mut self, at: u64, spare: &[u8]) -> io::Result<()>;

    /// `MEMERASE64`.
    ///
    /// # Errors
    /// The system's.
    fn erase(&mut self, at: u64, len: u64) -> io::Result<()>;

    /// `MEMGETBADBLOCK`.
    ///
    /// # Errors
    /// The system's.
    fn is_bad(&mut self, at: u64) -> io::Result<bool>;

    /// `MEMSETBADBLOCK`.
    ///
    /// # Errors
    /// The system's.
    fn mark_bad(&mut self, at: u64) -> io::Result<()>;
}

/// The device.
#[derive(Debug)]
pub struct MtdNand<C> {
    calls: C,
    geometry: Geometry,
    /// By page: the programs that we know of since the device was opened or the block was erased.
    programs: Vec<u8>,
    spare: Vec<u8>,
}

impl<C: Calls> MtdNand<C> {
    /// Opens a device whose pages take `programs_max` programs between two erases. The kernel does not know this
    /// number. The data sheet says it: 4 for most SLC chips.
    ///
    /// # Errors
    /// [`FlashError::Geometry`] if the device is not NAND of whole pages and blocks, or if it is not SLC and
    /// `programs_max` is more than 1. [`FlashError::Io`].
    pub fn new(mut calls: C, programs_max: u8) -> Result<Self> {
        let info = calls.info().map_err(io_error("asking the MTD device for its geometry"))?;
        let Info { is_slc, size, erase_bytes, page_bytes, spare_bytes } = info;
        if page_bytes == 0 || erase_bytes == 0 || erase_bytes % page_bytes != 0 || size % u64::from(erase_bytes) != 0 {
            return Err(FlashError::Geometry(format!(
                "MTD device of {size} bytes, blocks of {erase_bytes}, pages of {page_bytes}"
            )));
        }
        if !is_slc && programs_max > 1 {
            return Err(FlashError::Geometry(format!(
                "{programs_max} programs a page on a device that is not SLC NAND: take 1"
            )));
        }
        let geometry = Geometry {
            units: 1,
            lanes: 1,
            blocks: u32::try_from(size / u64::from(erase_bytes)).unwrap_or(u32::MAX),
            pages_per_block: erase_bytes / page_bytes,
            page_bytes,
            spare_bytes,
            programs_max,
            is_in_order: true,
        };
        geometry.check()?;
        let programs = vec![0; geometry.pages() as usize];
        Ok(Self { calls, geometry, programs, spare: vec![0xff; spare_bytes as usize] })
    }

    /// The calls, for what was recorded.
    pub fn into_calls(self) -> C {
        self.calls
    }

    fn at(&self, pba: Pba) -> Result<u64> {
        self.geometry.check_page(pba)?;
        Ok(u64::from(pba) * u64::from(self.geometry.page_bytes))
    }

    fn block_at(&self, block: u32) -> Result<(u64, u64)> {
        let at = self.at(block.saturating_mul(self.geometry.pages_per_block))?;
        Ok((at, u64::from(self.geometry.pages_per_block) * u64::from(self.geometry.page_bytes)))
    }
}

fn io_error(context: &str) -> impl Fn(io::Error) -> FlashError {
    let context = context.to_string();
    move |source| FlashError::Io { context: context.clone(), source }
}

/// A chip that reports a failed program or erase: the driver answers EIO.
fn is_chip_failure(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

impl<C: Calls> Nand for MtdNand<C> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&mut self, pba: Pba, data: &mut [u8], spare: &mut [u8]) -> Result<()> {
        let at = self.at(pba)?;
        self.calls.read(at, data).map_err(io_error("reading an MTD page"))?;
        self.read_spare(pba, spare)
    }

    fn read_spare(&mut self, pba: Pba, spare: &mut [u8]) -> Result<()> {
        let at = self.at(pba)?;
        let len = spare.len().min(self.spare.len());
        self.calls.read_spare(at, &mut spare[..len]).map_err(io_error("reading an MTD spare area"))?;
        spare[len..].fill(0xff);
        Ok(())
    }

    fn program(&mut self, pba: Pba, data: &[u8], spare: &[u8]) -> Result<()> {
        let at = self.at(pba)?;
        if self.programs[pba as usize] != 0 {
            return Err(FlashError::ProgramLimit { pba, limit: 1 });
        }
        let mut whole = vec![0xff; self.geometry.page_bytes as usize];
        let len = data.len().min(whole.len());
        whole[..len].copy_from_slice(&data[..len]);
        self.spare.fill(0xff);
        let len = spare.len().min(self.spare.len());
        self.spare[..len].copy_from_slice(&spare[..len]);
        self.spare[0] = 0xff; // M1
        self.programs[pba as usize] = 1;
        match self.calls.write(at, &whole, &self.spare) {
            Err(error) if is_chip_failure(&error) => Err(FlashError::ProgramFailed(pba)),
            other => other.map_err(io_error("programming an MTD page")),
        }
    }

    fn program_spare(&mut self, pba: Pba, offset: usize, bytes: &[u8]) -> Result<()> {
        let at = self.at(pba)?;
        let limit = self.geometry.programs_max;
        let known = self.programs[pba as usize];
        let done = if known == 0 { limit.saturating_sub(1) } else { known }; // M2
        if done >= limit {
            return Err(FlashError::ProgramLimit { pba, limit });
        }
        self.spare.fill(0xff);
        for (own, new) in self.spare[offset.max(1)..].iter_mut().zip(bytes) {
            *own = *new;
        }
        self.programs[pba as usize] = done + 1;
        match self.calls.write_spare(at, &self.spare) {
            Err(error) if is_chip_failure(&error) => Err(FlashError::ProgramFailed(pba)),
            other => other.map_err(io_error("programming an MTD spare area")),
        }
    }

    fn erase(&mut self, block: u32) -> Result<()> {
        let (at, len) = self.block_at(block)?;
        match self.calls.erase(at, len) {
            Err(error) if is_chip_failure(&error) => return Err(FlashError::EraseFailed(block)),
            other => other.map_err(io_error("erasing an MTD block"))?,
        }
        let first = (block * self.geometry.pages_per_block) as usize;
        self.programs[first..first + self.geometry.pages_per_block as usize].fill(0);
        Ok(())
    }

    fn is_bad(&mut self, block: u32) -> Result<bool> {
        let (at, _) = self.block_at(block)?;
        self.calls.is_bad(at).map_err(io_error("asking for a bad MTD block"))
    }

    fn mark_bad(&mut self, block: u32) -> Result<()> {
        let (at, _) = self.block_at(block)?;
        self.calls.mark_bad(at).map_err(io_error("marking a bad MTD block"))
    }
}
