//! The keys that were waited for last: a lock is named by a hash, and a message about it should name the key.
//!
//! K1. Only a transaction that has to wait writes here, and only errors read. What is not found here any more is a
//!     message without the key.

use ledgerstone_lock::LockName;
use ledgerstone_region::Mutex;

/// Shelves, so that waits for different keys seldom meet, and keys on each.
const SHELF_COUNT: usize = 32;
const KEYS_MAX: usize = 32;

/// Keys by the names of their locks.
#[derive(Default)]
pub(crate) struct WaitedKeys {
    shelves: [Mutex<Shelf>; SHELF_COUNT],
}

#[derive(Default)]
struct Shelf {
    keys: Vec<(LockName, Vec<u8>)>,
    /// The one that goes next.
    oldest: usize,
}

impl WaitedKeys {
    fn shelf(&self, name: LockName) -> &Mutex<Shelf> {
        &self.shelves[(name.item ^ name.space) as usize % SHELF_COUNT]
    }

    /// Remembers that the lock `name` is that of `key`, or of the gap which `key` lies in.
    #[cold]
    pub(crate) fn note(&self, name: LockName, key: &[u8]) {
        let mut shelf = self.shelf(name).lock();
        let Shelf { keys, oldest } = &mut *shelf;
        if keys.iter().any(|(known, _)| *known == name) {
            return;
        }
        if keys.len() < KEYS_MAX {
            keys.push((name, key.to_vec()));
            return;
        }
        let (old, bytes) = &mut keys[*oldest];
        *old = name;
        bytes.clear();
        bytes.extend_from_slice(key);
        *oldest = (*oldest + 1) % KEYS_MAX;
    }

    pub(crate) fn get(&self, name: LockName) -> Option<Vec<u8>> {
        let shelf = self.shelf(name).lock();
        shelf.keys.iter().find(|(known, _)| *known == name).map(|(_, key)| key.clone())
    }
}

#[cfg(test)]
mod tests {
    use ledgerstone_page::TableId;

    use super::*;

    #[test]
    fn the_latest_keys_are_known_and_there_are_never_more() {
        let waited = WaitedKeys::default();
        let name = |n: u64| LockName::key(TableId(7), n);
        for n in 0..10_000_u64 {
            waited.note(name(n), &n.to_be_bytes());
            waited.note(name(n), b"the first one counts");
            assert_eq!(waited.get(name(n)), Some(n.to_be_bytes().to_vec()));
        }
        assert_eq!((0..10_000).filter(|&n| waited.get(name(n)).is_some()).count(), SHELF_COUNT * KEYS_MAX);
        assert_eq!(waited.get(LockName::gap(TableId(7), 9_999)), None);
    }
}
