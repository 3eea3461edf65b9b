//! The region: one reserved mapping, given out from below to above, and handles into it.
//!
//! ```text
//! offset  size  field
//!      0     8  magic
//!      8     4  version of this header
//!     12     4  zero
//!     16     8  reserve_bytes
//!     24     8  next_byte        lowest byte that was not given out
//!     32    32  zero
//!     64  4032  directory        what lies where (`directory.rs`)
//!   4096     :  what was given out
//! ```
//! Address space is reserved, memory comes when it is touched. In a file that real processes share, it could be missing
//! then: so what is placed there takes it at once, or in parts before they are used ([`Region::place_reserved`]).
//! Nothing is given back before the whole region is: what is reused is reused by its owner (frames, slots, lock
//! requests).
//!
//! The same code puts a part of the engine into a region that it makes and into one that it joins. In the first it is
//! given zeroed memory, which it fills ([`Region::is_made_here`]). In the second it finds what is there, by name.
//!
//! With the feature `deaths`, a region can be mapped several times at several addresses, once for each simulated
//! process. Such a mapping is a *view*: a region that is joined.

use crate::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use crate::directory::{Directory, FullName, Place};
use crate::memory::{ALIGN_BYTES_MAX, Memory};
#[cfg(not(miri))]
use crate::memory_file::MemoryFile;
use crate::{RegionError, Shared, shared};
use std::fmt;
use std::ops::{Deref, Range};
#[cfg(not(miri))]
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

const MAGIC: u64 = u64::from_le_bytes(*b"ledgregn");
const HEADER_VERSION: u32 = 2;

shared! {
    /// The first bytes of a region.
    struct Header {
        magic: AtomicU64,
        version: AtomicU32,
        zero: AtomicU32,
        reserve_bytes: AtomicU64,
        next_byte: AtomicU64,
        zeroes: [AtomicU64; 4],
        directory: Directory,
    } size 4096
}

/// One mapping. Clones are the same region. It is unmapped when the last clone and the last [`Handle`] are gone.
#[derive(Clone)]
pub struct Region {
    mapping: Arc<Mapping>,
    /// Before each name that is placed.
    whose: &'static str,
}

/// Values found in a region. A handle is private to a process, and keeps the region mapped.
pub struct Handle<T: ?Sized> {
    at: NonNull<T>,
    mapping: Arc<Mapping>,
}

/// A handle that does not keep the region mapped.
pub struct WeakHandle<T: ?Sized> {
    at: NonNull<T>,
    mapping: Weak<Mapping>,
}

/// What this process has of the region, as it remembers it: others may write over what stands there.
struct Given {
    /// In a region that was made here, the lowest byte that was not given out.
    next_byte: u64,
    /// In another one, what was found.
    found: Vec<Found>,
}

#[derive(PartialEq, Eq)]
struct Found {
    bytes: Range<u64>,
    layout: u64,
}

struct Mapping {
    id: u64,
    /// Aligned to [`ALIGN_BYTES_MAX`], so that offsets and addresses are aligned alike.
    base: NonNull<u8>,
    reserve_bytes: u64,
    memory: Memory,
    is_made_here: bool,
    given: Mutex<Given>,
}

/// When the memory of what is placed comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Now,
    Later,
}

