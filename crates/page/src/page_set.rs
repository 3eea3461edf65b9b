//! Sets of pages: a bit for each page, in chunks that are made when a page of theirs comes in.

use ledgerstone_region::ByNumber;

use crate::PageId;

const WORDS: usize = 64;
/// Pages of a chunk.
const CHUNK: u64 = (WORDS * 64) as u64;

/// A set of pages. Where most pages of a file are in it, it takes about a bit for each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageSet {
    /// None is empty.
    chunks: ByNumber<u64, Box<[u64; WORDS]>>,
    len: u64,
}

impl PageSet {
    /// Adds `page`. Returns false if it was there already.
    pub fn insert(&mut self, page: PageId) -> bool {
        let (chunk, word, bit) = place(page);
        let word = &mut self.chunks.get_or_insert_with(chunk, || Box::new([0; WORDS]))[word];
        let is_new = *word & bit == 0;
        *word |= bit;
        self.len += u64::from(is_new);
        is_new
    }

    /// Removes `page`. Returns false if it was not there.
    pub fn remove(&mut self, page: PageId) -> bool {
        let (chunk, word, bit) = place(page);
        let Some(words) = self.chunks.get_mut(chunk) else { return false };
        let was_there = words[word] & bit != 0;
        words[word] &= !bit;
        self.len -= u64::from(was_there);
        if was_there && words.iter().all(|&word| word == 0) {
            self.chunks.remove(chunk);
        }
        was_there
    }

    /// True if `page` is in it.
    #[must_use]
    pub fn contains(&self, page: PageId) -> bool {
        let (chunk, word, bit) = place(page);
        self.chunks.get(chunk).is_some_and(|words| words[word] & bit != 0)
    }

    /// How many pages are in it.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if no page is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pages, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = PageId> {
        self.chunks.iter().flat_map(|(chunk, words)| {
            let is_in = move |no: &u64| words[(no / 64) as usize] >> (no % 64) & 1 == 1;
            (0..CHUNK).filter(is_in).map(move |no| PageId(chunk * CHUNK + no))
        })
    }
}

impl Extend<PageId> for PageSet {
    fn extend<T: IntoIterator<Item = PageId>>(&mut self, pages: T) {
        for page in pages {
            self.insert(page);
        }
    }
}

impl FromIterator<PageId> for PageSet {
    fn from_iter<T: IntoIterator<Item = PageId>>(pages: T) -> PageSet {
        let mut set = PageSet::default();
        set.extend(pages);
        set
    }
}

/// The page's chunk, and its word and bit there.
fn place(page: PageId) -> (u64, usize, u64) {
    let no = page.0 % CHUNK;
    (page.0 / CHUNK, (no / 64) as usize, 1 << (no % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_of_pages_is_as_a_model_says(steps in prop::collection::vec((any::<bool>(), 0..3_u64, 0..70_u64), 0..300)) {
            let (mut set, mut model) = (PageSet::default(), BTreeSet::new());
            for (is_in, far, near) in steps {
                let page = PageId([0, CHUNK - 35, u64::MAX - 70][far as usize] + near);
                let changed = if is_in { set.insert(page) } else { set.remove(page) };
                prop_assert_eq!(changed, if is_in { model.insert(page) } else { model.remove(&page) });
                prop_assert_eq!((set.len(), set.is_empty()), (model.len() as u64, model.is_empty()));
                prop_assert!(!is_in || set.contains(page));
            }
            prop_assert!(set.iter().eq(model.iter().copied()));
            prop_assert_eq!(&model.iter().copied().collect::<PageSet>(), &set);
        }
    }
}
