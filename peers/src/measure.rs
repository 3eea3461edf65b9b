//! What is measured beside a rate: percentiles, the processor's time, bytes written, and who else was at work.
//!
//! M1. All of it is taken over the same time. That begins when every thread has worked for a quarter of it: then
//!     memory has been touched and caches are warm.
//! M2. User time of all processors that is not ours is others'. System time is not counted, because kernel threads
//!     write for us. Steal is what the hypervisor gave to other machines.
//! M3. A case that others disturbed is measured again, a bounded number of times; the least disturbed counts.
//! M4. A hypervisor moves virtual processors: now two of them share a cache, now a line goes from one to the other in
//!     six times the time. So before and after each case of several threads it is measured what that takes.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::peer::{Durability, Peer, Worker};

/// Others may use this part of one processor.
pub const FOREIGN_MAX: f64 = 0.10;
/// The hypervisor may take this part of one processor.
pub const STEAL_MAX: f64 = 0.05;

/// A case of several threads is measured again if a line took so many times longer from one processor to another than
/// it does at best.
pub const FAR_MIN: f64 = 2.0;

/// One case of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// What was measured: the row of the table.
    pub case: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// True if more is better.
    pub is_rate: bool,
    /// Percentiles of an operation, in microseconds; none where single operations are not timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub us: Option<Percentiles>,
    /// Processor time of an operation in microseconds, all threads of the process.
    pub cpu_us: f64,
    /// Bytes that were handed to the device for an operation, within the measured time.
    pub written_bytes: f64,
    /// How often an operation was run again.
    pub again: f64,
    /// Processors that others used.
    pub foreign: f64,
    /// Processors that the hypervisor took.
    pub steal: f64,
    /// How often it was measured again because of others.
    pub repeated: u64,
    /// Nanoseconds in which a line went from one processor to another, the longer of before and after; 0 where one
    /// thread works, or there is one processor.
    #[serde(default)]
    pub handover_ns: f64,
    /// True if that was long, for this machine (M4).
    #[serde(default)]
    pub is_far: bool,
}

/// Of one operation, in microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Percentiles {
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
}

impl Figure {
    /// A single figure, taken between two moments, with nothing else known of it.
    pub fn plain(case: impl Into<String>, value: f64, unit: &str, is_rate: bool) -> Figure {
        Figure {
            case: case.into(),
            value,
            unit: unit.to_owned(),
            is_rate,
            us: None,
            cpu_us: 0.0,
            written_bytes: 0.0,
            again: 0.0,
            foreign: 0.0,
            steal: 0.0,
            repeated: 0,
            handover_ns: 0.0,
            is_far: false,
        }
    }

    /// True if others were at work.
    pub fn is_disturbed(&self) -> bool {
        self.foreign > FOREIGN_MAX || self.steal > STEAL_MAX
    }
}

/// The system's counters at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    at: Instant,
    /// User time of all programs, in seconds.
    all_user_s: f64,
    own_user_s: f64,
    /// User and system time of ours.
    own_s: f64,
    steal_s: f64,
    written: u64,
}

/// Ticks of `/proc/stat` in a second, the same on every Linux that a program sees.
const TICKS: f64 = 100.0;

/// User and system time of a process in seconds.
fn times_of(process: &str) -> (f64, f64) {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<&str> = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let at = |no: usize| fields.get(no).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0) / TICKS;
    (at(11), at(12))
}

