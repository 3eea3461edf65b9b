//! The six core workloads of YCSB (Cooper and others, 2010), keys by Zipf 0.99.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Bench, add_one, fill, read_one, record, threads};
use crate::measure::{Operation, Random, Zipf};
use crate::peer::{Durability, Kind, RECORDS};

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    let count: u64 = bench.choose(200_000, 1_000_000);
    let (peer, dir) = bench.open("ycsb")?;
    fill(&*peer, count, 100)?;
    let zipf = Zipf::new(count, 0.99);
    let next = AtomicU64::new(count);
    for workload in ['A', 'B', 'C', 'D', 'E', 'F'] {
        let make = |thread_no| -> Operation<'_> {
            let (mut random, mut value) = (Random::new(thread_no), Vec::new());
            let (zipf, next) = (&zipf, &next);
            Box::new(move |worker| {
                let key = zipf.key(&mut random);
                let is_common = random.share() < if "ACF".contains(workload) { 0.5 } else { 0.95 };
                match (workload, is_common) {
                    ('D', true) => {
                        // Of the newest, the newest most often. One may not be committed yet.
                        let key = next.load(Relaxed) - 1 - zipf.rank(&mut random);
                        worker.run(Kind::One, &mut |txn| txn.get(RECORDS, key, &mut value).map(drop))?;
                    }
                    ('E', true) => {
                        let length = 1 + random.below(100);
                        worker.run(Kind::Snapshot, &mut |txn| {
                            txn.scan(RECORDS, key, length, &mut |_, value| !std::hint::black_box(value).is_empty())
                        })?;
                    }
                    ('A' | 'B', false) => {
                        let value = record(key ^ random.next(), 100);
                        return Ok((1, worker.run(Kind::Write, &mut |txn| txn.put(RECORDS, key, &value))?));
                    }
                    ('D' | 'E', false) => {
                        let key = next.fetch_add(1, Relaxed);
                        let value = record(key, 100);
                        return Ok((1, worker.run(Kind::Write, &mut |txn| txn.put(RECORDS, key, &value))?));
                    }
                    ('F', false) => return Ok((1, add_one(worker, key)?)),
                    _ => read_one(worker, key, &mut value)?,
                }
                Ok((1, 0))
            })
        };
        for &threads_at in bench.choose(&[2][..], &[1, 2, 8]) {
            let case = format!("{workload}, {}", threads(threads_at));
            bench.crowd(&*peer, Durability::None, threads_at, &case, &make)?;
        }
    }
    peer.close()?;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
