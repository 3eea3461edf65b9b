//! `ledgerstone-sim`: crashes, histories and planted bugs, from the command line.
//!
//! Each command ends with one line: what was run and what failed. Whatever fails prints the seed that repeats it.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use ledgerstone_sim::counters::Counters;
use ledgerstone_sim::crash::plan::{Plan, Wishes};
use ledgerstone_sim::crash::round::{self, Failure, Prepared, Talk};
use ledgerstone_sim::crash::shrink::shrink;
use ledgerstone_sim::faults::plan::FaultPlan;
use ledgerstone_sim::faults::round as faults;
use ledgerstone_sim::histories::check::check;
use ledgerstone_sim::histories::history::History;
use ledgerstone_sim::histories::workload::{self, Size};
use ledgerstone_sim::kills;
use ledgerstone_sim::log_end;
use ledgerstone_sim::planted::{self, Bug};
use ledgerstone_sim::soak;
use ledgerstone_sim::worker::{Share, Tally, run_workers, work};

/// Simulated power failures and serializability checks of the whole engine.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Random transactions, power failures and kills at any write, recovery, and a comparison with a model.
    Crash(CrashArgs),
    /// Random transactions on a disk that fails, lies or stores other bytes at one call, and a comparison with a model.
    Faults(RawFaultArgs),
    /// Backups beside random transactions and power failures; restores to a moment and repairs, and a comparison with a
    /// model.
    Media(FaultArgs),
    /// One file damaged after a close, a kill or a power failure, and what opening, reading and restoring say of it.
    Damage(RawFaultArgs),
    /// One log over several power failures and kills, and what a recovery reads of its end.
    LogEnd(FaultArgs),
    /// What the isolation levels promise to concurrent random transactions, simulated and on real threads.
    Histories(HistoryArgs),
    /// Everything at once in real files for a long time: does anything grow, slow down or stand still?
    Soak(SoakArgs),
    /// Real processes share one environment and are killed and stopped at random moments: do the others go on?
    Kills(kills::KillsArgs),
    /// One of these processes.
    #[command(hide = true)]
    KillsChild(kills::ChildArgs),
    /// Switches on each planted bug in turn and fails if no harness finds it.
    Planted(PlantedArgs),
    /// A share of the work, for a parent process.
    #[command(hide = true)]
    Worker(WorkerArgs),
}

#[derive(Args)]
struct CrashArgs {
    /// How many rounds.
    #[arg(long, default_value_t = 2000)]
    rounds: u64,
    /// The first round's seed; the next rounds count up from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Clients in each round, instead of a drawn number.
    #[arg(long)]
    clients: Option<u64>,
    /// Leave something out, to see what fails without it: `drops`, `space`.
    #[arg(long, value_parser = ["drops", "space"])]
    without: Vec<String>,
    /// Lock leaves instead of keys in every round.
    #[arg(long)]
    page_locks: bool,
    /// Each environment lives in a raw store, as on a block device.
    #[arg(long)]
    raw: bool,
    /// A bug to switch on (needs a build with the feature `planted`).
    #[arg(long)]
    planted: Option<String>,
    /// Run this seed alone, in this process.
    #[arg(long)]
    one_seed: Option<u64>,
    /// End the first life of each round at every change that it makes, one after the other. Without `--one-seed`, at
    /// each of the first 40.
    #[arg(long)]
    every_write: bool,
    /// With `--one-seed`: tell what happens.
    #[arg(long)]
    verbose: bool,
    /// With `--one-seed`: look for a smaller plan that fails, with at most so many tries.
    #[arg(long, value_name = "TRIES", num_args = 0..=1, default_missing_value = "2000")]
    shrink: Option<usize>,
    /// Worker processes; one for each processor if not given.
    #[arg(long)]
    workers: Option<u64>,
    /// Each worker stops after this many failures.
    #[arg(long, default_value_t = 3)]
    failures_max: u64,
}

