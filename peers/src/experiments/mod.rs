//! The experiments, one file each. A run is a process of its own that takes one peer through one section on fresh
//! directories.

pub mod bank;
mod choice;
mod commits;
mod growth;
mod loads;
mod memory;
mod reads;
mod restart;
mod tpcb;
mod written;
mod ycsb;

pub use restart::{Victim, be_victim};

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::choice::Choice;
use crate::measure::{self, Figure, Operation, Random};
use crate::peer::{Durability, Entry, Kind, Peer, RECORDS, Settings};

/// A group of cases that one process measures.
pub struct Section {
    /// On the command line and in JSON.
    pub name: &'static str,
    /// The heading of its tables.
    pub title: &'static str,
    /// What is measured.
    pub about: &'static str,
    run: fn(&Bench<'_>) -> anyhow::Result<()>,
    /// Seconds that the rounds of a whole run may take together: another round begins only if it will fit.
    pub budget_s: f64,
    /// Peers that are left out, with why.
    pub without: &'static [(&'static str, &'static str)],
    /// True if each case can be measured without the others.
    pub has_single_cases: bool,
    /// Variables in the environment of each process.
    pub variables: &'static [(&'static str, &'static str)],
    /// The plot: name of its file, prefix of the cases that are its lines' points.
    pub plots: &'static [(&'static str, &'static str)],
}

/// The C library gives threads heaps of their own, up to eight for each processor. What was freed in one is of no use
/// to the others, and some stores took three times their cache.
const ONE_HEAP: &[(&str, &str)] = &[("MALLOC_ARENA_MAX", "1")];

const SERVER: (&str, &str) = ("postgres", "a server's round trips would be all that is seen");

/// All of them, in the order of the page.
pub const SECTIONS: [Section; 9] = [
    Section {
        name: "tpcb",
        title: "TPC-B as LIBTP ran it",
        about: "Transactions a second. A transfer changes an account, a teller and a branch, and adds a row of history \
                (LIBTP 5.1). The bank has 1,000,000 accounts, with 10 branches and with 100; the small one has 1,000 \
                accounts. After each run every balance is held against the history; a run that disagrees is no run.",
        run: tpcb::run,
        budget_s: 870.0,
        without: &[],
        has_single_cases: true,
        variables: &[],
        plots: &[
            ("without-sync", "without sync, 10 branches, "),
            ("without-sync-100", "without sync, 100 branches, "),
            ("sync", "sync, 10 branches, "),
            ("sync-100", "sync, 100 branches, "),
            ("read-only", "read-only, "),
            ("snapshot", "read-only, at a snapshot, "),
        ],
    },
    Section {
        name: "commits",
        title: "One write a transaction, with sync",
        about: "Commits a second. Each transaction writes one new record of 100 bytes, and is durable when its commit \
                returns. \"Pipelined\" is durable later, with at most 1,024 commits of a thread under way.",
        run: commits::run,
        budget_s: 200.0,
        without: &[],
        has_single_cases: true,
        variables: &[],
        plots: &[("commits", "sync, ")],
    },
    Section {
        name: "reads",
        title: "Point reads and scans",
        about: "1,000,000 records of 8 + 100 bytes, in the cache. A read is a transaction of its own. \"Cold\" is after \
                the store was closed, the system was told to forget its files, and the store was opened again. A scan of \
                all goes through the table in pieces of 20,000 records, and one by Zipf begins each piece at a key that \
                is drawn. Both count records, and scans of 100 count scans.",
        run: reads::run,
        budget_s: 330.0,
        without: &[SERVER],
        has_single_cases: true,
        variables: &[],
        plots: &[],
    },
    Section {
        name: "loads",
        title: "Loads",
        about: "Records a second of one transaction, with its commit, a checkpoint and the close. \"Sorted, loader\" is \
                Ledgerstone's own loader. The loaders of the others are not measured.",
        run: loads::run,
        budget_s: 260.0,
        without: &[SERVER],
        has_single_cases: false,
        variables: &[],
        plots: &[],
    },
    Section {
        name: "memory",
        title: "Larger than memory",
        about: "The table is about four times what the control group of the run may use, page cache of the system \
                included. Operations a second; an update reads a record and writes it.",
        run: memory::run,
        budget_s: 240.0,
        without: &[SERVER],
        has_single_cases: false,
        variables: ONE_HEAP,
        plots: &[],
    },
    Section {
        name: "written",
        title: "Bytes written by TPC-B",
        about: "One thread, without sync, 1,000,000 accounts and 10 branches, after a checkpoint. What is written counts \
                the transfers, a checkpoint after the last one, and the close.",
        run: written::run,
        budget_s: 100.0,
        without: &[SERVER],
        has_single_cases: false,
        variables: &[],
        plots: &[],
    },
    Section {
        name: "restart",
        title: "Restart after a kill",
        about: "A process is killed after its last commit has become durable. The next one opens the store, reads one \
                record, and goes on. \"Full speed\" is when a tenth of a second has three quarters of the transactions \
                that it had before the kill.",
        run: restart::run,
        budget_s: 160.0,
        without: &[SERVER],
        has_single_cases: false,
        variables: &[],
        plots: &[],
    },
    Section {
        name: "ycsb",
        title: "YCSB",
        about: "Operations a second of the six core workloads, each operation a transaction, records of 8 + 100 bytes, \
                without sync. A: half reads, half updates. B: 95 % reads. C: reads only. D: 95 % reads of the newest, \
                5 % inserts. E: 95 % scans of up to 100, 5 % inserts; they read at a snapshot where the peer has snapshots. F: half reads, \
                half read-modify-writes.",
        run: ycsb::run,
        budget_s: 160.0,
        without: &[SERVER],
        has_single_cases: true,
        variables: &[],
        plots: &[],
    },
    Section {
        name: "growth",
        title: "Growth",
        about: "Single reads and single updates without sync by one thread, as the table grows. The load is the peer's own \
                loader or batches in ascending order, with a checkpoint.",
        run: growth::run,
        budget_s: 260.0,
        without: &[SERVER],
        has_single_cases: true,
        variables: &[],
        plots: &[("growth-reads", "reads, "), ("growth-updates", "updates, ")],
    },
];

/// What one process found out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// The peer's name.
    pub peer: String,
    /// The round, from 0.
    pub round: u64,
    /// Every case.
    pub figures: Vec<Figure>,
    /// The process's memory at its highest, MiB: mapped files count.
    pub resident_mib: f64,
    /// What was proved of the data.
    pub proved: Vec<String>,
    /// Remarks that the page shows.
    pub remarks: Vec<String>,
    /// Seconds of the whole process.
    pub seconds: f64,
    /// All cases in their order, if some were left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<String>,
}

