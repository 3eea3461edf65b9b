//! A NAND device in a file, for tests, demonstrations and programs without a chip. It obeys the same rules (N1, N2)
//! and keeps all bytes. It survives its process, however that ends. Commits sync the file. Between two syncs the
//! operating system may write in any order, so a failure of the whole machine is not a power cut in the sense of N4.
//!
//! ```text
//! offset  size  field
//!      0     8  magic "LSFLASH1"
//!      8     4  format version, 1
//!     12     4  units
//!     16     4  lanes
//!     20     4  blocks
//!     24     4  pages a block
//!     28     4  data bytes of a page
//!     32     4  spare bytes of a page
//!     36     4  programs a page takes
//!     40     4  1 if pages of a block must be programmed in order
//!     44     4  CRC-32C of bytes 0..44
//!     48        zeros up to 4096
//!   4096   b*8  by block: erase count u32, bad mark u32 (0 good)
//!      :   p*1  by page: programs since the last erase
//!      :        pages: data area, then spare area
//! ```
//! All numbers are little-endian. The file is sparse: blocks that were never programmed take no room.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Geometry, Nand, Pba};
use crate::error::{FlashError, Result};

const MAGIC: [u8; 8] = *b"LSFLASH1";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 48;
const TABLES_AT: u64 = 4096;

/// The device.
#[derive(Debug)]
pub struct FileNand {
    file: File,
    name: String,
    geometry: Geometry,
}

impl FileNand {
    /// Makes an erased device in a new file.
    ///
    /// # Errors
    /// [`FlashError::Geometry`]; [`FlashError::Io`], also if the file exists.
    pub fn create(path: &Path, geometry: Geometry) -> Result<Self> {
        geometry.check()?;
        let name = path.display().to_string();
        let io = |source| FlashError::Io { context: format!("making flash image {name}"), source };
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(io)?;
        file.write_all_at(&encode_header(&geometry), 0).map_err(io)?;
        let device = Self { file, name: path.display().to_string(), geometry };
        device.file.set_len(device.page_at(geometry.pages())).map_err(io)?;
        device.file.sync_all().map_err(io)?;
        Ok(device)
    }

    /// Opens a device that [`FileNand::create`] has made.
    ///
    /// # Errors
    /// [`FlashError::Mismatch`] if the file is not such a device or has another version, [`FlashError::Corrupt`] if
    /// its header is damaged, [`FlashError::Io`].
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let io = |source| FlashError::Io { context: format!("opening flash image {name}"), source };
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(io)?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0).map_err(io)?;
        let geometry = decode_header(&header)?;
        let device = Self { file, name: path.display().to_string(), geometry };
        let (expected, found) = (device.page_at(geometry.pages()), device.file.metadata().map_err(io)?.len());
        if found < expected {
            let (expected, found) = (expected.to_string(), found.to_string());
            return Err(FlashError::Mismatch { field: "file size", expected, found });
        }
        Ok(device)
    }

    /// How often a block was erased.
    ///
    /// # Errors
    /// [`FlashError::Io`].
    pub fn erase_count(&self, block: u32) -> Result<u32> {
        Ok(self.block_entry(block)?.0)
    }

    fn programs_at(&self, pba: Pba) -> u64 {
        TABLES_AT + u64::from(self.geometry.blocks) * 8 + u64::from(pba)
    }

    fn page_at(&self, pba: Pba) -> u64 {
        let page = u64::from(self.geometry.page_bytes + self.geometry.spare_bytes);
        self.programs_at(self.geometry.pages()) + u64::from(pba) * page
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        let io = |source| FlashError::Io { context: format!("reading flash image {}", self.name), source };
        self.file.read_exact_at(bytes, at).map_err(io)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<()> {
        let io = |source| FlashError::Io { context: format!("writing flash image {}", self.name), source };
        self.file.write_all_at(bytes, at).map_err(io)
    }

    fn programs(&self, pba: Pba) -> Result<u8> {
        let mut byte = [0];
        self.read_at(&mut byte, self.programs_at(pba))?;
        Ok(byte[0])
    }

    fn block_entry(&self, block: u32) -> Result<(u32, bool)> {
        self.geometry.check_page(block.saturating_mul(self.geometry.pages_per_block))?;
        let mut bytes = [0; 8];
        self.read_at(&mut bytes, TABLES_AT + u64::from(block) * 8)?;
        let [a, b, c, d, e, f, g, h] = bytes;
        Ok((u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]) != 0))
    }

    fn set_block_entry(&self, block: u32, erases: u32, is_bad: bool) -> Result<()> {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&erases.to_le_bytes());
        bytes[4..].copy_from_slice(&u32::from(is_bad).to_le_bytes());
        self.write_at(&bytes, TABLES_AT + u64::from(block) * 8)
    }
}