// SAFETY: the mapping's memory is reached through `Shared` values only, which are Sync (R4); the rest is Send and Sync.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Region {
    /// Reserves `reserve_bytes` of zeroed memory for this process alone.
    ///
    /// # Errors
    /// [`RegionError::MapRefused`], for instance where the system does not overcommit memory.
    pub fn anonymous(reserve_bytes: u64) -> Result<Region, RegionError> {
        let reserve_bytes = reserve_bytes.max(size_of::<Header>() as u64);
        let (memory, base) = Memory::anonymous(reserve_bytes)?;
        Ok(Region::create(reserve_bytes, memory, base))
    }

    /// As [`Region::anonymous`], for memory that can be mapped several times ([`Region::view`]).
    ///
    /// # Errors
    /// As there.
    #[cfg(all(feature = "deaths", not(miri)))]
    pub fn shared(reserve_bytes: u64) -> Result<Region, RegionError> {
        let reserve_bytes = reserve_bytes.max(size_of::<Header>() as u64);
        let (memory, base) = Memory::of_file(MemoryFile::nameless(reserve_bytes)?, reserve_bytes)?;
        Ok(Region::create(reserve_bytes, memory, base))
    }

    /// Makes a region in a new file at `path`, in a file system in memory such as `/dev/shm`, for processes that join
    /// it ([`Region::join_at`]). Only the same user may. What is placed takes memory at once: later it would be missing
    /// at a store, which nobody survives.
    ///
    /// # Errors
    /// [`RegionError::File`]: there is a file already, or it cannot be made. [`RegionError::NoMemory`].
    /// [`RegionError::MapRefused`]. No file is left then.
    #[cfg(not(miri))]
    pub fn create_at(path: &Path, reserve_bytes: u64) -> Result<Region, RegionError> {
        let header_bytes = size_of::<Header>() as u64;
        let reserve_bytes = reserve_bytes.max(header_bytes);
        let file = MemoryFile::create(path, reserve_bytes)?;
        let made = file.take(0, header_bytes).and_then(|()| Memory::of_file(file.clone(), reserve_bytes));
        let (memory, base) = made.inspect_err(|_| file.remove())?;
        Ok(Region::create(reserve_bytes, memory, base))
    }

    /// The region that another process has made at `path` ([`Region::create_at`]).
    ///
    /// # Errors
    /// [`RegionError::File`]: there is none, or it may not be opened. [`RegionError::NotOurs`]: it is of another user,
    /// or others may open it. [`RegionError::NotARegion`]: what is there is something else, not complete, or of a build
    /// with another header. [`RegionError::MapRefused`].
    #[cfg(not(miri))]
    pub fn join_at(path: &Path) -> Result<Region, RegionError> {
        let (file, file_bytes) = MemoryFile::open(path)?;
        let not_a_region = |what: &str| RegionError::NotARegion { path: path.display().to_string(), what: what.into() };
        let header_bytes = size_of::<Header>() as u64;
        if file_bytes < header_bytes {
            return Err(not_a_region("it is too short"));
        }
        let not_complete = "it is not complete yet, or whoever made it has died";
        if file.begins_with_zeroes()? {
            return Err(not_a_region(not_complete));
        }
        let (memory, base) = Memory::of_file(file.clone(), header_bytes)?;
        let head = Region::with(header_bytes, memory, base, false);
        let header = head.mapping.header();
        match header.magic.load(Acquire) {
            MAGIC => {} // Pairs with the store in `create`: the rest is there.
            0 => return Err(not_a_region(not_complete)),
            _ => return Err(not_a_region("it begins with something else")),
        }
        let version = header.version.load(Relaxed);
        if version != HEADER_VERSION {
            let what = format!("its header has version {version}, and this build knows {HEADER_VERSION}");
            return Err(not_a_region(&what));
        }
        let reserve_bytes = header.reserve_bytes.load(Relaxed);
        if reserve_bytes < header_bytes || reserve_bytes > file_bytes {
            return Err(not_a_region("it is shorter than it says"));
        }
        let (memory, base) = Memory::of_file(file, reserve_bytes)?;
        Ok(Region::with(reserve_bytes, memory, base, false))
    }

    /// Another mapping of a region that [`Region::shared`] made, at another address, for another simulated process.
    /// Simulated threads that sleep on a word of one mapping meet those of all.
    ///
    /// # Errors
    /// [`RegionError::MapRefused`], also if the region is not shared.
    #[cfg(all(feature = "deaths", not(miri)))]
    pub fn view(&self) -> Result<Region, RegionError> {
        let (memory, base) = self.mapping.memory.map_again(self.mapping.reserve_bytes)?;
        Ok(Region::with(self.mapping.reserve_bytes, memory, base, false))
    }

    fn with(reserve_bytes: u64, memory: Memory, base: NonNull<u8>, is_made_here: bool) -> Region {
        static NEXT_ID: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let id = NEXT_ID.fetch_add(1, Relaxed); // A number that differs: no order with anything is needed.
        let given = Mutex::new(Given { next_byte: size_of::<Header>() as u64, found: Vec::new() });
        Region { mapping: Arc::new(Mapping { id, base, reserve_bytes, memory, is_made_here, given }), whose: "" }
    }

    fn create(reserve_bytes: u64, memory: Memory, base: NonNull<u8>) -> Region {
        let region = Region::with(reserve_bytes, memory, base, true);
        let header = region.mapping.header();
        header.version.store(HEADER_VERSION, Relaxed); // Published by the last of these.
        header.reserve_bytes.store(reserve_bytes, Relaxed);
        header.next_byte.store(size_of::<Header>() as u64, Relaxed);
        header.magic.store(MAGIC, Release); // Pairs with the load in `join_at`.
        region
    }

    /// The same region, for a part whose names may be those of other parts. `whose` comes before each.
    #[must_use]
    pub fn of(&self, whose: &'static str) -> Region {
        Region { mapping: Arc::clone(&self.mapping), whose }
    }

    fn full_name(&self, name: &'static str) -> FullName {
        FullName { whose: self.whose, name }
    }

    /// Whether this process has made the region: then it fills what [`Region::place`] gives it, which is zeroed.
    #[must_use]
    pub fn is_made_here(&self) -> bool {
        self.mapping.is_made_here
    }

    /// The `count` values that have this name. In a region that was made here they are given out now, zeroed, the first
    /// at a multiple of `align_bytes`. With 1, the alignment is that of the type.
    ///
    /// # Errors
    /// [`RegionError::BadAlignment`] and [`RegionError::NoName`]. In a region that was made here, [`RegionError::Full`]
    /// and [`RegionError::NameTaken`]. In another one, [`RegionError::Differs`].
    pub fn place<T: Shared>(
        &self,
        name: &'static str,
        count: u64,
        align_bytes: u64,
    ) -> Result<Handle<[T]>, RegionError> {
        self.place_with(name, count, align_bytes, Takes::Now)
    }

    /// The same, for values whose memory comes later: before anybody uses some of them, [`Handle::take`] takes it. Of a
    /// region that one process has for itself, memory comes as ever.
    ///
    /// Values whose memory was not taken are zeroes, or the end of the process that looks at them.
    ///
    /// # Errors
    /// As [`Region::place`].
    pub fn place_reserved<T: Shared>(
        &self,
        name: &'static str,
        count: u64,
        align_bytes: u64,
    ) -> Result<Handle<[T]>, RegionError> {
        self.place_with(name, count, align_bytes, Takes::Later)
    }

    fn place_with<T: Shared>(
        &self,
        name: &'static str,
        count: u64,
        align_bytes: u64,
        takes: Takes,
    ) -> Result<Handle<[T]>, RegionError> {
        if !align_bytes.is_power_of_two() || align_bytes > ALIGN_BYTES_MAX {
            return Err(RegionError::BadAlignment { align_bytes, max_bytes: ALIGN_BYTES_MAX });
        }
        let align_bytes = align_bytes.max(align_of::<T>() as u64);
        let mapping = &self.mapping;
        let place = match mapping.is_made_here {
            true => mapping.give_out::<T>(self.full_name(name), count, align_bytes, takes)?,
            false => mapping.header().directory.find::<T>(self.full_name(name), count)?,
        };
        let at = mapping.values::<T>(name, place, align_bytes)?;
        Ok(Handle { at, mapping: Arc::clone(mapping) })
    }

    /// Whether other processes can have the region, too, or other mappings in this one.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.mapping.memory.is_shared()
    }

    /// How many values have this name. `None` if nothing has it, as yet or at all.
    #[must_use]
    pub fn placed_count(&self, name: &'static str) -> Option<u64> {
        self.mapping.header().directory.count_of(self.full_name(name))
    }

    /// As [`Region::place`], for one value.
    ///
    /// # Errors
    /// As there.
    pub fn place_one<T: Shared>(&self, name: &'static str, align_bytes: u64) -> Result<Handle<T>, RegionError> {
        Ok(self.place::<T>(name, 1, align_bytes)?.project(|values| &values[0]))
    }

    /// A number that no other region of this process has or had.
    pub fn id(&self) -> u64 {
        self.mapping.id
    }

    /// How much was reserved.
    pub fn reserve_bytes(&self) -> u64 {
        self.mapping.reserve_bytes
    }

    /// How much was given out.
    pub fn used_bytes(&self) -> u64 {
        self.mapping.header().next_byte.load(Relaxed) // A figure to print.
    }
}

