//! strategy: what advice to the kernel does to reads (4.2).
//!
//! Cold reads of chunks of 64 KiB and of pages, in order and at random, through a descriptor and through a mapping,
//! with every advice. Warm reads. Reads that change what they read. And how far ahead an application should ask. Before
//! a cold read the file's pages are dropped and counted; if one is left, the value is not taken.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, OFlags, fadvise};
use rustix::mm::Advice as MapAdvice;

use super::files;
use crate::context::{Context, at};
use crate::error::{On, ProbeError};
use crate::experiment::Experiment;
use crate::measure::Batch;
use crate::random::Random;
use crate::report::{Better, Unit};
use crate::sys::aligned::Aligned;
use crate::sys::file;
use crate::sys::map::Map;
use crate::workdir::WorkFile;

pub(crate) struct Strategy;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const CHUNK: usize = 64 * KIB;
const PAGE: usize = 4 * KIB;

/// How a file is read, and what the kernel was told before.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Read(Option<Advice>),
    /// The application asks for what it will read, before it reads.
    WillNeed,
    /// The same by `readahead`.
    ReadAhead,
    Direct,
    Mapped(Option<MapAdvice>),
    MappedWillNeed,
    Populated,
}

const WAYS: [(&str, How); 13] = [
    ("read, no advice", How::Read(None)),
    ("read, NORMAL", How::Read(Some(Advice::Normal))),
    ("read, SEQUENTIAL", How::Read(Some(Advice::Sequential))),
    ("read, RANDOM", How::Read(Some(Advice::Random))),
    ("read, NOREUSE", How::Read(Some(Advice::NoReuse))),
    ("read, asked for ahead (WILLNEED)", How::WillNeed),
    ("read, asked for ahead (readahead)", How::ReadAhead),
    ("direct read", How::Direct),
    ("mapped, no advice", How::Mapped(None)),
    ("mapped, SEQUENTIAL", How::Mapped(Some(MapAdvice::Sequential))),
    ("mapped, RANDOM", How::Mapped(Some(MapAdvice::Random))),
    ("mapped, asked for ahead (WILLNEED)", How::MappedWillNeed),
    ("mapped, all at once (MAP_POPULATE)", How::Populated),
];

impl Experiment for Strategy {
    fn id(&self) -> &'static str {
        "strategy"
    }

    fn title(&self) -> &'static str {
        "what advice to the kernel does to reads"
    }

    fn section(&self) -> &'static str {
        "4.2"
    }

    fn weight(&self) -> u32 {
        24
    }

    fn run(&self, context: &mut Context<'_>) -> Result<(), ProbeError> {
        let size = context.effort().pick(8 * MIB, 32 * MIB, 64 * MIB).min(context.work.left_bytes() as usize / 2);
        context.expect(WAYS.len() * 3 + 4 + 8 + 6);
        let target = files::written(context, "strategy", size as u64)?;
        warm(context, &target, size)?;
        if let Err(error) = files::make_cold(&target.file, size as u64) {
            context.skip("cold reads", error.to_string());
            return changing(context, &target, size);
        }
        cold(context, &target, size)?;
        windows(context, &target, size)?;
        changing(context, &target, size)
    }
}

/// Offsets of all steps of a file, in order or in an order that is always the same.
fn offsets(size: usize, step: usize, is_random: bool) -> Vec<usize> {
    let mut offsets: Vec<usize> = (0..size / step).map(|no| no * step).collect();
    if is_random {
        let mut random = Random::default();
        for at in (1..offsets.len()).rev() {
            offsets.swap(at, random.below(at as u64 + 1) as usize);
        }
    }
    offsets
}

fn cold(context: &mut Context<'_>, target: &WorkFile, size: usize) -> Result<(), ProbeError> {
    for (group, title, step, is_random) in [
        ("sequential", "Cold reads of 64 KiB in order", CHUNK, false),
        ("random", "Cold reads of 64 KiB at random", CHUNK, true),
        ("pages", "Cold reads of 4 KiB at random", PAGE, true),
    ] {
        context.group(group, title, None, Unit::BytesPerSecond, Better::Higher);
        let mut offsets = offsets(size, step, is_random);
        // Pages one by one are slow: a part of them, spread over the file, is enough.
        offsets.truncate(context.effort().pick(256, 1024, 4096));
        let bytes = offsets.len() * step;
        for (name, how) in WAYS {
            context.measure_amount(at(group, name), Batch::One, bytes as f64, |_| {
                read_cold(target, size, how, &offsets, step)
            })?;
        }
        let of = |name| context.median(at(group, name));
        let best = WAYS.iter().filter_map(|(name, _)| Some((*name, of(name)?))).max_by(|a, b| a.1.total_cmp(&b.1));
        let says = match (best, of("read, no advice")) {
            (Some((name, best)), Some(plain)) => format!(
                "The fastest is {name} with {:.0} MiB/s, {:.1} times reading without advice.",
                best / MIB as f64,
                best / plain
            ),
            _ => "Too noisy to say which advice helps.".into(),
        };
        context.say(group, says);
    }
    Ok(())
}