#[derive(Args)]
struct FaultArgs {
    /// How many rounds.
    #[arg(long, default_value_t = 2000)]
    rounds: u64,
    /// The first round's seed; the next rounds count up from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run this seed alone, in this process.
    #[arg(long)]
    one_seed: Option<u64>,
    /// Worker processes; one for each processor if not given.
    #[arg(long)]
    workers: Option<u64>,
}

#[derive(Args)]
struct RawFaultArgs {
    #[command(flatten)]
    all: FaultArgs,
    /// Each environment lives in a raw store, and the device below it is what is harmed.
    #[arg(long)]
    raw: bool,
}

#[derive(Args)]
struct HistoryArgs {
    /// How many simulated rounds.
    #[arg(long, default_value_t = 500)]
    rounds: u64,
    /// The first round's seed; the next rounds count up from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Lock leaves instead of keys in every round.
    #[arg(long)]
    page_locks: bool,
    /// Run this simulated seed alone, in this process.
    #[arg(long)]
    one_seed: Option<u64>,
    /// Runs on real threads and a real directory.
    #[arg(long, default_value_t = 10)]
    thread_rounds: u64,
    /// Runs on real threads and a real directory that two to four processes share. Each thread works in one of them.
    #[arg(long, default_value_t = 10)]
    shared_rounds: u64,
    /// Threads of both.
    #[arg(long, default_value_t = 8)]
    threads: u64,
    /// Transactions of each thread.
    #[arg(long, default_value_t = 300)]
    transactions: u64,
    /// Worker processes; one for each processor if not given.
    #[arg(long)]
    workers: Option<u64>,
}

#[derive(Args)]
struct SoakArgs {
    /// How long.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// The users' actions are drawn from it, but not when each of them runs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory to make the environment's directory in, instead of the system's for temporary files.
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
}

#[derive(Args)]
struct PlantedArgs {
    /// Rounds for each bug before it counts as not found.
    #[arg(long, default_value_t = 60_000)]
    rounds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this one.
    #[arg(long)]
    only: Option<String>,
    /// Worker processes; one for each processor if not given.
    #[arg(long)]
    workers: Option<u64>,
}

#[derive(Args)]
struct WorkerArgs {
    #[arg(long)]
    histories: bool,
    #[arg(long)]
    faults: bool,
    #[arg(long)]
    media: bool,
    #[arg(long)]
    damage: bool,
    #[arg(long)]
    log_end: bool,
    #[arg(long)]
    clients: Option<u64>,
    #[arg(long)]
    without: Vec<String>,
    #[arg(long)]
    page_locks: bool,
    #[arg(long)]
    raw: bool,
    #[arg(long)]
    every_write: bool,
    #[arg(long)]
    planted: Option<String>,
    #[arg(long)]
    first: u64,
    #[arg(long)]
    step: u64,
    #[arg(long)]
    count: u64,
    #[arg(long)]
    failures_max: u64,
    #[arg(long)]
    worker: usize,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Crash(args) => crash(args),
        Command::Faults(args) => find_faults(&args),
        Command::Media(args) => media(&args),
        Command::Damage(args) => damage(&args),
        Command::LogEnd(args) => {
            campaign("log-end", false, &args, &[("power failures", "crashes"), ("kills", "kills")], log_end::run)
        }
        Command::Histories(args) => histories(args),
        Command::Soak(args) => run_soak(&args),
        Command::Kills(args) => run_kills(&args),
        Command::KillsChild(args) => kills::work(&args).map(|()| true).map_err(anyhow::Error::from),
        Command::Planted(args) => find_planted(&args),
        Command::Worker(args) => worker(&args),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Rounds that end a life at every change are as long as that. Few lives have more, and those go on alike.
const CHANGES_MAX: u64 = 40;

fn plant(name: Option<&str>) -> anyhow::Result<()> {
    name.map_or(Ok(()), |name| planted::plant(name).map_err(anyhow::Error::msg))
}

fn wishes(client_count: Option<u64>, without: &[String], locks_pages: bool, is_raw: bool) -> Wishes {
    let is_out = |what: &str| without.iter().any(|out| out == what);
    Wishes { client_count, no_space_trouble: is_out("space"), no_drops: is_out("drops"), locks_pages, is_raw }
}

fn worker_count(asked: Option<u64>) -> u64 {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |count| count.get() as u64)).max(1)
}