impl Mapping {
    fn header(&self) -> &Header {
        // SAFETY: the header is the first block, zeroed and aligned (R1), and nothing else was given out there (R3).
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    fn give_out<T: Shared>(
        &self,
        name: FullName,
        count: u64,
        align_bytes: u64,
        takes: Takes,
    ) -> Result<Place, RegionError> {
        let mut given = self.given();
        let next_byte = given.next_byte;
        let bytes = count.checked_mul(size_of::<T>() as u64);
        let offset = next_byte.checked_next_multiple_of(align_bytes);
        let end = offset.zip(bytes).and_then(|(offset, bytes)| offset.checked_add(bytes));
        let (Some(offset), Some(end)) = (offset, end.filter(|end| *end <= self.reserve_bytes)) else {
            let left_bytes = self.reserve_bytes - next_byte;
            return Err(RegionError::Full { asked_bytes: bytes.unwrap_or(u64::MAX), left_bytes });
        };
        let place = Place { offset, count };
        if takes == Takes::Now {
            self.memory.take(offset, end - offset)?;
        }
        let header = self.header();
        header.directory.add::<T>(name, place)?;
        given.next_byte = end;
        header.next_byte.store(end, Relaxed); // For others to print.
        Ok(place)
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner) // No code can fail inside.
    }

