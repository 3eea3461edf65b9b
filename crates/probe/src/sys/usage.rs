//! Processor time and context switches of this process and its children, and the address space that it may still take.

/// Since the process began; children count once they were waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
}

/// Threads that have ended included.
pub(crate) fn used() -> Used {
    let mut sum = Used::default();
    for who in [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN] {
        // SAFETY: all bits zero is a valid `rusage`, and the kernel fills it.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &mut usage);
            usage
        };
        sum.user_ns += nanoseconds(usage.ru_utime);
        sum.system_ns += nanoseconds(usage.ru_stime);
        sum.voluntary += usage.ru_nvcsw as u64;
        sum.involuntary += usage.ru_nivcsw as u64;
    }
    sum
}

fn nanoseconds(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000
}

/// Processor time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Clock ticks a second, the unit of `/proc/stat`.
pub(crate) fn ticks_per_second() -> u64 {
    // SAFETY: asks for a constant.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|t| *t > 0).unwrap_or(100)
}

/// Bytes of address space below the limit (`ulimit -v`); `None` without a limit.
pub(crate) fn address_space_left() -> Option<u64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current?;
    let taken_pages: u64 = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').next()?.parse().ok()?;
    Some(limit.saturating_sub(taken_pages * rustix::param::page_size() as u64))
}