/// Prints how far it is, where somebody is looking.
fn progress(total: u64) -> impl FnMut(u64) {
    let shows = std::io::stderr().is_terminal();
    let start = Instant::now();
    move |done| {
        if shows {
            let rate = done as f64 / start.elapsed().as_secs_f64().max(0.001);
            eprint!("\r{done} of {total} rounds, {rate:.0} a second ");
            if done >= total {
                eprintln!();
            }
        }
    }
}

fn print_failures(command: &str, tally: &Tally) {
    for (seed, lines) in &tally.failures {
        println!("seed {seed} failed:");
        for line in lines.iter().take(60) {
            println!("  {line}");
        }
        println!("  again: ledgerstone-sim {command} --one-seed {seed}");
    }
}

fn crash(args: CrashArgs) -> anyhow::Result<bool> {
    plant(args.planted.as_deref())?;
    let wishes = wishes(args.clients, &args.without, args.page_locks, args.raw);
    if let Some(seed) = args.one_seed {
        return Ok(if args.every_write {
            one_every_write(seed, args.raw)
        } else {
            one_crash(seed, wishes, args.verbose, args.shrink)
        });
    }
    let workers = worker_count(args.workers);
    println!("crash: {} rounds from seed {} on {workers} processes", args.rounds, args.seed);
    let mut arguments = Vec::new();
    if let Some(count) = args.clients {
        arguments.extend(["--clients".to_owned(), count.to_string()]);
    }
    for what in &args.without {
        arguments.extend(["--without".to_owned(), what.clone()]);
    }
    if args.page_locks {
        arguments.push("--page-locks".to_owned());
    }
    if args.raw {
        arguments.push("--raw".to_owned());
    }
    if args.every_write {
        arguments.push("--every-write".to_owned());
    }
    if let Some(name) = &args.planted {
        arguments.extend(["--planted".to_owned(), name.clone()]);
    }
    let start = Instant::now();
    let tally = run_workers(&arguments, args.seed, args.rounds, workers, args.failures_max, progress(args.rounds))?;
    let raw = if args.raw { " --raw" } else { "" };
    print_failures(&format!("crash{raw}{}", if args.every_write { " --every-write" } else { "" }), &tally);
    println!("{}", tally.counters);
    println!(
        "crash: {} rounds from seed {} with {} power failures and {} kills ({} in recoveries) in {:.0} s, {} failed{}",
        tally.counters.get("rounds"),
        args.seed,
        tally.counters.get("crashes"),
        tally.counters.get("kills"),
        tally.counters.get("ends_in_recovery"),
        start.elapsed().as_secs_f64(),
        tally.failures.len(),
        seeds_of(&tally)
    );
    Ok(tally.failures.is_empty() && tally.counters.get("rounds") == args.rounds)
}

fn seeds_of(tally: &Tally) -> String {
    if tally.failures.is_empty() {
        return String::new();
    }
    let seeds: Vec<String> = tally.failures.iter().map(|(seed, _)| seed.to_string()).collect();
    format!(": seeds {}", seeds.join(", "))
}

fn plan_of_every_write(seed: u64, is_raw: bool) -> Plan {
    Plan::new(seed, Wishes { no_space_trouble: true, is_raw, ..Wishes::default() })
}

