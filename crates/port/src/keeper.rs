//! The process's keeper: one thread that sleeps on all connections and reports new connections and lost ones.
//!
//! It never touches a message. Started when the first port or sender is made, it lives as long as the process. A child
//! made by `fork` without `exec` has no keeper, and must not use its parent's ports.

use crate::error::SystemError;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What the keeper watches: it owns its descriptor.
pub(crate) trait Watched: Send + Sync {
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Something can be read, or the other side is gone. Must not wait. `false`: stop watching.
    fn ready(&self) -> bool;
}

/// Watching ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    token: u64,
}

struct Keeper {
    epoll: OwnedFd,
    watched: Mutex<HashMap<u64, Arc<dyn Watched>>>,
    next: AtomicU64,
}

static KEEPER: OnceLock<Option<Keeper>> = OnceLock::new();

/// Watches until the returned value is dropped or [`Watched::ready`] says `false`.
pub(crate) fn watch(watched: Arc<dyn Watched>) -> Result<Watch, SystemError> {
    let keeper = keeper()?;
    let token = keeper.next.fetch_add(1, Ordering::Relaxed); // Only to be unique.
    keeper.lock().insert(token, Arc::clone(&watched));
    let watch = Watch { token };
    epoll::add(&keeper.epoll, watched.descriptor(), epoll::EventData::new_u64(token), epoll::EventFlags::IN)
        .map_err(|error| SystemError::new("epoll_ctl", error))?;
    Ok(watch)
}

impl Watch {
    /// Names the watch, to find it again.
    pub(crate) fn token(&self) -> u64 {
        self.token
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(Some(keeper)) = KEEPER.get() {
            keeper.forget(self.token);
        }
    }
}

fn keeper() -> Result<&'static Keeper, SystemError> {
    KEEPER
        .get_or_init(|| {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).ok()?;
            Some(Keeper { epoll, watched: Mutex::default(), next: AtomicU64::new(0) })
        })
        .as_ref()
        .inspect(|keeper| {
            static STARTED: OnceLock<()> = OnceLock::new();
            STARTED.get_or_init(|| {
                // If there can be no thread, senders are not accepted, and their connecting says so.
                let _ = std::thread::Builder::new().name("port-keeper".into()).spawn(|| keeper.run());
            });
        })
        .ok_or_else(|| SystemError::new("epoll_create", rustix::io::Errno::MFILE))
}

impl Keeper {
    fn run(&self) {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            if epoll::wait(&self.epoll, spare_capacity(&mut events), None).is_err() {
                continue; // A signal.
            }
            for event in &events {
                let token = event.data.u64();
                let watched = self.lock().get(&token).cloned();
                if let Some(watched) = watched
                    && !watched.ready()
                {
                    self.forget(token);
                }
            }
        }
    }

    fn forget(&self, token: u64) {
        let watched = self.lock().remove(&token);
        if let Some(watched) = watched {
            let _ = epoll::delete(&self.epoll, watched.descriptor()); // Else it would wake us until it is closed.
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<dyn Watched>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner) // A map is whole between two calls.
    }
}
