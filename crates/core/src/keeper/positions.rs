//! The positions of named feeds, kept in the file `feeds` of the environment.
//!
//! ```text
//! offset  size  field
//!      0     8  "LSTNFEED"
//!      8     4  format, 2
//!     12     4  how many feeds
//!     16    16  environment id
//!     32     8  life, as in the control file
//!     40        for each: u16 length of its name, the name, u64 position, u64 LSN from which on the log is needed for it
//!               u32 crc32c of all before
//! ```
//! N1. The file is written beside the old one and gets its name when it is durable: a crash leaves one of both.
//!     The name that a killed process gave is durable before the file is read: the open syncs the directory (O6 in
//!     `environment/open/mod.rs`).
//! N2. The pins of all names stand before the first checkpoint after an open gives log up.
//! N3. The control file says that there is such a file, from before the first position is relied on. So one that was
//!     removed is missed, instead of every feed beginning anew and passing over what was committed meanwhile.
//! N4. Positions are places in the log of one life of one environment. In that of another they would be anywhere.
//! N5. A position is only taken when the log is durable up to it. So a log that ends before one has lost its end, which
//!     otherwise looks like a flush that a crash cut short. It is refused before anything is written: the log would
//!     grow again, and the feed would go on somewhere in what is not its own.
//! N6. The file never grows beyond what an open reads: the name that would make it so is refused.
//! N7. Processes that share the environment count, where all see it, how often the file was written. Whoever is about
//!     to write it, to give up log, or to go on from a position reads it again first if another one has written it. If
//!     one dies, all read it again: it may have written and not counted.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use ledgerstone_disk::{Disk, Open};
use ledgerstone_log::Log;
use ledgerstone_page::Lsn;
use ledgerstone_region::{ByName, Handle, Mutex, Region, atomic};

use super::{KeeperId, Keepers, LogKeeper, Owner};
use crate::Error;

/// The name of the file.
pub const FEEDS: &str = "feeds";
const DRAFT: &str = "feeds.new";
const MAGIC: [u8; 8] = *b"LSTNFEED";
const FORMAT: u32 = 2;
/// What to do where the positions are not known.
const WAYS_OUT: &str = "put the file back that says how far named feeds have come, or have all of them begin anew with \
                        ledgerstone recover --forget-feeds DIR";
/// Longest file that is written (N6), and read.
const BYTES_MAX: u64 = 16 << 20;

/// Where a feed is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    position: Lsn,
    low: Lsn,
}

struct Named {
    place: Place,
    /// Who keeps the log for it. Tells those that got the same name one after the other apart, while the environment is
    /// open.
    id: KeeperId,
    keeper: Arc<NamedFeed>,
}

/// All named feeds. Written under the latch of checkpoints, read at any time.
pub struct Positions {
    owner: Owner,
    bytes_max: u64,
    named: Mutex<ByName<str, Named>>,
    /// How often the file was written, by all processes that share the environment.
    written: Handle<atomic::AtomicU64>,
    /// The same when this process has read it, or written it itself (N7).
    known: AtomicU64,
}

/// Keeps the log for a named feed, whether anybody reads it or not.
struct NamedFeed {
    name: String,
    low: AtomicU64,
    bytes_max: u64,
}

impl LogKeeper for NamedFeed {
    fn name(&self) -> String {
        format!("feed {}", self.name)
    }

    fn needs_log_from(&self) -> Result<Option<Lsn>, Error> {
        Ok(Some(Lsn(self.low.load(Acquire))))
    }

    fn log_bytes_max(&self) -> u64 {
        self.bytes_max
    }
}