fn written_by(process: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

impl Moment {
    /// Now. `beside` are further processes that count as ours.
    pub fn now(beside: &[u32]) -> Moment {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let fields: Vec<f64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
        let at = |no: usize| fields.get(no).copied().unwrap_or(0.0) / TICKS;
        let mut own_user_s = times_of("self").0;
        // Exact, where the system's ticks are not: a case with sync may use less than one.
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let mut own_s = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
        let mut written = written_by("self");
        for process in beside {
            let (user, system) = times_of(&process.to_string());
            own_user_s += user;
            own_s += user + system;
            written += written_by(&process.to_string());
        }
        Moment { at: Instant::now(), all_user_s: at(0) + at(1), own_user_s, own_s, steal_s: at(7), written }
    }

    /// Seconds since then.
    pub fn seconds(&self) -> f64 {
        self.at.elapsed().as_secs_f64()
    }

    /// Completes a figure of `count` operations with what happened since then.
    pub fn tell(&self, beside: &[u32], count: u64, figure: &mut Figure) {
        let now = Moment::now(beside);
        let (seconds, count) = ((now.at - self.at).as_secs_f64().max(1e-9), count.max(1) as f64);
        figure.cpu_us = (now.own_s - self.own_s).max(0.0) / count * 1e6;
        figure.written_bytes = now.written.saturating_sub(self.written) as f64 / count;
        let foreign_s = (now.all_user_s - self.all_user_s) - (now.own_user_s - self.own_user_s);
        figure.foreign = foreign_s.max(0.0) / seconds;
        figure.steal = (now.steal_s - self.steal_s).max(0.0) / seconds;
    }

    /// Bytes written since then.
    pub fn written(&self, beside: &[u32]) -> u64 {
        Moment::now(beside).written.saturating_sub(self.written)
    }
}

/// Nanoseconds that a cache line takes from one processor to another and no more (M4); 0 where it cannot be measured.
pub fn handover_ns() -> f64 {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return 0.0;
    }
    // The best of a few: the two threads may begin on one processor, or lose theirs.
    (0..5).map(|_| one_handover_ns()).fold(f64::MAX, f64::min)
}

fn one_handover_ns() -> f64 {
    const ROUNDS: u64 = 5_000;
    const LIMIT: Duration = Duration::from_millis(10);
    // In a line of its own on the stack of this thread, or nearly: nothing else is written meanwhile.
    let (turn, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let began = Instant::now();
    let answer = |own: u64, last: &mut dyn FnMut(u64) -> bool| {
        let mut next = own;
        while next < 2 * ROUNDS && !is_over.load(Relaxed) {
            if turn.load(Acquire) == next {
                turn.store(next + 1, Release);
                next += 2;
                if next % 1024 == own && last(next) {
                    is_over.store(true, Relaxed);
                }
            }
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| answer(1, &mut |_| false));
        answer(0, &mut |_| began.elapsed() > LIMIT);
        // The other one may wait for a turn that never comes.
        is_over.store(true, Relaxed);
    });
    began.elapsed().as_nanos() as f64 / turn.load(Relaxed).max(1) as f64
}

/// One operation: how many it counts for, and how often it was run again.
pub type Done = (u64, u64);
/// What a thread does over and over.
pub type Operation<'a> = Box<dyn FnMut(&mut dyn Worker) -> anyhow::Result<Done> + 'a>;

const EARLY: u8 = 0;
const COUNTED: u8 = 1;
const OVER: u8 = 2;

struct Thread {
    count: u64,
    again_count: u64,
    times: Histogram<u64>,
}

/// Lets threads work for a quarter of `time`, and then for `time`. The figure is operations a second.
///
/// # Errors
/// The first one of a thread.
pub fn crowd<'a>(
    peer: &dyn Peer,
    durability: Durability,
    thread_count: u64,
    time: Duration,
    case: &str,
    make: &'a (dyn Fn(u64) -> Operation<'a> + Sync),
) -> anyhow::Result<Figure> {
    let handover = || if thread_count > 1 { handover_ns() } else { 0.0 };
    let handover_before = handover();
    let phase = AtomicU8::new(EARLY);
    let begin = Barrier::new(thread_count as usize + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..thread_count)
            .map(|no| {
                let (phase, begin) = (&phase, &begin);
                scope.spawn(move || {
                    let worker = peer.worker(durability);
                    begin.wait(); // Also after an error: the others must not wait for ever.
                    let done = worker.and_then(|mut worker| work(&mut *worker, &mut *make(no), phase));
                    if done.is_err() {
                        phase.store(OVER, Relaxed);
                    }
                    done
                })
            })
            .collect();
        begin.wait();
        let wait = |time: Duration| {
            let began = Instant::now();
            while began.elapsed() < time && phase.load(Relaxed) != OVER {
                std::thread::sleep((time - began.elapsed().min(time)).min(Duration::from_millis(20)));
            }
        };
        wait(time / 4);
        let beside = peer.processes();
        let before = Moment::now(&beside);
        let _ = phase.compare_exchange(EARLY, COUNTED, Relaxed, Relaxed);
        wait(time);
        let seconds = before.seconds();
        let mut figure = Figure::plain(case, 0.0, "1/s", true);
        let over = phase.swap(OVER, Relaxed);
        before.tell(&beside, 1, &mut figure);
        let (mut count, mut again_count) = (0, 0);
        let mut times = histogram();
        for thread in threads {
            let done = thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            count += done.count;
            again_count += done.again_count;
            times.add(&done.times)?;
        }
        anyhow::ensure!(over == COUNTED, "a thread ended early without an error");
        figure.handover_ns = handover_before.max(handover());
        figure.value = count as f64 / seconds;
        let each = |sum: f64| sum / count.max(1) as f64;
        (figure.cpu_us, figure.written_bytes) = (each(figure.cpu_us), each(figure.written_bytes));
        figure.again = each(again_count as f64);
        let us = |quantile: f64| times.value_at_quantile(quantile) as f64 / 1e3;
        figure.us = Some(Percentiles { p50: us(0.5), p99: us(0.99), p999: us(0.999) });
        Ok(figure)
    })
}

