//! Pages in memory, the one longest unused first to go (LRU, 5.1).
//!
//! L1. The frames form one ring in the order of their use: before the newest comes the oldest.
//! L2. A frame is in the ring exactly if its page is in `places`. The others are in `free`.
//!
//! This file writes nothing: the caller that takes a page out looks after what was changed in it.

use crate::Lba;
use crate::hash::IntMap;

/// A page in memory, with whatever its owner wants to know about it.
#[derive(Clone, Debug)]
pub(crate) struct Frame<T> {
    pub data: Box<[u8]>,
    pub state: T,
}

#[derive(Clone, Debug)]
struct Place<T> {
    lba: Lba,
    older: usize,
    newer: usize,
    /// `None` while the place is free.
    frame: Option<Frame<T>>,
}

/// The pages in memory.
#[derive(Clone, Debug)]
pub(crate) struct Buffer<T> {
    ring: Vec<Place<T>>,
    places: IntMap<Lba, usize>,
    free: Vec<usize>,
    newest: Option<usize>,
    capacity: usize,
}

impl<T> Buffer<T> {
    pub fn new(capacity: usize) -> Self {
        Self { ring: Vec::new(), places: IntMap::default(), free: Vec::new(), newest: None, capacity: capacity.max(1) }
    }

    /// The page, which becomes the one used last.
    pub fn get(&mut self, lba: Lba) -> Option<&mut Frame<T>> {
        let at = *self.places.get(&lba)?;
        if self.newest != Some(at) {
            self.unlink(at);
            self.link_newest(at);
        }
        self.ring[at].frame.as_mut()
    }

    /// The page, without using it.
    pub fn peek(&mut self, lba: Lba) -> Option<&mut Frame<T>> {
        let at = *self.places.get(&lba)?;
        self.ring[at].frame.as_mut()
    }

    /// The page to take out before another can come in; `None` while there is room.
    pub fn victim(&self) -> Option<Lba> {
        if self.places.len() < self.capacity { None } else { self.by_age().next().map(|place| place.lba) }
    }

    /// The page longest unused of those that `is_wanted`.
    pub fn oldest(&self, is_wanted: impl Fn(&T) -> bool) -> Option<Lba> {
        let found = self.by_age().find(|place| place.frame.as_ref().is_some_and(|frame| is_wanted(&frame.state)));
        found.map(|place| place.lba)
    }

    pub fn insert(&mut self, lba: Lba, data: Box<[u8]>, state: T) {
        self.remove(lba);
        let place = Place { lba, older: 0, newer: 0, frame: Some(Frame { data, state }) };
        let at = match self.free.pop() {
            Some(at) => {
                self.ring[at] = place;
                at
            }
            None => {
                self.ring.push(place);
                self.ring.len() - 1
            }
        };
        self.places.insert(lba, at);
        self.link_newest(at);
    }

    pub fn remove(&mut self, lba: Lba) -> Option<Frame<T>> {
        let at = self.places.remove(&lba)?;
        self.unlink(at);
        self.free.push(at);
        self.ring[at].frame.take()
    }

    /// All pages, the one longest unused first.
    pub fn lbas(&self) -> Vec<Lba> {
        self.by_age().map(|place| place.lba).collect()
    }

    fn by_age(&self) -> impl Iterator<Item = &Place<T>> {
        let mut at = self.newest.unwrap_or_default();
        (0..self.places.len()).map(move |_| {
            at = self.ring[at].newer;
            &self.ring[at]
        })
    }

    fn link_newest(&mut self, at: usize) {
        let newest = self.newest.replace(at).unwrap_or(at);
        let oldest = if newest == at { at } else { self.ring[newest].newer };
        (self.ring[at].older, self.ring[at].newer) = (newest, oldest);
        self.ring[newest].newer = at;
        self.ring[oldest].older = at;
    }

    fn unlink(&mut self, at: usize) {
        let Place { older, newer, .. } = self.ring[at];
        self.ring[older].newer = newer;
        self.ring[newer].older = older;
        if self.newest == Some(at) {
            self.newest = (older != at).then_some(older);
        }
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

    #[test]
    fn any_order_of_uses_is_kept() {
        let mut rng = crate::rng::Rng::new(5);
        let (mut buffer, mut model) = (Buffer::new(8), Vec::<Lba>::new());
        for _ in 0..20_000 {
            let lba = rng.below(16) as Lba;
            let known = model.iter().position(|own| *own == lba);
            match (rng.below(3), known) {
                (0, _) => {
                    known.map(|at| model.remove(at));
                    model.push(lba);
                    buffer.insert(lba, Box::default(), lba);
                }
                (1, _) => {
                    let at = known.map(|at| model.remove(at));
                    model.extend(at);
                    assert_eq!(buffer.get(lba).map(|frame| frame.state), at);
                }
                _ => {
                    known.map(|at| model.remove(at));
                    assert_eq!(buffer.remove(lba).map(|frame| frame.state), known.map(|_| lba));
                }
            }
            assert_eq!(buffer.lbas(), model);
            assert_eq!(buffer.victim(), model.first().copied().filter(|_| model.len() >= 8));
        }
    }
}