    /// The values at a place whose layout is that of `T`. In a region that was not made here, they have no byte in
    /// common with any others that were found (R3).
    fn values<T: Shared>(
        &self,
        name: &'static str,
        place: Place,
        align_bytes: u64,
    ) -> Result<NonNull<[T]>, RegionError> {
        let Place { offset, count } = place;
        let end = count.checked_mul(size_of::<T>() as u64).and_then(|bytes| offset.checked_add(bytes));
        let is_inside = offset >= size_of::<Header>() as u64 && end.is_some_and(|end| end <= self.reserve_bytes);
        let is_good = is_inside && offset.is_multiple_of(align_bytes);
        if !is_good || !self.is_made_here && !self.is_apart(offset..offset + count * size_of::<T>() as u64, T::LAYOUT) {
            let found = format!("at offset {offset}");
            let expected = format!("{count} values apart from all others, at a multiple of {align_bytes}");
            return Err(RegionError::Differs { name, found, expected });
        }
        // SAFETY: the place lies inside the mapping, which is one allocation.
        let at = unsafe { self.base.add(offset as usize) }.cast::<T>();
        Ok(NonNull::slice_from_raw_parts(at, count as usize))
    }
}

impl Mapping {
    /// Whether no other values have been found in these bytes, and remembers them.
    fn is_apart(&self, bytes: Range<u64>, layout: u64) -> bool {
        let found = &mut self.given().found;
        let this = Found { bytes, layout };
        let shares = |other: &Found| other.bytes.start < this.bytes.end && this.bytes.start < other.bytes.end;
        if found.contains(&this) {
            return true;
        }
        let is_apart = !found.iter().any(shares);
        if is_apart {
            found.push(this);
        }
        is_apart
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.memory.release(self.base);
    }
}

impl<T: ?Sized> Handle<T> {
    /// A handle to a part of what this one reaches.
    ///
    /// ```
    /// # use ledgerstone_region::{Handle, Region};
    /// # use ledgerstone_region::atomic::AtomicU64;
    /// # let region = Region::anonymous(1 << 20)?;
    /// # let words: Handle<[AtomicU64]> = region.place("words", 8, 64)?;
    /// let last: Handle<AtomicU64> = words.project(|words| &words[7]);
    /// # Ok::<(), ledgerstone_region::RegionError>(())
    /// ```
    pub fn project<U: ?Sized + 'static>(&self, part: impl for<'a> FnOnce(&'a T) -> &'a U) -> Handle<U> {
        Handle { at: NonNull::from(part(self)), mapping: self.mapping.clone() }
    }

