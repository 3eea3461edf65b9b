//! The device alone: how long a 4 KiB overwrite takes until it is durable, and how many random pages it reads. What a
//! commit or a miss costs is measured against these, in the same run.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledgerstone_disk::{AlignedBuf, Disk, DiskFile, FileDisk, Open};
use serde::Serialize;

use crate::latency::Timer;
use crate::{Latency, Machine, Place, Report, Workdir};
use ledgerstone_region::Random;

const BLOCK_BYTES: u64 = 4096;

/// `bench device`.
#[derive(Clone, Debug, clap::Args)]
pub struct DeviceArgs {
    /// Measure overwrites for this long, and then reads for as long.
    #[arg(long, default_value_t = 3.0, allow_negative_numbers = true, value_parser = crate::parse_seconds)]
    pub seconds: f64,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

/// The device's own times.
#[derive(Clone, Debug, Serialize)]
pub struct Flush {
    /// Overwrites of 4 KiB with direct I/O, each durable before the next.
    pub overwrite: Latency,
}

/// Measures both.
///
/// # Errors
/// The device says no.
pub fn run(args: &DeviceArgs) -> anyhow::Result<Report> {
    let dir = Workdir::new(&args.place)?;
    let time = Duration::from_secs_f64(args.seconds);
    let mut report = Report::new("device", Machine::here(dir.path()));
    let flush = flush(dir.path(), time)?;
    report.add("durable 4 KiB overwrite, mean (us)", flush.overwrite.mean_us);
    report.add("durable 4 KiB overwrite, p50 (us)", flush.overwrite.p50_us);
    report.add("durable 4 KiB overwrite, p99 (us)", flush.overwrite.p99_us);
    report.add("random 4 KiB reads, 1 thread (1/s)", random_reads(dir.path(), 256 << 20, 1, time)?);
    report.add("random 4 KiB reads, 2 threads (1/s)", random_reads(dir.path(), 256 << 20, 2, time)?);
    Ok(report)
}

/// Overwrites one preallocated block after another in `dir`, as the log does, for that long.
///
/// # Errors
/// The device says no.
pub fn flush(dir: &Path, time: Duration) -> anyhow::Result<Flush> {
    const BLOCKS: u64 = 1024;
    let (disk, file) = zeroed(dir, "device.overwrite", BLOCKS * BLOCK_BYTES)?;
    let mut block = AlignedBuf::new(BLOCK_BYTES as usize);
    let mut timer = Timer::new();
    let began = Instant::now();
    let mut last = began;
    let mut round = 0_u64;
    while last.duration_since(began) < time {
        block[..8].copy_from_slice(&round.to_le_bytes());
        file.write_durable_at(round % BLOCKS * BLOCK_BYTES, &block)?;
        let now = Instant::now();
        timer.record(now.duration_since(last));
        last = now;
        round += 1;
    }
    drop(file);
    disk.remove("device.overwrite")?;
    Ok(Flush { overwrite: timer.summary() })
}

/// Random direct reads of 4 KiB from a file of that size, in all threads together, a second.
///
/// # Errors
/// The device says no.
pub fn random_reads(dir: &Path, bytes: u64, thread_count: u64, time: Duration) -> anyhow::Result<f64> {
    let (disk, file) = zeroed(dir, "device.read", bytes)?;
    let began = Instant::now();
    let counts: Vec<anyhow::Result<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..thread_count)
            .map(|thread_no| {
                let file = Arc::clone(&file);
                scope.spawn(move || {
                    let mut random = Random::new(thread_no);
                    let mut block = AlignedBuf::new(BLOCK_BYTES as usize);
                    let mut count = 0;
                    while began.elapsed() < time {
                        file.read_at(random.below(bytes / BLOCK_BYTES) * BLOCK_BYTES, &mut block)?;
                        count += 1;
                    }
                    Ok(count)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a reader panicked"))?).collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    let count: u64 = counts.into_iter().sum::<anyhow::Result<u64>>()?;
    drop(file);
    disk.remove("device.read")?;
    Ok(count as f64 / seconds)
}

/// Direct reads of 1 MiB through a file of that size, one after the other, in bytes a second.
///
/// # Errors
/// The device says no.
pub fn sequential_reads(dir: &Path, bytes: u64) -> anyhow::Result<f64> {
    const CHUNK_BYTES: u64 = 1 << 20;
    let (disk, file) = zeroed(dir, "device.read", bytes)?;
    let mut chunk = AlignedBuf::new(CHUNK_BYTES as usize);
    let began = Instant::now();
    for no in 0..bytes / CHUNK_BYTES {
        file.read_at(no * CHUNK_BYTES, &mut chunk)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    drop(file);
    disk.remove("device.read")?;
    Ok((bytes / CHUNK_BYTES * CHUNK_BYTES) as f64 / seconds)
}

/// A file of that size whose blocks have all been written, so that an overwrite changes no metadata.
fn zeroed(dir: &Path, name: &str, bytes: u64) -> anyhow::Result<(FileDisk, Arc<dyn DiskFile>)> {
    const CHUNK_BYTES: u64 = 1 << 20;
    let disk = FileDisk::new(dir);
    disk.create_dir("")?;
    let file = disk.open(name, Open::CREATE.direct())?;
    file.allocate(0, bytes)?;
    let mut chunk = AlignedBuf::new(CHUNK_BYTES as usize);
    chunk.fill(0x5A);
    for at in 0..bytes / CHUNK_BYTES {
        file.write_at(at * CHUNK_BYTES, &chunk)?;
    }
    file.sync()?;
    Ok((disk, file))
}
