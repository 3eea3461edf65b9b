//! What is measured while everything runs (Q1 to Q3).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ledgerstone::{Environment, Stat};
use ledgerstone_region::Mutex;

use super::CALL_S_MAX;
use crate::counters::Counters;

const MIB: u64 = 1 << 20;
const LOG_MIB_MAX: u64 = 96;
/// Bounds of what is measured, beyond the first fifth of the time. Memory: the cache and all else that the options
/// give, and 64 MiB. Log: some checkpoints' distance, what a feed may keep (32 MiB), and a held snapshot. What a backup
/// keeps while it runs is not counted, however long it runs on this machine. Open files: up to three for a segment of
/// the log, those of a backup among them. Data: what the tables hold is a tenth of it. The rest waits to be freed until
/// no snapshot is older: 5,000 values on a machine that is busy elsewhere, where a snapshot is held for seconds.
const BOUNDS: [(&str, u64); 6] = [
    ("memory_mib", 20 + 64),
    ("open_files", 64 + 3 * 256),
    ("log_mib", LOG_MIB_MAX),
    ("data_mib", 320),
    ("version_store_kib", 8 << 10),
    ("spilled_writers", 64),
];
/// The log's length among those.
const LOG: usize = 2;
/// Buckets of latencies: each twice as long as the one before, from a microsecond on.
const BUCKET_COUNT: usize = 32;
/// Tenths of the time.
const PART_COUNT: usize = 10;

pub(super) struct Watch {
    env_dir: PathBuf,
    began: Instant,
    whole: Duration,
    /// Latencies of short transactions, for each tenth of the time.
    latencies: Vec<[AtomicU64; BUCKET_COUNT]>,
    /// When each user's call began, in milliseconds since the beginning; 0: it has none.
    calls: Vec<AtomicU64>,
    most: Mutex<[u64; BOUNDS.len()]>,
    /// Who kept the log when it was longest.
    log_held_by: Mutex<String>,
    /// How many MiB of it the last backup kept, and when.
    backup: Mutex<Option<(Instant, u64)>>,
    /// The last tenth that was told of.
    told: Mutex<Option<usize>>,
    problems: Mutex<Vec<String>>,
}

impl Watch {
    pub(super) fn new(dir: &Path, whole: Duration, user_count: usize) -> Watch {
        Watch {
            env_dir: dir.join("env"),
            began: Instant::now(),
            whole,
            latencies: (0..PART_COUNT).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect(),
            calls: (0..user_count).map(|_| AtomicU64::new(0)).collect(),
            most: Mutex::new([0; BOUNDS.len()]),
            log_held_by: Mutex::default(),
            backup: Mutex::default(),
            told: Mutex::new(None),
            problems: Mutex::new(Vec::new()),
        }
    }

    fn part(&self) -> usize {
        let done = self.began.elapsed().as_secs_f64() / self.whole.as_secs_f64().max(0.001);
        ((done * PART_COUNT as f64) as usize).min(PART_COUNT - 1)
    }

    /// A user's call begins.
    pub(super) fn call_begins(&self, user: usize) {
        self.calls[user].store(self.began.elapsed().as_millis() as u64 + 1, Relaxed);
    }

    /// It has ended; gives what it took.
    pub(super) fn call_ends(&self, user: usize) -> Duration {
        let began = self.calls[user].swap(0, Relaxed);
        self.began.elapsed().saturating_sub(Duration::from_millis(began.saturating_sub(1)))
    }

    /// A short transaction took so long.
    pub(super) fn note_latency(&self, took: Duration) {
        let bucket = (64 - (took.as_micros() as u64).leading_zeros() as usize).min(BUCKET_COUNT - 1);
        self.latencies[self.part()][bucket].fetch_add(1, Relaxed);
    }

    pub(super) fn problem(&self, what: String) {
        self.problems.lock().push(what);
    }

