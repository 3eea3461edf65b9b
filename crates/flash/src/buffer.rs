//! Pages in memory, the one longest unused first to go (LRU, 5.1).
//!
//! L1. Each resident page has exactly one entry in `by_age`, under its own `used`.
//!
//! This file writes nothing: who takes a page out looks after what was changed in it.

use std::collections::BTreeMap;

use crate::Lba;
use crate::hash::IntMap;

/// A page in memory, with whatever its owner wants to know about it.
#[derive(Clone, Debug)]
pub(crate) struct Frame<T> {
    pub data: Box<[u8]>,
    pub state: T,
    used: u64,
}

/// The pages in memory.
#[derive(Clone, Debug)]
pub(crate) struct Buffer<T> {
    frames: IntMap<Lba, Frame<T>>,
    by_age: BTreeMap<u64, Lba>,
    clock: u64,
    capacity: usize,
}

impl<T> Buffer<T> {
    pub fn new(capacity: usize) -> Self {
        Self { frames: IntMap::default(), by_age: BTreeMap::new(), clock: 0, capacity: capacity.max(1) }
    }

    /// The page, which becomes the one used last.
    pub fn get(&mut self, lba: Lba) -> Option<&mut Frame<T>> {
        let frame = self.frames.get_mut(&lba)?;
        self.by_age.remove(&frame.used);
        self.clock += 1;
        frame.used = self.clock;
        self.by_age.insert(self.clock, lba);
        Some(frame)
    }

    /// The page, without using it.
    pub fn peek(&mut self, lba: Lba) -> Option<&mut Frame<T>> {
        self.frames.get_mut(&lba)
    }

    /// The page to take out before another can come in; `None` while there is room.
    pub fn victim(&self) -> Option<Lba> {
        if self.frames.len() < self.capacity { None } else { self.by_age.values().next().copied() }
    }

    /// The page longest unused of those that `is_wanted`.
    pub fn oldest(&self, is_wanted: impl Fn(&T) -> bool) -> Option<Lba> {
        self.by_age.values().copied().find(|lba| self.frames.get(lba).is_some_and(|frame| is_wanted(&frame.state)))
    }

    pub fn insert(&mut self, lba: Lba, data: Box<[u8]>, state: T) {
        self.remove(lba);
        self.clock += 1;
        self.by_age.insert(self.clock, lba);
        self.frames.insert(lba, Frame { data, state, used: self.clock });
    }

    pub fn remove(&mut self, lba: Lba) -> Option<Frame<T>> {
        let frame = self.frames.remove(&lba)?;
        self.by_age.remove(&frame.used);
        Some(frame)
    }

    /// All pages, the one longest unused first.
    pub fn lbas(&self) -> Vec<Lba> {
        self.by_age.values().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_longest_unused_goes_first() {
        let mut buffer = Buffer::new(2);
        buffer.insert(1, Box::default(), ());
        assert_eq!(buffer.victim(), None);
        buffer.insert(2, Box::default(), ());
        assert_eq!(buffer.victim(), Some(1));
        assert!(buffer.get(1).is_some() && buffer.peek(2).is_some());
        assert_eq!(buffer.victim(), Some(2));
        assert!(buffer.remove(2).is_some() && buffer.remove(2).is_none());
        assert_eq!((buffer.victim(), buffer.lbas()), (None, vec![1]));
    }
}