/// How a run is done.
#[derive(Clone, Debug)]
pub struct How {
    /// Short.
    pub is_quick: bool,
    /// Cases that others disturbed are measured again, at most so many.
    pub repeats: u64,
    /// Nanoseconds that a line takes at best from one processor to another; 0 if that is not known.
    pub handover_ns: f64,
    /// Records of the section of loads, if they are not the page's.
    pub records: Option<u64>,
    /// Patterns of the cases to measure; none for all.
    pub cases: Vec<String>,
}

/// One run.
pub struct Bench<'a> {
    /// The peer.
    pub entry: &'static Entry,
    /// The run's directory, empty.
    pub dir: &'a Path,
    /// Short.
    pub is_quick: bool,
    /// Records of the section of loads, if they are not the page's.
    pub records: Option<u64>,
    choice: Choice,
    repeats_left: Cell<u64>,
    /// What a line takes at best from one processor to another, as far as it is known.
    handover_ns: Cell<f64>,
    run: RefCell<Run>,
}

impl Section {
    /// Takes a peer through the section.
    ///
    /// # Errors
    /// The peer's, and data that are not as they must be.
    pub fn run(&self, entry: &'static Entry, dir: &Path, how: How) -> anyhow::Result<Run> {
        let began = std::time::Instant::now();
        let run = Run { peer: entry.name.to_owned(), ..Run::default() };
        let How { is_quick, repeats, handover_ns, records, cases } = how;
        anyhow::ensure!(cases.is_empty() || self.has_single_cases, "{} has no cases that can be had alone", self.name);
        let choice = Choice::new(cases);
        let (repeats_left, handover_ns) = (Cell::new(repeats), Cell::new(handover_ns));
        let run = RefCell::new(run);
        let bench = Bench { entry, dir, is_quick, records, choice, repeats_left, handover_ns, run };
        (self.run)(&bench)?;
        let mut run = bench.run.into_inner();
        run.order = bench.choice.into_order();
        run.resident_mib = measure::status_mib("self", "VmHWM");
        run.seconds = began.elapsed().as_secs_f64();
        Ok(run)
    }
}

impl<'a> Bench<'a> {
    /// `quick` in short runs, `whole` in others.
    pub fn choose<T>(&self, quick: T, whole: T) -> T {
        if self.is_quick { quick } else { whole }
    }

