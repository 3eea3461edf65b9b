//! Processes that share an environment: how the first makes the region, and how the others find it.
//!
//! ```text
//!  file in region_dir          what
//!  ledgerstone-ID.region       what the processes share: cache, log buffer, locks, transactions
//!  ledgerstone-ID.members      locked by each of them, a byte each (`members` in the crate `ledgerstone-region`)
//! ```
//! A1. The first process names the region in `lock`, makes it, recovers, and gives `lock` back (H1 to H3 in
//!     `directory/sharing.rs` of `core`). Who comes meanwhile waits for it, and joins then.
//! A2. Each region has an id of its own, which its files' names have, too. So none is taken for another. It knows the
//!     directory that it is for. A copy of that directory has a `lock` that names the region, too, and is another
//!     environment: who opens the copy leaves the region alone.
//! A3. Of the members of a region, those count that are alive and have the environment open. If there are none, nobody
//!     shares it any more: whoever has `lock` removes the region's files, makes a new region, and recovers.
//! A4. Who sees that others share the environment, and cannot open their region, does not open the environment at all.
//!     It may be in a container of its own, or another user.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ledgerstone_core::directory::{is_shared, new_id, region_there, say_region};
use ledgerstone_disk::Disk;
use ledgerstone_log::EnvironmentId;
use ledgerstone_page::Hex;
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use ledgerstone_region::{Handle, MEMBERS_MAX, Members, Region, RegionError, sync};

use crate::Error;

/// Names in the region.
const IDENTITY: &str = "environment.identity";
const OPEN: &str = "environment.open";
const REGION: &str = ".region";
const MEMBERS: &str = ".members";

/// Words of the identity: the region's id, the environment's, and the directory's.
const IDENTITY_WORDS: usize = 6;

/// How long it takes until somebody is believed to share the environment whose region cannot be joined.
const LOOKS_NS: u64 = 1_000_000_000;

/// A member does not have the environment open, any more or yet.
const CLOSED: u32 = 0;
const IS_OPEN: u32 = 1;

/// The files of a region that processes share.
#[derive(Clone)]
pub(crate) struct Place {
    region: PathBuf,
    id: [u8; 16],
    directory: DirectoryId,
}

/// Device and inode of an environment's directory.
type DirectoryId = [u64; 2];

/// What those who want to share find where `lock` says that others do.
enum There {
    Others(Box<Among>),
    /// Nobody has the region any more.
    Nobody,
    /// It is not for this directory.
    OfAnother,
}

/// A process among those that share a region.
#[derive(Clone)]
pub(crate) struct Among {
    pub region: Region,
    pub members: Arc<Members>,
    /// By member: whether it has the environment open.
    open: Handle<[AtomicU32]>,
    place: Place,
}

impl Place {
    /// For a new region (A2), of the environment in `directory`.
    pub(crate) fn new(region_dir: &str, directory: &Path) -> Result<Place, Error> {
        let (id, directory) = (new_id(), directory_id(directory)?);
        let refused = |error| Error::CannotShare { what: format!("region_dir is {region_dir:?}: {error}") };
        let region_dir = std::path::absolute(region_dir).map_err(refused)?; // The others may work somewhere else.
        Ok(Place { region: region_dir.join(format!("ledgerstone-{}{REGION}", Hex(&id))), id, directory })
    }

    /// What `lock` names.
    fn there(disk: &Arc<dyn Disk>, directory: &Path) -> Result<Option<Place>, Error> {
        let Some(path) = region_there(disk)? else { return Ok(None) };
        let hex = path.strip_suffix(REGION).and_then(|path| path.rsplit_once("ledgerstone-")).map(|(_, hex)| hex);
        let id = hex.and_then(|hex| u128::from_str_radix(hex, 16).ok()).map(u128::to_be_bytes);
        let directory = directory_id(directory)?;
        Ok(id.map(|id| Place { region: path.into(), id, directory }))
    }

    fn members(&self) -> PathBuf {
        self.region.with_extension(&MEMBERS[1..])
    }

    /// Makes the region, and this process its first member (A1).
    pub(crate) fn create(&self, disk: &Arc<dyn Disk>, environment: EnvironmentId, bytes: u64) -> Result<Among, Error> {
        // Before anything is written to the environment; and first, so that a crash leaves no region that nobody knows.
        say_region(disk, Some(&self.region.to_string_lossy()))?;
        let made = self.try_create(environment, bytes);
        if made.is_err() {
            self.remove();
            let _ = say_region(disk, None); // It names one that is not there.
        }
        made
    }

    fn try_create(&self, environment: EnvironmentId, bytes: u64) -> Result<Among, Error> {
        let region = Region::create_at(&self.region, bytes).map_err(|error| self.refused(error))?;
        let identity = region.place::<AtomicU64>(IDENTITY, IDENTITY_WORDS as u64, 64)?;
        identity.iter().zip(self.identity(&environment)).for_each(|(word, part)| word.store(part, Relaxed)); // A1
        self.member_of(region)
    }

