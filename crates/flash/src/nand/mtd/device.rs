//! The system calls on a real MTD character device. The only unsafe code of the crate: the kernel is handed addresses
//! of buffers.
//!
//! D1. Structures and request numbers are those of `<mtd/mtd-abi.h>`. The sizes of the structures are part of the
//!     numbers, and checked below.
//! D2. Every buffer whose address a structure holds is borrowed until the call has returned, and its length stands
//!     beside it.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::ioctl::{Getter, Ioctl, IoctlOutput, Opcode, Setter, Updater, ioctl, opcode};

use super::{Calls, Info};
use crate::error::{FlashError, Result};

#[repr(C)]
struct InfoUser {
    kind: u8,
    flags: u32,
    size: u32,
    erase_size: u32,
    write_size: u32,
    oob_size: u32,
    padding: u64,
}

#[repr(C)]
struct EraseUser {
    start: u64,
    length: u64,
}

#[repr(C)]
struct SpareUser {
    start: u64,
    pad: u32,
    length: u32,
    address: u64,
}

#[repr(C)]
struct WriteUser {
    start: u64,
    data_length: u64,
    spare_length: u64,
    data_address: u64,
    spare_address: u64,
    mode: u8,
    padding: [u8; 7],
}

const _: () = assert!(size_of::<InfoUser>() == 32 && size_of::<EraseUser>() == 16);
const _: () = assert!(size_of::<SpareUser>() == 24 && size_of::<WriteUser>() == 48);

const GET_INFO: Opcode = opcode::read::<InfoUser>(b'M', 1);
const GET_BAD_BLOCK: Opcode = opcode::write::<i64>(b'M', 11);
const SET_BAD_BLOCK: Opcode = opcode::write::<i64>(b'M', 12);
const FILE_MODE: Opcode = opcode::none(b'M', 19);
const ERASE: Opcode = opcode::write::<EraseUser>(b'M', 20);
const WRITE_SPARE: Opcode = opcode::read_write::<SpareUser>(b'M', 21);
const READ_SPARE: Opcode = opcode::read_write::<SpareUser>(b'M', 22);
const WRITE: Opcode = opcode::read_write::<WriteUser>(b'M', 24);

const SLC_NAND: u8 = 4;
const MODE_RAW_FILE: usize = 3;
const MODE_RAW_WRITE: u8 = 2;

/// An open MTD character device.
#[derive(Debug)]
pub struct Device {
    file: File,
}

impl Device {
    /// Opens one and switches the kernel's error correction off for it.
    ///
    /// # Errors
    /// [`FlashError::Io`]. The system answers ENOTTY if the file is not an MTD device.
    pub fn open(path: &Path) -> Result<Self> {
        let io = |source| FlashError::Io { context: format!("opening MTD device {}", path.display()), source };
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(io)?;
        // SAFETY: the request takes a number in place of an address (D1), so the kernel touches no memory of ours.
        unsafe { ioctl(&file, Number::<FILE_MODE>(MODE_RAW_FILE)) }.map_err(|e| io(e.into()))?;
        Ok(Self { file })
    }
}

/// A request whose argument is a number.
struct Number<const OPCODE: Opcode>(usize);

// SAFETY: nothing is read or written through the argument, which is not an address.
unsafe impl<const OPCODE: Opcode> Ioctl for Number<OPCODE> {
    type Output = ();
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::without_provenance_mut(self.0)
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut std::ffi::c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// A question about a place, answered by the value that the call returns.
struct Question<const OPCODE: Opcode>(i64);

// SAFETY: the kernel reads the eight bytes that the argument points to (D1) and writes nothing.
unsafe impl<const OPCODE: Opcode> Ioctl for Question<OPCODE> {
    type Output = bool;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut std::ffi::c_void) -> rustix::io::Result<bool> {
        Ok(out != 0)
    }
}

fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr() as u64
}

