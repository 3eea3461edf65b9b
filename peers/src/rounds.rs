//! All runs of all peers, in turns: each round takes every peer through a section, in another order, each in a process
//! of its own on a fresh directory. What was measured before stays in the JSON until its section or its case is
//! measured again.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::book::{Book, Measured};
use crate::experiments::{Run, SECTIONS, Section};
use crate::peer::{Entry, PEERS};
use crate::{measure, page, peers};

/// `peers run`.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// Measure these sections only.
    #[arg(long, value_delimiter = ',')]
    section: Vec<String>,
    /// Measure these peers only.
    #[arg(long, value_delimiter = ',')]
    peer: Vec<String>,
    /// Measure these cases of the section only, and leave its other rows as they were; `*` stands for anything.
    #[arg(long, value_delimiter = ';', requires = "section")]
    case: Vec<String>,
    /// Short: one round of short cases.
    #[arg(long)]
    quick: bool,
    /// Number of rounds, however long they take; the median of all counts. Without this, one if short, or else up to
    /// three.
    #[arg(long)]
    rounds: Option<u64>,
    /// Make the directories of the runs here. Choose a place on the device to measure.
    #[arg(long, default_value = ".")]
    tmp: PathBuf,
    #[command(flatten)]
    page: PageArgs,
}

/// `peers page`.
#[derive(Clone, Debug, clap::Args)]
pub struct PageArgs {
    /// The figures.
    #[arg(long)]
    json: PathBuf,
    /// The page, whose part between two marks is written.
    #[arg(long)]
    out: PathBuf,
}

/// Measures, and writes after each section.
///
/// # Errors
/// There is no such section or peer, files cannot be written, or runs failed.
pub fn run(args: &RunArgs) -> anyhow::Result<()> {
    let sections = chosen(&args.section, &SECTIONS, |section| section.name)?;
    let entries = chosen(&args.peer, &PEERS, |entry| entry.name)?;
    let rounds = args.rounds.unwrap_or(if args.quick { 1 } else { 3 });
    let machine = machine(&args.tmp);
    touch_memory();
    let mut handover_ns = (0..40).map(|_| measure::handover_ns()).fold(f64::MAX, f64::min);
    let mut failure_count = 0;
    for section in sections {
        let began = Instant::now();
        let (mut runs, mut failures) = (Vec::new(), Vec::new());
        let entries: Vec<_> = entries
            .iter()
            .filter(|entry| section.without.iter().all(|(name, _)| *name != entry.name))
            .filter(|entry| entry.version() != "not installed")
            .collect();
        let mut round = 0;
        while round < rounds {
            // Fewer rounds than wanted are better than a run that nobody waits for; a short run has one anyway.
            let each_s = began.elapsed().as_secs_f64() / round.max(1) as f64;
            if round > 0 && args.rounds.is_none() && each_s * (round + 1) as f64 > section.budget_s {
                break;
            }
            for entry in in_turn(&entries, round) {
                match one(section, entry, round, handover_ns, args) {
                    Ok(run) => {
                        let seen = run.figures.iter().map(|figure| figure.handover_ns).filter(|&ns| ns > 0.0);
                        handover_ns = seen.fold(handover_ns, f64::min);
                        eprintln!("{}, {}, round {}: {:.1} s", section.name, entry.title, round + 1, run.seconds);
                        runs.push(run);
                    }
                    Err(error) => {
                        eprintln!("{}, {}, round {}: FAILED: {error:#}", section.name, entry.title, round + 1);
                        failures.push(format!("{}: {error:#}", entry.title));
                    }
                }
            }
            round += 1;
        }
        failure_count += failures.len();
        let versions = entries.iter().map(|entry| (entry.name.to_owned(), entry.version())).collect();
        let measured = Measured {
            machine: machine.clone(),
            revision: said("git", &["rev-parse", "--short=10", "HEAD"]),
            day: said("date", &["-u", "+%Y-%m-%d"]),
            versions,
            is_quick: args.quick,
            rounds: round,
            seconds: began.elapsed().as_secs_f64(),
            runs,
            failures,
            parts: Vec::new(),
        };
        let mut book = read(&args.page.json)?;
        match args.case.is_empty() {
            true => drop(book.sections.insert(section.name.to_owned(), measured)),
            false => book.add_part(section.name, measured)?,
        }
        std::fs::write(&args.page.json, format!("{}\n", serde_json::to_string(&book)?))?;
        write_page(&args.page)?;
    }
    ensure!(failure_count == 0, "{failure_count} runs failed");
    Ok(())
}

/// Writes the page from the figures that are there.
///
/// # Errors
/// Files cannot be read or written.
pub fn write_page(args: &PageArgs) -> anyhow::Result<()> {
    page::write(&read(&args.json)?, &args.out)
}

