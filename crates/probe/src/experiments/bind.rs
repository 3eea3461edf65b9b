//! bind: what it costs to get at a file's bytes, step by step (4.1).
//!
//! A mapping is opened, mapped, touched, touched again, flushed and unmapped. Then the same bytes are read, changed
//! and made durable through every kind of file input and output. Only the totals are compared, because the write-back
//! of each moves the cost to another step, as the paper found.

use std::fs::File;
use std::io::IoSlice;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use rustix::fs::OFlags;
use rustix::io::{ReadWriteFlags, pwritev2};

use super::files;
use crate::context::Context;
use crate::context::at;
use crate::error::{On, ProbeError};
use crate::experiment::Experiment;
use crate::measure::Batch;
use crate::report::{Better, Unit};
use crate::sys::aligned::Aligned;
use crate::sys::map::Map;
use crate::sys::ring::{Do, Ring};
use crate::workdir::WorkFile;

pub(crate) struct Bind;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// What unmapped input and output moves at a time, as in the paper.
const CHUNK: usize = 64 * KIB;
const PAGE: usize = 4096;

/// How a file's bytes are read, changed and made durable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Mapped,
    ReadWrite,
    Durable,
    Direct,
    Vectored,
    Ring,
}

const WAYS: [(&str, Way); 6] = [
    ("mapped, msync", Way::Mapped),
    ("read, write, fdatasync", Way::ReadWrite),
    ("read, write with RWF_DSYNC", Way::Durable),
    ("direct read, write, fdatasync", Way::Direct),
    ("vectored read, write, fdatasync", Way::Vectored),
    ("io_uring read, write, fdatasync", Way::Ring),
];

const STEPS: [&str; 7] = ["open", "map", "first touch", "second touch", "flush", "unmap", "close"];

impl Experiment for Bind {
    fn id(&self) -> &'static str {
        "bind"
    }

    fn title(&self) -> &'static str {
        "what it costs to get at a file's bytes, mapped or not"
    }

    fn section(&self) -> &'static str {
        "4.1"
    }

    fn weight(&self) -> u32 {
        22
    }

    fn run(&self, context: &mut Context<'_>) -> Result<(), ProbeError> {
        let sizes = context.effort().pick(
            vec![64 * KIB, MIB, 16 * MIB],
            vec![64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB],
            vec![64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB],
        );
        let left = context.work.left_bytes() as usize;
        let (sizes, too_large): (Vec<_>, Vec<_>) = sizes.into_iter().partition(|size| *size <= left);
        if !too_large.is_empty() {
            context.skip("the largest files", format!("the run may use {left} bytes of disk"));
        }
        context.expect(sizes.len() * (1 + WAYS.len()));
        let x = Some(("file size", Unit::Bytes));
        context.group("step", "Steps of using a mapped file", x, Unit::Nanoseconds, Better::Lower);
        context.group(
            "total",
            "Reading and changing all bytes of a file, until they are durable",
            x,
            Unit::Nanoseconds,
            Better::Lower,
        );
        for size in &sizes {
            let target = files::written(context, "bind", *size as u64)?;
            steps(context, &target, *size)?;
            for (name, way) in WAYS {
                let at = at("total", name).bytes(*size as u64);
                context.measure(at, Batch::One, |_| {
                    let begin = Instant::now();
                    through(way, &target, *size)?;
                    Ok(begin.elapsed())
                })?;
            }
        }
        say(context, &sizes);
        Ok(())
    }
}

fn say(context: &mut Context<'_>, sizes: &[usize]) {
    let Some(largest) = sizes.last() else { return };
    let of = |step: &str, size: usize| context.median(at("step", step).bytes(size as u64));
    let says = match (of("first touch", *largest), of("second touch", *largest)) {
        (Some(first), Some(second)) => format!(
            "Touching the pages of a {} MiB mapping takes {:.1} ms at first and {:.1} ms again.",
            largest / MIB,
            first / 1e6,
            second / 1e6
        ),
        _ => "Too noisy to say what the first touch costs.".into(),
    };
    context.say("step", says);
    let totals: Vec<_> = WAYS
        .iter()
        .filter_map(|(name, _)| Some((*name, context.median(at("total", name).bytes(*largest as u64))?)))
        .collect();
    let best = totals.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let worst = totals.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let says = match (best, worst) {
        (Some(best), Some(worst)) => format!(
            "In all, {} MiB take {:.0} ms by {} and {:.0} ms by {}.",
            largest / MIB,
            best.1 / 1e6,
            best.0,
            worst.1 / 1e6,
            worst.0
        ),
        _ => "Too noisy to compare the totals.".into(),
    };
    context.say("total", says);
}

