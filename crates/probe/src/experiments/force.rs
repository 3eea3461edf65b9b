//! force: what makes a write durable, and what it costs (8.1).
//!
//! Methods at 4 KiB on a file that was written before. Then by size, by dirty pages elsewhere in the file, by kind of
//! file, and by writers at the same time. What may tear according to the device. And who decides when a mapped page is
//! written.

use std::fs::File;
use std::io::IoSlice;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::ReadWriteFlags;

use super::files::{reopen, written};
use crate::context::{Context, at, timed};
use crate::error::{On, ProbeError};
use crate::experiment::Experiment;
use crate::measure::Batch;
use crate::report::{Better, Unit};
use crate::sys::aligned::Aligned;
use crate::sys::file;
use crate::sys::map::Map;
use crate::sys::ring::{Do, Ring};
use crate::workdir::WorkFile;

pub(crate) struct Force;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// `RWF_ATOMIC`, Linux 6.11: all of the write or nothing, also if power fails.
const RWF_ATOMIC: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x40);

/// A way to make bytes durable, and whether it does.
struct Method {
    name: &'static str,
    flags: OFlags,
    how: How,
    /// In the words of the manuals: what it leaves out.
    lacks: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    Write,
    Fsync,
    Fdatasync,
    Flagged(ReadWriteFlags),
    SyncRange,
    Msync,
    RingLinked,
    RingFlagged,
}

const NONE: OFlags = OFlags::empty();

const METHODS: &[Method] = &[
    Method { name: "write alone", flags: NONE, how: How::Write, lacks: Some("stays in memory") },
    Method {
        name: "write, sync_file_range",
        flags: NONE,
        how: How::SyncRange,
        lacks: Some("neither metadata nor the device's cache is flushed"),
    },
    Method { name: "write, fsync", flags: NONE, how: How::Fsync, lacks: None },
    Method { name: "write, fdatasync", flags: NONE, how: How::Fdatasync, lacks: None },
    Method { name: "O_SYNC", flags: OFlags::SYNC, how: How::Write, lacks: None },
    Method { name: "O_DSYNC", flags: OFlags::DSYNC, how: How::Write, lacks: None },
    Method { name: "RWF_DSYNC", flags: NONE, how: How::Flagged(ReadWriteFlags::DSYNC), lacks: None },
    Method { name: "msync of the page", flags: NONE, how: How::Msync, lacks: None },
    Method {
        name: "O_DIRECT, no sync",
        flags: OFlags::DIRECT,
        how: How::Write,
        lacks: Some("the device's cache is not flushed"),
    },
    Method { name: "O_DIRECT, fdatasync", flags: OFlags::DIRECT, how: How::Fdatasync, lacks: None },
    Method { name: "O_DIRECT, O_DSYNC", flags: OFlags::DIRECT.union(OFlags::DSYNC), how: How::Write, lacks: None },
    Method {
        name: "O_DIRECT, RWF_DSYNC",
        flags: OFlags::DIRECT,
        how: How::Flagged(ReadWriteFlags::DSYNC),
        lacks: None,
    },
    Method {
        name: "O_DIRECT, RWF_DSYNC, RWF_ATOMIC",
        flags: OFlags::DIRECT,
        how: How::Flagged(ReadWriteFlags::DSYNC.union(RWF_ATOMIC)),
        lacks: None,
    },
    Method { name: "io_uring: write, linked fdatasync", flags: NONE, how: How::RingLinked, lacks: None },
    Method { name: "io_uring: O_DIRECT, RWF_DSYNC", flags: OFlags::DIRECT, how: How::RingFlagged, lacks: None },
];

/// The methods that an engine would choose among: shown by size, kind of file and so on.
const MAIN: [&str; 4] = ["write, fdatasync", "RWF_DSYNC", "O_DIRECT, RWF_DSYNC", "O_DIRECT, fdatasync"];

