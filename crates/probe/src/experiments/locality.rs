//! locality: what it costs when a file's pieces lie apart, and who fills new space with zeros (5).
//!
//! The paper's file of 160 pieces of 4 KiB, each made durable before the next, with growing gaps taken by another file
//! in between. The file's extents are read back, so that the cause is known and not supposed. Then the same blocks
//! through the file system and from the device below it; and ways to grow a file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, OFlags, fallocate, ftruncate};

use super::files;
use crate::context::{Context, at};
use crate::error::{On, ProbeError};
use crate::experiment::Experiment;
use crate::measure::{Batch, to_value};
use crate::report::{Better, Unit, Usage};
use crate::sys::aligned::Aligned;
use crate::sys::file::{self, Extent};
use crate::sys::loop_device;
use crate::workdir::WorkFile;

pub(crate) struct Locality;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const PAGE: u64 = 4 * KIB;
const PIECES: u64 = 160;

impl Experiment for Locality {
    fn id(&self) -> &'static str {
        "locality"
    }

    fn title(&self) -> &'static str {
        "what it costs when a file's pieces lie apart"
    }

    fn section(&self) -> &'static str {
        "5"
    }

    fn weight(&self) -> u32 {
        12
    }

    fn run(&self, context: &mut Context<'_>) -> Result<(), ProbeError> {
        let gaps = context.effort().pick(
            vec![0, 64 * KIB],
            vec![0, 4 * KIB, 64 * KIB, MIB],
            vec![0, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB],
        );
        context.expect((gaps.len() + 1) * 2 + 6 + 10);
        fragments(context, &gaps)?;
        against_device(context)?;
        growing(context)
    }
}

/// Extents that do not follow each other on the device.
fn fragment_count(extents: &[Extent]) -> usize {
    let apart = extents.windows(2).filter(|pair| pair[0].physical + pair[0].bytes != pair[1].physical).count();
    if extents.is_empty() { 0 } else { apart + 1 }
}

fn fragments(context: &mut Context<'_>, gaps: &[u64]) -> Result<(), ProbeError> {
    let x = Some(("gap between pieces", Unit::Bytes));
    context.group(
        "scan",
        "Reading a file of 640 KiB in order, cold, by the gaps between its pieces",
        x,
        Unit::Nanoseconds,
        Better::Lower,
    );
    context.group("pieces", "Pieces into which the file system put the file", x, Unit::Count, Better::Lower);
    for gap in gaps {
        if PIECES * (gap + PAGE) > context.work.left_bytes() {
            context.skip(format!("gaps of {} KiB", gap / KIB), "more disk than the run may use");
            continue;
        }
        let between = context.file("between", PIECES * gap)?;
        let target = context.file("pieces", PIECES * PAGE)?;
        let made = interleave(context, &target, &between, *gap);
        one_scan(context, "written piece by piece", &target, *gap, made)?;
        drop((target, between));
    }
    // The same with the space taken before.
    let gap = gaps.last().copied().unwrap_or(0).min(64 * KIB);
    let between = context.file("between", PIECES * gap)?;
    let target = context.file("pieces", PIECES * PAGE)?;
    let made = fallocate(&target.file, FallocateFlags::empty(), 0, PIECES * PAGE).on("fallocate");
    let made = made.and_then(|()| interleave(context, &target, &between, gap));
    one_scan(context, "preallocated", &target, gap, made)?;
    let of = |gap: &u64| context.median(at("scan", "written piece by piece, direct").bytes(*gap));
    let known: Vec<_> = gaps.iter().filter_map(|gap| Some((*gap, of(gap)?))).collect();
    let says = match (known.first(), known.iter().max_by(|a, b| a.1.total_cmp(&b.1))) {
        (Some(near), Some(far)) => format!(
            "The scan takes {:.0} us with gaps of {} KiB and at most {:.0} us ({} KiB): {:.1} times.",
            near.1 / 1e3,
            near.0 / KIB,
            far.1 / 1e3,
            far.0 / KIB,
            far.1 / near.1
        ),
        _ => "Too noisy, or not cold, to say what gaps cost.".into(),
    };
    context.say("scan", says);
    context.say("pieces", "Read back from the file system (FIEMAP): neighbours on the device count as one piece.");
    Ok(())
}

