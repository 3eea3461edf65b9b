//! A table larger than memory, in a control group whose limit holds for the process and for the system's cache of its
//! files alike. Where no control group can be had, the peers' own caches are small and the system's cache is not: then
//! the run says so.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Bench, add_one, forget, load, read_one, record, threads};
use crate::measure::{self, Figure, Moment, Operation, Random, Zipf};
use crate::peer::{Durability, RECORDS, Settings};

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    let count: u64 = bench.choose(1_000_000, 4_000_000);
    // A record takes about 120 bytes, so this is about a quarter.
    let limit_bytes = (count * 120 / 4).next_multiple_of(1 << 20).max(48 << 20);
    let dir = bench.fresh("memory")?;
    // The rest is for the process itself, and for the system's cache where that is used.
    let quarters = if bench.entry.has_own_cache_only { 3 } else { 2 };
    let settings = Settings {
        dir: &dir,
        cache_bytes: limit_bytes / 4 * quarters,
        file_bytes_max: 32 << 30,
        is_larger_than_memory: true,
        is_durable: false,
    };
    let before = Moment::now(&[]);
    let peer = bench.entry.open(settings)?;
    load(&*peer, RECORDS, count, &|key| record(key, 100))?;
    peer.checkpoint()?;
    peer.close()?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    bench.add(Figure::plain("load, written", mib(before.written(&[])), "MiB", false));
    bench.add(Figure::plain("files after the load", mib(measure::disk_bytes(&dir)), "MiB", false));

    forget(&dir)?; // What the system keeps of the files so far is not in the group.
    let group = Group::enter(limit_bytes);
    match &group {
        Some(group) => bench.remark(format!("control group of {} MiB ({})", limit_bytes >> 20, group.version)),
        None => bench.remark("no control group could be had: only the peers' own caches were small"),
    }
    let peer = bench.entry.open(settings)?;
    let zipf = Zipf::new(count, 0.99);
    let counts = bench.choose(&[8][..], &[1, 8]);
    for (keys, draw) in [
        ("uniform", &(|random: &mut Random| random.below(count)) as &(dyn Fn(&mut Random) -> u64 + Sync)),
        ("Zipf 0.99", &|random| zipf.key(random)),
    ] {
        let make = |thread_no| -> Operation<'_> {
            let (mut random, mut value) = (Random::new(thread_no), Vec::new());
            Box::new(move |worker| read_one(worker, draw(&mut random), &mut value).map(|()| (1, 0)))
        };
        for &at in counts {
            bench.crowd(&*peer, Durability::None, at, &format!("reads, {keys}, {}", threads(at)), &make)?;
        }
    }
    let done = AtomicU64::new(0);
    let make = |thread_no| -> Operation<'_> {
        let (mut random, mut value) = (Random::new(thread_no), Vec::new());
        let done = &done;
        Box::new(move |worker| {
            let key = random.below(count);
            done.fetch_add(1, Relaxed);
            if random.next().is_multiple_of(2) {
                return read_one(worker, key, &mut value).map(|()| (1, 0));
            }
            Ok((1, add_one(worker, key)?))
        })
    };
    let (before, since) = (Moment::now(&[]), peer.written()?);
    for &at in counts {
        bench.crowd(&*peer, Durability::None, at, &format!("half updates, uniform, {}", threads(at)), &make)?;
    }
    peer.checkpoint()?;
    let parts = peer.written()?;
    peer.close()?;
    let each = before.written(&[]) as f64 / done.load(Relaxed).max(1) as f64;
    bench.add(Figure::plain("half updates, written with the checkpoint and the close", each, "bytes each", false));
    bench.add_parts("half updates", &parts, &since, "bytes each", done.load(Relaxed).max(1) as f64);
    bench.add(Figure::plain("files at the end", mib(measure::disk_bytes(&dir)), "MiB", false));
    drop(group);
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

/// A control group of this process alone, left and removed at the end.
struct Group {
    path: PathBuf,
    above: PathBuf,
    version: &'static str,
}

impl Group {
    /// `None` if there is none to be had.
    fn enter(limit_bytes: u64) -> Option<Group> {
        let hierarchies = [
            ("/sys/fs/cgroup", "memory.max", "cgroup v2"),
            ("/sys/fs/cgroup/unified", "memory.max", "cgroup v2"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "cgroup v1"),
        ];
        hierarchies.iter().find_map(|(above, limit, version)| {
            let above = Path::new(above);
            let path = above.join(format!("ledgerstone-peers-{}", std::process::id()));
            if !above.join("cgroup.procs").exists() || std::fs::create_dir(&path).is_err() {
                return None;
            }
            let group = Group { path, above: above.to_owned(), version };
            // Dropped, and so removed, if it has no such limit or cannot be entered.
            if !group.path.join(limit).exists() {
                return None;
            }
            std::fs::write(group.path.join(limit), limit_bytes.to_string()).ok()?;
            std::fs::write(group.path.join("cgroup.procs"), std::process::id().to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What cannot be undone is left to whoever looks after the machine's groups.
        let _ = std::fs::write(self.above.join("cgroup.procs"), std::process::id().to_string());
        let _ = std::fs::remove_dir(&self.path);
    }
}
