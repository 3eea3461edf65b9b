//! Why an engine has failed, for all processes that have its region.
//!
//! ```text
//! word  field
//!    0  0 no reason; 1 it is being written; 2 | bytes << 8: it is there
//!  1..  its text
//! ```
//! The first reason is kept. Whoever writes it may die meanwhile: then there is none.

use ledgerstone_region::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use ledgerstone_region::{Handle, Region, RegionError};

const WORDS: u64 = 64;
const TEXT_BYTES: usize = (WORDS as usize - 1) * 8;

const NONE: u64 = 0;
const WRITING: u64 = 1;
const THERE: u64 = 2;
const STATE: u64 = 0xff;

/// The place of the reason in the region.
pub struct Reason {
    words: Handle<[AtomicU64]>,
}

impl Reason {
    /// Places it in a region, or finds it there.
    ///
    /// # Errors
    /// As [`Region::place`].
    pub fn place(region: &Region) -> Result<Reason, RegionError> {
        Ok(Reason { words: region.place("engine.reason", WORDS, 64)? })
    }

    /// Notes the reason, if there is none. Long ones are cut.
    pub(crate) fn note(&self, why: &str) {
        if self.words[0].compare_exchange(NONE, WRITING, Relaxed, Relaxed).is_err() {
            return;
        }
        let mut len = why.len().min(TEXT_BYTES);
        while !why.is_char_boundary(len) {
            len -= 1;
        }
        for (word, bytes) in self.words[1..].iter().zip(why.as_bytes()[..len].chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(eight), Relaxed); // Published below.
        }
        self.words[0].store(THERE | (len as u64) << 8, Release); // Pairs with the load in `get`.
    }

    /// The reason, if one is there.
    pub(crate) fn get(&self) -> Option<String> {
        let state = self.words[0].load(Acquire);
        let len = (state >> 8) as usize;
        if state & STATE != THERE || len > TEXT_BYTES {
            return None;
        }
        let bytes: Vec<u8> = self.words[1..].iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
        Some(String::from_utf8_lossy(&bytes[..len]).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_is_kept_as_far_as_there_is_room() {
        let reason = |why: &str| {
            let reason = Reason::place(&Region::anonymous(1 << 16).unwrap()).unwrap();
            assert_eq!(reason.get(), None);
            reason.note(why);
            reason.note("another");
            reason.get().unwrap()
        };
        assert_eq!(reason("the disk is gone"), "the disk is gone");
        assert_eq!(reason(&"ä".repeat(400)), "ä".repeat(TEXT_BYTES / 2));
        assert_eq!(reason(""), "");
    }
}