fn encode_header(geometry: &Geometry) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    let numbers = [
        VERSION,
        geometry.units,
        geometry.lanes,
        geometry.blocks,
        geometry.pages_per_block,
        geometry.page_bytes,
        geometry.spare_bytes,
        u32::from(geometry.programs_max),
        u32::from(geometry.is_in_order),
    ];
    for (out, number) in header[8..44].chunks_exact_mut(4).zip(numbers) {
        out.copy_from_slice(&number.to_le_bytes());
    }
    let crc = crc32c::crc32c(&header[..44]);
    header[44..].copy_from_slice(&crc.to_le_bytes());
    header
}

fn decode_header(header: &[u8; HEADER_BYTES]) -> Result<Geometry> {
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if header[..8] != MAGIC {
        let found = header[..8].escape_ascii().to_string();
        return Err(FlashError::Mismatch { field: "magic", expected: MAGIC.escape_ascii().to_string(), found });
    }
    if word(8) != VERSION {
        let (expected, found) = (VERSION.to_string(), word(8).to_string());
        return Err(FlashError::Mismatch { field: "format version", expected, found });
    }
    if crc32c::crc32c(&header[..44]) != word(44) {
        return Err(FlashError::Corrupt("the header of the flash image fails its checksum".to_string()));
    }
    let geometry = Geometry {
        units: word(12),
        lanes: word(16),
        blocks: word(20),
        pages_per_block: word(24),
        page_bytes: word(28),
        spare_bytes: word(32),
        programs_max: word(36).min(255) as u8,
        is_in_order: word(40) != 0,
    };
    geometry.check()?;
    Ok(geometry)
}

