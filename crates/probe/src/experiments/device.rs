//! device: what the device below does, past the kernel's cache.
//!
//! Direct reads and writes by size, one at a time. Random reads and writes by queue depth, through io_uring or, where
//! it is forbidden, by threads. Latency percentiles. And the knee, above which more depth buys only waiting.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::files;
use crate::context::{Context, at, timed};
use crate::error::{On, ProbeError};
use crate::experiment::Experiment;
use crate::measure::{Batch, to_value};
use crate::random::Random;
use crate::report::{Better, Unit, Usage};
use crate::stats::percentile;
use crate::sys::aligned::Aligned;
use crate::sys::ring::{Do, Ring};

pub(crate) struct Device;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const PAGE: u64 = 4 * KIB;
const PERCENTILES: [f64; 6] = [50.0, 90.0, 95.0, 99.0, 99.9, 100.0];
/// From the knee on, more depth wins less than this part of the highest rate.
const KNEE: f64 = 0.9;

impl Experiment for Device {
    fn id(&self) -> &'static str {
        "device"
    }

    fn title(&self) -> &'static str {
        "what the device does, past the kernel's cache"
    }

    fn section(&self) -> &'static str {
        "4.3, 5.5"
    }

    fn weight(&self) -> u32 {
        22
    }

    fn run(&self, context: &mut Context<'_>) -> Result<(), ProbeError> {
        let bytes =
            context.effort().pick(32 * MIB, 128 * MIB, 512 * MIB).min(context.work.left_bytes() / MIB / 2 * MIB);
        let sizes = context.effort().pick(
            vec![4 * KIB, 64 * KIB],
            vec![4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB],
            vec![512, 4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, MIB],
        );
        let depths = context.effort().pick(
            vec![1, 8, 32],
            vec![1, 2, 4, 8, 16, 32, 64, 128],
            vec![1, 2, 4, 8, 16, 32, 64, 128, 256],
        );
        context.expect(sizes.len() * 4 + depths.len() * 2);
        let target = files::written(context, "device", bytes)?;
        let file = match files::reopen(&target, OFlags::DIRECT) {
            Ok(file) => file,
            Err(error) => {
                context.skip("the device", format!("{error}: this file system has no direct I/O"));
                return Ok(());
            }
        };
        by_size(context, &file, bytes, &sizes)?;
        by_depth(context, &file, bytes, &depths)
    }
}

/// Offsets of blocks in no order, always the same.
struct Offsets {
    random: Random,
    blocks: u64,
    step: u64,
}

impl Offsets {
    fn new(bytes: u64, step: u64) -> Offsets {
        Offsets { random: Random::default(), blocks: (bytes / step).max(1), step }
    }

    fn next(&mut self) -> u64 {
        self.random.below(self.blocks) * self.step
    }
}

fn by_size(context: &mut Context<'_>, file: &File, bytes: u64, sizes: &[u64]) -> Result<(), ProbeError> {
    let x = Some(("block size", Unit::Bytes));
    context.group("size", "One direct read or write at a time, by size", x, Unit::Nanoseconds, Better::Lower);
    for (series, is_write, is_random) in [
        ("read, in order", false, false),
        ("read, at random", false, true),
        ("write, in order", true, false),
        ("write, at random", true, true),
    ] {
        for size in sizes {
            let mut buffer = Aligned::noise(*size as usize);
            let mut offsets = Offsets::new(bytes, *size);
            let mut next = 0;
            context.measure(at("size", series).bytes(*size), Batch::One, |_| {
                next = (next + size) % (bytes / size * size);
                let offset = if is_random { offsets.next() } else { next };
                timed(1, || {
                    if is_write {
                        file.write_all_at(&buffer, offset).on("write")
                    } else {
                        file.read_exact_at(&mut buffer, offset).on("read")
                    }
                })
            })?;
        }
    }
    file.sync_data().on("fdatasync")?;
    let of = |size: u64| context.median(at("size", "read, at random").bytes(size));
    let (small, large) = (PAGE, sizes.last().copied().unwrap_or(PAGE));
    let says = match (of(small), of(large)) {
        (Some(a), Some(b)) => format!(
            "A random read of 4 KiB takes {:.0} us, one of {} KiB {:.0} us: {:.1} times the bytes by time.",
            a / 1e3,
            large / KIB,
            b / 1e3,
            (large as f64 / b) / (small as f64 / a)
        ),
        _ => "Too noisy to say how the time grows with the size.".into(),
    };
    context.say("size", says);
    Ok(())
}

