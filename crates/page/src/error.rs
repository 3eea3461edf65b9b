//! Damage, and what layouts refuse.

use crate::{LayoutId, PageId};

/// Bytes that cannot be what they claim to be. The cause is damage on the device, a write that went elsewhere, a torn
/// page, or a bug of ours that was found before it spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// The page, as far as known.
    pub page: Option<PageId>,
    /// What is wrong, as a name to search for: "checksum", "page id", "slot offset".
    pub what: &'static str,
    /// Where in the page.
    pub offset: u64,
    /// The value that should be there, or the bound that was passed.
    pub expected: u64,
    /// The value that is there.
    pub found: u64,
}

impl Corrupt {
    /// [`Corrupt::what`] of a page of zeroes: the page was allocated in the file, but never written.
    pub const NEVER_WRITTEN: &'static str = "never written";

    /// Damage in a page whose id the caller does not know.
    #[cold]
    #[must_use]
    pub const fn new(what: &'static str, offset: u64, expected: u64, found: u64) -> Corrupt {
        Corrupt { page: None, what, offset, expected, found }
    }

    /// The same, in this page.
    #[must_use]
    pub const fn on(mut self, page: PageId) -> Corrupt {
        self.page = Some(page);
        self
    }

    /// What is wrong, without the page.
    #[must_use]
    pub const fn fact(&self) -> Fact<'_> {
        Fact(self)
    }

    /// Whether the page is all zeroes.
    #[must_use]
    pub fn is_never_written(&self) -> bool {
        self.what == Self::NEVER_WRITTEN
    }
}

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(page) = self.page {
            write!(f, "page {page}: ")?;
        }
        self.fact().fmt(f)
    }
}

/// What is wrong, without the page: for texts that name it themselves.
#[derive(Clone, Copy, Debug)]
pub struct Fact<'c>(&'c Corrupt);

impl std::fmt::Display for Fact<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_never_written() {
            return write!(f, "never written");
        }
        let Corrupt { what, offset, expected, found, .. } = self.0;
        write!(f, "corrupt {what} at offset {offset}: expected {expected:#x}, found {found:#x}")
    }
}

impl std::error::Error for Corrupt {}

/// Two layouts claim one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{id} is registered twice: as {first} and as {second}")]
#[non_exhaustive]
pub struct LayoutTaken {
    /// The id.
    pub id: LayoutId,
    /// The name under which it was registered first.
    pub first: &'static str,
    /// The name of the layout that was refused.
    pub second: &'static str,
}

/// Why a fixed page did not take a change. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FixedError {
    /// A record of this length does not fit the page's records, or no page.
    #[error("a record of {record_bytes} bytes does not fit")]
    RecordBytes {
        /// The length, or where the change would end.
        record_bytes: usize,
    },
    /// The page has no such slot.
    #[error("slot {slot} of {slot_count}")]
    NoSuchSlot {
        /// The slot asked for.
        slot: u16,
        /// Slots of the page.
        slot_count: u16,
    },
    /// The slot has no record.
    #[error("slot {slot} is free")]
    SlotFree {
        /// The slot asked for.
        slot: u16,
    },
    /// The slot has a record already.
    #[error("slot {slot} is used")]
    SlotUsed {
        /// The slot asked for.
        slot: u16,
    },
    /// The page is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// Why a slotted page did not take a change. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SlottedError {
    /// Not even compaction makes room.
    #[error("{need} bytes are needed, {free} are free")]
    Full {
        /// What the change needs, new slots included.
        need: usize,
        /// What compaction would make free.
        free: usize,
    },
    /// The slot has no record.
    #[error("slot {slot} is free, {slot_count} slots")]
    SlotFree {
        /// The slot asked for.
        slot: u16,
        /// Slots of the page, free ones included.
        slot_count: u16,
    },
    /// The slot has a record already.
    #[error("slot {slot} is used")]
    SlotUsed {
        /// The slot asked for.
        slot: u16,
    },
    /// The page breaks S1 or S2.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}