    /// Measures once.
    pub(super) fn look(&self, env: &Environment) {
        let now_ms = self.began.elapsed().as_millis() as u64;
        for (user, call) in self.calls.iter().enumerate() {
            let began = call.load(Relaxed);
            if began > 0 && now_ms.saturating_sub(began) > CALL_S_MAX * 1000 {
                // A client that hangs cannot be waited for.
                println!("user {user} is in one call for {} s", (now_ms - began) / 1000);
                println!("soak: FAILED after {} s: a call hangs", now_ms / 1000);
                std::process::exit(1);
            }
        }
        let stat = match env.stat() {
            Ok(stat) => stat,
            Err(error) => return self.problem(format!("stat: {error}")),
        };
        let mut found = [
            memory_bytes() / MIB,
            std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64),
            bytes_in(&self.env_dir.join("log")) / MIB,
            std::fs::metadata(self.env_dir.join("data")).map_or(0, |data| data.len()) / MIB,
            stat.version_store_used_bytes >> 10,
            stat.version_spilled_count,
        ];
        let part = self.part();
        if self.told.lock().replace(part) != Some(part) {
            let named: Vec<String> =
                BOUNDS.iter().zip(found).map(|((name, _), most)| format!("{name}={most}")).collect();
            let (used, held) = (stat.allocated_page_count, stat.held_back_free_count);
            let log = log_held_by(&stat);
            println!("{:4} s: {} pages_in_use={used} held_back_frees={held} {log}", now_ms / 1000, named.join(" "));
        }
        found[LOG] = found[LOG].saturating_sub(self.kept_for_backup(&stat));
        if part < PART_COUNT / 5 {
            return;
        }
        let mut most = self.most.lock();
        if found[LOG] > most[LOG] {
            *self.log_held_by.lock() = log_held_by(&stat);
        }
        for (most, found) in most.iter_mut().zip(found) {
            *most = found.max(*most);
        }
    }

    /// MiB of the log that a backup keeps, or one has kept that ended so lately that no checkpoint has given it up
    /// since.
    fn kept_for_backup(&self, stat: &Stat) -> u64 {
        const LATELY: Duration = Duration::from_secs(10);
        let mut last = self.backup.lock();
        if let Some(pin) = stat.log_pins.iter().find(|pin| pin.name.contains("backup")) {
            *last = Some((Instant::now(), stat.log_tail_lsn.saturating_sub(pin.lsn) / MIB));
        }
        last.filter(|(at, _)| at.elapsed() < LATELY).map_or(0, |(_, mib)| mib)
    }

    /// Says what was out of bounds.
    pub(super) fn judge(&self, counters: &mut Counters, problems: &mut Vec<String>) {
        for ((name, bound), most) in BOUNDS.into_iter().zip(*self.most.lock()) {
            counters.add(name, most);
            if most > bound {
                problems.push(format!("{name} was {most}, more than {bound}"));
                if name == BOUNDS[LOG].0 {
                    problems.push(format!("the log was longest when it was kept by {}", self.log_held_by.lock()));
                }
            }
        }
        problems.append(&mut self.problems.lock());
        let sum = |from: usize, to: usize| {
            let mut all = [0u64; BUCKET_COUNT];
            for part in &self.latencies[from..to] {
                for (all, found) in all.iter_mut().zip(part) {
                    *all += found.load(Relaxed);
                }
            }
            all
        };
        let (early, late) = (sum(1, 4), sum(PART_COUNT - 3, PART_COUNT));
        let (before, after) = (percentile_us(&early, 50), percentile_us(&late, 50));
        counters.add("early_p50_us", before);
        counters.add("late_p50_us", after);
        counters.add("late_p999_us", percentile_us(&late, 999));
        // Q2. Buckets are powers of two, and other programs run beside.
        if after > 8 * before.max(1_000) {
            problems.push(format!("short transactions took {before} us in the beginning and {after} us in the end"));
        }
    }
}

/// The upper end of the bucket below which so many of a hundred (or of a thousand, from 100 on) lie.
fn percentile_us(buckets: &[u64; BUCKET_COUNT], share: u64) -> u64 {
    let whole = if share < 100 { 100 } else { 1000 };
    let wanted = buckets.iter().sum::<u64>() * share / whole;
    let mut seen = 0;
    for (no, count) in buckets.iter().enumerate() {
        seen += count;
        if seen > wanted {
            return 1 << no;
        }
    }
    0
}

/// Who keeps the log, and how many MiB of it.
fn log_held_by(stat: &Stat) -> String {
    let behind = |lsn: u64| stat.log_tail_lsn.saturating_sub(lsn) / MIB;
    let mut held: Vec<String> =
        stat.log_pins.iter().map(|pin| format!("{} {}", pin.name.replace(' ', "_"), behind(pin.lsn))).collect();
    for (name, lsn) in
        [("transactions", stat.oldest_transaction_lsn), ("snapshots_of_spilled_writers", stat.version_log_low_lsn)]
    {
        held.extend((lsn > 0).then(|| format!("{name} {}", behind(lsn))));
    }
    format!("log_kept_for=[{}]", held.join(", "))
}

/// Memory of this process that is in use now.
fn memory_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    resident.unwrap_or(0) * 4096
}

fn bytes_in(dir: &Path) -> u64 {
    let Ok(all) = std::fs::read_dir(dir) else { return 0 };
    // A file may go between the two calls.
    all.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> Watch {
        Watch::new(Path::new("nowhere"), Duration::from_secs(0), 1)
    }

    #[test]
    fn what_grows_beyond_its_bound_is_a_problem() {
        let watch = watch();
        watch.most.lock()[0] = BOUNDS[0].1;
        watch.most.lock()[2] = BOUNDS[2].1 + 1;
        let (mut counters, mut problems) = (Counters::default(), Vec::new());
        watch.judge(&mut counters, &mut problems);
        assert_eq!(problems[0], format!("log_mib was {}, more than {LOG_MIB_MAX}", LOG_MIB_MAX + 1));
        assert_eq!(problems.len(), 2);
        assert_eq!(counters.get("memory_mib"), BOUNDS[0].1);
    }

    #[test]
    fn latencies_that_creep_are_a_problem() {
        let watch = watch();
        for (part, us) in [(1, 900), (2, 900), (3, 70_000), (7, 3_000), (8, 40_000), (9, 40_000)] {
            let bucket = 64 - u64::leading_zeros(us) as usize;
            watch.latencies[part][bucket].fetch_add(1, Relaxed);
        }
        let (mut counters, mut problems) = (Counters::default(), Vec::new());
        watch.judge(&mut counters, &mut problems);
        assert_eq!(problems, ["short transactions took 1024 us in the beginning and 65536 us in the end"]);
    }
}