    /// A handle that does not keep the region mapped.
    pub fn downgrade(&self) -> WeakHandle<T> {
        WeakHandle { at: self.at, mapping: Arc::downgrade(&self.mapping) }
    }
}

impl<T> Handle<[T]> {
    /// Asks for huge pages under these values. Nothing is said if the system has none.
    pub fn advise_huge(&self) {
        Memory::advise_huge(NonNull::from(&**self).cast(), size_of_val(&**self));
    }

    /// Takes the memory of these values from the system now, in whole pages: otherwise it comes at their first use.
    /// What they hold does not change. Nothing is said if the system does not know how. Beyond the limit of a control
    /// group, the system kills the process, as it does at a first use.
    pub fn populate(&self, values: Range<usize>) {
        if let Some(values) = self.get(values) {
            Memory::populate(NonNull::from(values).cast(), size_of_val(values));
        }
    }
}

impl<T: Shared> Handle<[T]> {
    /// Takes the memory of these values, which were placed by [`Region::place_reserved`]. It may be taken already, and
    /// by others at the same moment: then it is taken, too.
    ///
    /// # Errors
    /// [`RegionError::NoMemory`], [`RegionError::File`]. A part may have been taken.
    pub fn take(&self, values: Range<usize>) -> Result<(), RegionError> {
        let Some(values) = self.get(values) else { return Ok(()) };
        let Mapping { base, memory, .. } = &*self.mapping;
        let offset = values.as_ptr().addr() - base.addr().get(); // A projected handle may be elsewhere: a bug.
        memory.take_for_all(*base, offset as u64, size_of_val(values) as u64)
    }
}

impl<T: ?Sized> WeakHandle<T> {
    /// The handle, if the region is still mapped.
    pub fn upgrade(&self) -> Option<Handle<T>> {
        Some(Handle { at: self.at, mapping: self.mapping.upgrade()? })
    }

    /// Whether the region is gone.
    pub fn is_dead(&self) -> bool {
        self.mapping.strong_count() == 0
    }
}

impl<T: ?Sized> Deref for Handle<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: mapped while we live (R2), whole and aligned values (R3) that are only ever changed as atomics (R4,
        // R5). A projected handle points into such values, or at something static.
        unsafe { self.at.as_ref() }
    }
}

impl<T: ?Sized> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Handle { at: self.at, mapping: self.mapping.clone() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("id", &self.id())
            .field("used_bytes", &self.used_bytes())
            .field("reserve_bytes", &self.reserve_bytes())
            .finish()
    }
}

// SAFETY: a handle is a shared reference that keeps its target alive; T: Sync makes that reference good anywhere.
unsafe impl<T: ?Sized + Sync> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for Handle<T> {}
// SAFETY: as above; a weak handle reaches nothing.
unsafe impl<T: ?Sized + Sync> Send for WeakHandle<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for WeakHandle<T> {}

