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

/// Sleeps while both bells say "asleep", at most `nap`.
pub(crate) fn sleep_on_both(first: &AtomicU32, second: &AtomicU32, nap: Duration) {
    let deadline = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let nanos = deadline.tv_nsec as u64 + u64::from(nap.subsec_nanos());
    let deadline = rustix::time::Timespec {
        tv_sec: deadline.tv_sec + nap.as_secs() as i64 + (nanos / 1_000_000_000) as i64,
        tv_nsec: (nanos % 1_000_000_000) as i64,
    };
    let mut waits = [futex::Wait::new(), futex::Wait::new()];
    for (wait, bell) in waits.iter_mut().zip([first, second]) {
        wait.val = u64::from(ASLEEP);
        wait.uaddr = futex::WaitPtr::new(bell.as_ptr().cast());
        wait.flags = futex::WaitFlags::SIZE_U32;
    }
    let slept = futex::waitv(&waits, futex::WaitvFlags::empty(), Some(&deadline), rustix::thread::ClockId::Monotonic);
    if slept == Err(rustix::io::Errno::NOSYS) {
        // Linux before 5.16 cannot wait for two: sleep on the first, and look at the second every millisecond.
        sleep(first, nap.min(Duration::from_millis(1)));
    }
}

/// Wakes the thread that sleeps on the bell.
pub(crate) fn wake(bell: &AtomicU32) {
    let _ = futex::wake(bell, futex::Flags::empty(), NonZeroU32::MAX.get() >> 1); // Nobody there is no error.
}

fn timespec(duration: Duration) -> rustix::time::Timespec {
    rustix::time::Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}
