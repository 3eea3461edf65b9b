//! Point reads, short scans and full scans, with everything in the cache and with nothing.

use std::path::Path;
use std::time::Instant;

use anyhow::ensure;

use super::{Bench, fill, forget, read_one, threads};
use crate::measure::{Figure, Moment, Operation, Random, Zipf};
use crate::peer::{Durability, Kind, Peer, RECORDS, Settings};

const SHORT: u64 = 100;
const LONG: u64 = 20_000;

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    let count = 1_000_000;
    let (peer, dir) = bench.open("records")?;
    fill(&*peer, count, 100)?;
    let zipf = Zipf::new(count, 0.99);
    for (keys, draw) in [
        ("uniform", &(|random: &mut Random| random.below(count)) as &(dyn Fn(&mut Random) -> u64 + Sync)),
        ("Zipf 0.99", &|random| zipf.key(random)),
    ] {
        let make = |thread_no| -> Operation<'_> {
            let (mut random, mut value) = (Random::new(thread_no), Vec::new());
            Box::new(move |worker| read_one(worker, draw(&mut random), &mut value).map(|()| (1, 0)))
        };
        for &threads_at in bench.choose(&[1, 2][..], &[1, 2, 8]) {
            let case = format!("point reads, {keys}, {}", threads(threads_at));
            bench.crowd(&*peer, Durability::None, threads_at, &case, &make)?;
        }
    }
    let at_snapshot = |thread_no| -> Operation<'_> {
        let (mut random, mut value) = (Random::new(thread_no), Vec::new());
        Box::new(move |worker| {
            let key = random.below(count);
            let again = worker.run(Kind::Snapshot, &mut |txn| txn.get(RECORDS, key, &mut value).map(drop))?;
            Ok((1, again))
        })
    };
    if bench.entry.has_snapshots {
        for threads_at in [1, 2] {
            let case = format!("point reads at a snapshot, uniform, {}", threads(threads_at));
            bench.crowd(&*peer, Durability::None, threads_at, &case, &at_snapshot)?;
        }
    }
    // Every scan has its whole length: it begins so far before the last record.
    let zipf_of = |length: u64| Zipf::new(count - length, 0.99);
    let (zipf_short, zipf_long) = (zipf_of(SHORT), zipf_of(LONG));
    let make = |thread_no| -> Operation<'_> {
        let mut random = Random::new(thread_no);
        Box::new(move |worker| scan(worker, random.below(count - SHORT), SHORT).map(|_| (1, 0)))
    };
    for threads_at in [1, 2] {
        let case = format!("scans of {SHORT}, uniform, {}", threads(threads_at));
        bench.crowd(&*peer, Durability::None, threads_at, &case, &make)?;
    }
    let by_zipf = |thread_no| -> Operation<'_> {
        let (mut random, zipf) = (Random::new(thread_no), &zipf_short);
        Box::new(move |worker| scan(worker, zipf.key(&mut random), SHORT).map(|_| (1, 0)))
    };
    for &threads_at in bench.choose(&[2][..], &[1, 2]) {
        let case = format!("scans of {SHORT}, Zipf 0.99, {}", threads(threads_at));
        bench.crowd(&*peer, Durability::None, threads_at, &case, &by_zipf)?;
    }
    // The whole table, round and round, in pieces: a short case would hold a few whole scans only.
    let whole = |thread_no| -> Operation<'_> {
        let mut from = thread_no * (count / 2) % count;
        Box::new(move |worker| {
            let seen = scan(worker, from, LONG)?;
            from = (from + seen) % count;
            Ok((seen, 0))
        })
    };
    for threads_at in [1, 2] {
        let case = format!("scan of all, by {LONG} records, {}", threads(threads_at));
        bench.crowd(&*peer, Durability::None, threads_at, &case, &whole)?;
    }
    let long_by_zipf = |thread_no| -> Operation<'_> {
        let (mut random, zipf) = (Random::new(thread_no), &zipf_long);
        Box::new(move |worker| scan(worker, zipf.key(&mut random), LONG).map(|seen| (seen, 0)))
    };
    for &threads_at in bench.choose(&[2][..], &[1, 2]) {
        let case = format!("scan by {LONG} records, Zipf 0.99, {}", threads(threads_at));
        bench.crowd(&*peer, Durability::None, threads_at, &case, &long_by_zipf)?;
    }
    peer.close()?;

    cold(bench, &dir, "cold full scan, records", &mut |peer| {
        let seen = scan(&mut *peer.worker(Durability::None)?, 0, u64::MAX)?;
        ensure!(seen == count, "the scan saw {seen} records of {count}");
        Ok(seen)
    })?;
    cold(bench, &dir, "cold point reads, uniform, 1 thread", &mut |peer| {
        let (mut random, mut value, time) = (Random::new(9), Vec::new(), bench.time());
        let mut worker = peer.worker(Durability::None)?;
        let (began, mut done) = (Instant::now(), 0);
        while began.elapsed() < time {
            read_one(&mut *worker, random.below(count), &mut value)?;
            done += 1;
        }
        Ok(done)
    })?;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

fn scan(worker: &mut dyn crate::peer::Worker, from: u64, count_max: u64) -> anyhow::Result<u64> {
    let (mut seen, mut bytes) = (0, 0);
    worker.run(Kind::Snapshot, &mut |txn| {
        (seen, bytes) = (0, 0);
        txn.scan(RECORDS, from, count_max, &mut |_, value| {
            seen += 1;
            bytes += value.len();
            true
        })
    })?;
    std::hint::black_box(bytes);
    Ok(seen)
}

/// Opens the store when the system has forgotten its files, and measures. Opening it is not counted.
fn cold(
    bench: &Bench<'_>,
    dir: &Path,
    case: &str,
    work: &mut dyn FnMut(&dyn Peer) -> anyhow::Result<u64>,
) -> anyhow::Result<()> {
    bench.steady(case, || {
        forget(dir)?;
        let peer = bench.entry.open(Settings::roomy(dir))?;
        let before = Moment::now(&[]);
        let count = work(&*peer)?;
        let mut figure = Figure::plain(case, count as f64 / before.seconds(), "1/s", true);
        before.tell(&[], count, &mut figure);
        peer.close()?;
        Ok(figure)
    })
}