fn one_every_write(seed: u64, is_raw: bool) -> bool {
    round::collect_panics();
    match round::run_every_write(plan_of_every_write(seed, is_raw), 3, &mut Prepared::default()) {
        Ok(counters) => {
            println!("{counters}");
            println!(
                "crash: seed {seed} passed with {} power failures and {} kills",
                counters.get("crashes"),
                counters.get("kills")
            );
            true
        }
        Err(failure) => {
            print_failure(&failure);
            println!("crash: seed {seed} failed");
            false
        }
    }
}

fn one_crash(seed: u64, wishes: Wishes, verbose: bool, tries: Option<usize>) -> bool {
    round::collect_panics();
    let plan = Plan::new(seed, wishes);
    let mut prepared = Prepared::default();
    if verbose {
        println!("{plan:#?}");
    }
    let talk = if verbose { Talk::Loud } else { Talk::Quiet };
    match round::run(&plan, &mut prepared, talk) {
        Ok(counters) => {
            println!("{counters}");
            println!("crash: seed {seed} passed");
            true
        }
        Err(failure) => {
            print_failure(&failure);
            if let Some(tries) = tries {
                let (smaller, failure) = shrink(plan, failure, &mut prepared, tries);
                println!("the smallest plan that was found:\n{smaller:#?}");
                let _ = round::run(&smaller, &mut prepared, Talk::Loud);
                print_failure(&failure);
            }
            println!("crash: seed {seed} failed");
            false
        }
    }
}

fn print_failure(failure: &Failure) {
    println!("seed {} failed in life {}:", failure.seed, failure.life);
    for line in &failure.lines {
        println!("  {line}");
    }
}

fn fault_round(seed: u64, is_raw: bool, prepared: &mut Prepared) -> Result<Counters, Vec<String>> {
    let plan = FaultPlan::new(seed, is_raw);
    faults::run(&plan, prepared).map_err(|lines| {
        let where_ = if plan.in_open { "from the opening on" } else { "after the opening" };
        [vec![format!("{:?}, counted {where_}; ended by {:?}", plan.fault, plan.ending)], lines].concat()
    })
}

fn find_faults(args: &RawFaultArgs) -> anyhow::Result<bool> {
    let mut prepared = Prepared::default();
    let counted = [("faults met", "faults_met"), ("stalls", "stalls"), ("times damage found", "damage_found")];
    campaign("faults", args.raw, &args.all, &counted, |seed| fault_round(seed, args.raw, &mut prepared))
}

fn media(args: &FaultArgs) -> anyhow::Result<bool> {
    let counted = [("backups", "backups"), ("restores", "restores"), ("pages repaired", "repaired_pages")];
    campaign("media", false, args, &counted, ledgerstone_sim::media::run)
}

fn damage(args: &RawFaultArgs) -> anyhow::Result<bool> {
    let counted = [
        ("damages", "rounds_of_damage"),
        ("detected", "detected"),
        ("harmless", "harmless"),
        ("at the log's end", "excused_log_end"),
        ("old pages", "excused_old_page"),
        ("told by the feed", "told_by_feed"),
        ("feeds elsewhere", "excused_feed_elsewhere"),
        ("shorter and told", "told_shorter"),
        ("without the newest", "excused_newest"),
    ];
    campaign("damage", args.raw, &args.all, &counted, damage_round(args.raw))
}

fn damage_round(is_raw: bool) -> fn(u64) -> Result<Counters, Vec<String>> {
    if is_raw { ledgerstone_sim::damage::raw::run } else { ledgerstone_sim::damage::run }
}