/// The steps of a mapping, all pages of which are read and changed.
fn steps(context: &mut Context<'_>, target: &WorkFile, size: usize) -> Result<(), ProbeError> {
    context.sample_all(&STEPS.map(|step| at("step", step).bytes(size as u64)), |times| {
        let mut last = Instant::now();
        let mut step = || {
            let now = Instant::now();
            times.push((now - last).as_nanos() as f64);
            last = now;
        };
        let file = files::reopen(target, OFlags::empty())?;
        step();
        let map = Map::file(&file, size)?;
        step();
        map.dirty(0, size, PAGE);
        step();
        map.dirty(0, size, PAGE);
        step();
        map.sync(0, size)?;
        step();
        drop(map);
        step();
        drop(file);
        step();
        Ok(())
    })
}

/// Reads everything, changes a byte in each page, makes it durable.
fn through(way: Way, target: &WorkFile, size: usize) -> Result<(), ProbeError> {
    let flags = if way == Way::Direct { OFlags::DIRECT } else { OFlags::empty() };
    let file = files::reopen(target, flags)?;
    match way {
        Way::Mapped => {
            let map = Map::file(&file, size)?;
            map.dirty(0, size, PAGE);
            map.sync(0, size)?;
        }
        Way::ReadWrite | Way::Durable | Way::Direct => {
            let mut buffer = Aligned::new(CHUNK);
            for offset in (0..size).step_by(CHUNK) {
                file.read_exact_at(&mut buffer, offset as u64).on("read")?;
                change(&mut buffer);
                if way == Way::Durable {
                    let count = pwritev2(&file, &[IoSlice::new(&buffer)], offset as u64, ReadWriteFlags::DSYNC)
                        .on("pwritev2")?;
                    if count != CHUNK {
                        return Err(ProbeError::Missing("a short write".into()));
                    }
                } else {
                    file.write_all_at(&buffer, offset as u64).on("write")?;
                }
            }
            if way != Way::Durable {
                file.sync_data().on("fdatasync")?;
            }
        }
        Way::Vectored => {
            let mut pages: Vec<Aligned> = (0..CHUNK / PAGE).map(|_| Aligned::new(PAGE)).collect();
            for offset in (0..size).step_by(CHUNK) {
                let mut slices: Vec<_> = pages.iter_mut().map(|page| std::io::IoSliceMut::new(page)).collect();
                rustix::io::preadv(&file, &mut slices, offset as u64).on("preadv")?;
                pages.iter_mut().for_each(|page| change(page));
                let slices: Vec<_> = pages.iter().map(|page| IoSlice::new(page)).collect();
                rustix::io::pwritev(&file, &slices, offset as u64).on("pwritev")?;
            }
            file.sync_data().on("fdatasync")?;
        }
        Way::Ring => ring(&file, size)?,
    }
    Ok(())
}

fn change(bytes: &mut [u8]) {
    bytes.iter_mut().step_by(PAGE).for_each(|byte| *byte = byte.wrapping_add(1));
}

/// Eight chunks under way: all are read, then all are written. The ring's buffers are its own bytes, not the file's:
/// what counts is that they are moved.
fn ring(file: &File, size: usize) -> Result<(), ProbeError> {
    let depth = 8;
    let mut ring = Ring::new(depth, CHUNK)?;
    for what in [Do::Read, Do::Write] {
        for offset in (0..size).step_by(CHUNK) {
            if ring.busy() == depth {
                ring.submit(1, &mut |_| {})?;
            }
            ring.push(file, what, offset as u64, CHUNK)?;
        }
        ring.drain()?;
    }
    file.sync_data().on("fdatasync")
}
