//! Processes on processors, and what they used.

use std::time::Duration;

/// Runs `body` in a child on one processor; the child ends when it returns.
pub fn child(cpu: usize, body: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the parent has one thread here, so the child is a whole copy of it.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        pin(cpu);
        // Whoever ends first, nothing is left behind.
        // SAFETY: plain system call.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok();
        // SAFETY: ends this process without the parent's clean-up.
        unsafe { libc::_exit(if ended { 0 } else { 1 }) };
    }
    pid
}

/// Runs `body` in a process of its own, so that every measurement starts without threads; what it returns as numbers.
pub fn apart(cpu: usize, body: impl FnOnce() -> Vec<f64>) -> Vec<f64> {
    use std::io::{Read, Write};
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    let pid = child(cpu, move || {
        for number in body() {
            writer.write_all(&number.to_le_bytes()).expect("the parent reads");
        }
    });
    // The child has its own end; ours must be closed for the end to be seen, which moving it into the closure did.
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).expect("the child writes");
    wait(pid);
    bytes.as_chunks::<8>().0.iter().map(|number| f64::from_le_bytes(*number)).collect()
}

pub fn wait(pid: libc::pid_t) {
    // SAFETY: waits for a child of ours; the status is not wanted.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

pub fn end(pid: libc::pid_t) {
    // SAFETY: ends a child of ours.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    wait(pid);
}

pub fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu % processors());
    rustix::thread::sched_setaffinity(None, &set).expect("sched_setaffinity");
}

/// All processors there are, whatever this process is pinned to.
pub fn processors() -> usize {
    // SAFETY: no arguments but a number.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize
}

/// User and system time of this process and of the children it has waited for, in microseconds.
pub fn cpu_us() -> (f64, f64) {
    let of = |who| {
        // SAFETY: zeros are a usage, and it is ours to be written.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &mut usage);
            usage
        };
        let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
        (us(usage.ru_utime), us(usage.ru_stime))
    };
    let (own, children) = (of(libc::RUSAGE_SELF), of(libc::RUSAGE_CHILDREN));
    (own.0 + children.0, own.1 + children.1)
}

/// The middle one of some times, in microseconds.
pub fn median(times: &[Duration]) -> f64 {
    middle(times.iter().map(|time| time.as_nanos() as f64 / 1000.0).collect())
}

/// The middle one; of nothing, not a number.
pub fn middle(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The machine, for the head of a report.
pub fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": ?");
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{} processors,{}, Linux {}",
        processors(),
        model.trim_start_matches([' ', '\t', ':']).trim(),
        kernel.trim()
    )
}
