//! Sleeping on bells and waking their sleepers: the only place of this crate that calls the futex.

use crate::bell::ASLEEP;
use rustix::thread::futex;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while the bell says "asleep", at most `nap`.
pub(crate) fn sleep(bell: &AtomicU32, nap: Duration) {
    let timeout = timespec(nap);
    // Whatever ends it (a waking, a signal, the time, a bell that was rung before), the caller looks again.
    let _ = futex::wait(bell, futex::Flags::empty(), ASLEEP, Some(&timeout));
}

/// Wakes who sleeps on the bell.
pub(crate) fn wake(bell: &AtomicU32) {
    let _ = futex::wake(bell, futex::Flags::empty(), NonZeroU32::MAX.get() >> 1); // Nobody there is no error.
}

fn timespec(duration: Duration) -> rustix::time::Timespec {
    rustix::time::Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}