impl Experiment for Force {
    fn id(&self) -> &'static str {
        "force"
    }

    fn title(&self) -> &'static str {
        "what makes a write durable, and what it costs"
    }

    fn section(&self) -> &'static str {
        "8.1"
    }

    fn weight(&self) -> u32 {
        24
    }

    fn run(&self, context: &mut Context<'_>) -> Result<(), ProbeError> {
        let sizes = context.effort().pick(
            vec![4 * KIB, 16 * KIB],
            vec![512, 4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB],
            vec![
                512,
                KIB,
                2 * KIB,
                4 * KIB,
                8 * KIB,
                16 * KIB,
                32 * KIB,
                64 * KIB,
                128 * KIB,
                256 * KIB,
                512 * KIB,
                MIB,
            ],
        );
        let dirty = context.effort().pick(vec![0, 4096], vec![0, 256, 4096], vec![0, 16, 256, 1024, 4096, 8192]);
        let writers = context.effort().pick(vec![1, 4], vec![1, 2, 4, 8, 16], vec![1, 2, 4, 8, 16, 32, 64]);
        context.expect(1 + METHODS.len() + sizes.len() * MAIN.len() + dirty.len() * 5 + 9 + writers.len() * 3);
        by_turns(context)?;
        methods(context)?;
        by_size(context, &sizes)?;
        by_dirty_pages(context, &dirty)?;
        by_kind_of_file(context)?;
        by_writers(context, &writers)?;
        declared(context)?;
        order(context)
    }
}

/// One way to write durably, ready to be used again and again.
struct Writer {
    how: How,
    file: File,
    map: Option<Map>,
    ring: Option<Ring>,
    buffer: Aligned,
}

impl Writer {
    fn new(method: &Method, file: &WorkFile, file_bytes: u64, bytes: u64) -> Result<Writer, ProbeError> {
        let opened = reopen(file, method.flags)?;
        let map = if method.how == How::Msync { Some(Map::file(&opened, file_bytes as usize)?) } else { None };
        let is_ring = matches!(method.how, How::RingLinked | How::RingFlagged);
        let ring = if is_ring { Some(Ring::new(2, bytes as usize)?) } else { None };
        Ok(Writer { how: method.how, file: opened, map, ring, buffer: Aligned::noise(bytes as usize) })
    }

    fn write(&mut self, offset: u64) -> Result<(), ProbeError> {
        let bytes = self.buffer.len();
        // Other bytes each time: a device that knows what it holds could skip the rest.
        self.buffer[0] = self.buffer[0].wrapping_add(1);
        match self.how {
            How::Write => self.plain(offset),
            How::Fsync => self.plain(offset).and_then(|()| rustix::fs::fsync(&self.file).on("fsync")),
            How::Fdatasync => self.plain(offset).and_then(|()| rustix::fs::fdatasync(&self.file).on("fdatasync")),
            How::SyncRange => self.plain(offset).and_then(|()| file::sync_range(&self.file, offset, bytes as u64)),
            How::Flagged(flags) => {
                let count =
                    rustix::io::pwritev2(&self.file, &[IoSlice::new(&self.buffer)], offset, flags).on("pwritev2")?;
                whole(count, bytes)
            }
            How::Msync => {
                let Some(map) = &self.map else { return Ok(()) };
                let offset = offset as usize;
                map.dirty(offset, offset + bytes, PAGE as usize);
                map.sync(offset, bytes)
            }
            How::RingLinked => {
                let Some(ring) = &mut self.ring else { return Ok(()) };
                ring.write_then_sync(&self.file, offset, bytes)
            }
            How::RingFlagged => {
                let Some(ring) = &mut self.ring else { return Ok(()) };
                ring.push(&self.file, Do::WriteDurably, offset, bytes)?;
                ring.submit(1, &mut |_| {})
            }
        }
    }

    fn plain(&self, offset: u64) -> Result<(), ProbeError> {
        self.file.write_all_at(&self.buffer, offset).on("write")
    }
}