fn read(path: &Path) -> anyhow::Result<Book> {
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("{} is not ours", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Book::default()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn chosen<'a, T>(names: &[String], all: &'a [T], name_of: fn(&T) -> &'static str) -> anyhow::Result<Vec<&'a T>> {
    if names.is_empty() {
        return Ok(all.iter().collect());
    }
    let find = |name: &String| all.iter().find(|one| name_of(one) == name).with_context(|| format!("no {name:?} here"));
    names.iter().map(find).collect()
}

/// Every round begins with another peer, and every second goes the other way.
fn in_turn<T: Copy>(all: &[T], round: u64) -> Vec<T> {
    let mut turned = all.to_vec();
    turned.rotate_left(round as usize % all.len().max(1));
    if round % 2 == 1 {
        turned.reverse();
    }
    turned
}

/// Uses half of the free memory once. A virtual machine may get its memory only when it uses it for the first time, and
/// then whoever is measured first pays for that.
fn touch_memory() {
    const STEP_BYTES: usize = 256 << 20;
    const PAGE_BYTES: usize = 4096;
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = text.lines().find_map(|line| line.strip_prefix("MemFree:")?.trim().split(' ').next()?.parse().ok());
    let count = free.unwrap_or(0_usize) * 1024 / 2 / STEP_BYTES;
    let held: Vec<Vec<u8>> = (0..count)
        .map(|_| {
            let mut bytes = vec![0; STEP_BYTES];
            bytes.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
            bytes
        })
        .collect();
    drop(std::hint::black_box(held));
}

fn one(section: &Section, entry: &Entry, round: u64, handover_ns: f64, args: &RunArgs) -> anyhow::Result<Run> {
    let limit = Duration::from_secs(if args.quick { 90 } else { 400 });
    let tmp = args.tmp.canonicalize().with_context(|| format!("there is no {}", args.tmp.display()))?;
    let dir = Directory(tmp.join(format!("run-{}", std::process::id())));
    std::fs::create_dir(&dir.0)?;
    let out = dir.0.join("figures");
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["one", "--section", section.name, "--peer", entry.name, "--dir"]).arg(&dir.0);
    command.envs(section.variables.iter().copied());
    command.args(args.quick.then_some("--quick")).args(["--handover-ns", &handover_ns.to_string()]);
    command.args(args.case.iter().flat_map(|case| ["--case", case]));
    let errors = dir.0.join("errors");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&out)?)
        .stderr(std::fs::File::create(&errors)?)
        .spawn()?;
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if began.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("killed at its limit of {} s", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    if !status.success() {
        let said = std::fs::read_to_string(&errors)?.split_whitespace().collect::<Vec<_>>().join(" ");
        bail!("{status}: {}", said.chars().take(400).collect::<String>());
    }
    let mut run: Run = serde_json::from_str(&std::fs::read_to_string(&out)?).context("its figures are not JSON")?;
    run.round = round;
    Ok(run)
}

/// A run's directory, which goes with this value; so does a server that was left in it.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            peers::postgres::end(&entry.path());
        }
        // What cannot be removed stays where it can be seen.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The first line that a program says; nothing if it cannot be run.
fn said(program: &str, words: &[&str]) -> String {
    let said = Command::new(program).args(words).stderr(Stdio::null()).output();
    said.map_or(String::new(), |said| String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

/// The processor, the memory, the kernel, and the file system that holds `path`.
fn machine(path: &Path) -> String {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let after = |text: String, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        line.split_once(':').map_or("?".into(), |(_, value)| value.trim().to_owned())
    };
    let processor = after(text("/proc/cpuinfo"), "model name");
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = after(text("/proc/meminfo"), "MemTotal");
    let memory_mib = memory.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024;
    let kernel = text("/proc/sys/kernel/osrelease");
    let path = path.canonicalize().unwrap_or_default();
    let mounts = text("/proc/mounts");
    let mount = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|fields| fields.len() > 2 && path.starts_with(fields[1]))
        .max_by_key(|fields| fields[1].len());
    let place = mount.map_or("?".into(), |fields| format!("{} on {}", fields[2], fields[0]));
    format!("{processor}, {count} processors, {memory_mib} MiB, Linux {}, {place}", kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::in_turn;

    #[test]
    fn every_round_has_another_order() {
        assert_eq!(in_turn(&[1, 2, 3], 0), [1, 2, 3]);
        assert_eq!(in_turn(&[1, 2, 3], 1), [1, 3, 2]);
        assert_eq!(in_turn(&[1, 2, 3], 2), [3, 1, 2]);
    }
}