/// Writes the pieces, each durable before the other file takes the gap behind it.
fn interleave(context: &Context<'_>, target: &WorkFile, between: &WorkFile, gap: u64) -> Result<(), ProbeError> {
    let piece = Aligned::noise(PAGE as usize);
    for no in 0..PIECES {
        context.check()?;
        target.file.write_all_at(&piece, no * PAGE).on("write")?;
        target.file.sync_data().on("fdatasync")?;
        if gap > 0 {
            fallocate(&between.file, FallocateFlags::empty(), no * gap, gap).on("fallocate")?;
        }
    }
    target.file.sync_all().on("fsync")
}

fn one_scan(
    context: &mut Context<'_>,
    name: &str,
    target: &WorkFile,
    gap: u64,
    made: Result<(), ProbeError>,
) -> Result<(), ProbeError> {
    if let Err(error) = made {
        if error.is_stop() {
            return Err(error);
        }
        context.skip(format!("a file with gaps, {name}"), error.to_string());
        return Ok(());
    }
    match file::extents(&target.file) {
        Ok(extents) => {
            let mut count = [fragment_count(&extents) as f64; 3];
            context.record(at("pieces", name).bytes(gap), to_value(&mut count, None, Usage::default()));
        }
        Err(error) => context.skip("pieces of a file", error.to_string()),
    }
    let bytes = PIECES * PAGE;
    for (how, flags) in [("cached", OFlags::empty()), ("direct", OFlags::DIRECT)] {
        let series = format!("{name}, {how}");
        let at = at("scan", &series).bytes(gap);
        context.measure(at, Batch::One, |_| {
            files::make_cold(&target.file, bytes)?;
            let file = files::reopen(target, flags)?;
            let mut buffer = Aligned::new((64 * KIB) as usize);
            let begin = Instant::now();
            for offset in (0..bytes).step_by(buffer.len()) {
                file.read_exact_at(&mut buffer, offset).on("read")?;
            }
            Ok(begin.elapsed())
        })?;
    }
    Ok(())
}

/// Where a place of the file is in what is read; none if it lies in two pieces.
type Place<'a> = Box<dyn Fn(u64) -> Option<u64> + 'a>;