fn whole(count: usize, wanted: usize) -> Result<(), ProbeError> {
    if count == wanted { Ok(()) } else { Err(ProbeError::Missing(format!("a short write: {count} of {wanted} bytes"))) }
}

fn methods(context: &mut Context<'_>) -> Result<(), ProbeError> {
    let bytes = 16 * MIB;
    context.group(
        "method",
        "A durable write of 4 KiB, overwriting",
        Some(("bytes written", Unit::Bytes)),
        Unit::Nanoseconds,
        Better::Lower,
    );
    let target = written(context, "method", bytes)?;
    for method in METHODS {
        let at = at("method", method.name).bytes(PAGE);
        let mut writer = match Writer::new(method, &target, bytes, PAGE) {
            Ok(writer) => writer,
            Err(error) => {
                context.skip_at(at, &error);
                continue;
            }
        };
        let mut offset = 0;
        context.measure(at, Batch::One, |_| {
            offset = (offset + 7 * PAGE) % bytes;
            timed(1, || writer.write(offset))
        })?;
        // What stayed in memory does not burden the next method.
        rustix::fs::fdatasync(&target.file).on("fdatasync")?;
        if context.value(at).is_some() {
            context.fact(
                &format!("durable: {}", method.name),
                method.lacks.map_or("yes", |_| "no"),
                method.lacks.unwrap_or("on return the bytes survive the loss of power, if the device keeps its word"),
            );
        }
    }
    let best = METHODS
        .iter()
        .filter(|m| m.lacks.is_none())
        .filter_map(|m| Some((m.name, context.median(at("method", m.name).bytes(PAGE))?)))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    let fsync = context.median(at("method", "write, fsync").bytes(PAGE));
    let says = match (best, fsync) {
        (Some((name, ns)), Some(fsync)) => format!(
            "The cheapest durable write of 4 KiB is {name}: {:.0} us, {:.1} times as fast as write and fsync.",
            ns / 1e3,
            fsync / ns
        ),
        (Some((name, ns)), None) => format!("The cheapest durable write of 4 KiB is {name}: {:.0} us.", ns / 1e3),
        (None, _) => "Too noisy to say which durable write is the cheapest.".into(),
    };
    context.say("method", says);
    Ok(())
}

/// The ways that the advice chooses among, by turns in one loop: what slows the machine for a while slows all of them.
fn by_turns(context: &mut Context<'_>) -> Result<(), ProbeError> {
    let title = "Ways to write durably, taken by turns in one loop";
    context.group("turns", title, None, Unit::Nanoseconds, Better::Lower);
    let bytes = 16 * MIB;
    let (through, past) = (written(context, "buffered", bytes)?, written(context, "direct", bytes)?);
    let writer = |name: &str, block: u64| {
        let method = method(name);
        let file = if method.flags.contains(OFlags::DIRECT) { &past } else { &through };
        Writer::new(method, file, bytes, block)
    };
    let mut ways = Vec::new();
    for (name, by, block) in [
        ("buffered, RWF_DSYNC", "RWF_DSYNC", PAGE),
        ("buffered, fdatasync", "write, fdatasync", PAGE),
        ("direct, RWF_DSYNC", "O_DIRECT, RWF_DSYNC", PAGE),
        ("direct, fdatasync", "O_DIRECT, fdatasync", PAGE),
        ("direct, RWF_DSYNC, 512 bytes", "O_DIRECT, RWF_DSYNC", 512),
        ("buffered, RWF_DSYNC, 512 bytes", "RWF_DSYNC", 512),
    ] {
        let has_direct = ways.iter().any(|(name, _)| *name == "direct, RWF_DSYNC");
        if has_direct && name == "buffered, RWF_DSYNC, 512 bytes" {
            continue; // Where it may be direct, nobody would choose this.
        }
        // One that is refused here, as a direct write below the device's block is, does not cost the others.
        match writer(by, block).and_then(|mut writer| writer.write(0).map(|()| writer)) {
            Ok(writer) => ways.push((name, writer)),
            Err(error) => context.skip_at(at("turns", name), &error),
        }
    }
    let mut offset = 0;
    let names: Vec<_> = ways.iter().map(|(name, _)| *name).collect();
    let ats: Vec<_> = names.iter().map(|name| at("turns", name)).collect();
    context.sample_all(&ats, |times| {
        offset = (offset + 7 * PAGE) % bytes;
        for (_, writer) in &mut ways {
            times.push(timed(1, || writer.write(offset))?.as_nanos() as f64);
        }
        Ok(())
    })?;
    let known = names.iter().filter_map(|name| Some((name, context.median(at("turns", name))?)));
    let says = known
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .map_or("Too noisy to say which way is the fastest.".into(), |(name, ns)| {
            format!("By turns, in the same loop, {name} is the fastest: {:.0} us.", ns / 1e3)
        });
    context.say("turns", says);
    context.fact(
        "processors that may be used",
        context.places.count().to_string(),
        "as many can redo a log at the same time, or write durably beside each other",
    );
    Ok(())
}

