//! A process is killed with SIGKILL after many transactions without sync and one with it, and another opens the store.
//!
//! The rate before the kill and after it is counted in tenths of a second.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::Bench;
use super::bank::Bank;
use crate::measure::{Figure, Moment};
use crate::peer::{ACCOUNTS, Durability, Kind, RECORDS, Settings, find};

const BANK: Bank = Bank { account_count: 1_000_000, branch_count: 10 };
const WINDOW: Duration = Duration::from_millis(100);

/// What the process that is killed is told.
#[derive(Clone, Debug, clap::Args)]
pub struct Victim {
    /// The peer.
    #[arg(long)]
    peer: String,
    /// Its directory.
    #[arg(long)]
    dir: PathBuf,
    /// Transactions before the kill.
    #[arg(long)]
    transactions: u64,
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    let transactions = bench.choose(50_000_u64, 200_000);
    let dir = bench.fresh("restart")?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["victim", "--peer", bench.entry.name, "--transactions", &transactions.to_string(), "--dir"])
        .arg(&dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut said)?;
    }
    child.kill()?; // SIGKILL.
    child.wait()?;
    let before_rate: f64 = said.trim().parse().context("the process that was to be killed ended by itself")?;

    let before = Moment::now(&[]);
    let began = Instant::now();
    let peer = bench.entry.open(Settings::roomy(&dir))?;
    let mut worker = peer.worker(Durability::None)?;
    let mut value = Vec::new();
    let mut is_there = false;
    worker.run(Kind::Read, &mut |txn| {
        is_there = txn.get(ACCOUNTS, 0, &mut value)? && txn.get(RECORDS, 1, &mut value)?;
        Ok(())
    })?;
    ensure!(is_there, "what was durable before the kill is gone");
    let mut figure = Figure::plain("first answer", began.elapsed().as_secs_f64() * 1e3, "ms", false);
    before.tell(&[], 1, &mut figure);
    bench.add(figure);

    let mut transfer = BANK.transfers(2, 0);
    let full_speed = loop {
        let (window, mut count) = (Instant::now(), 0);
        while window.elapsed() < WINDOW {
            transfer(&mut *worker)?;
            count += 1;
        }
        if f64::from(count) / window.elapsed().as_secs_f64() > before_rate * 0.75 {
            break Some(window.duration_since(began));
        }
        if began.elapsed() > Duration::from_secs(20) {
            break None;
        }
    };
    // One that never came within the time is shown as that time.
    let ms = full_speed.unwrap_or(Duration::from_secs(20)).as_secs_f64() * 1e3;
    bench.add(Figure::plain("full speed from", ms, "ms", false));
    bench.add(Figure::plain("transactions before the kill", before_rate, "1/s", true));
    drop(worker);
    let row_count = BANK.check(&*peer)?;
    ensure!(row_count >= transactions, "{row_count} transfers are there of {transactions} that were durable");
    bench.proved(format!("after the kill, {row_count} transfers agree with every balance"));
    peer.close()?;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

/// Runs the transactions, makes them durable, says how many a second there were at the end, and waits to be killed.
///
/// # Errors
/// The peer's.
pub fn be_victim(victim: &Victim) -> anyhow::Result<()> {
    let peer = find(&victim.peer)?.open(Settings::roomy(&victim.dir))?;
    BANK.load(&*peer)?;
    let mut worker = peer.worker(Durability::None)?;
    let mut transfer = BANK.transfers(1, 0);
    let half = victim.transactions / 2;
    (0..half).try_for_each(|_| transfer(&mut *worker).map(drop))?;
    let began = Instant::now();
    (half..victim.transactions).try_for_each(|_| transfer(&mut *worker).map(drop))?;
    let rate = (victim.transactions - half) as f64 / began.elapsed().as_secs_f64();
    drop(worker);
    let mut last = peer.worker(Durability::Sync)?;
    last.run(Kind::Write, &mut |txn| txn.put(RECORDS, 1, b"durable up to here"))?;
    println!("{rate}");
    loop {
        std::thread::park();
    }
}