/// Runs one seed here, or many in workers that are told which harness by its name; `counted` goes into the last line.
fn campaign(
    name: &str,
    is_raw: bool,
    args: &FaultArgs,
    counted: &[(&str, &str)],
    mut round: impl FnMut(u64) -> Result<Counters, Vec<String>>,
) -> anyhow::Result<bool> {
    if let Some(seed) = args.one_seed {
        round::collect_panics();
        let result = round(seed);
        match &result {
            Ok(counters) => println!("{counters}"),
            Err(lines) => lines.iter().for_each(|line| println!("{line}")),
        }
        println!("{name}: seed {seed} {}", if result.is_ok() { "passed" } else { "failed" });
        return Ok(result.is_ok());
    }
    let workers = worker_count(args.workers);
    println!("{name}: {} rounds from seed {} on {workers} processes", args.rounds, args.seed);
    let start = Instant::now();
    let arguments = [vec![format!("--{name}")], is_raw.then(|| "--raw".to_owned()).into_iter().collect()].concat();
    let tally = run_workers(&arguments, args.seed, args.rounds, workers, 3, progress(args.rounds))?;
    print_failures(if is_raw { format!("{name} --raw") } else { name.to_owned() }.as_str(), &tally);
    println!("{}", tally.counters);
    let counts = counted.iter().map(|(what, counter)| format!(", {} {what}", tally.counters.get(counter)));
    println!(
        "{name}: {} rounds from seed {}{}, in {:.0} s, {} failed{}",
        tally.counters.get("rounds"),
        args.seed,
        counts.collect::<String>(),
        start.elapsed().as_secs_f64(),
        tally.failures.len(),
        seeds_of(&tally)
    );
    Ok(tally.failures.is_empty() && tally.counters.get("rounds") == args.rounds)
}

fn history_round(seed: u64, locks_pages: bool) -> Result<Counters, Vec<String>> {
    let history = workload::simulate(seed, locks_pages)?;
    let findings = check(&history);
    if !findings.problems.is_empty() {
        return Err(findings.problems);
    }
    let mut counters = Counters::default();
    counters.add("rounds", 1);
    counters.add("committed", findings.transaction_count as u64);
    counters.add("ended", (history.transactions.len() - findings.transaction_count) as u64);
    counters.add("edges", findings.edge_count as u64);
    Ok(counters)
}

/// Checks a history of real threads, and counts it.
fn judge(on: &str, seed: u64, result: Result<History, Vec<String>>, counters: &mut Counters, tally: &mut Tally) {
    let problems = match result {
        Ok(history) => {
            let findings = check(&history);
            counters.add("committed", findings.transaction_count as u64);
            counters.add("edges", findings.edge_count as u64);
            findings.problems
        }
        Err(problems) => problems,
    };
    if !problems.is_empty() {
        println!("on {on}, seed {seed}:");
        problems.iter().for_each(|problem| println!("  {problem}"));
        tally.failures.push((seed, problems));
    }
}

fn histories(args: HistoryArgs) -> anyhow::Result<bool> {
    if let Some(seed) = args.one_seed {
        round::collect_panics();
        let result = history_round(seed, args.page_locks);
        match &result {
            Ok(counters) => println!("{counters}"),
            Err(lines) => lines.iter().for_each(|line| println!("{line}")),
        }
        println!("histories: seed {seed} {}", if result.is_ok() { "passed" } else { "failed" });
        return Ok(result.is_ok());
    }
    let start = Instant::now();
    let workers = worker_count(args.workers);
    println!("histories: {} simulated rounds from seed {} on {workers} processes", args.rounds, args.seed);
    let mut arguments = vec!["--histories".to_owned()];
    if args.page_locks {
        arguments.push("--page-locks".to_owned());
    }
    let mut tally = run_workers(&arguments, args.seed, args.rounds, workers, 3, progress(args.rounds))?;
    let (mut threads, mut shared) = (Counters::default(), Counters::default());
    for number in 0..args.thread_rounds {
        let seed = args.seed.wrapping_add(number);
        let size = Size { is_restless: number % 2 == 1, ..Size::on_threads(seed, args.threads, args.transactions) };
        let dir = tempfile::tempdir().context("no temporary directory")?;
        let result = workload::run_on_threads(dir.path(), seed, size, args.page_locks);
        judge("real threads", seed, result, &mut threads, &mut tally);
    }
    for number in 0..args.shared_rounds {
        let seed = args.seed.wrapping_add(number);
        let size = Size { is_restless: true, ..Size::on_threads(seed, args.threads, args.transactions) };
        let dir = tempfile::tempdir().context("no temporary directory")?;
        let memory = kills::dir_in_memory()?;
        let region_dir = memory.path().to_owned();
        let result = workload::run_on_processes(dir.path(), region_dir, seed, size, args.page_locks);
        judge("processes", seed, result, &mut shared, &mut tally);
    }
    print_failures("histories", &tally);
    println!("simulated: {}; on threads: {threads}; on processes: {shared}", tally.counters);
    println!(
        "histories: {} simulated rounds from seed {}, {} on real threads and {} on processes that share, {} transactions, \
         in {:.0} s, {} failed{}",
        tally.counters.get("rounds"),
        args.seed,
        args.thread_rounds,
        args.shared_rounds,
        tally.counters.get("committed") + threads.get("committed") + shared.get("committed"),
        start.elapsed().as_secs_f64(),
        tally.failures.len(),
        seeds_of(&tally)
    );
    Ok(tally.failures.is_empty() && tally.counters.get("rounds") == args.rounds)
}