#[cfg(all(test, feature = "deaths", not(miri), not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_one_process_has_placed_another_finds_by_name() {
        let region = Region::shared(1 << 20).unwrap();
        let made: Handle<[AtomicU64]> = region.place("words", 100, 64).unwrap();
        made[99].store(5, Relaxed);
        let view = region.view().unwrap();
        assert!(region.is_made_here() && !view.is_made_here());
        let found: Handle<[AtomicU64]> = view.place("words", 100, 64).unwrap();
        assert_eq!(found[99].load(Relaxed), 5);
        assert_ne!(found.as_ptr(), made.as_ptr());
        let used_bytes = region.used_bytes();
        let refusals = [
            view.place::<AtomicU64>("words", 101, 64).map(drop),
            view.place::<AtomicU32>("words", 100, 64).map(drop),
            view.place::<AtomicU64>("word", 100, 64).map(drop),
        ];
        for refused in refusals {
            assert!(matches!(refused, Err(RegionError::Differs { .. })), "{refused:?}");
        }
        assert_eq!(region.used_bytes(), used_bytes);
    }

    /// Whatever stands in the directory, no handle reaches out of the mapping, or into the header.
    #[test]
    fn a_damaged_directory_gives_no_handle_out_of_the_region() {
        let region = Region::shared(1 << 16).unwrap();
        let _words: Handle<[AtomicU64]> = region.place("words", 100, 64).unwrap();
        let view = region.view().unwrap();
        let place = |offset, count| {
            region.mapping.header().directory.damage(Place { offset, count });
            view.place::<AtomicU64>("words", count, 8).map(drop)
        };
        assert!(place(4096, 100).is_ok() && place((1 << 16) - 8, 1).is_ok());
        let bad = [(0, 1), (4088, 1), (4100, 1), (1 << 16, 1), ((1 << 16) - 8, 2), (u64::MAX - 7, 1), (4096, u64::MAX)];
        for (offset, count) in bad {
            assert!(matches!(place(offset, count), Err(RegionError::Differs { .. })), "{count} at {offset}");
        }
    }

    /// Bytes of one value are never reached as another one's, whose atomics may have other sizes.
    #[test]
    fn a_damaged_directory_gives_no_two_handles_to_one_byte() {
        let region = Region::shared(1 << 16).unwrap();
        let _words: Handle<[AtomicU64]> = region.place("words", 100, 64).unwrap();
        let _halves: Handle<[AtomicU32]> = region.place("halves", 100, 64).unwrap();
        let view = region.view().unwrap();
        let words = |offset| {
            region.mapping.header().directory.damage(Place { offset, count: 100 });
            view.place::<AtomicU64>("words", 100, 64).map(drop)
        };
        view.place::<AtomicU32>("halves", 100, 64).unwrap();
        assert!(words(4096).is_ok() && words(4096).is_ok(), "twice the same");
        // Halves lie at 4928..5328.
        for offset in [4096 + 64, 4928, 4928 - 64, 4928 + 384, 8192 + 8] {
            assert!(matches!(words(offset), Err(RegionError::Differs { .. })), "{offset}");
        }
        assert!(words(4928 + 448).is_ok());
    }

    /// What others write over the header does not make the region give out anything twice.
    #[test]
    fn what_was_given_out_is_remembered_outside_of_the_region() {
        let region = Region::shared(1 << 16).unwrap();
        let first: Handle<[AtomicU64]> = region.place("first", 8, 64).unwrap();
        for next_byte in [0, 4096, u64::MAX] {
            region.view().unwrap().mapping.header().next_byte.store(next_byte, Relaxed);
            let full = region.place::<AtomicU64>("more", 1 << 16, 64).unwrap_err();
            assert_eq!(full, RegionError::Full { asked_bytes: 1 << 19, left_bytes: (1 << 16) - 4096 - 64 });
        }
        let second: Handle<[AtomicU64]> = region.place("second", 8, 64).unwrap();
        second[0].store(1, Relaxed);
        assert_eq!((first[0].load(Relaxed), region.used_bytes()), (0, 4096 + 128));
    }

    #[test]
    fn an_alignment_is_the_same_for_who_makes_and_who_finds() {
        let region = Region::shared(1 << 16).unwrap();
        let _first: Handle<[AtomicU64]> = region.place("first", 1, 64).unwrap();
        let _words: Handle<[AtomicU64]> = region.place("words", 8, 64).unwrap();
        let view = region.view().unwrap();
        let refused = |align_bytes| view.place::<AtomicU64>("words", 8, align_bytes).unwrap_err();
        assert!(matches!(refused(128), RegionError::Differs { .. }));
        assert!(matches!(refused(0), RegionError::BadAlignment { .. }));
        assert!(matches!(refused(4 << 20), RegionError::BadAlignment { .. }));
        assert!(view.place::<AtomicU64>("words", 8, 64).is_ok());
    }
}