fn method(name: &str) -> &'static Method {
    METHODS.iter().find(|m| m.name == name).unwrap_or(&METHODS[0])
}

fn by_size(context: &mut Context<'_>, sizes: &[u64]) -> Result<(), ProbeError> {
    let bytes = 32 * MIB;
    context.group(
        "size",
        "A durable overwrite by size",
        Some(("bytes written", Unit::Bytes)),
        Unit::Nanoseconds,
        Better::Lower,
    );
    let target = written(context, "size", bytes)?;
    for name in MAIN {
        for size in sizes {
            let at = at("size", name).bytes(*size);
            let mut writer = match Writer::new(method(name), &target, bytes, *size) {
                Ok(writer) => writer,
                Err(error) => {
                    context.skip_at(at, &error);
                    continue;
                }
            };
            let mut offset = 0;
            context.measure(at, Batch::One, |_| {
                offset = (offset + size * 3) % (bytes - size) / size * size;
                timed(1, || writer.write(offset))
            })?;
        }
    }
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else { return Ok(()) };
    let pair =
        |name| Some((context.median(at("size", name).bytes(*first))?, context.median(at("size", name).bytes(*last))?));
    let says = MAIN.iter().find_map(|name| Some((name, pair(name)?))).map_or(
        "Too noisy to say how the cost grows with the size.".into(),
        |(name, (small, large))| {
            format!("{} times the bytes take {:.1} times as long with {name}.", last / first, large / small)
        },
    );
    context.say("size", says);
    Ok(())
}

fn by_dirty_pages(context: &mut Context<'_>, counts: &[u64]) -> Result<(), ProbeError> {
    let most = counts.iter().max().copied().unwrap_or(0);
    let bytes = (most + 1024) * PAGE;
    context.group(
        "dirty",
        "One page forced out while others of the file are dirty",
        Some(("dirty pages elsewhere", Unit::Count)),
        Unit::Nanoseconds,
        Better::Lower,
    );
    let target = written(context, "dirty", bytes)?;
    let block = Aligned::noise(PAGE as usize);
    for name in ["write, fsync", "write, fdatasync", "RWF_DSYNC", "msync of the page", "O_DIRECT, RWF_DSYNC"] {
        for count in counts {
            let at = at("dirty", name).x(*count as f64);
            let mut writer = match Writer::new(method(name), &target, bytes, PAGE) {
                Ok(writer) => writer,
                Err(error) => {
                    context.skip_at(at, &error);
                    continue;
                }
            };
            let mut page = 0;
            context.measure(at, Batch::One, |_| {
                for other in 0..*count {
                    target.file.write_all_at(&block, (1024 + other) * PAGE).on("write")?;
                }
                page = (page + 7) % 1024;
                timed(1, || writer.write(page * PAGE))
            })?;
            target.file.sync_data().on("fdatasync")?;
        }
    }
    let of = |name, count: u64| context.median(at("dirty", name).x(count as f64));
    let says = match (of("write, fdatasync", most), of("RWF_DSYNC", most)) {
        (Some(all), Some(one)) => format!(
            "With {most} dirty pages elsewhere fdatasync takes {:.0} us and RWF_DSYNC, which forces out only what it wrote, {:.0} us.",
            all / 1e3,
            one / 1e3
        ),
        _ => "Too noisy to say whether one page can be forced out alone.".into(),
    };
    context.say("dirty", says);
    Ok(())
}