fn histogram() -> Histogram<u64> {
    // The bounds are constants that the crate accepts.
    Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("1 ns to 60 s with 2 digits is a valid histogram")
}

fn work(
    worker: &mut dyn Worker,
    operation: &mut dyn FnMut(&mut dyn Worker) -> anyhow::Result<Done>,
    phase: &AtomicU8,
) -> anyhow::Result<Thread> {
    let mut thread = Thread { count: 0, again_count: 0, times: histogram() };
    let mut last = Instant::now();
    loop {
        let (count, again_count) = operation(worker)?;
        let now = Instant::now();
        match phase.load(Relaxed) {
            EARLY => {}
            COUNTED => {
                thread.count += count;
                thread.again_count += again_count;
                thread.times.saturating_record((now - last).as_nanos().max(1) as u64);
            }
            _ => return Ok(thread),
        }
        last = now;
    }
}

/// Numbers that look random, the same in every run.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// With this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D)
    }

    /// The next one (splitmix64).
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// From 0 to 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Fills bytes that no compression shortens.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Zipf's distribution over 0 to `count` - 1 as YCSB draws it (Gray and others, 1994), then scattered over the keys.
#[derive(Clone, Debug)]
pub struct Zipf {
    count: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// With the exponent `theta`, below 1.
    pub fn new(count: u64, theta: f64) -> Zipf {
        let zeta_of = |count: u64| (1..=count).map(|no| (no as f64).powf(-theta)).sum::<f64>();
        let zeta = zeta_of(count);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta_of(2) / zeta);
        Zipf { count, theta, alpha: 1.0 / (1.0 - theta), zeta, eta }
    }

    /// A rank: 0 is the most frequent.
    pub fn rank(&self, random: &mut Random) -> u64 {
        let share = random.share();
        let scaled = share * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        let rank = self.count as f64 * (self.eta * share - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count - 1)
    }

    /// A key: the frequent ones are all over the table.
    pub fn key(&self, random: &mut Random) -> u64 {
        Random::new(self.rank(random)).next() % self.count
    }
}

/// A field of `/proc/self/status` in MiB.
pub fn status_mib(process: &str, field: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// Bytes that the files below `dir` take on the device.
pub fn disk_bytes(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => disk_bytes(&entry.path()),
            Ok(data) => data.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_draws_few_keys_often() {
        let (zipf, mut random) = (Zipf::new(1_000_000, 0.99), Random::new(1));
        let ranks: Vec<u64> = (0..100_000).map(|_| zipf.rank(&mut random)).collect();
        let first = ranks.iter().filter(|&&rank| rank == 0).count();
        let hundred = ranks.iter().filter(|&&rank| rank < 100).count();
        // 1 / zeta(1,000,000, 0.99) is 6.5 %; the first hundred have 34 %.
        assert!((5_500..7_500).contains(&first), "{first}");
        assert!((31_000..38_000).contains(&hundred), "{hundred}");
        assert!(ranks.iter().all(|&rank| rank < 1_000_000));
    }

    #[test]
    fn random_numbers_stay_below_their_bound() {
        let mut random = Random::new(7);
        let mut seen = [false; 10];
        (0..1_000).for_each(|_| seen[random.below(10) as usize] = true);
        assert!(seen.iter().all(|&seen| seen));
    }
}