fn run_soak(args: &SoakArgs) -> anyhow::Result<bool> {
    let dir = match &args.dir {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    };
    let dir = dir.context("no temporary directory")?;
    let start = Instant::now();
    let report = soak::run(dir.path(), args.seconds, args.seed)?;
    println!("{}", report.counters);
    report.problems.iter().take(40).for_each(|problem| println!("  {problem}"));
    println!(
        "soak: {} transactions of {} s in {:.0} s from seed {}, {} failed",
        report.counters.get("transfers") + report.counters.get("record_transactions"),
        args.seconds,
        start.elapsed().as_secs_f64(),
        args.seed,
        report.problems.len()
    );
    Ok(report.problems.is_empty())
}

fn run_kills(args: &kills::KillsArgs) -> anyhow::Result<bool> {
    let start = Instant::now();
    let report = kills::run(args)?;
    println!("{}", report.counters);
    report.failures.iter().take(40).for_each(|why| println!("  failed: {why}"));
    report.problems.iter().take(40).for_each(|problem| println!("  {problem}"));
    println!(
        "kills: {} in {:.0} s from seed {}, longest wait for a commit {:.2} s, to leave {:.2} s, environment failed {} times, {} failed",
        report.counters.get("kills in all"),
        start.elapsed().as_secs_f64(),
        args.seed,
        report.longest.as_secs_f64(),
        report.longest_leave.as_secs_f64(),
        report.counters.get("failures of the environment"),
        report.problems.len()
    );
    Ok(report.problems.is_empty())
}

