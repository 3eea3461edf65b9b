//! Which pages of the data file the log tells of, and which of them redo will read.
//!
//! Two bits a page of the file. A page whose first record in the log says that it had no LSN before was made by that record:
//! redo makes it too and reads nothing.

use ledgerstone_page::{Lsn, PageId};

/// See the head of the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Touched {
    page_count: u64,
    seen: Vec<u64>,
    wanted: Vec<u64>,
}

impl Touched {
    /// Nothing yet, of a file with so many pages.
    pub(crate) fn of(page_count: u64) -> Touched {
        Touched { page_count, ..Touched::default() }
    }

    /// A record of a page that had this LSN before. Pages that the file does not have are passed over.
    #[inline]
    pub(crate) fn note(&mut self, page: PageId, before: Lsn) {
        if page.0 >= self.page_count {
            return;
        }
        let (word, bit) = ((page.0 / 64) as usize, 1 << (page.0 % 64));
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
            self.wanted.resize(word + 1, 0);
        }
        if self.seen[word] & bit == 0 {
            self.seen[word] |= bit;
            if before != Lsn(0) {
                self.wanted[word] |= bit;
            }
        }
    }

    /// Runs of neighbouring pages that will be read, in the groups of 16 that go to one worker: first page and count.
    pub(crate) fn runs(&self, group_is_ours: impl Fn(u64) -> bool) -> impl Iterator<Item = (PageId, u64)> {
        let groups =
            self.wanted.iter().enumerate().flat_map(|(word, &bits)| {
                (0..4).map(move |part| (word as u64 * 4 + part, (bits >> (16 * part)) as u16))
            });
        groups.filter(move |&(group, bits)| bits != 0 && group_is_ours(group)).flat_map(|(group, bits)| {
            let mut left = bits;
            std::iter::from_fn(move || {
                let skip = left.trailing_zeros();
                if left == 0 {
                    return None;
                }
                let count = (left >> skip).trailing_ones();
                left &= u16::MAX.checked_shl(skip + count).unwrap_or(0);
                Some((PageId(group * 16 + u64::from(skip)), u64::from(count)))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(touched: &Touched) -> Vec<(u64, u64)> {
        touched.runs(|_| true).map(|(first, count)| (first.0, count)).collect()
    }

    #[test]
    fn neighbours_are_one_run_within_a_group() {
        let mut touched = Touched::of(1000);
        for page in [3, 4, 5, 9, 15, 16, 17, 31, 32, 63, 64, 500].map(PageId) {
            touched.note(page, Lsn(8));
        }
        assert_eq!(runs(&touched), [(3, 3), (9, 1), (15, 1), (16, 2), (31, 1), (32, 1), (63, 1), (64, 1), (500, 1)]);
        for page in 0..16 {
            touched.note(PageId(page), Lsn(8));
        }
        assert_eq!(runs(&touched)[0], (0, 16));
    }

    #[test]
    fn a_page_that_its_first_record_makes_is_not_read() {
        let mut touched = Touched::of(1000);
        touched.note(PageId(7), Lsn(0));
        touched.note(PageId(7), Lsn(4096));
        touched.note(PageId(8), Lsn(4096));
        touched.note(PageId(8), Lsn(0)); // Freed, and made again.
        assert_eq!(runs(&touched), [(8, 1)]);
    }

    #[test]
    fn pages_behind_the_end_of_the_file_are_passed_over() {
        let mut touched = Touched::of(10);
        for page in [9, 10, u64::MAX] {
            touched.note(PageId(page), Lsn(8));
        }
        assert_eq!(runs(&touched), [(9, 1)]);
        assert_eq!(touched.seen.len(), 1);
    }

    #[test]
    fn workers_share_the_groups_without_overlap() {
        let mut touched = Touched::of(1000);
        (0..100).for_each(|page| touched.note(PageId(page), Lsn(8)));
        let of = |no| touched.runs(move |group| group % 2 == no).map(|(_, count)| count).sum::<u64>();
        assert_eq!((of(0), of(1)), (52, 48));
    }
}