impl Calls for Device {
    fn info(&mut self) -> io::Result<Info> {
        // SAFETY: GET_INFO fills an `InfoUser` (D1), of which every bit pattern is a value.
        let info = unsafe { ioctl(&self.file, Getter::<GET_INFO, InfoUser>::new()) }?;
        // The size above has 32 bits only. The end of the file has all of it.
        let size = self.file.seek(SeekFrom::End(0))?;
        Ok(Info {
            is_slc: info.kind == SLC_NAND,
            size,
            erase_bytes: info.erase_size,
            page_bytes: info.write_size,
            spare_bytes: info.oob_size,
        })
    }

    fn read(&mut self, at: u64, data: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(data, at)
    }

    fn read_spare(&mut self, at: u64, spare: &mut [u8]) -> io::Result<()> {
        let length = spare.len() as u32;
        let mut user = SpareUser { start: at, pad: 0, length, address: spare.as_mut_ptr() as u64 };
        // SAFETY: the kernel writes at most `length` bytes to `spare`, exclusively borrowed until then (D1, D2).
        unsafe { ioctl(&self.file, Updater::<READ_SPARE, SpareUser>::new(&mut user)) }?;
        Ok(())
    }

    fn write(&mut self, at: u64, data: &[u8], spare: &[u8]) -> io::Result<()> {
        let mut user = WriteUser {
            start: at,
            data_length: data.len() as u64,
            spare_length: spare.len() as u64,
            data_address: address(data),
            spare_address: address(spare),
            mode: MODE_RAW_WRITE,
            padding: [0; 7],
        };
        // SAFETY: the kernel reads both buffers in their lengths and writes only lengths into `user` (D1, D2).
        unsafe { ioctl(&self.file, Updater::<WRITE, WriteUser>::new(&mut user)) }?;
        Ok(())
    }

    fn write_spare(&mut self, at: u64, spare: &[u8]) -> io::Result<()> {
        let mut user = SpareUser { start: at, pad: 0, length: spare.len() as u32, address: address(spare) };
        // SAFETY: the kernel reads `length` bytes of `spare` and writes only a length into `user` (D1, D2).
        unsafe { ioctl(&self.file, Updater::<WRITE_SPARE, SpareUser>::new(&mut user)) }?;
        Ok(())
    }

    fn erase(&mut self, at: u64, len: u64) -> io::Result<()> {
        // SAFETY: the kernel reads an `EraseUser` (D1).
        unsafe { ioctl(&self.file, Setter::<ERASE, EraseUser>::new(EraseUser { start: at, length: len })) }?;
        Ok(())
    }

    fn is_bad(&mut self, at: u64) -> io::Result<bool> {
        // SAFETY: the kernel reads eight bytes (D1).
        Ok(unsafe { ioctl(&self.file, Question::<GET_BAD_BLOCK>(at as i64)) }?)
    }

    fn mark_bad(&mut self, at: u64) -> io::Result<()> {
        // SAFETY: the kernel reads eight bytes (D1).
        unsafe { ioctl(&self.file, Question::<SET_BAD_BLOCK>(at as i64)) }?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_numbers_are_those_of_the_kernels_header() {
        // <mtd/mtd-abi.h>, as a C compiler on x86-64 computes them.
        let expected: [(Opcode, u32); 8] = [
            (GET_INFO, 0x8020_4d01),
            (GET_BAD_BLOCK, 0x4008_4d0b),
            (SET_BAD_BLOCK, 0x4008_4d0c),
            (FILE_MODE, 0x4d13),
            (ERASE, 0x4010_4d14),
            (WRITE_SPARE, 0xc018_4d15),
            (READ_SPARE, 0xc018_4d16),
            (WRITE, 0xc030_4d18),
        ];
        for (own, kernels) in expected {
            assert_eq!(own, kernels);
        }
    }

    #[test]
    fn a_file_that_is_no_mtd_device_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Device::open(file.path()).unwrap_err();
        assert!(error.to_string().contains("opening MTD device"), "{error}");
        assert!(Device::open(Path::new("/no/such/device")).is_err());
    }
}
