//! Where two values of one length differ, eight bytes at a look.

use std::ops::Range;

/// The shortest range outside of which `old` and `new`, of one length, are equal. `None` if they are equal.
#[inline]
pub(crate) fn difference(old: &[u8], new: &[u8]) -> Option<Range<usize>> {
    let from = first(old, new)?;
    Some(from..last(old, new).map_or(from, |last| last + 1))
}

fn first(old: &[u8], new: &[u8]) -> Option<usize> {
    let ((old, old_rest), (new, new_rest)) = (old.as_chunks::<8>(), new.as_chunks::<8>());
    for (no, (old, new)) in old.iter().zip(new).enumerate() {
        let differs = u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
        if differs != 0 {
            return Some(no * 8 + differs.trailing_zeros() as usize / 8);
        }
    }
    Some(old.len() * 8 + old_rest.iter().zip(new_rest).position(|(old, new)| old != new)?)
}

fn last(old: &[u8], new: &[u8]) -> Option<usize> {
    let ((old_rest, old), (new_rest, new)) = (old.as_rchunks::<8>(), new.as_rchunks::<8>());
    for (no, (old, new)) in old.iter().zip(new).enumerate().rev() {
        let differs = u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
        if differs != 0 {
            return Some(old_rest.len() + no * 8 + 7 - differs.leading_zeros() as usize / 8);
        }
    }
    old_rest.iter().zip(new_rest).rposition(|(old, new)| old != new)
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn equal_values_have_none() {
        for len in 0..40 {
            assert_eq!(difference(&vec![7; len], &vec![7; len]), None);
        }
    }

    #[test]
    fn the_range_begins_and_ends_with_bytes_that_differ() {
        for len in 1..40 {
            for from in 0..len {
                for to in from + 1..=len {
                    let old = vec![7; len];
                    let mut new = old.clone();
                    (new[from], new[to - 1]) = (8, 0xff);
                    assert_eq!(difference(&old, &new), Some(from..to), "of {len}");
                }
            }
        }
    }
}