/// The blocks of a file, read through it and from the device below the file system: the same sectors both times.
fn against_device(context: &mut Context<'_>) -> Result<(), ProbeError> {
    context.group(
        "device",
        "The same blocks through the file system and from the device",
        Some(("bytes at a time", Unit::Bytes)),
        Unit::BytesPerSecond,
        Better::Higher,
    );
    let bytes = 16 * MIB;
    let target = files::written(context, "device", bytes)?;
    let through = files::reopen(&target, OFlags::DIRECT)?;
    let blocks = device_blocks(&target, bytes);
    let looped = loop_device::over(&target.file);
    if let Err(error) = &blocks {
        context.skip("device: device", error.to_string());
    }
    if let Err(error) = &looped {
        context.skip("device: loop device", error.to_string());
    }
    for step in [4 * KIB, 64 * KIB] {
        let order = places(step, bytes, context.effort().pick(128, 512, 1024));
        let moved = order.len() as f64 * step as f64;
        let mut ways: Vec<(&str, &File, Place<'_>)> = vec![("file", &through, Box::new(Some))];
        if let Ok(blocks) = &blocks {
            ways.push(("device", &blocks.device, Box::new(move |place| blocks.find(place, step))));
        }
        if let Ok(looped) = &looped {
            ways.push(("loop device", looped, Box::new(Some)));
        }
        let ats: Vec<_> = ways.iter().map(|(series, ..)| at("device", series).bytes(step)).collect();
        let mut buffer = Aligned::new(step as usize);
        context.sample_all(&ats, |rates| {
            for (_, file, offset) in &ways {
                let begin = Instant::now();
                for place in &order {
                    let offset = offset(*place).ok_or_else(|| ProbeError::Missing("a block in two pieces".into()))?;
                    file.read_exact_at(&mut buffer, offset).on("read")?;
                }
                rates.push(moved / begin.elapsed().as_secs_f64());
            }
            Ok(())
        })?;
    }
    let of = |series| context.median(at("device", series).bytes(64 * KIB));
    let says = match (of("file"), of("device"), of("loop device")) {
        (Some(file), Some(device), _) => {
            format!("The file system costs {:.1} % against the bare device.", (device / file - 1.0) * 100.0)
        }
        (Some(file), None, Some(looped)) => format!(
            "A loop device over the file reads {:.1} % slower than the file itself; the device below may not be read.",
            (file / looped - 1.0) * 100.0
        ),
        _ => "Too noisy, or no device to read, to say what the file system costs.".into(),
    };
    context.say("device", says);
    Ok(())
}

/// Places of blocks in a file, spread over it in an order that is always the same.
fn places(step: u64, bytes: u64, count: usize) -> Vec<u64> {
    let blocks = bytes / step;
    (0..(count as u64).min(blocks)).map(|no| no * 7919 % blocks * step).collect()
}

struct Blocks {
    device: File,
    extents: Vec<Extent>,
}

impl Blocks {
    /// Where on the device a block of the file is; none if it lies in two pieces.
    fn find(&self, place: u64, bytes: u64) -> Option<u64> {
        let extent = self.extents.iter().find(|e| (e.logical..e.logical + e.bytes).contains(&place))?;
        (place + bytes <= extent.logical + extent.bytes).then(|| extent.physical + (place - extent.logical))
    }
}

/// Opens the device for reading and makes sure that the file's first block is where the file system says.
fn device_blocks(target: &WorkFile, bytes: u64) -> Result<Blocks, ProbeError> {
    use std::os::unix::fs::MetadataExt;
    let number = target.file.metadata().on("fstat")?.dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let uevent = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).unwrap_or_default();
    let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    let name = name.ok_or_else(|| ProbeError::Missing("there is no block device below this file system".into()))?;
    let path = format!("/dev/{name}");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
    let device = rustix::fs::open(&path, flags, rustix::fs::Mode::empty())
        .map_err(|e| ProbeError::system(format!("open {path} (reading it wants its group or root)"), e))?;
    let device = File::from(device);
    let extents = file::extents(&target.file)?;
    let usable = extents.iter().all(|e| !e.is_elsewhere && !e.is_unwritten && e.physical % 4096 == 0);
    let (mut ours, mut theirs) = (Aligned::new(PAGE as usize), Aligned::new(PAGE as usize));
    let first = extents.first().filter(|_| usable && bytes >= PAGE);
    let first = first.ok_or_else(|| ProbeError::Missing("the file system does not tell where blocks are".into()))?;
    files::reopen(target, OFlags::DIRECT)?.read_exact_at(&mut ours, first.logical).on("read")?;
    device.read_exact_at(&mut theirs, first.physical).on("read the device")?;
    if ours[..] != theirs[..] {
        return Err(ProbeError::Missing("the device does not hold the file's bytes as they are".into()));
    }
    Ok(Blocks { device, extents })
}