fn by_kind_of_file(context: &mut Context<'_>) -> Result<(), ProbeError> {
    let bytes = 64 * MIB;
    context.group("kind", "A durable append of 4 KiB by kind of file", None, Unit::Nanoseconds, Better::Lower);
    for (kind, prepare) in [("growing", 0), ("preallocated", 1), ("recycled", 2)] {
        for name in ["write, fdatasync", "RWF_DSYNC", "O_DIRECT, RWF_DSYNC"] {
            let target = if prepare == 2 { written(context, "kind", bytes)? } else { context.file("kind", bytes)? };
            let series = format!("{kind}: {name}");
            let at = at("kind", &series);
            if prepare == 1
                && let Err(error) = fallocate(&target.file, FallocateFlags::empty(), 0, bytes).on("fallocate")
            {
                context.skip_at(at, &error);
                continue;
            }
            target.file.sync_all().on("fsync")?;
            let mut writer = match Writer::new(method(name), &target, bytes, PAGE) {
                Ok(writer) => writer,
                Err(error) => {
                    context.skip_at(at, &error);
                    continue;
                }
            };
            let mut offset = 0;
            context.measure(at, Batch::One, |_| {
                if offset + PAGE > bytes {
                    start_over(&target, prepare == 1, prepare == 2, bytes)?;
                    offset = 0;
                }
                let time = timed(1, || writer.write(offset))?;
                offset += PAGE;
                Ok(time)
            })?;
        }
    }
    let of = |kind: &str| context.median(at("kind", &format!("{kind}: O_DIRECT, RWF_DSYNC")));
    let says = match (of("growing"), of("preallocated"), of("recycled")) {
        (Some(growing), Some(preallocated), Some(recycled)) => format!(
            "A durable direct append takes {:.0} us to a growing file, {:.0} us to a preallocated and {:.0} us to a recycled one.",
            growing / 1e3,
            preallocated / 1e3,
            recycled / 1e3
        ),
        _ => "Too noisy to say what preallocation buys.".into(),
    };
    context.say("kind", says);
    Ok(())
}

/// Makes a file that appends have filled what it was before them.
fn start_over(target: &WorkFile, is_preallocated: bool, is_recycled: bool, bytes: u64) -> Result<(), ProbeError> {
    if is_recycled {
        return Ok(());
    }
    rustix::fs::ftruncate(&target.file, 0).on("ftruncate")?;
    if is_preallocated {
        fallocate(&target.file, FallocateFlags::empty(), 0, bytes).on("fallocate")?;
    }
    target.file.sync_all().on("fsync")
}