impl Positions {
    /// Reads the file and pins the log (N2).
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::Corrupt`]: the file is damaged, another environment's (N4), or missing (N3). The disk's.
    pub fn open(
        disk: &dyn Disk,
        (log, keepers): (&Arc<Log>, &Keepers),
        bytes_max: u64,
        owner: Owner,
        is_there: bool,
        region: &Region,
    ) -> Result<Positions, Error> {
        let written = region.place_one::<atomic::AtomicU64>("environment.feeds", 64)?;
        let known = AtomicU64::new(written.load(Acquire));
        let positions = Positions { owner, bytes_max, named: Mutex::default(), written, known };
        for (name, place) in &read(disk, owner, is_there)? {
            positions.insert(log, keepers, name, *place);
        }
        Ok(positions)
    }

    /// Whether another process has written the file since this one has read it.
    pub(crate) fn are_old(&self) -> bool {
        self.known.load(Relaxed) != self.written.load(Acquire) // Pairs with `has_written`.
    }

    /// A process has died that shared the environment (N7).
    pub fn read_again(&self) {
        self.written.fetch_add(1, Release);
    }

    /// Under the latch of checkpoints (N7).
    fn has_written(&self) {
        self.known.store(self.written.fetch_add(1, Release) + 1, Relaxed);
    }

    /// Reads the file again if another process has written it (N7). Under the latch of checkpoints.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Positions::open`].
    pub fn refresh(&self, disk: &dyn Disk, (log, keepers): (&Arc<Log>, &Keepers)) -> Result<(), Error> {
        let written = self.written.load(Acquire);
        if self.known.load(Relaxed) == written {
            return Ok(());
        }
        let there = read(disk, self.owner, false)?; // There may be no feeds, and somebody has died.
        for (name, before) in &self.places() {
            // One that has gone back is another of the same name.
            if there.get(name).is_none_or(|now| now.position < before.position) {
                let removed = self.named.lock().remove(name);
                removed.into_iter().for_each(|named| keepers.remove(named.id));
            }
        }
        for (name, place) in &there {
            let known = self.named.lock().get(name).map(|named| (named.id, named.place));
            match known {
                None => drop(self.insert(log, keepers, name, *place)),
                Some((_, before)) if before == *place => {}
                Some((id, _)) => self.has_moved(log, keepers, (name, id), *place),
            }
        }
        self.known.store(written, Relaxed);
        Ok(())
    }

    fn has_moved(&self, log: &Arc<Log>, keepers: &Keepers, (name, id): (&str, KeeperId), place: Place) {
        if let Some(named) = self.named.lock().get_mut(name) {
            named.place = place;
            named.keeper.low.store(place.low.0, Release);
        }
        keepers.moved(log, id, place.low);
    }

    /// Its position, from where on the log is needed for it, and its id.
    pub fn place(&self, name: &str) -> Option<(Lsn, Lsn, u64)> {
        self.named.lock().get(name).map(|named| (named.place.position, named.place.low, named.id))
    }

    fn insert(&self, log: &Arc<Log>, keepers: &Keepers, name: &str, place: Place) -> KeeperId {
        let low = AtomicU64::new(place.low.0);
        let keeper = Arc::new(NamedFeed { name: name.to_string(), low, bytes_max: self.bytes_max });
        let id = keepers.add_at(log, Arc::clone(&keeper) as _, place.low);
        self.named.lock().insert(name, Named { place, id, keeper });
        id
    }

    /// Sets the position of the feed of this id, or of a new one, durably; gives the id. A position never goes back:
    /// the log before it is given up. Under the latch of checkpoints.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::FeedForgotten`]: there is none of this id; or there is one of the name already. The disk's.
    pub fn set(
        &self,
        disk: &dyn Disk,
        (log, keepers): (&Arc<Log>, &Keepers),
        (name, id): (&str, Option<KeeperId>),
        (position, low): (Lsn, Lsn),
    ) -> Result<KeeperId, Error> {
        let there = self.named.lock().get(name).map(|named| (named.id, named.place));
        if id != there.map(|(id, _)| id) {
            return Err(Error::FeedForgotten { name: name.to_string() });
        }
        // What a later position needs begins no earlier.
        let place = match there {
            Some((_, old)) => Place { position: position.max(old.position), low: low.max(old.low) },
            None => Place { position, low },
        };
        if let Some((id, old)) = there
            && old == place
        {
            return Ok(id);
        }
        let mut places = self.places();
        places.insert(name, place);
        write(disk, self.owner, &places)?;
        self.has_written();
        let Some((id, _)) = there else { return Ok(self.insert(log, keepers, name, place)) };
        self.has_moved(log, keepers, (name, id), place);
        Ok(id)
    }

    /// Under the latch of checkpoints. False: there is none of that name.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::TooManyFeeds`], or a failure of the disk.
    pub fn forget(&self, disk: &dyn Disk, keepers: &Keepers, name: &str) -> Result<bool, Error> {
        let mut places = self.places();
        if places.remove(name).is_none() {
            return Ok(false);
        }
        write(disk, self.owner, &places)?;
        self.has_written();
        let removed = self.named.lock().remove(name);
        if let Some(named) = removed {
            keepers.remove(named.id);
        }
        Ok(true)
    }

    fn places(&self) -> ByName<str, Place> {
        let mut places = ByName::new();
        for (name, named) in &*self.named.lock() {
            places.insert(name, named.place);
        }
        places
    }
}

