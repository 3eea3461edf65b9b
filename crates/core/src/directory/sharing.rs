//! Which processes share an environment, as its files say it.
//!
//! ```text
//!  file      what
//!  lock      one line, while the environment is shared and after a crash: `shared in FILE`, the file of the region;
//!            empty otherwise
//!  sharing   locked by each process that shares it, and not exclusively; empty
//! ```
//! H1. Whoever opens an environment has `lock` first. Who opens it privately keeps it until the close. Who shares it
//!     gives it back as soon as it has the environment open, and takes it again to leave.
//! H2. Who shares an environment has `sharing` from before it gives `lock` back until it has left. So who has `lock`,
//!     and gets `sharing` exclusively, is alone.
//! H3. `lock` names the region before anything is written to the environment, and says nothing any more once the last
//!     one has closed it in order.
//! H4. That somebody looks whether `sharing` is locked keeps others from locking it for a moment: they try again.

use std::sync::Arc;

use ledgerstone_disk::{Disk, DiskErrorKind, DiskLock, Open};
use ledgerstone_region::sync;

use super::{LOCK, SHARING, take_turn};
use crate::Error;

/// Before the file of the region.
const SHARED_IN: &str = "shared in ";
/// Bytes of `lock` that are written and read.
const TEXT_BYTES: usize = 4096;
/// How long something is tried again that others do for a moment only (H4).
const MOMENT_NS: u64 = 1_000_000_000;
/// How long one sleep lasts meanwhile.
const LOOK_NS: u64 = 1_000_000;

/// Tries until it is done, or nothing that others do for a moment only.
fn for_a_moment<T>(mut attempt: impl FnMut() -> Result<Option<T>, Error>) -> Result<Option<T>, Error> {
    let began_ns = sync::now_ns();
    loop {
        match attempt()? {
            None if sync::now_ns().saturating_sub(began_ns) < MOMENT_NS => sync::sleep_ns(LOOK_NS),
            done => return Ok(done),
        }
    }
}

fn unless_locked(
    taken: Result<Box<dyn DiskLock>, ledgerstone_disk::DiskError>,
) -> Result<Option<Box<dyn DiskLock>>, Error> {
    match taken {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind == DiskErrorKind::Locked => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether processes share the environment now. The caller has `lock`, or hears what was so a moment ago.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// A failure of the disk.
pub fn is_shared(disk: &Arc<dyn Disk>) -> Result<bool, Error> {
    if !disk.exists(SHARING)? {
        return Ok(false);
    }
    let alone = unless_locked(disk.lock(SHARING));
    // Another one that looks is not one that shares.
    let alone = match alone? {
        Some(lock) => Some(lock),
        None => unless_locked({
            sync::sleep_ns(LOOK_NS);
            disk.lock(SHARING)
        })?,
    };
    Ok(alone.is_none())
}

/// Takes `lock` for a process that shares the environment, or wants to. Waits for others that open or leave it, however
/// long a recovery takes.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::AlreadyOpen`]: a process has it open privately. A failure of the disk, or damage.
pub fn await_turn(disk: &Arc<dyn Disk>) -> Result<Box<dyn DiskLock>, Error> {
    let mut private_since_ns = None;
    loop {
        match take_turn(disk) {
            Err(refused @ Error::AlreadyOpen { .. }) => {
                let now_ns = sync::now_ns();
                if is_shared(disk)? {
                    private_since_ns = None;
                } else if now_ns.saturating_sub(*private_since_ns.get_or_insert(now_ns)) > MOMENT_NS {
                    return Err(refused);
                }
                sync::sleep_ns(LOOK_NS);
            }
            turn => return turn,
        }
    }
}

/// Locks `sharing`, which is made if it is missing. The caller has `lock`.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::AlreadyOpen`]: somebody else's program has locked it. A failure of the disk.
pub fn lock_to_share(disk: &Arc<dyn Disk>) -> Result<Box<dyn DiskLock>, Error> {
    if !disk.exists(SHARING)? {
        drop(disk.open(SHARING, Open::CREATE)?);
    }
    let locked = for_a_moment(|| unless_locked(disk.lock_shared(SHARING)))?;
    locked.ok_or_else(|| Error::AlreadyOpen { path: disk.describe() })
}

/// The file of the region, if `lock` names one.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// A failure of the disk.
pub fn region_there(disk: &Arc<dyn Disk>) -> Result<Option<String>, Error> {
    let file = disk.open(LOCK, Open::READ)?;
    let mut bytes = vec![0; file.len()?.min(TEXT_BYTES as u64) as usize];
    file.read_at(0, &mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().next().and_then(|line| line.strip_prefix(SHARED_IN)).map(str::to_string))
}

/// Names the file of the region in `lock`, or says that there is none. The caller has the lock.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::Setting`]: the name is too long, or has a line break. A failure of the disk.
pub fn say_region(disk: &Arc<dyn Disk>, region: Option<&str>) -> Result<(), Error> {
    let line = region.map(|region| format!("{SHARED_IN}{region}\n")).unwrap_or_default();
    if line.len() > TEXT_BYTES || line.trim_end_matches('\n').contains('\n') {
        let what = format!("a file there has the name {region:?}, which is too long or has a line break");
        return Err(Error::Setting { name: "region_dir".into(), what });
    }
    let mut bytes = line.into_bytes();
    bytes.resize(TEXT_BYTES, b'\n');
    Ok(disk.open(LOCK, Open::EXISTING)?.write_at(0, &bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerstone_disk::FileDisk;

    #[test]
    fn who_shares_keeps_out_who_wants_it_alone_and_waits_for_his_turn() {
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(dir.path()));
        let turn = await_turn(&disk).unwrap();
        assert!(!is_shared(&disk).unwrap());
        let first = lock_to_share(&disk).unwrap();
        drop(turn);
        assert!(is_shared(&disk).unwrap());
        assert!(matches!(super::super::take_lock(&disk), Err(Error::AlreadyOpen { .. })));
        let turn = await_turn(&disk).unwrap();
        let second = lock_to_share(&disk).unwrap();
        std::thread::scope(|scope| {
            let third = scope.spawn(|| await_turn(&disk).map(drop));
            sync::sleep_ns(2 * MOMENT_NS); // It waits, and does not take this one for one that is here alone.
            assert!(!third.is_finished());
            drop(turn);
            third.join().unwrap().unwrap();
        });
        drop(first);
        assert!(is_shared(&disk).unwrap());
        drop(second);
        let alone = super::super::take_lock(&disk).unwrap();
        assert!(matches!(await_turn(&disk), Err(Error::AlreadyOpen { .. })));
        drop(alone);
    }

    #[test]
    fn the_lock_file_names_the_region_until_it_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(dir.path()));
        let _turn = await_turn(&disk).unwrap();
        assert_eq!(region_there(&disk).unwrap(), None);
        say_region(&disk, Some("/dev/shm/ä b")).unwrap();
        assert_eq!(region_there(&disk).unwrap().as_deref(), Some("/dev/shm/ä b"));
        assert_eq!(std::fs::read(dir.path().join(LOCK)).unwrap()[..24], *b"shared in /dev/shm/\xc3\xa4 b\n");
        say_region(&disk, None).unwrap();
        assert_eq!(region_there(&disk).unwrap(), None);
        for bad in ["a\nb".to_string(), "x".repeat(TEXT_BYTES)] {
            assert!(matches!(say_region(&disk, Some(&bad)), Err(Error::Setting { .. })));
        }
        std::fs::write(dir.path().join(LOCK), b"\xff\xfe nonsense").unwrap();
        assert_eq!(region_there(&disk).unwrap(), None);
    }
}
