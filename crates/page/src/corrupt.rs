//! Damage: bytes that are not what they must be.

use std::fmt;

use crate::PageId;

/// A finding about bytes from disk: what is wrong, where, what was expected and what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct Corrupt {
    /// The page, if it is known.
    pub page: Option<PageId>,
    /// Which rule is broken.
    pub what: &'static str,
    /// Where in the page, in bytes.
    pub offset: usize,
    /// What the rule asks for.
    pub expected: u64,
    /// What is there.
    pub found: u64,
}

impl Corrupt {
    /// The finding that a page's bytes are all zero.
    pub const NEVER_WRITTEN: &'static str = "page was never written";

    /// A finding about a page that the caller will name.
    #[must_use]
    pub const fn new(what: &'static str, offset: usize, expected: u64, found: u64) -> Corrupt {
        Corrupt { page: None, what, offset, expected, found }
    }

    /// The same finding about page `page`.
    #[must_use]
    pub const fn on(mut self, page: PageId) -> Corrupt {
        self.page = Some(page);
        self
    }

    /// True if the page holds nothing but zeros, as a page does that was allocated and never written.
    #[must_use]
    pub fn is_never_written(&self) -> bool {
        self.what == Corrupt::NEVER_WRITTEN
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(page) = self.page {
            write!(f, "page {page}, ")?;
        }
        write!(f, "offset {}: {}: expected {}, found {}", self.offset, self.what, self.expected, self.found)
    }
}
