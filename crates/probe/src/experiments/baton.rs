//! Two sides that take turns: the hand-over itself is what several experiments measure.
//!
//! Every baton lives in memory or descriptors that a thread of this process or a forked child can use alike, and
//! neither side allocates.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::futex;

use crate::error::{On, ProbeError};
use crate::sys::map::Map;

/// How a side is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Futex,
    EventFd,
    Pipe,
    Condvar,
    Spin,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Futex => "futex",
            Kind::EventFd => "eventfd",
            Kind::Pipe => "pipe",
            Kind::Condvar => "condition variable",
            Kind::Spin => "spinning",
        }
    }
}

/// The two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    Theirs,
}

/// What is handed over. A word for each side in a shared mapping, far apart; descriptors where the kind has them.
pub(crate) struct Baton {
    kind: Kind,
    words: Map,
    fds: Vec<OwnedFd>,
    turn: Mutex<Option<Side>>,
    changed: Condvar,
}

/// Bytes between the words, so that they are on different cache lines, also where lines are fetched in pairs.
const APART: usize = 256;
/// The word that ends the partner.
const END: usize = 2 * APART;

impl Baton {
    pub(crate) fn new(kind: Kind) -> Result<Baton, ProbeError> {
        let mut fds = Vec::new();
        match kind {
            Kind::EventFd => {
                for _ in 0..2 {
                    fds.push(eventfd(0, EventfdFlags::CLOEXEC).on("eventfd")?);
                }
            }
            Kind::Pipe => {
                for _ in 0..2 {
                    let (read, write) = rustix::pipe::pipe().on("pipe")?;
                    fds.extend([read, write]);
                }
            }
            Kind::Futex | Kind::Condvar | Kind::Spin => {}
        }
        Ok(Baton { kind, words: Map::anonymous(4096)?, fds, turn: Mutex::new(None), changed: Condvar::new() })
    }

    /// Gives the turn to a side.
    #[inline]
    pub(crate) fn pass(&self, to: Side) {
        let no = usize::from(to == Side::Theirs);
        match self.kind {
            Kind::Futex => {
                let word = self.words.word(no * APART);
                word.store(1, Ordering::Release);
                let _ = futex::wake(word, futex::Flags::empty(), 1); // Cannot fail: the word is mapped.
            }
            Kind::Spin => self.words.word(no * APART).store(1, Ordering::Release),
            Kind::EventFd => {
                let _ = rustix::io::write(&self.fds[no], &1_u64.to_ne_bytes());
            }
            Kind::Pipe => {
                let _ = rustix::io::write(&self.fds[no * 2 + 1], &[1]);
            }
            Kind::Condvar => {
                *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(to);
                self.changed.notify_all();
            }
        }
    }

    /// Waits for the turn of a side.
    #[inline]
    pub(crate) fn take(&self, side: Side) {
        let no = usize::from(side == Side::Theirs);
        match self.kind {
            Kind::Futex => {
                let word = self.words.word(no * APART);
                while word.swap(0, Ordering::Acquire) == 0 {
                    let _ = futex::wait(word, futex::Flags::empty(), 0, None); // Woken, or it was 1 already.
                }
            }
            Kind::Spin => {
                let word = self.words.word(no * APART);
                while word.load(Ordering::Acquire) == 0 {
                    std::hint::spin_loop();
                }
                word.store(0, Ordering::Relaxed); // Ours until we pass on.
            }
            Kind::EventFd => {
                let _ = rustix::io::read(&self.fds[no], &mut [0_u8; 8]);
            }
            Kind::Pipe => {
                let _ = rustix::io::read(&self.fds[no * 2], &mut [0_u8; 1]);
            }
            Kind::Condvar => {
                let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
                while *turn != Some(side) {
                    turn = self.changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
                }
                *turn = None;
            }
        }
    }

    /// The partner's whole life: takes, does `work`, passes back, until [`Baton::end`].
    pub(crate) fn partner(&self, mut work: impl FnMut()) {
        loop {
            self.take(Side::Theirs);
            if self.words.word(END).load(Ordering::Relaxed) != 0 {
                return; // Told by the same baton, so it is seen.
            }
            work();
            self.pass(Side::Ours);
        }
    }

    /// Ends the partner.
    pub(crate) fn end(&self) {
        self.words.word(END).store(1, Ordering::Relaxed);
        self.pass(Side::Theirs);
    }

    /// There and back.
    #[inline]
    pub(crate) fn round(&self) {
        self.pass(Side::Theirs);
        self.take(Side::Ours);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_baton_goes_there_and_back() {
        for kind in [Kind::Futex, Kind::EventFd, Kind::Pipe, Kind::Condvar, Kind::Spin] {
            let baton = Baton::new(kind).expect("a baton");
            let mut turns = 0;
            std::thread::scope(|scope| {
                scope.spawn(|| baton.partner(|| turns += 1));
                (0..20).for_each(|_| baton.round());
                baton.end();
            });
            assert_eq!(turns, 20, "{}", kind.name());
        }
    }
}