impl Nand for FileNand {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&mut self, pba: Pba, data: &mut [u8], spare: &mut [u8]) -> Result<()> {
        self.geometry.check_page(pba)?;
        if self.programs(pba)? == 0 {
            data.fill(0xff);
            spare.fill(0xff);
            return Ok(());
        }
        self.read_at(data, self.page_at(pba))?;
        self.read_at(spare, self.page_at(pba) + u64::from(self.geometry.page_bytes))
    }

    fn read_spare(&mut self, pba: Pba, spare: &mut [u8]) -> Result<()> {
        self.read(pba, &mut [], spare)
    }

    fn program(&mut self, pba: Pba, data: &[u8], spare: &[u8]) -> Result<()> {
        self.geometry.check_page(pba)?;
        let block = self.geometry.block_of(pba);
        if self.block_entry(block)?.1 {
            return Err(FlashError::ProgramFailed(pba));
        }
        if self.programs(pba)? != 0 {
            return Err(FlashError::ProgramLimit { pba, limit: 1 });
        }
        if self.geometry.is_in_order {
            for later in pba + 1..(block + 1) * self.geometry.pages_per_block {
                if self.programs(later)? != 0 {
                    return Err(FlashError::OutOfOrder(pba));
                }
            }
        }
        let mut bytes = vec![0xff; (self.geometry.page_bytes + self.geometry.spare_bytes) as usize];
        bytes[..data.len()].copy_from_slice(data);
        bytes[self.geometry.page_bytes as usize..][..spare.len()].copy_from_slice(spare);
        // The count first: a page whose writing is cut by the end of the process is then taken for half programmed.
        self.write_at(&[1], self.programs_at(pba))?;
        self.write_at(&bytes, self.page_at(pba))
    }

    fn program_spare(&mut self, pba: Pba, offset: usize, bytes: &[u8]) -> Result<()> {
        self.geometry.check_page(pba)?;
        let programs = self.programs(pba)?;
        if programs >= self.geometry.programs_max {
            return Err(FlashError::ProgramLimit { pba, limit: self.geometry.programs_max });
        }
        let at = self.page_at(pba) + u64::from(self.geometry.page_bytes) + offset as u64;
        let mut stored = vec![0xff; bytes.len()];
        if programs != 0 {
            self.read_at(&mut stored, at)?;
        }
        for (own, new) in stored.iter_mut().zip(bytes) {
            *own &= new;
        }
        self.write_at(&[programs + 1], self.programs_at(pba))?;
        self.write_at(&stored, at)
    }

    fn erase(&mut self, block: u32) -> Result<()> {
        let (erases, is_bad) = self.block_entry(block)?;
        if is_bad {
            return Err(FlashError::EraseFailed(block));
        }
        let first = block * self.geometry.pages_per_block;
        self.write_at(&vec![0; self.geometry.pages_per_block as usize], self.programs_at(first))?;
        self.set_block_entry(block, erases.saturating_add(1), false)
    }

    fn is_bad(&mut self, block: u32) -> Result<bool> {
        Ok(self.block_entry(block)?.1)
    }

    fn mark_bad(&mut self, block: u32) -> Result<()> {
        let (erases, _) = self.block_entry(block)?;
        self.set_block_entry(block, erases, true)
    }

    fn sync(&mut self) -> Result<()> {
        let io = |source| FlashError::Io { context: format!("syncing flash image {}", self.name), source };
        self.file.sync_data().map_err(io)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry { pages_per_block: 8, page_bytes: 512, ..Geometry::small(16) }
    }

    #[test]
    fn what_was_programmed_survives_closing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let mut device = FileNand::create(&path, geometry()).unwrap();
        device.program(9, b"hello", &[0xf0; 4]).unwrap();
        device.program_spare(9, 0, &[0x3c]).unwrap();
        drop(device);
        let mut device = FileNand::open(&path).unwrap();
        assert_eq!(*device.geometry(), geometry());
        let (mut data, mut spare) = ([0; 6], [0; 5]);
        device.read(9, &mut data, &mut spare).unwrap();
        assert_eq!((&data, &spare), (b"hello\xff", &[0x30, 0xf0, 0xf0, 0xf0, 0xff]));
        assert!(matches!(device.program(9, b"", &[]), Err(FlashError::ProgramLimit { .. })));
        assert!(matches!(device.program_spare(9, 0, &[0]), Err(FlashError::ProgramLimit { limit: 2, .. })));
        device.erase(1).unwrap();
        device.read(9, &mut data, &mut spare).unwrap();
        assert_eq!((data, device.erase_count(1).unwrap()), ([0xff; 6], 1));
    }

    #[test]
    fn the_header_is_the_documented_one() {
        let text: String = encode_header(&geometry()).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            &text[..88],
            "4c53464c4153483101000000010000000100000010000000080000000002000040000000020000000000000000"[..88]
                .to_string()
        );
        assert_eq!(decode_header(&encode_header(&geometry())).unwrap(), geometry());
    }

    #[test]
    fn images_of_another_kind_version_or_size_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        drop(FileNand::create(&path, geometry()).unwrap());
        let good = std::fs::read(&path).unwrap();
        let check = |at: usize, byte: u8, field: Option<&str>| {
            let mut bad = good.clone();
            bad[at] = byte;
            std::fs::write(&path, &bad).unwrap();
            match (FileNand::open(&path), field) {
                (Err(FlashError::Mismatch { field, .. }), Some(expected)) => assert_eq!(field, expected),
                (Err(FlashError::Corrupt(_)), None) => {}
                (other, _) => panic!("byte {at}: {other:?}"),
            }
        };
        check(0, b'X', Some("magic"));
        check(8, 2, Some("format version"));
        check(20, 17, None);
        std::fs::write(&path, &good[..good.len() - 1]).unwrap();
        assert!(matches!(FileNand::open(&path), Err(FlashError::Mismatch { field: "file size", .. })));
    }
}