/// Refuses a log that ends at `end`, before a position (N5), and a file that [`Positions::open`] would refuse. Writes
/// nothing.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// As [`Positions::open`]; [`Error::Corrupt`] if the log ends before a position.
pub fn check_positions(disk: &dyn Disk, owner: Owner, is_there: bool, end: Lsn) -> Result<(), Error> {
    let places = read(disk, owner, is_there)?;
    let farthest = places.iter().max_by_key(|(_, place)| place.position);
    match farthest {
        Some((name, place)) if place.position > end => Err(Error::Corrupt {
            what: format!(
                "the log ends at LSN {end}, and was durable up to LSN {}, where the feed {name} goes on: its end is \
                 damaged or an older one. Put it back, or do without the commits in it and have all named feeds begin \
                 anew with ledgerstone recover --forget-feeds DIR",
                place.position
            ),
        }),
        _ => Ok(()),
    }
}

/// What the file says. `is_there`: the control file says that there is one (N3).
fn read(disk: &dyn Disk, owner: Owner, is_there: bool) -> Result<ByName<str, Place>, Error> {
    if !disk.exists(FEEDS)? {
        return match is_there {
            true => Err(Error::Corrupt { what: format!("{}/{FEEDS} is missing: {WAYS_OUT}", disk.describe()) }),
            false => Ok(ByName::new()),
        };
    }
    let file = disk.open(FEEDS, Open::READ)?;
    let damaged = || Error::Corrupt { what: format!("{} is damaged: {WAYS_OUT}", file.name()) };
    let len = file.len()?;
    if len > BYTES_MAX {
        return Err(damaged());
    }
    let mut bytes = vec![0; len as usize];
    file.read_at(0, &mut bytes)?;
    refuse_other_format(file.name(), &bytes)?;
    let (of, places) = decode(&bytes).ok_or_else(damaged)?;
    if of != owner {
        let name = file.name();
        let what = format!("{name} is of another environment, or another life of this one: {WAYS_OUT}");
        return Err(Error::Corrupt { what });
    }
    Ok(places)
}

/// Makes the file one without positions, whatever it is now.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::Corrupt`], [`Error::TooManyFeeds`], or a failure of the disk.
pub fn forget_all(disk: &dyn Disk, owner: Owner) -> Result<(), Error> {
    write(disk, owner, &ByName::new())
}

fn write(disk: &dyn Disk, owner: Owner, places: &ByName<str, Place>) -> Result<(), Error> {
    let bytes = encode(owner, places);
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Error::TooManyFeeds { bytes_max: BYTES_MAX });
    }
    if disk.exists(DRAFT)? {
        disk.remove(DRAFT)?;
    }
    let file = disk.open(DRAFT, Open::CREATE_NEW)?;
    file.write_at(0, &bytes)?;
    file.sync()?;
    disk.rename(DRAFT, FEEDS)?;
    Ok(disk.sync_dir("")?)
}

fn encode(owner: Owner, places: &ByName<str, Place>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(places.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(&owner.environment);
    bytes.extend_from_slice(&owner.life.to_le_bytes());
    for (name, place) in places {
        bytes.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&place.position.0.to_le_bytes());
        bytes.extend_from_slice(&place.low.0.to_le_bytes());
    }
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// Refuses a whole file of another format.
fn refuse_other_format(path: &str, bytes: &[u8]) -> Result<(), Error> {
    let Some((body, crc)) = bytes.split_last_chunk::<4>() else { return Ok(()) };
    let Some(format) = body.strip_prefix(&MAGIC).and_then(|rest| rest.first_chunk::<4>()) else { return Ok(()) };
    if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
        return Ok(());
    }
    let (found, supported, path) = (u32::from_le_bytes(*format), FORMAT, path.to_owned());
    let remedy = "let the version that wrote it read them to their ends, or have all named feeds begin anew with \
                  ledgerstone recover --forget-feeds DIR";
    match found.cmp(&supported) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(Error::NewerFormat { path, found, supported }),
        Ordering::Less => Err(Error::OlderFormat { path, found, supported, remedy }),
    }
}

