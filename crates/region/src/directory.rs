//! What lies where in a region, by name.
//!
//! ```text
//! offset  size  field of an entry
//!      0    24  name         in ASCII, zeroes behind it
//!     24     8  offset       from the start of the region
//!     32     8  count        of values
//!     40     8  layout       of the values' type ([`Shared::LAYOUT`])
//!     48    16  zero
//! ```
//! Who makes the region writes the entries one after the other, and then each is there for good. All others find by
//! name what they need. They check that they would have made the same, so a program of another build is refused with
//! a sentence. What they read is also checked against the mapping, whatever stands there (R3).

use crate::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use crate::{RegionError, Shared, shared};

/// How many names there can be.
pub(crate) const NAMES_MAX: usize = 62;
const NAME_WORDS: usize = 3;

shared! {
    /// One name.
    struct Entry {
        name: [AtomicU64; NAME_WORDS],
        offset: AtomicU64,
        count: AtomicU64,
        layout: AtomicU64,
        zeroes: [AtomicU64; 2],
    } size 64
}

shared! {
    /// All names of a region.
    pub(crate) struct Directory {
        entry_count: AtomicU32,
        zero: AtomicU32,
        zeroes: [AtomicU64; 7],
        entries: [Entry; NAMES_MAX],
    } size 4032
}

type Name = [u64; NAME_WORDS];

/// Where values lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub offset: u64,
    pub count: u64,
}

/// A name, behind that of whose it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FullName {
    pub whose: &'static str,
    pub name: &'static str,
}

fn name_of(FullName { whose, name }: FullName) -> Result<Name, RegionError> {
    let mut bytes = [0; NAME_WORDS * 8];
    let place = bytes.get_mut(..whose.len() + name.len()).filter(|_| !name.is_empty());
    let (first, rest) = place.ok_or(RegionError::NoName { name, max: NAMES_MAX })?.split_at_mut(whose.len());
    first.copy_from_slice(whose.as_bytes());
    rest.copy_from_slice(name.as_bytes());
    Ok(std::array::from_fn(|no| u64::from_le_bytes(std::array::from_fn(|at| bytes[no * 8 + at]))))
}

fn shown(count: u64, layout: u64) -> String {
    format!("{count} values of layout {layout:016x}")
}

impl Directory {
    /// Gives `place` a name. Nobody else has the region yet.
    ///
    /// # Errors
    /// [`RegionError::NameTaken`] and [`RegionError::NoName`].
    pub fn add<T: Shared>(&self, full_name: FullName, place: Place) -> Result<(), RegionError> {
        let (words, name) = (name_of(full_name)?, full_name.name);
        if self.look_up(words).is_some() {
            return Err(RegionError::NameTaken { name });
        }
        let no = self.entry_count.load(Relaxed); // Our own.
        let entry = self.entries.get(no as usize).ok_or(RegionError::NoName { name, max: NAMES_MAX })?;
        entry.name.iter().zip(words).for_each(|(word, part)| word.store(part, Relaxed)); // Published below.
        entry.offset.store(place.offset, Relaxed);
        entry.count.store(place.count, Relaxed);
        entry.layout.store(T::LAYOUT, Relaxed);
        self.entry_count.store(no + 1, Release); // Pairs with the load in `look_up`.
        Ok(())
    }

    /// Where `count` values of `T` lie under this name.
    ///
    /// # Errors
    /// [`RegionError::Differs`]: nothing has the name, or something else.
    pub fn find<T: Shared>(&self, full_name: FullName, count: u64) -> Result<Place, RegionError> {
        let (expected, name) = (shown(count, T::LAYOUT), full_name.name);
        let Some(entry) = self.look_up(name_of(full_name)?) else {
            return Err(RegionError::Differs { name, found: "not there".into(), expected });
        };
        let place = Place { offset: entry.offset.load(Relaxed), count: entry.count.load(Relaxed) }; // As `look_up`.
        let layout = entry.layout.load(Relaxed); // As above.
        if place.count != count || layout != T::LAYOUT {
            return Err(RegionError::Differs { name, found: shown(place.count, layout), expected });
        }
        Ok(place)
    }

    /// How many values have this name, if something has it.
    pub fn count_of(&self, name: FullName) -> Option<u64> {
        let entry = self.look_up(name_of(name).ok()?)?;
        Some(entry.count.load(Relaxed)) // Written before the entry could be found.
    }

    /// Writes over the first entry.
    #[cfg(all(test, feature = "deaths"))]
    pub fn damage(&self, place: Place) {
        self.entries[0].offset.store(place.offset, Relaxed);
        self.entries[0].count.store(place.count, Relaxed);
    }

    fn look_up(&self, name: Name) -> Option<&Entry> {
        let count = self.entry_count.load(Acquire); // Pairs with the store in `add`.
        let is_its = |entry: &&Entry| entry.name.iter().zip(name).all(|(word, part)| word.load(Relaxed) == part);
        self.entries.iter().take(count as usize).find(is_its)
    }
}
