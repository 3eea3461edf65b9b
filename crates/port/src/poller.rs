//! What an owner's event loop polls: readable when a sender has something for an owner that said it would poll.
//!
//! Each sender is given an event file of its own to write to. The owner watches all of them through one descriptor
//! that no other process has. So a hostile sender can empty its own event file, fill it, or make it blocking. It
//! cannot keep the others from waking the owner, nor the owner from going on. Only the edges count; nothing is read.
//!
//! What is left to senders is the bell, which they share. One that was silenced is made good by a timer: no event loop
//! waits longer than [`NAP_NS_MAX`] to look again.

use crate::bell::NAP_NS_MAX;
use crate::error::SystemError;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};

/// Edges taken back at a time, and how often at most: what is left makes the descriptor readable once in vain.
const EDGES: usize = 64;
const EDGES_TIMES: usize = 64;

#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    own: OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> Result<Poller, SystemError> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| SystemError::new("epoll_create", error))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|error| SystemError::new("timerfd_create", error))?;
        let poller = Poller { epoll, timer, own: event()? };
        poller.watch(poller.timer.as_fd())?;
        poller.watch(poller.own.as_fd())?;
        Ok(poller)
    }

    /// The descriptor to poll.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Written to, it makes the descriptor readable: for threads of this process.
    pub(crate) fn own(&self) -> &OwnedFd {
        &self.own
    }

    /// An event file for one sender. Its watch has to be ended by [`forget`](Poller::forget): the sender has it too.
    pub(crate) fn add_sender(&self) -> Result<OwnedFd, SystemError> {
        let event = event()?;
        self.watch(event.as_fd())?;
        Ok(event)
    }

    /// Ends the watch of a sender's event file.
    pub(crate) fn forget(&self, event: &OwnedFd) {
        let _ = epoll::delete(&self.epoll, event); // It cannot be missing.
    }

    /// Takes back that there was something.
    pub(crate) fn clear(&self) {
        let mut events = Vec::with_capacity(EDGES);
        for _ in 0..EDGES_TIMES {
            events.clear();
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            let spare = rustix::buffer::spare_capacity(&mut events);
            if !matches!(epoll::wait(&self.epoll, spare, Some(&none)), Ok(EDGES)) {
                return;
            }
        }
    }

    /// Makes the descriptor readable after a while.
    pub(crate) fn set_timer(&self) {
        let it_value = Timespec { tv_sec: 0, tv_nsec: NAP_NS_MAX as i64 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        // Refused only if the numbers make no sense.
        let _ = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }

    fn watch(&self, descriptor: BorrowedFd<'_>) -> Result<(), SystemError> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(0), flags)
            .map_err(|error| SystemError::new("epoll_ctl", error))
    }
}

/// Says that there is something. Full is readable too.
pub(crate) fn signal(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

fn event() -> Result<OwnedFd, SystemError> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| SystemError::new("eventfd", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn is_readable(poller: &Poller, within: i64) -> bool {
        let mut fds = [PollFd::new(&poller.epoll, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: within, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn a_sender_wakes_the_owner_whatever_another_does_to_its_own_end() {
        let poller = Poller::new().unwrap();
        let (honest, hostile) = (poller.add_sender().unwrap(), poller.add_sender().unwrap());
        // Full, and one that waits: a thread that read or wrote it now would wait for ever.
        rustix::io::write(&hostile, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        rustix::io::ioctl_fionbio(&hostile, false).unwrap();
        for round in 0..3 {
            poller.clear();
            assert!(!is_readable(&poller, 0), "{round}");
            signal(&honest);
            assert!(is_readable(&poller, 60), "{round}");
        }
        // Empty, which takes the edge away: the timer makes it good.
        poller.clear();
        let empty = || rustix::io::read(&hostile, &mut [0; 8]).unwrap();
        empty();
        signal(&hostile);
        empty();
        poller.set_timer();
        assert!(is_readable(&poller, 60));
        poller.forget(&hostile);
        poller.clear();
        signal(&hostile);
        assert!(!is_readable(&poller, 0), "a sender that is gone");
    }
}
