//! What is measured while everything runs (Q1 to Q3).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
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
/// Tenths of the time.
const PART_COUNT: usize = 10;
/// The tenths that are compared (Q2). In the first, everything is new.
const EARLY: [usize; 2] = [1, 2];
const LATE: [usize; 2] = [8, 9];
/// Of a shorter time, 99.9 % mean nothing.
const JUDGED_COUNT_MIN: u64 = 2_000;

/// What Q2 asks of one percentile. It creeps if two things are so. It is so many times as long in each late tenth as in
/// any early one, and it takes longer than so many syncs do in those late tenths. Other programs that keep the machine
/// busy for a while make some tenths slow, and syncs with them. They also make a yard slow, which is always the same
/// work: a percentile may be as many times longer as the slowest hundredth of yards is.
struct Creep {
    name: &'static str,
    permille: u64,
    times_max: u64,
    syncs_min: u64,
}

const CREEPS: [Creep; 2] = [
    Creep { name: "p50", permille: 500, times_max: 8, syncs_min: 2 },
    Creep { name: "p999", permille: 999, times_max: 8, syncs_min: 20 },
];

/// The median of the processor's time for a short transaction, in yards, may be so many hundredths of what it was. A
/// machine that is busy elsewhere hardly makes it longer, unlike the time that passes. So this finds what takes twice
/// as much work in the end.
const WORK_PERCENT_MAX: u64 = 175;

/// How long something took, in buckets: 16 from each power of two nanoseconds to the next.
struct Histogram(Box<[AtomicU64]>);

impl Histogram {
    const BUCKET_COUNT: usize = 16 * 48;

    fn new() -> Histogram {
        Histogram((0..Histogram::BUCKET_COUNT).map(|_| AtomicU64::new(0)).collect())
    }

    fn note(&self, took: Duration) {
        let ns = took.as_nanos() as u64;
        let bucket = match ns.checked_ilog2() {
            Some(power) if power >= 4 => 16 * power as usize + (ns >> (power - 4)) as usize - 64,
            _ => ns as usize,
        };
        self.0[bucket.min(Histogram::BUCKET_COUNT - 1)].fetch_add(1, Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// The upper end, in nanoseconds, of the bucket below which so many of a thousand lie. 0 if there are none.
    fn percentile_ns(&self, permille: u64) -> u64 {
        let wanted = self.count() * permille / 1000;
        let mut seen = 0;
        for (no, count) in self.0.iter().enumerate() {
            seen += count.load(Relaxed);
            if seen > wanted {
                let no = no as u64;
                return if no < 32 { no + 1 } else { (no % 16 + 17) << (no / 16 - 1) };
            }
        }
        0
    }

    fn percentile_us(&self, permille: u64) -> u64 {
        self.percentile_ns(permille).div_ceil(1000)
    }
}

/// What took how long in one tenth of the time.
struct Part {
    short: Histogram,
    /// The processor's time for each of these.
    work: Histogram,
    syncs: Histogram,
    /// A piece of work that is always the same: the time that passes, and the processor's.
    yards: Histogram,
    yard_work: Histogram,
}

impl Part {
    fn new() -> Part {
        let [short, work, syncs, yards, yard_work] = std::array::from_fn(|_| Histogram::new());
        Part { short, work, syncs, yards, yard_work }
    }

    /// The median of the work for a short transaction, in hundredths of a yard. 0 if there is none.
    fn work_percent(&self) -> u64 {
        self.work.percentile_ns(500) * 100 / self.yard_work.percentile_ns(500).max(1)
    }
}

/// Takes the time of something, and the processor's time of this thread for it.
pub(crate) struct Timing {
    began: Instant,
    worked: Duration,
}

impl Timing {
    pub(crate) fn begin() -> Timing {
        Timing { began: Instant::now(), worked: Timing::of_thread() }
    }

    fn end(self) -> (Duration, Duration) {
        (self.began.elapsed(), Timing::of_thread().saturating_sub(self.worked))
    }

    fn of_thread() -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
    }
}

pub(crate) struct Watch {
    env_dir: PathBuf,
    began: Instant,
    whole: Duration,
    /// Short transactions, and syncs of a file beside the environment.
    parts: Vec<Part>,
    sync_file: File,
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
    /// Makes a file in `dir` for its own use.
    pub(crate) fn new(dir: &Path, whole: Duration, user_count: usize) -> io::Result<Watch> {
        Ok(Watch {
            env_dir: dir.join("env"),
            began: Instant::now(),
            whole,
            parts: (0..PART_COUNT).map(|_| Part::new()).collect(),
            sync_file: File::create(dir.join("synced"))?,
            calls: (0..user_count).map(|_| AtomicU64::new(0)).collect(),
            most: Mutex::new([0; BOUNDS.len()]),
            log_held_by: Mutex::default(),
            backup: Mutex::default(),
            told: Mutex::new(None),
            problems: Mutex::new(Vec::new()),
        })
    }