/// Several threads, each writing durably to its own part of one file; and one thread with as many requests under way.
fn by_writers(context: &mut Context<'_>, counts: &[u64]) -> Result<(), ProbeError> {
    let most = counts.iter().max().copied().unwrap_or(1);
    let part = 64 * PAGE;
    context.group(
        "writers",
        "Durable writes of 4 KiB a second by writers at the same time",
        Some(("writers or queue depth", Unit::Count)),
        Unit::PerSecond,
        Better::Higher,
    );
    let target = written(context, "writers", most * part)?;
    let window = context.effort().pick(25, 60, 200);
    for (name, flags, flagged) in [
        ("threads: write, fdatasync", NONE, None),
        ("threads: O_DIRECT, RWF_DSYNC", OFlags::DIRECT, Some(ReadWriteFlags::DSYNC)),
    ] {
        for count in counts {
            let at = at("writers", name).x(*count as f64);
            context.measure(at, Batch::One, |_| {
                let done = run_writers(&target, *count, part, flags, flagged, Duration::from_millis(window))?;
                // As if one write took its part of the window, whatever their number.
                Ok(Duration::from_nanos(window * 1_000_000 / done.max(1)))
            })?;
        }
    }
    let direct = reopen(&target, OFlags::DIRECT);
    for count in counts {
        let at = at("writers", "io_uring: O_DIRECT, RWF_DSYNC").x(*count as f64);
        let ring = direct.as_ref().map_err(|e| ProbeError::Missing(e.to_string()));
        let ring = ring.and_then(|file| Ok((file, Ring::new(*count as usize, PAGE as usize)?)));
        let (file, mut ring) = match ring {
            Ok(both) => both,
            Err(error) => {
                context.skip_at(at, &error);
                continue;
            }
        };
        let blocks = most * 64;
        let mut block = 0;
        context.measure(at, Batch::One, |_| {
            let begin = Instant::now();
            let mut done = 0;
            while begin.elapsed() < Duration::from_millis(window) {
                while ring.busy() < *count as usize {
                    block = (block + 7) % blocks;
                    ring.push(file, Do::WriteDurably, block * PAGE, PAGE as usize)?;
                }
                ring.submit(1, &mut |_| done += 1)?;
            }
            let time = begin.elapsed();
            ring.drain()?;
            Ok(time / done.max(1))
        })?;
    }
    let of = |name, count: u64| context.median(at("writers", name).x(count as f64));
    let name = "threads: O_DIRECT, RWF_DSYNC";
    let says = match (of(name, 1), of(name, most)) {
        (Some(one), Some(all)) => format!(
            "{most} writers at the same time make {:.1} times as many durable writes a second as one ({all:.0} against {one:.0}).",
            all / one
        ),
        _ => "Too noisy to say what writers at the same time gain.".into(),
    };
    context.say("writers", says);
    Ok(())
}

fn run_writers(
    target: &WorkFile,
    count: u64,
    part: u64,
    flags: OFlags,
    flagged: Option<ReadWriteFlags>,
    window: Duration,
) -> Result<u64, ProbeError> {
    let is_over = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    let failed = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for no in 0..count {
            let (is_over, done) = (&is_over, &done);
            let writer = std::thread::Builder::new().spawn_scoped(scope, move || -> Result<(), ProbeError> {
                let file = reopen(target, flags)?;
                let block = Aligned::noise(PAGE as usize);
                let mut page = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let offset = no * part + page % 64 * PAGE;
                    match flagged {
                        Some(flags) => {
                            rustix::io::pwritev2(&file, &[IoSlice::new(&block)], offset, flags).on("pwritev2")?;
                        }
                        None => {
                            file.write_all_at(&block, offset).on("write")?;
                            rustix::fs::fdatasync(&file).on("fdatasync")?;
                        }
                    }
                    page += 1;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
            threads.push(writer);
        }
        std::thread::sleep(window);
        let counted = done.load(Ordering::Relaxed);
        is_over.store(true, Ordering::Relaxed);
        let mut result = Ok(counted);
        for thread in threads {
            let ended = thread.map_err(|e| ProbeError::system("a thread", e)).and_then(|thread| {
                thread.join().unwrap_or_else(|_| Err(ProbeError::Missing("a writer panicked".into())))
            });
            result = ended.and(result);
        }
        result
    })?;
    Ok(failed)
}