/// Ways to have a MiB more, durable.
fn growing(context: &mut Context<'_>) -> Result<(), ProbeError> {
    context.group("grow", "A MiB of new space in a file, durable", None, Unit::Nanoseconds, Better::Lower);
    context.group(
        "first-write",
        "The first durable write of 4 KiB into new space",
        None,
        Unit::Nanoseconds,
        Better::Lower,
    );
    type Grow = fn(&File, u64) -> Result<(), ProbeError>;
    let ways: [(&str, Grow); 4] = [
        ("zeros written", |file, offset| file.write_all_at(&Aligned::new(MIB as usize), offset).on("write")),
        ("fallocate", |file, offset| fallocate(file, FallocateFlags::empty(), offset, MIB).on("fallocate")),
        ("fallocate, ZERO_RANGE", |file, offset| {
            fallocate(file, FallocateFlags::ZERO_RANGE, offset, MIB).on("fallocate")
        }),
        ("ftruncate (a hole)", |file, offset| ftruncate(file, offset + MIB).on("ftruncate")),
    ];
    let bytes = 64 * MIB;
    for (name, grow) in ways {
        let target = context.file("grow", bytes)?;
        let mut offset = 0;
        context.measure(at("grow", name), Batch::One, |_| {
            if offset >= bytes {
                ftruncate(&target.file, 0).on("ftruncate")?;
                target.file.sync_data().on("fdatasync")?;
                offset = 0;
            }
            let begin = Instant::now();
            grow(&target.file, offset)?;
            target.file.sync_data().on("fdatasync")?;
            let time = begin.elapsed();
            offset += MIB;
            Ok(time)
        })?;
        let (mut at_page, end) = (0, offset.max(MIB));
        let block = Aligned::noise(PAGE as usize);
        context.measure(at("first-write", name), Batch::One, |_| {
            if at_page >= end {
                return Err(ProbeError::Missing("all new space has been written".into()));
            }
            let begin = Instant::now();
            target.file.write_all_at(&block, at_page).on("write")?;
            target.file.sync_data().on("fdatasync")?;
            at_page += 4 * PAGE;
            Ok(begin.elapsed())
        })?;
    }
    punching(context)?;
    let of = |name| context.median(at("grow", name));
    let says = match (of("zeros written"), of("fallocate")) {
        (Some(zeros), Some(fallocate)) => format!(
            "A MiB of zeros takes {:.2} ms to write and {:.2} ms to have by fallocate.",
            zeros / 1e6,
            fallocate / 1e6
        ),
        _ => "Too noisy to compare the ways to grow.".into(),
    };
    context.say("grow", says);
    let of = |name| context.median(at("first-write", name));
    let says = match (of("zeros written"), of("fallocate")) {
        (Some(zeros), Some(fallocate)) => format!(
            "Into space that holds zeros the first write takes {:.0} us, into space by fallocate {:.0} us: it must note that it is written.",
            zeros / 1e3,
            fallocate / 1e3
        ),
        _ => "Too noisy to compare the first writes.".into(),
    };
    context.say("first-write", says);
    Ok(())
}

fn punching(context: &mut Context<'_>) -> Result<(), ProbeError> {
    let bytes = 32 * MIB;
    let target = files::written(context, "punch", bytes)?;
    let mut offset = 0;
    context.measure(
        at("grow", "a hole punched (space given back)"),
        Batch::One,
        |_| -> Result<Duration, ProbeError> {
            if offset >= bytes {
                return Err(ProbeError::Missing("the file is all holes".into()));
            }
            let begin = Instant::now();
            fallocate(&target.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, MIB)
                .on("fallocate")?;
            target.file.sync_data().on("fdatasync")?;
            offset += MIB;
            Ok(begin.elapsed())
        },
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_on_the_device_are_one_piece() {
        let extent =
            |logical, physical, bytes| Extent { logical, physical, bytes, is_unwritten: false, is_elsewhere: false };
        assert_eq!(fragment_count(&[]), 0);
        assert_eq!(fragment_count(&[extent(0, 100, 10), extent(10, 110, 5)]), 1);
        assert_eq!(fragment_count(&[extent(0, 100, 10), extent(10, 200, 5), extent(15, 90, 5)]), 3);
    }
}
