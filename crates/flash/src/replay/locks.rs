//! Strict two-phase locking with a waits-for graph that is searched at each block (5.1).
//!
//! L1. A client waits for at most one lock.
//! L2. A waiter is in exactly one queue. It waits for every owner and every earlier waiter that it cannot share with.
//!
//! A value without clock or store: it is told of requests and ends, and says who may go on.

use std::collections::VecDeque;

use crate::hash::IntMap;

/// A client of the replay.
pub(super) type ClientNo = u32;

#[derive(Clone, Debug, Default)]
struct Lock {
    owners: Vec<(ClientNo, bool)>,
    queue: VecDeque<(ClientNo, bool)>,
}

/// All locks. Keys are pages, or records in them.
#[derive(Clone, Debug, Default)]
pub(super) struct Locks {
    locks: IntMap<u64, Lock>,
    held: IntMap<ClientNo, Vec<u64>>,
    waiting: IntMap<ClientNo, u64>,
    /// Who waits for the end of another client's transaction, for another reason than a lock.
    behind: IntMap<ClientNo, ClientNo>,
}

impl Locks {
    /// Returns whether the lock is granted. If not, the client waits.
    pub fn request(&mut self, client: ClientNo, key: u64, is_exclusive: bool) -> bool {
        let lock = self.locks.entry(key).or_default();
        let own = lock.owners.iter().position(|(owner, _)| *owner == client);
        if own.is_some_and(|at| lock.owners[at].1 || !is_exclusive) {
            return true;
        }
        let fits = lock.owners.iter().all(|(owner, exclusive)| *owner == client || !(*exclusive || is_exclusive));
        // An upgrade goes ahead of the queue: everybody in it waits for this client anyway.
        if fits && (own.is_some() || lock.queue.is_empty()) {
            self.grant(client, key, is_exclusive);
            return true;
        }
        if own.is_some() {
            lock.queue.push_front((client, is_exclusive));
        } else {
            lock.queue.push_back((client, is_exclusive));
        }
        self.waiting.insert(client, key);
        false
    }

    /// Makes a client wait until another's transaction has ended.
    pub fn wait_for(&mut self, client: ClientNo, other: ClientNo) {
        self.behind.insert(client, other);
    }

    fn grant(&mut self, client: ClientNo, key: u64, is_exclusive: bool) {
        let lock = self.locks.entry(key).or_default();
        match lock.owners.iter_mut().find(|(owner, _)| *owner == client) {
            Some((_, exclusive)) => *exclusive |= is_exclusive,
            None => {
                lock.owners.push((client, is_exclusive));
                self.held.entry(client).or_default().push(key);
            }
        }
    }

    /// Whether `is_wanted` holds for somebody whom a client waits for (L2); it is asked until it does.
    fn any_blocker(&self, client: ClientNo, mut is_wanted: impl FnMut(ClientNo) -> bool) -> bool {
        if let Some(other) = self.behind.get(&client) {
            return is_wanted(*other);
        }
        let Some(lock) = self.waiting.get(&client).and_then(|key| self.locks.get(key)) else { return false };
        let wants = lock.queue.iter().any(|(waiter, exclusive)| *waiter == client && *exclusive);
        let earlier = lock.queue.iter().take_while(|(waiter, _)| *waiter != client);
        let mut others = lock.owners.iter().chain(earlier);
        others.any(|(other, exclusive)| *other != client && (*exclusive || wants) && is_wanted(*other))
    }

    /// A cycle of waiting clients that `client` is part of, or nothing if there is none.
    pub fn find_cycle(&self, client: ClientNo) -> Vec<ClientNo> {
        let mut path = vec![client];
        let mut seen = IntMap::default();
        if self.search(client, client, &mut path, &mut seen) { path } else { Vec::new() }
    }

    fn search(&self, at: ClientNo, goal: ClientNo, path: &mut Vec<ClientNo>, seen: &mut IntMap<ClientNo, ()>) -> bool {
        self.any_blocker(at, |next| {
            if next == goal {
                return true;
            }
            if seen.insert(next, ()).is_some() {
                return false;
            }
            path.push(next);
            if self.search(next, goal, path, seen) {
                return true;
            }
            path.pop();
            false
        })
    }

    /// Takes all locks of a client away, and its place in a queue. Returns who may go on now.
    pub fn release(&mut self, client: ClientNo) -> Vec<ClientNo> {
        let mut keys = self.held.remove(&client).unwrap_or_default();
        if let Some(key) = self.waiting.remove(&client) {
            if let Some(lock) = self.locks.get_mut(&key) {
                lock.queue.retain(|(waiter, _)| *waiter != client);
            }
            keys.push(key);
        }
        self.behind.remove(&client);
        let mut woken: Vec<ClientNo> = self.behind.iter().filter(|(_, o)| **o == client).map(|(c, _)| *c).collect();
        woken.sort_unstable();
        for waiter in &woken {
            self.behind.remove(waiter);
        }
        for key in keys {
            if let Some(lock) = self.locks.get_mut(&key) {
                lock.owners.retain(|(owner, _)| *owner != client);
            }
            self.wake(key, &mut woken);
        }
        woken
    }

    fn wake(&mut self, key: u64, woken: &mut Vec<ClientNo>) {
        while let Some(lock) = self.locks.get_mut(&key) {
            let Some(&(waiter, exclusive)) = lock.queue.front() else {
                if lock.owners.is_empty() {
                    self.locks.remove(&key);
                }
                return;
            };
            if !lock.owners.iter().all(|(owner, other)| *owner == waiter || !(*other || exclusive)) {
                return;
            }
            lock.queue.pop_front();
            self.waiting.remove(&waiter);
            self.grant(waiter, key, exclusive);
            woken.push(waiter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_a_writer_waits_for_all_of_them() {
        let mut locks = Locks::default();
        assert!(locks.request(1, 7, false) && locks.request(2, 7, false));
        assert!(!locks.request(3, 7, true));
        // A later reader does not overtake the writer.
        assert!(!locks.request(4, 7, false));
        assert!(locks.release(1).is_empty());
        assert_eq!(locks.release(2), [3]);
        assert_eq!(locks.release(3), [4]);
        assert!(locks.find_cycle(4).is_empty());
    }

    #[test]
    fn a_deadlock_is_found_by_whoever_closes_it() {
        let mut locks = Locks::default();
        assert!(locks.request(1, 10, true) && locks.request(2, 20, true) && locks.request(3, 30, true));
        assert!(!locks.request(1, 20, false) && locks.find_cycle(1).is_empty());
        assert!(!locks.request(2, 30, true) && locks.find_cycle(2).is_empty());
        assert!(!locks.request(3, 10, true));
        let mut cycle = locks.find_cycle(3);
        cycle.sort_unstable();
        assert_eq!(cycle, [1, 2, 3]);
        assert_eq!(locks.release(2), [1]);
        assert!(locks.find_cycle(3).is_empty());
    }

    #[test]
    fn two_readers_that_both_want_to_write_are_a_deadlock() {
        let mut locks = Locks::default();
        assert!(locks.request(1, 5, false) && locks.request(2, 5, false));
        assert!(!locks.request(1, 5, true) && locks.find_cycle(1).is_empty());
        assert!(!locks.request(2, 5, true));
        assert!(!locks.find_cycle(2).is_empty());
        assert_eq!(locks.release(2), [1]);
        assert!(locks.request(1, 5, true));
    }
}
