//! Memory that is mapped at several addresses, or by several processes, and what that means for whoever sleeps on its
//! words.

use std::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Release};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// One of the mappings.
struct View {
    start: usize,
    bytes: usize,
    memory: u64,
}

static VIEWS: RwLock<Vec<View>> = RwLock::new(Vec::new());
/// How many there are: most processes have none, and need not look.
static VIEW_COUNT: AtomicUsize = AtomicUsize::new(0);

fn views() -> RwLockReadGuard<'static, Vec<View>> {
    VIEWS.read().unwrap_or_else(PoisonError::into_inner) // No code can fail inside.
}

fn change(change: impl FnOnce(&mut Vec<View>)) {
    let mut views = VIEWS.write().unwrap_or_else(PoisonError::into_inner);
    change(&mut views);
    VIEW_COUNT.store(views.len(), Release); // Before anybody has the mapping, or after all have given it up.
}

/// `start..start + bytes` is a mapping of `memory`, a number that is not 0. Threads that sleep on one of its words meet
/// those that sleep on the same word of other mappings, of this process or of others.
pub(crate) fn add_view(start: usize, bytes: usize, memory: u64) {
    change(|views| views.push(View { start, bytes, memory }));
}

/// Forgets what [`add_view`] was told.
pub(crate) fn remove_view(start: usize) {
    change(|views| views.retain(|view| view.start != start));
}

/// A word that threads sleep on: an address, or a place in memory that is mapped at several addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct FutexKey {
    memory: u64,
    at: usize,
}

impl FutexKey {
    pub const NONE: FutexKey = FutexKey { memory: 0, at: 0 };

    pub fn of(address: usize) -> FutexKey {
        let alone = FutexKey { memory: 0, at: address };
        if VIEW_COUNT.load(Acquire) == 0 {
            return alone;
        }
        let views = views();
        let view = views.iter().find(|view| (view.start..view.start + view.bytes).contains(&address));
        view.map_or(alone, |view| FutexKey { memory: view.memory, at: address - view.start })
    }

    /// Whether threads of other processes may sleep on the word.
    pub fn is_shared(self) -> bool {
        self.memory != 0
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_shared_while_a_view_has_it() {
        let (start, bytes) = (0x7000_0000_0000, 8192); // Nothing is mapped there, and nothing is read.
        assert!(!FutexKey::of(start).is_shared());
        add_view(start, bytes, 5);
        add_view(start + (1 << 20), bytes, 5);
        assert!(FutexKey::of(start).is_shared() && FutexKey::of(start + bytes - 4).is_shared());
        assert!(!FutexKey::of(start - 4).is_shared() && !FutexKey::of(start + bytes).is_shared());
        assert!(FutexKey::of(start + 64) == FutexKey::of(start + (1 << 20) + 64), "the same word");
        assert!(FutexKey::of(start + 64) != FutexKey::of(start + 68));
        remove_view(start);
        assert!(!FutexKey::of(start).is_shared(), "what lies there next is another thing");
        assert!(FutexKey::of(start + (1 << 20)).is_shared());
        remove_view(start + (1 << 20));
        assert!(!FutexKey::of(start + (1 << 20)).is_shared());
    }
}