fn find_planted(args: &PlantedArgs) -> anyhow::Result<bool> {
    anyhow::ensure!(planted::is_possible(), "this build has no planted bugs; build with `--features planted`");
    let workers = worker_count(args.workers);
    let wanted = |name: &str| args.only.as_ref().is_none_or(|only| only == name);
    let mut missed = Vec::new();
    let mut found = 0;
    for bug in Bug::ALL.iter().copied().filter(|bug| wanted(bug.name())) {
        let start = Instant::now();
        let mut arguments = vec!["--planted".to_owned(), bug.name().to_owned()];
        // The harness that is likeliest to find it goes first; each has all the rounds.
        let harnesses = match bug {
            Bug::NoGapLocks
            | Bug::DeadEdgeKept
            | Bug::OldCopyKept
            | Bug::TableLockCoversWrites
            | Bug::CommitStampLate
            | Bug::FloorIgnored
            | Bug::GhostPurgedEarly
            | Bug::SpilledForgotten
            | Bug::StagedUnlinked
            | Bug::TouchedForgotten
            | Bug::LastCommitterWins => ["histories", "crash", "faults", "media"],
            Bug::ChecksumUnread | Bug::WriteErrorForgotten => ["faults", "crash", "histories", "media"],
            Bug::StaleLogTail | Bug::NamesUnsettled | Bug::LogUnsettled | Bug::IncarnationForgotten => {
                ["log-end", "crash", "faults", "histories"]
            }
            Bug::BackupAheadOfLog
            | Bug::RepairSkipsRecord
            | Bug::ArchiveNamesLost
            | Bug::RestoreNamesLost
            | Bug::BackupOfAnotherLife
            | Bug::ArchiveOfAnybody => ["media", "crash", "faults", "histories"],
            _ => ["crash", "faults", "histories", "media"],
        };
        let (mut by, mut tally) = ("", Tally::default());
        for harness in harnesses {
            by = harness;
            arguments.truncate(2);
            if harness != "crash" {
                arguments.push(format!("--{harness}"));
            }
            if planted::of_raw_store(bug).is_some() {
                arguments.push("--raw".to_owned());
            }
            let more = run_workers(&arguments, args.seed, args.rounds, workers, 1, |_| {})?;
            tally.counters.merge(&more.counters);
            tally.failures = more.failures;
            if !tally.failures.is_empty() {
                break;
            }
        }
        let rounds = tally.counters.get("rounds");
        let seconds = start.elapsed().as_secs_f64();
        match tally.failures.first() {
            Some((seed, lines)) => {
                found += 1;
                let why = lines.iter().find(|line| !line.starts_with("in life")).map_or("", String::as_str);
                println!("{}: found by {by} after {rounds} rounds, {seconds:.1} s, seed {seed}: {why}", bug.name());
            }
            None => {
                println!("{}: NOT FOUND in {rounds} rounds, {seconds:.1} s", bug.name());
                missed.push(bug.name());
            }
        }
    }
    anyhow::ensure!(found + missed.len() > 0, "no planted bug is called {}", args.only.as_deref().unwrap_or("?"));
    let missed_names = if missed.is_empty() { String::new() } else { format!(": {}", missed.join(", ")) };
    println!("planted: {found} bugs found, {} missed{missed_names}", missed.len());
    Ok(missed.is_empty())
}

fn worker(args: &WorkerArgs) -> anyhow::Result<bool> {
    plant(args.planted.as_deref())?;
    round::collect_panics();
    let share = Share {
        first: args.first,
        step: args.step,
        count: args.count,
        failures_max: args.failures_max,
        worker: args.worker,
    };
    if args.histories {
        work(share, |seed| history_round(seed, args.page_locks));
        return Ok(true);
    }
    if args.media {
        work(share, ledgerstone_sim::media::run);
        return Ok(true);
    }
    if args.damage {
        work(share, damage_round(args.raw));
        return Ok(true);
    }
    if args.log_end {
        work(share, log_end::run);
        return Ok(true);
    }
    let mut prepared = Prepared::default();
    if args.faults {
        work(share, |seed| fault_round(seed, args.raw, &mut prepared));
        return Ok(true);
    }
    if args.every_write {
        work(share, |seed| {
            let plan = plan_of_every_write(seed, args.raw);
            let all = round::run_first_writes(plan, CHANGES_MAX, 1, &mut prepared);
            let all = all.map_err(|failure| failure.lines)?;
            let mut counters = Counters::default();
            ["crashes", "kills", "judged"].iter().for_each(|name| counters.add(name, all.get(name)));
            counters.add("rounds", 1);
            Ok(counters)
        });
        return Ok(true);
    }
    let wishes = wishes(args.clients, &args.without, args.page_locks, args.raw);
    work(share, |seed| {
        let plan = Plan::new(seed, wishes);
        round::run(&plan, &mut prepared, Talk::Quiet)
            .map_err(|failure| [vec![format!("in life {}, {:?}", failure.life, plan.flavour)], failure.lines].concat())
    });
    Ok(true)
}