fn by_depth(context: &mut Context<'_>, file: &File, bytes: u64, depths: &[u64]) -> Result<(), ProbeError> {
    let x = Some(("queue depth", Unit::Count));
    context.group("depth", "Random direct reads and writes of 4 KiB a second", x, Unit::PerSecond, Better::Higher);
    context.group(
        "latency",
        "How long a random direct read or write of 4 KiB takes",
        Some(("percent of them are at most as long", Unit::Count)),
        Unit::Nanoseconds,
        Better::Lower,
    );
    let ring_error = Ring::new(2, PAGE as usize).err();
    if let Some(error) = &ring_error {
        context.skip("queue depth by io_uring", format!("{error}; measured by threads instead"));
    }
    context.fact(
        "queue depth is made by",
        if ring_error.is_none() { "io_uring" } else { "threads" },
        "how several requests were kept under way",
    );
    let window = Duration::from_millis(context.effort().pick(20, 50, 200));
    for what in [Do::Read, Do::Write] {
        let name = if what == Do::Read { "random read" } else { "random write" };
        for depth in depths {
            let mut latencies: Vec<f64> = Vec::new();
            let mut offsets = Offsets::new(bytes, PAGE);
            let at_depth = at("depth", name).x(*depth as f64);
            let since = context.noise.look();
            if ring_error.is_none() {
                let mut ring = match Ring::new(*depth as usize, PAGE as usize) {
                    Ok(ring) => ring,
                    Err(error) => {
                        context.skip_at(at_depth, &error);
                        continue;
                    }
                };
                context.sample(at_depth, || {
                    by_ring(&mut ring, file, what, *depth as usize, &mut offsets, window, &mut latencies)
                })?;
            } else {
                context.sample(at_depth, || by_threads(file, what, *depth, bytes, window, &mut latencies))?;
            }
            if [1, 32].contains(depth) && !latencies.is_empty() {
                let disturbance = context.noise.disturbance(since);
                latencies.sort_unstable_by(f64::total_cmp);
                let series = format!("{name}, depth {depth}");
                for percent in PERCENTILES {
                    let mut three = [percentile(&latencies, percent); 3];
                    let mut value = to_value(&mut three, disturbance.clone(), Usage::default());
                    value.run_count = latencies.len() as u64;
                    context.record(at("latency", &series).x(percent), value);
                }
            }
        }
    }
    file.sync_data().on("fdatasync")?;
    knee(context, depths);
    Ok(())
}

fn knee(context: &mut Context<'_>, depths: &[u64]) {
    let known: Vec<_> = depths
        .iter()
        .filter_map(|depth| Some((*depth, context.median(at("depth", "random read").x(*depth as f64))?)))
        .collect();
    let most = known.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let knee = known.iter().find(|(_, rate)| *rate >= KNEE * most);
    match (knee, known.first()) {
        (Some((depth, rate)), Some((_, one))) if known.len() == depths.len() => {
            context.fact(
                "the knee of random reads",
                depth.to_string(),
                "the smallest queue depth with nine tenths of the highest rate: more only waits",
            );
            context.say(
                "depth",
                format!(
                    "At queue depth {depth} random reads reach {rate:.0} a second, {:.1} times those one at a time; more depth buys less than a tenth.",
                    rate / one
                ),
            );
        }
        _ => context.say("depth", "Too noisy to say where the knee is."),
    }
    let of = |percent: f64| context.median(at("latency", "random read, depth 1").x(percent));
    let says = match (of(50.0), of(99.0)) {
        (Some(half), Some(most)) => {
            format!("Half of the random reads take at most {:.0} us, 99 % at most {:.0} us.", half / 1e3, most / 1e3)
        }
        _ => "Too noisy to say how latencies are spread.".into(),
    };
    context.say("latency", says);
}

fn by_ring(
    ring: &mut Ring,
    file: &File,
    what: Do,
    depth: usize,
    offsets: &mut Offsets,
    window: Duration,
    latencies: &mut Vec<f64>,
) -> Result<f64, ProbeError> {
    let begin = Instant::now();
    let mut done = 0_u64;
    while begin.elapsed() < window {
        while ring.busy() < depth {
            ring.push(file, what, offsets.next(), PAGE as usize)?;
        }
        ring.submit(1, &mut |ended| {
            done += 1;
            latencies.push(ended.time.as_nanos() as f64);
        })?;
    }
    let rate = done as f64 / begin.elapsed().as_secs_f64();
    ring.drain()?;
    Ok(rate)
}

fn by_threads(
    file: &File,
    what: Do,
    depth: u64,
    bytes: u64,
    window: Duration,
    latencies: &mut Vec<f64>,
) -> Result<f64, ProbeError> {
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let begin = Instant::now();
    let all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..depth)
            .map(|no| {
                let (is_over, done) = (&is_over, &done);
                std::thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, move || {
                    let mut offsets = Offsets::new(bytes, PAGE);
                    offsets.random = Random::of(no);
                    let mut buffer = Aligned::noise(PAGE as usize);
                    let mut mine = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        let offset = offsets.next();
                        let begin = Instant::now();
                        match what {
                            Do::Read => file.read_exact_at(&mut buffer, offset).on("read")?,
                            Do::Write | Do::WriteDurably => file.write_all_at(&buffer, offset).on("write")?,
                        }
                        mine.push(begin.elapsed().as_nanos() as f64);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok::<_, ProbeError>(mine)
                })
            })
            .collect();
        std::thread::sleep(window);
        is_over.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for thread in threads {
            let thread = thread.map_err(|e| ProbeError::system("a thread", e))?;
            all.extend(thread.join().unwrap_or_else(|_| Err(ProbeError::Missing("a reader panicked".into())))?);
        }
        Ok::<_, ProbeError>(all)
    })?;
    latencies.extend(all);
    Ok(done.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64())
}
