//! Who starts the processes, does to them what it does, and looks whether the others go on.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyhow::Context;
use ledgerstone_examples::counter_list::CounterList;
use ledgerstone_region::{Mutex, Random};
use rustix::process::{Pid, Signal, kill_process};

use super::{COUNTS, LIST, PATIENCE, SECOND, options};
use crate::counters::Counters;
use crate::soak;

/// How it is run.
#[derive(Debug, Clone, clap::Args)]
pub struct KillsArgs {
    /// How many kills.
    #[arg(long, default_value_t = 1000)]
    pub rounds: u64,
    /// What is done is drawn from it, but not when the processes run.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Directory for the environment, instead of the system's for temporary files.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Private memory of one process in twenty, in MiB: a large one is long in ending.
    #[arg(long, default_value_t = 4096)]
    pub private_mib: usize,
    /// Keep what is there after a failure.
    #[arg(long)]
    pub keep: bool,
}

/// What a run came to.
#[derive(Debug, Default)]
pub struct Report {
    /// What was done.
    pub counters: Counters,
    /// What is wrong; empty if nothing is.
    pub problems: Vec<String>,
    /// Why the environment failed, each time.
    pub failures: Vec<String>,
    /// The longest time without a commit, after a kill.
    pub longest: Duration,
    /// The longest time that a process took to leave, its last calls included.
    pub longest_leave: Duration,
}

/// What a process has said.
#[derive(Default)]
struct Said {
    is_open: AtomicBool,
    wrong: Mutex<Vec<String>>,
}

struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    said: Arc<Said>,
    is_stopped: bool,
}

struct Stage<'s> {
    args: &'s KillsArgs,
    dir: &'s Path,
    region_dir: &'s Path,
    random: Random,
    processes: Vec<Process>,
    started: u64,
    report: Report,
}

/// A directory for a region, which goes when this is dropped.
///
/// # Errors
/// It cannot be made.
pub fn dir_in_memory() -> anyhow::Result<tempfile::TempDir> {
    let memory = if Path::new("/dev/shm").is_dir() { tempfile::tempdir_in("/dev/shm") } else { tempfile::tempdir() };
    memory.context("no directory in memory")
}

/// Runs so many kills.
///
/// # Errors
/// What keeps it from working: no process can be started, no directory be made.
pub fn run(args: &KillsArgs) -> anyhow::Result<Report> {
    let dir = match &args.dir {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    };
    let dir = dir.context("no temporary directory")?;
    let memory = dir_in_memory()?;
    let env = options(dir.path(), memory.path()).open(dir.path().join("env"))?;
    soak::users::set_up(&env)?;
    env.transact(|txn| {
        CounterList::create(txn, LIST)?;
        txn.create_table(COUNTS).map(drop)
    })?;
    env.close()?;
    let mut stage = Stage {
        args,
        dir: dir.path(),
        region_dir: memory.path(),
        random: Random::new(args.seed),
        processes: Vec::new(),
        started: 0,
        report: Report::default(),
    };
    stage.act()?;
    let report = std::mem::take(&mut stage.report);
    drop(stage);
    if args.keep && !report.problems.is_empty() {
        println!("kept: {} {}", dir.keep().display(), memory.keep().display());
    }
    Ok(report)
}