/// What device and file system declare of tearing and of caches.
fn declared(context: &mut Context<'_>) -> Result<(), ProbeError> {
    let target = context.file("declared", MIB)?;
    target.file.write_all_at(&[0; 4096], 0).on("write")?;
    let said = file::declared(&target.file);
    let machine = crate::machine::Machine::look(context.work.path(), context.places.count());
    let queue = |name: &str| machine.device.as_ref().and_then(|d| d.number(name));
    let (logical, physical) = (queue("logical_block_size"), queue("physical_block_size"));
    for size in [4 * KIB, 8 * KIB, 16 * KIB] {
        let atomic = u64::from(said.atomic_bytes_max) >= size && u64::from(said.atomic_bytes_min) <= size;
        let by_sector = physical.is_some_and(|physical| physical >= size);
        let (value, means) = if atomic {
            ("whole or not at all", "file system and device promise it for writes with RWF_ATOMIC")
        } else if by_sector {
            ("likely whole", "the device's physical block is as large; the file system promises nothing")
        } else {
            (
                "may tear",
                "nothing promises that all of it or nothing survives the loss of power: keep a copy elsewhere first",
            )
        };
        context.fact(&format!("a write of {} KiB", size / KIB), value, means);
    }
    let number = |n: Option<u64>| n.map_or("unknown".into(), |n| format!("{n} bytes"));
    context.fact(
        "blocks of the device",
        format!("logical {}, physical {}", number(logical), number(physical)),
        "the smallest direct write, and the smallest that the device does without reading first",
    );
    let cache = machine.device.as_ref().and_then(|d| d.queue.get("write_cache").cloned());
    let means = match cache.as_deref() {
        Some("write back") => "the device has a volatile cache: a durable write waits for its flush",
        Some("write through") => "the device has no volatile cache, or declares none: what it took is durable",
        _ => "there is no device to ask",
    };
    context.fact("write cache of the device", cache.unwrap_or_else(|| "unknown".into()), means);
    if machine.is_memory_only() {
        context.fact(
            "this file system",
            machine.mount.kind.clone(),
            "is memory: nothing here survives the loss of power",
        );
    }
    Ok(())
}

/// K21: can the kernel write a page that the application would hold back? Two pages of a mapping are dirtied and locked
/// in memory; somebody else syncs the file system.
fn order(context: &mut Context<'_>) -> Result<(), ProbeError> {
    let target = written(context, "order", 16 * PAGE)?;
    let map = Map::file(&target.file, 16 * PAGE as usize)?;
    let is_locked = map.lock(0, PAGE as usize).is_ok();
    map.dirty(0, PAGE as usize, PAGE as usize);
    let before = match file::cached(&target.file, 0, PAGE) {
        Ok(before) => before,
        Err(error) => {
            context.skip("the order of write-back of a mapping", format!("{error} (Linux 6.5 has it)"));
            return Ok(());
        }
    };
    if before.dirty == 0 {
        context.skip("the order of write-back of a mapping", "this file system does not count dirty pages");
        return Ok(());
    }
    rustix::fs::syncfs(&target.file).on("syncfs")?;
    let after = file::cached(&target.file, 0, PAGE)?;
    let locked = if is_locked { "locked in memory" } else { "not locked: no permission" };
    let value = if after.dirty == 0 { "written without being asked" } else { "held back" };
    context.fact(
        "a dirty page of a mapping",
        value,
        format!("a page ({locked}) that its application did not sync, after a sync of the file system by anybody"),
    );
    let setting = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/vm/{name}")).unwrap_or_default();
        text.trim().parse::<u64>().map_or("unknown".into(), |hundredths| format!("{} s", hundredths as f64 / 100.0))
    };
    context.fact(
        "the kernel's own write-back",
        format!(
            "every {}, pages older than {}",
            setting("dirty_writeback_centisecs"),
            setting("dirty_expire_centisecs")
        ),
        "after this time it writes dirty pages, of mappings too, whatever a log would want first",
    );
    Ok(())
}