    fn part(&self) -> usize {
        let done = self.began.elapsed().as_secs_f64() / self.whole.as_secs_f64().max(0.001);
        ((done * PART_COUNT as f64) as usize).min(PART_COUNT - 1)
    }

    /// A user's call begins.
    pub(crate) fn call_begins(&self, user: usize) {
        self.calls[user].store(self.began.elapsed().as_millis() as u64 + 1, Relaxed);
    }

    /// It has ended; gives what it took.
    pub(crate) fn call_ends(&self, user: usize) -> Duration {
        let began = self.calls[user].swap(0, Relaxed);
        self.began.elapsed().saturating_sub(Duration::from_millis(began.saturating_sub(1)))
    }

    /// A short transaction has ended, for which this was begun.
    pub(crate) fn note_short(&self, timing: Timing) {
        let (took, worked) = timing.end();
        let part = &self.parts[self.part()];
        part.short.note(took);
        part.work.note(worked);
    }

    /// Does a yard of work, for comparison with short transactions of the same thread.
    pub(crate) fn measure_a_yard(&self) {
        const BYTES: usize = 64 << 10;
        let bytes = std::hint::black_box(vec![7u8; BYTES]);
        let timing = Timing::begin();
        let sum = bytes.chunks_exact(8).fold(0u64, |sum, eight| {
            let word = eight.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            (sum.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        });
        std::hint::black_box(sum);
        let (took, worked) = timing.end();
        let part = &self.parts[self.part()];
        part.yards.note(took);
        part.yard_work.note(worked);
    }

    pub(crate) fn problem(&self, what: String) {
        self.problems.lock().push(what);
    }

    /// What has been wrong since this was asked last.
    pub(crate) fn take_problems(&self) -> Vec<String> {
        std::mem::take(&mut *self.problems.lock())
    }

    /// Measures once.
    pub(crate) fn look(&self, env: &Environment) {
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
        if let Err(error) = self.time_a_sync() {
            self.problem(format!("a file of its own: {error}"));
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

    /// What the machine takes for a small durable write now.
    fn time_a_sync(&self) -> io::Result<()> {
        let began = Instant::now();
        self.sync_file.write_all_at(&[1; 512], 0)?;
        self.sync_file.sync_data()?;
        self.parts[self.part()].syncs.note(began.elapsed());
        Ok(())
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
    pub(crate) fn judge(&self, counters: &mut Counters, problems: &mut Vec<String>) {
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
        let sync_us = self.longest_us(&LATE, |part| &part.syncs, 500);
        counters.add("late_sync_us", sync_us);
        for creep in CREEPS {
            self.judge_creep(&creep, sync_us, counters, problems);
        }
        self.judge_work(counters, problems);
    }

    /// Whether so many short transactions were measured that percentiles mean something.
    fn is_enough(&self) -> bool {
        EARLY.iter().chain(&LATE).all(|&part| self.parts[part].short.count() >= JUDGED_COUNT_MIN)
    }

    /// Q2, without what other programs make of it.
    fn judge_work(&self, counters: &mut Counters, problems: &mut Vec<String>) {
        let of = |parts: [usize; 2]| parts.map(|part| self.parts[part].work_percent());
        let (before, after) = (of(EARLY).into_iter().max().unwrap_or(0), of(LATE).into_iter().min().unwrap_or(0));
        counters.add("early_work_percent", before);
        counters.add("late_work_percent", after);
        if self.is_enough() && after * 100 > before * WORK_PERCENT_MAX {
            problems.push(format!(
                "short transactions took {before} hundredths of a yard of the processor's time in the beginning, and \
                 {after} in the end"
            ));
        }
    }

    /// Q2.
    fn judge_creep(&self, creep: &Creep, sync_us: u64, counters: &mut Counters, problems: &mut Vec<String>) {
        let Creep { name, permille, times_max, syncs_min } = *creep;
        let before = self.longest_us(&EARLY, |part| &part.short, permille);
        let after = LATE.map(|part| self.parts[part].short.percentile_us(permille)).into_iter().min().unwrap_or(0);
        counters.add(&format!("early_{name}_us"), before);
        counters.add(&format!("late_{name}_us"), after);
        let slowest_yard = |part: usize| self.parts[part].yards.percentile_ns(990).max(1);
        let early = EARLY.map(slowest_yard).into_iter().min().unwrap_or(1);
        let late = LATE.map(slowest_yard).into_iter().min().unwrap_or(1);
        let slower = (late * 100 / early).clamp(100, 1000); // In hundredths: what the machine is slower.
        if self.is_enough() && after * 100 > times_max * before * slower && after > syncs_min * sync_us {
            problems.push(format!(
                "the {name} of short transactions was {before} us in the beginning and {after} us in the end, \
                 when a sync took {sync_us} us"
            ));
        }
    }

    /// The longest that such a percentile is in one of these tenths.
    fn longest_us(&self, parts: &[usize], what: impl Fn(&Part) -> &Histogram, permille: u64) -> u64 {
        parts.iter().map(|&part| what(&self.parts[part]).percentile_us(permille)).max().unwrap_or(0)
    }
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
        let dir = tempfile::tempdir().unwrap(); // Its file may go.
        Watch::new(dir.path(), Duration::from_secs(0), 1).unwrap()
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
    fn percentiles_are_the_upper_ends_of_their_buckets() {
        for us in [0, 1, 3, 4, 7, 8, 63, 64, 65, 1_000, 1_000_000] {
            let took = Histogram::new();
            (0..1_000).for_each(|_| took.note(Duration::from_micros(us)));
            took.note(Duration::from_secs(1_000_000));
            let (median, p999) = (took.percentile_us(500), took.percentile_us(999));
            assert!(median > us && median <= us + us / 4 + 1, "{us}: {median}");
            assert_eq!(median, p999);
        }
    }

    /// What is said of short transactions that take so many microseconds in each tenth. One in 100 of them takes ten
    /// times as long. Syncs take 1 ms but for some tenths.
    fn problems_of(us: [u64; PART_COUNT], slow_syncs: &[usize]) -> Vec<String> {
        let watch = watch();
        for (no, (part, us)) in watch.parts.iter().zip(us).enumerate() {
            for n in 0..JUDGED_COUNT_MIN {
                part.short.note(Duration::from_micros(if n % 100 == 0 { us * 10 } else { us }));
            }
            part.yards.note(Duration::from_micros(20));
            part.syncs.note(Duration::from_millis(if slow_syncs.contains(&no) { 40 } else { 1 }));
        }
        let (mut counters, mut problems) = (Counters::default(), Vec::new());
        watch.judge(&mut counters, &mut problems);
        problems
    }

    #[test]
    fn latencies_that_creep_are_a_problem() {
        // 100 times as long in the end: at once, and by and by.
        let at_once = [60, 60, 60, 60, 60, 6_000, 6_000, 6_000, 6_000, 6_000];
        let found = problems_of(at_once, &[]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("the p50 of short transactions was 62 us in the beginning and 6030 us"),
            "{found:?}"
        );
        assert!(found[1].starts_with("the p999 of short"), "{found:?}");
        assert_eq!(problems_of([60, 100, 160, 250, 400, 650, 1_000, 1_600, 2_600, 6_000], &[]).len(), 2);
        // The machine is busy for a while, or from some time on; or they were slow before.
        let busy = [60, 60, 60, 60, 60, 6_000, 6_000, 6_000, 6_000, 60];
        assert_eq!(problems_of(busy, &[]), [""; 0]);
        assert_eq!(problems_of(at_once, &[8, 9]), [""; 0]);
        assert_eq!(problems_of([9_000, 60, 6_000, 60, 60, 6_000, 6_000, 6_000, 6_000, 6_000], &[]), [""; 0]);
    }

    /// What is said if short transactions take so many microseconds of the processor's time in each tenth, and yards
    /// so many. Twice as much time passes.
    fn problems_of_work(work_us: [u64; PART_COUNT], yard_us: [u64; PART_COUNT]) -> Vec<String> {
        let watch = watch();
        for (part, (work_us, yard_us)) in watch.parts.iter().zip(work_us.into_iter().zip(yard_us)) {
            for _ in 0..JUDGED_COUNT_MIN {
                part.short.note(Duration::from_micros(work_us * 2));
                part.work.note(Duration::from_micros(work_us));
                part.yards.note(Duration::from_micros(yard_us * 2));
                part.yard_work.note(Duration::from_micros(yard_us));
            }
            part.syncs.note(Duration::from_millis(1));
        }
        let (mut counters, mut problems) = (Counters::default(), Vec::new());
        watch.judge(&mut counters, &mut problems);
        problems
    }

    #[test]
    fn twice_the_work_in_the_end_is_a_problem() {
        let yards = [20; PART_COUNT];
        let found = problems_of_work([40, 40, 40, 40, 40, 80, 80, 80, 80, 80], yards);
        assert!(found.len() == 1 && found[0].contains("of the processor's time in the beginning"), "{found:?}");
        assert_eq!(problems_of_work([40, 40, 42, 50, 60, 66, 72, 80, 86, 92], yards).len(), 1, "by and by");
        // Now and then, a little, or because the processor is slower.
        assert_eq!(problems_of_work([40, 40, 40, 80, 80, 80, 80, 80, 80, 45], yards), [""; 0]);
        assert_eq!(problems_of_work([40, 40, 40, 50, 50, 50, 55, 55, 55, 55], yards), [""; 0]);
        let slower = [20, 20, 20, 20, 20, 40, 40, 40, 40, 40];
        assert_eq!(problems_of_work([40, 40, 40, 40, 40, 80, 80, 80, 80, 80], slower), [""; 0]);
    }

    /// Threads lose the processor in the middle of a transaction, and no disk is any slower for it.
    #[test]
    fn a_machine_that_has_become_busy_is_not_a_creep() {
        let with_yards = |late_us: u64| {
            let watch = watch();
            for (no, part) in watch.parts.iter().enumerate() {
                let is_late = no >= 7;
                for n in 0..JUDGED_COUNT_MIN {
                    let slow_us = if is_late { 300_000 } else { 10_000 };
                    part.short.note(Duration::from_micros(if n % 500 == 0 { slow_us } else { 60 }));
                }
                part.yards.note(Duration::from_micros(if is_late { late_us } else { 20 }));
                part.syncs.note(Duration::from_millis(1));
            }
            let (mut counters, mut problems) = (Counters::default(), Vec::new());
            watch.judge(&mut counters, &mut problems);
            problems.len()
        };
        assert_eq!((with_yards(20), with_yards(4_000)), (1, 0));
    }

    #[test]
    fn a_creep_of_the_slowest_alone_is_a_problem() {
        let watch = watch();
        for (no, part) in watch.parts.iter().enumerate() {
            for n in 0..JUDGED_COUNT_MIN {
                let slowest_us = if no >= 6 { 500_000 } else { 5_000 };
                part.short.note(Duration::from_micros(if n % 500 == 0 { slowest_us } else { 60 }));
            }
            part.syncs.note(Duration::from_millis(1));
        }
        let (mut counters, mut problems) = (Counters::default(), Vec::new());
        watch.judge(&mut counters, &mut problems);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("the p999 of"), "{problems:?}");
    }
}