/// Reads the chunks at `offsets` after making the file cold. The time is that of advice and reading.
fn read_cold(target: &WorkFile, size: usize, how: How, offsets: &[usize], step: usize) -> Result<Duration, ProbeError> {
    files::make_cold(&target.file, size as u64)?;
    // Fresh, so that no advice of an earlier run is left on the descriptor.
    let file = files::reopen(target, if how == How::Direct { OFlags::DIRECT } else { OFlags::empty() })?;
    match how {
        How::Read(advice) => {
            if let Some(advice) = advice {
                fadvise(&file, 0, None, advice).on("posix_fadvise")?;
            }
            read_all(&file, offsets, step)
        }
        How::Direct => read_all(&file, offsets, step),
        How::WillNeed => {
            let begin = Instant::now();
            for offset in offsets {
                fadvise(&file, *offset as u64, std::num::NonZeroU64::new(step as u64), Advice::WillNeed)
                    .on("posix_fadvise")?;
            }
            let asked = begin.elapsed();
            Ok(asked + read_all(&file, offsets, step)?)
        }
        How::ReadAhead => {
            let begin = Instant::now();
            for offset in offsets {
                file::read_ahead(&file, *offset as u64, step)?;
            }
            let asked = begin.elapsed();
            Ok(asked + read_all(&file, offsets, step)?)
        }
        How::Mapped(advice) => {
            let map = Map::file(&file, size)?;
            if let Some(advice) = advice {
                map.advise(0, size, advice)?;
            }
            Ok(sum_all(&map, offsets, step))
        }
        How::MappedWillNeed => {
            let map = Map::file(&file, size)?;
            let begin = Instant::now();
            for offset in offsets {
                map.advise(*offset, step, MapAdvice::WillNeed)?;
            }
            let asked = begin.elapsed();
            Ok(asked + sum_all(&map, offsets, step))
        }
        How::Populated => {
            let begin = Instant::now();
            let map = Map::file_populated(&file, size)?;
            let mapped = begin.elapsed();
            Ok(mapped + sum_all(&map, offsets, step))
        }
    }
}

fn read_all(file: &File, offsets: &[usize], step: usize) -> Result<Duration, ProbeError> {
    let mut buffer = Aligned::new(step);
    let begin = Instant::now();
    for offset in offsets {
        file.read_exact_at(&mut buffer, *offset as u64).on("read")?;
        std::hint::black_box(sum(&buffer));
    }
    Ok(begin.elapsed())
}

/// Looks at every word, as the mapped side does: only then are the two the same work.
fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(8).fold(0, |sum, word| sum.wrapping_add(u64::from_ne_bytes(word.try_into().unwrap_or([0; 8]))))
}

fn sum_all(map: &Map, offsets: &[usize], step: usize) -> Duration {
    let begin = Instant::now();
    for offset in offsets {
        std::hint::black_box(map.sum(*offset, step));
    }
    begin.elapsed()
}

fn warm(context: &mut Context<'_>, target: &WorkFile, size: usize) -> Result<(), ProbeError> {
    context.group(
        "warm",
        "Reads of what is in memory already, every word looked at",
        Some(("bytes at a time", Unit::Bytes)),
        Unit::BytesPerSecond,
        Better::Higher,
    );
    for step in [PAGE, CHUNK] {
        let offsets = offsets(size, step, false);
        read_all(&target.file, &offsets, step)?;
        context.measure_amount(at("warm", "read").bytes(step as u64), Batch::Auto, size as f64, |n| {
            (0..n).map(|_| read_all(&target.file, &offsets, step)).sum()
        })?;
        let map = Map::file(&target.file, size)?;
        sum_all(&map, &offsets, step);
        context.measure_amount(at("warm", "mapped").bytes(step as u64), Batch::Auto, size as f64, |n| {
            Ok((0..n).map(|_| sum_all(&map, &offsets, step)).sum())
        })?;
    }
    let of = |name, step: usize| context.median(at("warm", name).bytes(step as u64));
    let says = match (of("read", PAGE), of("mapped", PAGE)) {
        (Some(read), Some(mapped)) => format!(
            "Warm reads of 4 KiB through a mapping are {:.1} times as fast as through read, but nothing can order the mapping's write-back.",
            mapped / read
        ),
        _ => "Too noisy to compare mapping and reading.".into(),
    };
    context.say("warm", says);
    Ok(())
}

