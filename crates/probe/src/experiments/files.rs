//! Files that several experiments prepare, and making them cold.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, OFlags, fadvise};

use crate::context::Context;
use crate::error::{On, ProbeError};
use crate::sys::aligned::Aligned;
use crate::sys::file;
use crate::sys::map::Map;
use crate::workdir::WorkFile;

const MIB: u64 = 1 << 20;

/// A file of `bytes`, written and durable, so that overwriting it changes no metadata.
pub(super) fn written(context: &Context<'_>, name: &str, bytes: u64) -> Result<WorkFile, ProbeError> {
    let made = context.file(name, bytes)?;
    let block = Aligned::noise(MIB as usize);
    let mut offset = 0;
    while offset < bytes {
        context.check()?;
        let count = (bytes - offset).min(MIB) as usize;
        made.file.write_all_at(&block[..count], offset).on("write")?;
        offset += count as u64;
    }
    made.file.sync_all().on("fsync")?;
    Ok(made)
}

/// The same file by another descriptor.
pub(super) fn reopen(file: &WorkFile, flags: OFlags) -> Result<File, ProbeError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | flags;
    rustix::fs::open(file.path(), flags, rustix::fs::Mode::empty()).map(File::from).on("open")
}

/// Drops a file's pages from the kernel's cache, and looks whether they are gone.
///
/// # Errors
/// [`ProbeError::Missing`] where they stay: the file system is memory, or somebody else has them mapped.
pub(super) fn make_cold(file: &File, bytes: u64) -> Result<(), ProbeError> {
    rustix::fs::fdatasync(file).on("fdatasync")?;
    // A page may be busy for a moment.
    for _ in 0..20 {
        fadvise(file, 0, None, Advice::DontNeed).on("posix_fadvise")?;
        if cached_pages(file, bytes)? == 0 {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_micros(500));
    }
    Err(ProbeError::Missing("the file's pages do not leave the cache: nothing can be read cold here".into()))
}

/// Pages of the file in the cache: by `cachestat`, or on older kernels by `mincore`.
fn cached_pages(file: &File, bytes: u64) -> Result<u64, ProbeError> {
    match file::cached(file, 0, bytes) {
        Ok(found) => Ok(found.cached),
        Err(_) => Ok(Map::file(file, bytes as usize)?.resident_pages()? as u64),
    }
}