    /// How long a case is measured.
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.choose(250, 500))
    }

    /// A fresh directory of the run.
    pub fn fresh(&self, name: &str) -> anyhow::Result<PathBuf> {
        let dir = self.dir.join(name);
        std::fs::create_dir(&dir)?;
        Ok(dir)
    }

    /// A store in a fresh directory.
    pub fn open(&self, name: &str) -> anyhow::Result<(Box<dyn Peer>, PathBuf)> {
        let dir = self.fresh(name)?;
        Ok((self.entry.open(Settings::roomy(&dir))?, dir))
    }

    /// Keeps a figure, if its case is asked for.
    pub fn add(&self, figure: Figure) {
        if self.choice.takes(&figure.case) {
            self.run.borrow_mut().figures.push(figure);
        }
    }

    /// Keeps what was proved.
    pub fn proved(&self, what: impl Into<String>) {
        self.run.borrow_mut().proved.push(what.into());
    }

    /// What a peer has written by its own count, by what it is: a figure for each, in `unit` of so many bytes.
    pub fn add_parts(&self, what: &str, parts: &[(&str, u64)], since: &[(&str, u64)], unit: &'static str, bytes: f64) {
        for (part, written) in parts {
            let before = since.iter().find(|(name, _)| name == part).map_or(0, |(_, before)| *before);
            self.add(Figure::plain(format!("{what}, of these {part}"), (written - before) as f64 / bytes, unit, false));
        }
    }

    /// Keeps a remark.
    pub fn remark(&self, what: impl Into<String>) {
        self.run.borrow_mut().remarks.push(what.into());
    }

    /// Measures a case with `f` if it is asked for, again if others disturbed or the processors lay far apart (M3, M4).
    pub fn steady(&self, case: &str, mut f: impl FnMut() -> anyhow::Result<Figure>) -> anyhow::Result<()> {
        if !self.choice.takes(case) {
            return Ok(());
        }
        let mut measure = || {
            let mut figure = f()?;
            if figure.handover_ns > 0.0 {
                let best_ns = self.handover_ns.get();
                self.handover_ns.set(if best_ns > 0.0 { best_ns.min(figure.handover_ns) } else { figure.handover_ns });
                figure.is_far = figure.handover_ns > self.handover_ns.get() * measure::FAR_MIN;
            }
            anyhow::Ok(figure)
        };
        let mut best = measure()?;
        let mut repeated = 0;
        while (best.is_disturbed() || best.is_far) && repeated < 2 && self.repeats_left.get() > 0 {
            self.repeats_left.set(self.repeats_left.get() - 1);
            repeated += 1;
            let again = measure()?;
            let badness = |figure: &Figure| f64::from(u8::from(figure.is_far)) + figure.foreign + figure.steal;
            if badness(&again) < badness(&best) {
                best = again;
            }
        }
        best.repeated = repeated;
        self.add(best);
        Ok(())
    }

    /// Measures a crowd of threads.
    pub fn crowd<'b>(
        &self,
        peer: &dyn Peer,
        durability: Durability,
        thread_count: u64,
        case: &str,
        make: &'b (dyn Fn(u64) -> Operation<'b> + Sync),
    ) -> anyhow::Result<()> {
        self.steady(case, || measure::crowd(peer, durability, thread_count, self.time(), case, make))
    }
}

/// `threads` of something, with the right number.
pub fn threads(count: u64) -> String {
    if count == 1 { "1 thread".into() } else { format!("{count} threads") }
}

/// A record of so many bytes, without anything that compression could shorten.
pub fn record(key: u64, length: usize) -> Vec<u8> {
    let mut value = vec![0; length];
    Random::new(key).fill(&mut value);
    value
}

/// Loads keys 0 to `count` - 1 into an empty table: by the peer's own loader, or in transactions of a size that every
/// peer takes.
///
/// # Errors
/// The peer's.
pub fn load(peer: &dyn Peer, table: usize, count: u64, make: &dyn Fn(u64) -> Vec<u8>) -> anyhow::Result<()> {
    const BATCH: u64 = 50_000;
    if let Some(loaded) = peer.load(table, &mut (0..count).map(|key| (key, make(key)))) {
        return loaded;
    }
    let mut worker = peer.worker(Durability::None)?;
    for from in (0..count).step_by(BATCH as usize) {
        worker.run(Kind::Write, &mut |txn| {
            (from..(from + BATCH).min(count)).try_for_each(|key| txn.append(table, key, &make(key)))
        })?;
    }
    Ok(())
}

/// Loads the table of records.
///
/// # Errors
/// The peer's.
pub fn fill(peer: &dyn Peer, count: u64, length: usize) -> anyhow::Result<()> {
    load(peer, RECORDS, count, &|key| record(key, length))?;
    peer.checkpoint()
}

/// Reads one record that must be there, in a transaction of its own.
///
/// # Errors
/// The peer's, and a record that is not there.
pub fn read_one(worker: &mut dyn crate::peer::Worker, key: u64, value: &mut Vec<u8>) -> anyhow::Result<()> {
    worker.run(Kind::One, &mut |txn| match txn.get(RECORDS, key, value)? {
        true => Ok(()),
        false => Err(crate::peer::Failure::Other(anyhow::anyhow!("record {key} is missing"))),
    })?;
    Ok(())
}

/// Changes the number of one record that must be there, in a transaction of its own. Returns how often it was run
/// again.
///
/// # Errors
/// The peer's, and a record that is not there.
pub fn add_one(worker: &mut dyn crate::peer::Worker, key: u64) -> anyhow::Result<u64> {
    worker.run(Kind::Write, &mut |txn| match txn.add(RECORDS, key, 1)? {
        true => Ok(()),
        false => Err(crate::peer::Failure::Other(anyhow::anyhow!("record {key} is missing"))),
    })
}

/// Tells the system to write the files below `dir` and to forget what they hold.
///
/// # Errors
/// The system's.
pub fn forget(dir: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            forget(&path)?;
            continue;
        }
        let file = std::fs::File::open(&path)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}