impl Process {
    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal); // It may have ended.
        }
    }

    /// Kills it and waits for its end.
    fn kill(&mut self) {
        let _ = self.child.kill(); // As above.
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Stage<'_> {
    fn act(&mut self) -> anyhow::Result<()> {
        let mut count_wanted = self.random.between(2, 8);
        let mut kills = 0;
        while kills < self.args.rounds && self.report.problems.len() < 10 {
            if self.random.percent(5) {
                count_wanted = self.random.between(2, 8);
            }
            while (self.processes.len() as u64) < count_wanted {
                self.start()?;
            }
            std::thread::sleep(Duration::from_micros(self.random.below(30_000)));
            let victim = self.random.below(self.processes.len() as u64) as usize;
            match self.random.below(20) {
                0 => {
                    self.kill_all();
                    kills += 1;
                    self.report.counters.add("kills of all", 1);
                    self.check("after a kill of all")?;
                    continue;
                }
                1..4 => {
                    // Leaves in order, or is killed while it does.
                    let mut process = self.processes.swap_remove(victim);
                    drop(process.stdin.take());
                    if self.random.percent(50) {
                        std::thread::sleep(Duration::from_micros(self.random.below(10_000)));
                        process.kill();
                        kills += 1;
                    } else {
                        self.await_leave(&mut process)?;
                    }
                    self.hear(&process);
                }
                4..6 => {
                    let process = &mut self.processes[victim];
                    process.signal(Signal::STOP);
                    process.is_stopped = true;
                    std::thread::sleep(Duration::from_millis(self.random.below(300)));
                    self.report.counters.add("stops", 1);
                    if self.random.percent(50) {
                        self.processes.swap_remove(victim).kill();
                        kills += 1;
                    } else {
                        self.processes[victim].signal(Signal::CONT);
                        self.processes[victim].is_stopped = false;
                    }
                }
                _ => {
                    let mut process = self.processes.swap_remove(victim);
                    let is_early = !process.said.is_open.load(SeqCst);
                    self.report.counters.add(if is_early { "kills while it opens" } else { "kills" }, 1);
                    process.kill();
                    kills += 1;
                    self.hear(&process);
                }
            }
            self.await_commit()?;
        }
        self.report.counters.add("kills in all", kills);
        for mut process in std::mem::take(&mut self.processes) {
            drop(process.stdin.take());
            self.await_leave(&mut process)?;
            let status = process.child.wait();
            self.hear(&process);
            if !status.is_ok_and(|status| status.success()) {
                self.report.problems.push("a process did not leave in order".into());
            }
        }
        self.check("in the end")
    }

    fn start(&mut self) -> anyhow::Result<()> {
        self.started += 1;
        let is_large = self.random.percent(5);
        let private_bytes = if is_large { self.args.private_mib << 20 } else { 0 };
        let mut child = Command::new(std::env::current_exe()?)
            .arg("kills-child")
            .args([self.dir, self.region_dir])
            .args([self.started.to_string(), self.random.between(1, 4).to_string(), private_bytes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let said = Arc::new(Said::default());
        for out in [
            child.stdout.take().map(|out| Box::new(out) as Box<dyn std::io::Read + Send>),
            child.stderr.take().map(|out| Box::new(out) as _),
        ]
        .into_iter()
        .flatten()
        {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    match line.as_str() {
                        "open" => said.is_open.store(true, SeqCst),
                        _ => said.wrong.lock().push(line),
                    }
                }
            });
        }
        let stdin = child.stdin.take();
        self.processes.push(Process { child, stdin, said, is_stopped: false });
        self.report.counters.add("processes", 1);
        Ok(())
    }

    fn kill_all(&mut self) {
        self.processes.iter().for_each(|process| process.signal(Signal::KILL));
        for mut process in std::mem::take(&mut self.processes) {
            process.kill();
            self.hear(&process);
        }
    }

    /// Notes what a process has said that is wrong.
    fn hear(&mut self, process: &Process) {
        for line in std::mem::take(&mut *process.said.wrong.lock()) {
            match line.split_once("the environment has failed") {
                Some(_) => self.report.failures.push(line),
                None => self.report.problems.push(format!("process {}: {line}", process.child.id())),
            }
        }
    }

    /// A process that was told to leaves, within [`PATIENCE`].
    fn await_leave(&mut self, process: &mut Process) -> anyhow::Result<()> {
        let began = Instant::now();
        while process.child.try_wait()?.is_none() {
            if began.elapsed() > PATIENCE / 3 {
                let pid = process.child.id();
                self.report.problems.push(format!("process {pid} does not leave"));
                self.hang(&[pid]);
                process.kill();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.report.counters.add("leaves", 1);
        self.report.longest_leave = self.report.longest_leave.max(began.elapsed());
        Ok(())
    }

    /// Leaves them as they are, to be looked at, if that was asked for.
    fn hang(&self, pids: &[u32]) {
        if self.args.keep {
            println!("hangs: {pids:?}");
            std::thread::sleep(Duration::from_secs(3600));
        }
    }

    /// How many commits all processes were told of.
    fn told(&self) -> u64 {
        let files = std::fs::read_dir(self.dir).into_iter().flatten().flatten();
        let told = files.filter(|file| file.file_name().to_string_lossy().starts_with("told-"));
        told.filter_map(|file| std::fs::read(file.path()).ok()?.try_into().ok().map(u64::from_le_bytes)).sum()
    }

    /// J1. If nobody is left who works, one is started.
    fn await_commit(&mut self) -> anyhow::Result<()> {
        if self.processes.is_empty() {
            self.start()?;
        }
        let (before, began) = (self.told(), Instant::now());
        let mut is_counted = false;
        while self.told() <= before {
            let waited = began.elapsed();
            if waited > SECOND && !is_counted {
                is_counted = true;
                self.report.counters.add("waits of more than a second", 1);
            }
            let has_failed = self.processes.iter().any(|process| {
                process.said.wrong.lock().iter().any(|line| line.contains("the environment has failed"))
            });
            if has_failed {
                self.report.counters.add("failures of the environment", 1);
                self.kill_all();
                return self.check("after a failure");
            }
            if waited > PATIENCE {
                let pids: Vec<u32> = self.processes.iter().map(|process| process.child.id()).collect();
                self.report.problems.push(format!("nobody commits any more; processes {pids:?}"));
                self.hang(&pids);
                self.kill_all();
                return Ok(());
            }
            // Those that end by themselves are missed.
            for at in (0..self.processes.len()).rev() {
                if self.processes[at].child.try_wait()?.is_some() {
                    let process = self.processes.swap_remove(at);
                    std::thread::sleep(Duration::from_millis(20)); // For its last words.
                    self.report.counters.add("processes that ended by themselves", 1);
                    self.hear(&process);
                }
            }
            if self.processes.is_empty() {
                self.start()?;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.report.longest = self.report.longest.max(began.elapsed());
        Ok(())
    }

    /// J2 and J4. Nobody has the environment.
    fn check(&mut self, when: &str) -> anyhow::Result<()> {
        let env = options(self.dir, self.region_dir).open(self.dir.join("env")).with_context(|| when.to_owned())?;
        for found in env.in_doubt() {
            env.abort_in_doubt(&found.global_id)?;
        }
        soak::check(&env, when, &mut self.report.problems)?;
        for file in std::fs::read_dir(self.dir)?.flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let Some(pid) = name.strip_prefix("told-").and_then(|pid| pid.parse::<u32>().ok()) else { continue };
            let Ok(told) = std::fs::read(file.path())?.try_into() else { continue }; // It was killed just there.
            let told = u64::from_le_bytes(told);
            let count = env.transact(|txn| txn.bytes(COUNTS)?.get(&pid.to_be_bytes()))?;
            let count = count.map_or(0, |count| soak::users::number(&count));
            if count < told {
                self.report.problems.push(format!("{when}: process {pid} was told {told}, and {count} are there"));
            }
        }
        let sum =
            env.transact(|txn| Ok(CounterList::open(txn, LIST)?.all()?.iter().map(|(_, number)| number).sum::<i64>()))?;
        if sum != 0 {
            self.report.problems.push(format!("{when}: the numbers of the list add up to {sum}"));
        }
        env.close()?;
        Ok(())
    }
}
