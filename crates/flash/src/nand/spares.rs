//! The spare areas of a device in memory. Most have nothing behind their first bytes: the end is kept only where there
//! is something.
//!
//! X1. `tails` has an entry for a page only if some byte behind `kept_bytes` is not 0xFF.

use super::Pba;
use crate::hash::IntMap;

/// The spare areas of all pages. They know nothing of programs: what was never set reads as zeros.
#[derive(Clone, Debug)]
pub(super) struct Spares {
    spare_bytes: usize,
    kept_bytes: usize,
    heads: Vec<u8>,
    tails: IntMap<Pba, Box<[u8]>>,
}

impl Spares {
    /// So many areas of `spare_bytes`, of which the first `kept_bytes` always have a place.
    pub fn new(pages: usize, spare_bytes: usize, kept_bytes: usize) -> Self {
        let kept_bytes = kept_bytes.min(spare_bytes);
        Self { spare_bytes, kept_bytes, heads: vec![0; pages * kept_bytes], tails: IntMap::default() }
    }

    fn head(&self, pba: Pba) -> std::ops::Range<usize> {
        pba as usize * self.kept_bytes..(pba as usize + 1) * self.kept_bytes
    }

    /// The whole area. What is not given is 0xFF.
    #[inline]
    pub fn set(&mut self, pba: Pba, bytes: &[u8]) {
        let (head, tail) = bytes.split_at(bytes.len().min(self.kept_bytes));
        let place = self.head(pba);
        let own = &mut self.heads[place];
        own[..head.len()].copy_from_slice(head);
        own[head.len()..].fill(0xff);
        self.clear_tail(pba);
        if tail.iter().any(|&byte| byte != 0xff) {
            let mut own = vec![0xff; self.spare_bytes - self.kept_bytes];
            own[..tail.len()].copy_from_slice(tail);
            self.tails.insert(pba, own.into());
        }
    }

    /// The first bytes of an area.
    #[inline]
    pub fn read(&self, pba: Pba, out: &mut [u8]) {
        let (head, tail) = out.split_at_mut(out.len().min(self.kept_bytes));
        head.copy_from_slice(&self.heads[self.head(pba)][..head.len()]);
        if tail.is_empty() {
            return;
        }
        match self.tails.get(&pba) {
            Some(own) => tail.copy_from_slice(&own[..tail.len()]),
            None => tail.fill(0xff),
        }
    }

    /// Clears bits: those that are 0 in `bytes`, from `offset` on.
    pub fn clear_bits(&mut self, pba: Pba, offset: usize, bytes: &[u8]) {
        if offset + bytes.len() <= self.kept_bytes {
            let place = self.head(pba);
            for (own, new) in self.heads[place][offset..].iter_mut().zip(bytes) {
                *own &= new;
            }
            return;
        }
        let mut area = vec![0; self.spare_bytes];
        self.read(pba, &mut area);
        for (own, new) in area[offset..].iter_mut().zip(bytes) {
            *own &= new;
        }
        self.set(pba, &area);
    }

    pub fn flip_bit(&mut self, pba: Pba, bit: usize) {
        let mut area = vec![0; self.spare_bytes];
        self.read(pba, &mut area);
        area[bit / 8] ^= 1 << (bit % 8);
        self.set(pba, &area);
    }

    /// The page was erased: its end takes no room any longer.
    #[inline]
    pub fn clear_tail(&mut self, pba: Pba) {
        if !self.tails.is_empty() {
            self.tails.remove(&pba);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_reads_as_it_was_set_wherever_its_bytes_are_kept() {
        for kept in [0, 3, 8, 20] {
            let mut spares = Spares::new(4, 12, kept);
            let read = |spares: &Spares, len: usize| {
                let mut out = vec![0; len];
                spares.read(2, &mut out);
                out
            };
            spares.set(2, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 0xff]);
            assert_eq!(read(&spares, 12), [1, 2, 3, 4, 5, 6, 7, 8, 9, 0xff, 0xff, 0xff]);
            assert_eq!(read(&spares, 5), [1, 2, 3, 4, 5]);
            spares.clear_bits(2, 1, &[0xfe, 0xff, 0]);
            spares.clear_bits(2, 9, &[0xf0, 0x0f]);
            spares.flip_bit(2, 0);
            assert_eq!(read(&spares, 12), [0, 2, 3, 0, 5, 6, 7, 8, 9, 0xf0, 0x0f, 0xff]);
            spares.set(2, &[7]);
            assert_eq!(read(&spares, 12)[..2], [7, 0xff]);
            assert!(spares.tails.contains_key(&2) == (kept == 0), "an end of 0xFF takes no room");
        }
    }
}
