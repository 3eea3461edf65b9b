//! Recovery: a process runs TPC-B without a checkpoint, is killed hard, and the time until the environment is open
//! again is measured, phase by phase.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use ledgerstone::{Durability, Environment};

use crate::made;
use crate::tpcb::{self, KeyKind, Scale, TpcbArgs};
use crate::{Machine, PHASES, Place, Recovery, Report, Workdir};

/// What the child says when its log is durable and it may be killed.
const READY: &str = "ready to be killed";

/// `bench recovery`.
#[derive(Clone, Debug, clap::Args)]
pub struct RecoveryArgs {
    /// Number of transactions before the kill.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub transactions: u64,
    /// Number of accounts in the bank.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub accounts: u64,
    /// Be the process that is killed (`bench recovery` starts itself so).
    #[arg(long, hide = true)]
    pub victim: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

/// Measures, or is the victim.
///
/// # Errors
/// The environment's; a child that does not get ready.
pub fn run(args: &RecoveryArgs) -> anyhow::Result<Report> {
    if args.victim {
        return be_killed(args);
    }
    let dir = Workdir::new(&args.place)?;
    let mut child = Command::new(std::env::current_exe().context("cannot find the program itself")?)
        .args(["bench", "recovery", "--victim", "--keep"])
        .arg(dir.path())
        .args(["--transactions", &args.transactions.to_string(), "--accounts", &args.accounts.to_string()])
        .args(args.place.cache.map(|bytes| format!("--cache={bytes}")))
        .stdout(Stdio::piped())
        .spawn()?;
    let note = made::process(&child);
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut said)?;
    }
    child.kill()?; // SIGKILL.
    drop(note);
    child.wait()?;
    ensure!(said.trim() == READY, "the process that was to be killed ended by itself");

    let mut report = Report::new("recovery", Machine::here(dir.path()));
    let began = Instant::now();
    let env = options(args).open(dir.path())?;
    let open_ms = began.elapsed().as_secs_f64() * 1e3;
    let scale = Scale::find(&env)?.context("the bank is gone")?;
    env.transact(|txn| txn.bytes("accounts")?.first())?;
    let answer_ms = began.elapsed().as_secs_f64() * 1e3;
    env.wait_rolled_back()?;
    let whole_ms = began.elapsed().as_secs_f64() * 1e3;
    let recovery = Recovery::from(env.recovery_report());
    report.add("log records", recovery.record_count as f64);
    report.add("page updates repeated", recovery.redo_applied_count as f64);
    report.add("page updates put off", env.recovery_report().redo_put_off_count as f64);
    for (name, ms) in PHASES.iter().zip(recovery.phases_ms) {
        report.add(format!("{name} (ms)"), ms);
    }
    report.add("open, all of it (ms)", open_ms);
    report.add("first answer (ms)", answer_ms);
    report.add("all repeated (ms)", whole_ms);
    report.add("recovery (log records/s)", recovery.record_count as f64 / (whole_ms / 1e3));
    let books = tpcb::check(&env, &scale)?;
    ensure!(books.is_good(), "after recovery: {books}");
    env.close()?;
    Ok(report)
}

fn options(args: &RecoveryArgs) -> ledgerstone::Options {
    Environment::options()
        .cache_bytes(args.place.cache.unwrap_or(1 << 30))
        .checkpoint_log_bytes(1 << 40)
        .durability(Durability::Volatile)
}

/// Runs the transactions, makes their log durable with one synced commit, says so, and waits for its end.
fn be_killed(args: &RecoveryArgs) -> anyhow::Result<Report> {
    let place = |keep: Option<PathBuf>| Place { keep, ..args.place.clone() };
    let load = TpcbArgs {
        accounts: args.accounts,
        small: false,
        key: KeyKind::U64,
        threads: 1,
        seconds: 0.0,
        transactions: None,
        durability: crate::Durability::Volatile,
        window: 2,
        read_only: false,
        warm_up: 0,
        check: false,
        ack_file: None,
        verify_acks: None,
        device: false,
        checkpoint_log: 1 << 40,
        seed: 1,
        place: place(args.place.keep.clone()),
    };
    tpcb::run(&load, &mut |_, _, _| {})?;
    let env = options(args).open(args.place.keep.as_deref().context("--victim needs --keep")?)?;
    let scale = Scale::find(&env)?.context("the bank is not whole")?;
    tpcb::serve(&env, scale, args.transactions)?;
    let txn = env.begin()?;
    txn.bytes_or_create("mark")?.put(b"durable", b"up to here")?;
    let _ = txn.commit_with(Durability::Sync)?;
    println!("{READY}");
    loop {
        std::thread::park();
    }
}