/// For any bytes.
fn decode(bytes: &[u8]) -> Option<(Owner, ByName<str, Place>)> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut rest = body.strip_prefix(&MAGIC)?;
    let mut take = |len: usize| {
        let (head, tail) = rest.split_at_checked(len)?;
        rest = tail;
        Some(head)
    };
    let format = u32::from_le_bytes(take(4)?.try_into().ok()?);
    let count = u32::from_le_bytes(take(4)?.try_into().ok()?);
    if format != FORMAT {
        return None;
    }
    let environment = take(16)?.try_into().ok()?;
    let owner = Owner { environment, life: u64::from_le_bytes(take(8)?.try_into().ok()?) };
    let mut places = ByName::new();
    for _ in 0..count {
        let len = u16::from_le_bytes(take(2)?.try_into().ok()?);
        let name = std::str::from_utf8(take(usize::from(len))?).ok()?;
        let position = Lsn(u64::from_le_bytes(take(8)?.try_into().ok()?));
        let low = Lsn(u64::from_le_bytes(take(8)?.try_into().ok()?));
        places.insert(name, Place { position, low });
    }
    rest.is_empty().then_some((owner, places))
}

#[cfg(test)]
mod tests {
    use ledgerstone_disk::SimDisk;

    use super::*;

    const OWNED: Owner = Owner { environment: [3; 16], life: 0x0809 };

    #[test]
    fn positions_survive_their_encoding_and_no_other_bytes_are_any() {
        let place = |n: u64| Place { position: Lsn(n), low: Lsn(n - 1) };
        let places = ByName::from_iter([("a", place(5)), ("ö b", place(1 << 40))]);
        let bytes = encode(OWNED, &places);
        assert_eq!(decode(&bytes), Some((OWNED, places)));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(decode(&other), None, "byte {at}");
            assert_eq!(decode(&bytes[..at]), None);
        }
    }

    /// Otherwise the next open would take it for damage.
    #[test]
    fn no_file_is_written_that_is_too_long_to_be_read() {
        let disk = SimDisk::new();
        let place = Place { position: Lsn(2), low: Lsn(1) };
        let entry_bytes = 2 + 255 + 8 + 8;
        let count = (BYTES_MAX as usize - 44) / entry_bytes;
        let names: Vec<String> = (0..count).map(|n| format!("{n:0255}")).collect();
        let mut places: ByName<str, _> = names.iter().map(|name| (name.as_str(), place)).collect();
        write(&disk, OWNED, &places).unwrap();
        let read = || {
            let file = disk.open(FEEDS, Open::READ).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_at(0, &mut bytes).unwrap();
            bytes
        };
        let bytes = read();
        assert!((BYTES_MAX - entry_bytes as u64..=BYTES_MAX).contains(&(bytes.len() as u64)));
        assert_eq!(decode(&bytes).unwrap().1.len(), count);
        places.insert(&format!("{count:0255}"), place);
        let refused = write(&disk, OWNED, &places);
        assert!(matches!(refused, Err(Error::TooManyFeeds { bytes_max: BYTES_MAX })), "{refused:?}");
        assert!(read() == bytes, "the file is as it was");
        assert!(!disk.exists(DRAFT).unwrap());
    }

    #[test]
    fn golden_bytes_of_a_position() {
        let places = ByName::from_iter([("f", Place { position: Lsn(0x1122), low: Lsn(0x33) })]);
        let bytes = encode(OWNED, &places);
        assert_eq!(bytes[..16], *b"LSTNFEED\x02\0\0\0\x01\0\0\0");
        assert_eq!((&bytes[16..32], &bytes[32..40]), (&[3; 16][..], &[9, 8, 0, 0, 0, 0, 0, 0][..]));
        assert_eq!(bytes[40..59], *b"\x01\0f\x22\x11\0\0\0\0\0\0\x33\0\0\0\0\0\0\0");
    }
}