/// The application reads at random but knows what comes: how far ahead should it ask?
fn windows(context: &mut Context<'_>, target: &WorkFile, size: usize) -> Result<(), ProbeError> {
    context.group(
        "window",
        "Cold reads of 4 KiB at random, by how many are asked for ahead",
        Some(("reads asked for ahead", Unit::Count)),
        Unit::BytesPerSecond,
        Better::Higher,
    );
    let mut offsets = offsets(size, PAGE, true);
    offsets.truncate(context.effort().pick(256, 1024, 4096));
    let bytes = offsets.len() * PAGE;
    let windows = context.effort().pick(vec![1, 32], vec![1, 4, 16, 64, 256], vec![1, 2, 4, 8, 16, 32, 64, 128, 256]);
    for window in &windows {
        context.measure_amount(at("window", "read, WILLNEED").x(*window as f64), Batch::One, bytes as f64, |_| {
            files::make_cold(&target.file, size as u64)?;
            let file = files::reopen(target, OFlags::empty())?;
            fadvise(&file, 0, None, Advice::Random).on("posix_fadvise")?;
            let mut buffer = Aligned::new(PAGE);
            let begin = Instant::now();
            for (no, offset) in offsets.iter().enumerate() {
                if no % window == 0 {
                    for ahead in &offsets[no..(no + window).min(offsets.len())] {
                        let length = std::num::NonZeroU64::new(PAGE as u64);
                        fadvise(&file, *ahead as u64, length, Advice::WillNeed).on("posix_fadvise")?;
                    }
                }
                file.read_exact_at(&mut buffer, *offset as u64).on("read")?;
                std::hint::black_box(sum(&buffer));
            }
            Ok(begin.elapsed())
        })?;
    }
    let of = |window: usize| context.median(at("window", "read, WILLNEED").x(window as f64));
    let best = windows.iter().filter_map(|w| Some((*w, of(*w)?))).max_by(|a, b| a.1.total_cmp(&b.1));
    let says = match (of(1), best) {
        (Some(one), Some((window, best))) => {
            format!("Asking for {window} pages ahead reads {:.1} times as fast as asking for one.", best / one)
        }
        _ => "Too noisy to say how far ahead to ask.".into(),
    };
    context.say("window", says);
    Ok(())
}

/// Chunks of a 1 MiB file are read, changed and forced out one by one, as in the paper.
fn changing(context: &mut Context<'_>, target: &WorkFile, size: usize) -> Result<(), ProbeError> {
    context.group(
        "change",
        "Reading, changing and forcing out 64 KiB at a time",
        None,
        Unit::BytesPerSecond,
        Better::Higher,
    );
    let bytes = size.min(MIB);
    for is_random in [false, true] {
        let order = if is_random { "at random" } else { "in order" };
        let offsets = offsets(bytes, CHUNK, is_random);
        for (name, flags) in [("read and write", OFlags::empty()), ("direct", OFlags::DIRECT)] {
            let series = format!("{name}, {order}");
            let file = match files::reopen(target, flags) {
                Ok(file) => file,
                Err(error) => {
                    context.skip_at(at("change", &series), &error);
                    continue;
                }
            };
            let mut buffer = Aligned::new(CHUNK);
            context.measure_amount(at("change", &series), Batch::One, bytes as f64, |_| {
                let begin = Instant::now();
                for offset in &offsets {
                    file.read_exact_at(&mut buffer, *offset as u64).on("read")?;
                    buffer.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                    file.write_all_at(&buffer, *offset as u64).on("write")?;
                    file.sync_data().on("fdatasync")?;
                }
                Ok(begin.elapsed())
            })?;
        }
        let series = format!("mapped, {order}");
        let map = Map::file(&target.file, bytes)?;
        context.measure_amount(at("change", &series), Batch::One, bytes as f64, |_| {
            let begin = Instant::now();
            for offset in &offsets {
                map.dirty(*offset, offset + CHUNK, 1);
                map.sync(*offset, CHUNK)?;
            }
            Ok(begin.elapsed())
        })?;
    }
    let of = |name| context.median(at("change", name));
    let says = match (of("read and write, in order"), of("mapped, in order")) {
        (Some(read), Some(mapped)) => format!(
            "When what is read is changed and forced out, mapping is {:.1} times as fast as reading and writing: the device decides.",
            mapped / read
        ),
        _ => "Too noisy to compare mapping and reading with changes.".into(),
    };
    context.say("change", says);
    Ok(())
}