    fn member_of(&self, region: Region) -> Result<Among, Error> {
        let members = Arc::new(Members::join(&region, &self.members()).map_err(|error| self.refused(error))?);
        let open = region.place::<AtomicU32>(OPEN, u64::from(MEMBERS_MAX), 64)?;
        open[members.no() as usize].store(CLOSED, Relaxed); // Whoever had the number before.
        Ok(Among { region, members, open, place: self.clone() })
    }

    /// Joins those that have the environment open, if there are any (A3). The caller has `lock`.
    fn join(&self, disk: &Arc<dyn Disk>, environment: EnvironmentId) -> Result<There, Error> {
        let joined = Region::join_at(&self.region).map_err(|error| self.refused(error)).and_then(|region| {
            let identity = region.place::<AtomicU64>(IDENTITY, IDENTITY_WORDS as u64, 64)?;
            let is_it = identity.iter().zip(self.identity(&environment)).all(|(word, part)| word.load(Relaxed) == part);
            Ok((is_it, self.member_of(region)?))
        });
        match joined {
            Ok((true, among)) if among.has_others() => Ok(There::Others(Box::new(among))),
            Ok((false, among)) if among.has_living() => Ok(There::OfAnother),
            Ok(_) => Ok(There::Nobody),
            Err(_) if !is_surely_shared(disk)? => Ok(There::Nobody), // What a crash has left of it.
            Err(error) => Err(error),                                // A4
        }
    }

    fn identity(&self, environment: &EnvironmentId) -> [u64; IDENTITY_WORDS] {
        let both = [self.id, *environment].concat();
        let of_ids = |no: usize| u64::from_le_bytes(std::array::from_fn(|at| both[no * 8 + at]));
        std::array::from_fn(|no| self.directory.get(no.wrapping_sub(4)).copied().unwrap_or_else(|| of_ids(no)))
    }

    /// Removes the files. Whoever has the region mapped goes on with it.
    pub(crate) fn remove(&self) {
        for path in [&self.region, &self.members()] {
            let _ = std::fs::remove_file(path); // It is not there, or lies there in vain.
        }
    }

    fn refused(&self, error: RegionError) -> Error {
        let region = self.region.display();
        match error {
            RegionError::NoMemory { .. } => Error::Memory(format!("{error}; or name another place in region_dir")),
            error => Error::CannotShare { what: format!("{error} (the processes share {region})") },
        }
    }
}

/// The same as [`is_shared`] for sure: another one that only looks may take longer for that than a moment. To say yes
/// takes [`LOOKS_NS`].
fn is_surely_shared(disk: &Arc<dyn Disk>) -> Result<bool, Error> {
    let began_ns = sync::now_ns();
    while is_shared(disk)? {
        if sync::now_ns().saturating_sub(began_ns) > LOOKS_NS {
            return Ok(true);
        }
    }
    Ok(false)
}

fn directory_id(directory: &Path) -> Result<DirectoryId, Error> {
    let refused = |error| Error::CannotShare { what: format!("{}: {error}", directory.display()) };
    let there = std::fs::metadata(directory).map_err(refused)?;
    Ok([there.dev(), there.ino()])
}

/// Those that have the environment open, joined. `None`: there are none, and what they have left is removed (A3). The
/// caller has `lock`.
pub(crate) fn join_those_there(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    environment: EnvironmentId,
) -> Result<Option<Among>, Error> {
    let Some(place) = Place::there(disk, directory)? else {
        // Somebody has written over `lock`, or has made it anew.
        return if is_surely_shared(disk)? { Err(Error::AlreadyOpen { path: disk.describe() }) } else { Ok(None) };
    };
    match place.join(disk, environment)? {
        There::Others(among) => Ok(Some(*among)),
        There::Nobody => {
            place.remove();
            Ok(None)
        }
        There::OfAnother => Ok(None), // A2
    }
}

impl Among {
    /// This process has the environment open from now on. It has `lock`.
    pub(crate) fn has_opened(&self) {
        self.open[self.members.no() as usize].store(IS_OPEN, Release); // Pairs with the load in `has_others`.
    }

    /// This process does not have it open any more. It has `lock`.
    pub(crate) fn has_closed(&self) {
        self.open[self.members.no() as usize].store(CLOSED, Release);
    }

    /// Whether another process that is alive has the environment open (A3).
    pub(crate) fn has_others(&self) -> bool {
        let is_open = |no: u32| self.open[no as usize].load(Acquire) == IS_OPEN;
        self.members.iter().any(|no| no != self.members.no() && is_open(no) && !self.members.is_dead(no))
    }

    /// Whether another process is alive that has the region, whatever it does.
    fn has_living(&self) -> bool {
        self.members.iter().any(|no| no != self.members.no() && !self.members.is_dead(no))
    }

    /// The region is given up, by the last one, which has `lock`.
    ///
    /// # Errors
    /// A failure of the disk.
    pub(crate) fn give_up(&self, disk: &Arc<dyn Disk>) -> Result<(), Error> {
        self.place.remove();
        say_region(disk, None)
    }
}
