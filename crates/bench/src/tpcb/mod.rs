//! TPC-B as LIBTP ran it (5.1): accounts, tellers, branches and a history; single or many clients, with and without
//! sync, read-only, large and small.

mod acks;
mod bank;
mod check;
mod load;
mod run;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ledgerstone::Environment;
use serde::Serialize;

pub use acks::{AckReport, verify as verify_acks};
pub use bank::{KeyKind, Scale};
pub(crate) use bank::{Transfer, history_key};
pub use check::{CheckReport, check};
pub(crate) use load::load;
pub(crate) use run::{Tables, look, transfer_in};

use crate::device::{self, Flush};
use crate::report::number;
use crate::{Counters, Durability, Latency, Machine, Place, Recovery, Workdir, parse_bytes};
use run::{Limit, Plan};

/// `bench tpcb`.
#[derive(Clone, Debug, clap::Args)]
pub struct TpcbArgs {
    /// Number of accounts in a new bank. Tellers and branches follow from it (1,000,000 : 100 : 10).
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub accounts: u64,
    /// Use LIBTP's small bank: 1,000 accounts, 100 tellers, 10 branches.
    #[arg(long, conflicts_with = "accounts")]
    pub small: bool,
    /// The type of the keys of accounts, tellers and branches.
    #[arg(long, value_enum, default_value_t = KeyKind::U64)]
    pub key: KeyKind,
    /// Number of clients. Each is a thread.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub threads: u64,
    /// Run for this long. 0 runs nothing: only loads the bank, or checks it with --check.
    #[arg(long, default_value_t = 10.0, allow_negative_numbers = true, value_parser = parse_seconds_or_none)]
    pub seconds: f64,
    /// Run this many transactions in all, however long that takes.
    #[arg(long, conflicts_with = "seconds")]
    pub transactions: Option<u64>,
    /// What a commit waits for.
    #[arg(long, value_enum, default_value_t = Durability::Sync)]
    pub durability: Durability,
    /// Number of commits that a thread has under way at once, with --durability pipelined.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub window: u32,
    /// Only read an account, a teller and a branch in each transaction.
    #[arg(long)]
    pub read_only: bool,
    /// Run this many transactions before the measurement begins.
    #[arg(long, default_value_t = 2_000)]
    pub warm_up: u64,
    /// Afterwards, prove that all balances and the history agree.
    #[arg(long)]
    pub check: bool,
    /// Write the history key of each commit that was acknowledged as durable. Each thread has a file: PATH.0, PATH.1
    /// ...
    #[arg(long, value_name = "PATH")]
    pub ack_file: Option<PathBuf>,
    /// Run nothing, and prove that no commit acknowledged in PATH.0, PATH.1 ... is missing.
    #[arg(long, value_name = "PATH", conflicts_with = "ack_file")]
    pub verify_acks: Option<PathBuf>,
    /// Also measure the device's own flush, for a second before and a second after.
    #[arg(long)]
    pub device: bool,
    /// Take a checkpoint after this many bytes of log.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "1G")]
    pub checkpoint_log: u64,
    /// The seed of the random numbers that choose the accounts.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

fn parse_seconds_or_none(text: &str) -> Result<f64, String> {
    if text.parse() == Ok(0.0) { Ok(0.0) } else { crate::parse_seconds(text) }
}

/// What a run of TPC-B has to say.
#[derive(Clone, Debug, Serialize)]
pub struct TpcbReport {
    /// The machine.
    pub machine: Machine,
    /// The bank's size.
    pub scale: Scale,
    /// Clients.
    pub thread_count: u64,
    /// What commits waited for.
    pub durability: Durability,
    /// True if only reads were run.
    pub is_read_only: bool,
    /// What the open had to recover.
    pub recovery: Recovery,
    /// The measurement; none with `--seconds 0`.
    pub run: Option<RunReport>,
    /// The device's own flush in the same run.
    pub device: Option<Flush>,
    /// The books, with `--check`.
    pub check: Option<CheckReport>,
    /// The acknowledged commits, with `--verify-acks`.
    pub acks: Option<AckReport>,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// Transactions that committed.
    pub transaction_count: u64,
    /// Seconds they took.
    pub seconds: f64,
    /// Transactions a second.
    pub per_second: f64,
    /// From begin until the commit returned; pipelined: until it was durable.
    pub latency: Latency,
    /// Transactions that were rolled back and run again.
    pub abort_count: u64,
    /// Log bytes of a transaction.
    pub log_bytes_each: f64,
    /// Durable writes of the log for a transaction.
    pub syncs_each: f64,
    /// Locks waited for.
    pub lock_wait_count: u64,
    /// Pages read from the device.
    pub page_read_count: u64,
}

impl TpcbReport {
    /// True if everything that was checked holds.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.check.as_ref().is_none_or(CheckReport::is_good) && self.acks.as_ref().is_none_or(AckReport::is_good)
    }
}

impl std::fmt::Display for TpcbReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Scale { account_count, teller_count, branch_count, .. } = self.scale;
        writeln!(f, "TPC-B on {}", self.machine)?;
        writeln!(f, "  bank         {account_count} accounts, {teller_count} tellers, {branch_count} branches")?;
        writeln!(f, "  recovery     {}", self.recovery)?;
        if let Some(run) = &self.run {
            let what = if self.is_read_only { ", read-only" } else { "" };
            let durability = format!("{:?}", self.durability).to_lowercase();
            writeln!(f, "  ran          {} threads, {durability}{what}, {:.1} s", self.thread_count, run.seconds)?;
            writeln!(
                f,
                "  throughput   {} transactions/s ({} transactions)",
                number(run.per_second.round()),
                number(run.transaction_count as f64)
            )?;
            writeln!(f, "  latency      {}", run.latency)?;
            writeln!(f, "  aborts       {} ({} lock waits)", run.abort_count, run.lock_wait_count)?;
            writeln!(
                f,
                "  log          {:.0} bytes, {:.4} syncs a transaction; {} pages read",
                run.log_bytes_each, run.syncs_each, run.page_read_count
            )?;
        }
        if let Some(device) = &self.device {
            writeln!(f, "  device       4 KiB durable overwrite: {}", device.overwrite)?;
        }
        if let Some(acks) = &self.acks {
            writeln!(f, "  acknowledged {acks}")?;
        }
        if let Some(check) = &self.check {
            writeln!(f, "  check        {check}")?;
        }
        Ok(())
    }
}

/// Opens or makes the bank, runs, checks. `progress` hears what is under way, how much of it is done, and of how much.
///
/// # Errors
/// The environment's; a directory that holds something else; flags that contradict each other.
pub fn run(args: &TpcbArgs, progress: &mut dyn FnMut(&str, u64, u64)) -> anyhow::Result<TpcbReport> {
    let is_acknowledged = matches!(args.durability, Durability::Sync | Durability::Pipelined);
    ensure!(
        args.ack_file.is_none() || is_acknowledged,
        "--ack-file needs --durability sync or pipelined: the others acknowledge nothing as durable"
    );
    ensure!(
        args.ack_file.is_none() || !args.read_only,
        "--ack-file writes down committed changes; with --read-only there are none"
    );
    let only_looks = args.verify_acks.is_some();
    ensure!(!only_looks || args.place.keep.is_some(), "--verify-acks needs --keep DIR, the bank that was killed");
    let dir = Workdir::new(&args.place)?;
    let device_before = args.device.then(|| device::flush(dir.path(), Duration::from_secs(1))).transpose()?;
    let env = Environment::options()
        .create(!only_looks)
        .cache_bytes(args.place.cache.unwrap_or(1 << 30))
        .checkpoint_log_bytes(args.checkpoint_log)
        .durability(args.durability.into())
        .open(dir.path())?;
    let scale = match Scale::find(&env)? {
        Some(scale) => scale,
        None if only_looks => bail!("{} holds no whole bank", dir.path().display()),
        None => {
            let scale = if args.small { Scale::small(args.key) } else { Scale::of(args.accounts, args.key) };
            load(&env, &scale, &mut |done, all| progress("load", done, all)).context("loading the bank")?;
            scale
        }
    };
    let mut report = TpcbReport {
        machine: Machine::here(dir.path()),
        scale,
        thread_count: args.threads,
        durability: args.durability,
        is_read_only: args.read_only,
        recovery: env.recovery_report().into(),
        run: None,
        device: None,
        check: None,
        acks: None,
    };
    let limit = match args.transactions {
        Some(count) => Limit::Transactions(count),
        None => Limit::Time(Duration::from_secs_f64(args.seconds)),
    };
    if !only_looks && (args.transactions.is_some() || args.seconds > 0.0) {
        report.run = Some(measure(&env, args, scale, limit)?);
    }
    if let Some(before) = device_before {
        let after = device::flush(dir.path(), Duration::from_secs(1))?;
        // The faster of both is what the device can do: the harder one to stay close to.
        report.device = Some(if before.overwrite.mean_us < after.overwrite.mean_us { before } else { after });
    }
    if let Some(path) = &args.verify_acks {
        progress("verify acknowledged commits", 0, 0);
        report.acks = Some(verify_acks(&env, path)?);
    }
    if args.check {
        progress("check", 0, 0);
        report.check = Some(check(&env, &scale)?);
    }
    env.close()?;
    Ok(report)
}

fn measure(env: &Environment, args: &TpcbArgs, scale: Scale, limit: Limit) -> anyhow::Result<RunReport> {
    let mut plan = Plan {
        scale,
        first_thread: 0,
        thread_count: args.threads,
        limit: Limit::Transactions(args.warm_up),
        is_read_only: args.read_only,
        window: if args.durability == Durability::Pipelined { args.window as usize } else { 1 },
        ack_file: args.ack_file.as_deref(),
        seed: args.seed,
    };
    if args.warm_up > 0 {
        run::run(env, &plan)?;
    }
    (plan.limit, plan.seed) = (limit, args.seed.wrapping_add(1));
    let before = Counters::of(env)?;
    let outcome = run::run(env, &plan)?;
    let spent = Counters::of(env)?.since(before);
    let each = |count: u64| count as f64 / outcome.transaction_count.max(1) as f64;
    Ok(RunReport {
        transaction_count: outcome.transaction_count,
        seconds: outcome.seconds,
        per_second: outcome.transaction_count as f64 / outcome.seconds,
        latency: outcome.timer.summary(),
        abort_count: outcome.abort_count,
        log_bytes_each: each(spent.log_bytes),
        syncs_each: each(spent.sync_count),
        lock_wait_count: spent.lock_wait_count,
        page_read_count: spent.page_read_count,
    })
}

/// Runs so many transactions on one thread in an environment that is open, with its own durability.
///
/// # Errors
/// The environment's.
pub fn serve(env: &Environment, scale: Scale, transaction_count: u64) -> anyhow::Result<()> {
    let plan = Plan {
        scale,
        first_thread: 0,
        thread_count: 1,
        limit: Limit::Transactions(transaction_count),
        is_read_only: false,
        window: 1,
        ack_file: None,
        seed: 1,
    };
    run::run(env, &plan)?;
    Ok(())
}

/// Runs for so long, with the environment's own durability: transactions a second. `first_thread` is the number of the
/// first thread among all that write the history.
pub(crate) fn rate(
    env: &Environment,
    scale: Scale,
    first_thread: u64,
    thread_count: u64,
    time: Duration,
    seed: u64,
) -> anyhow::Result<f64> {
    let plan = Plan {
        scale,
        first_thread,
        thread_count,
        limit: Limit::Time(time),
        is_read_only: false,
        window: 1,
        ack_file: None,
        seed,
    };
    let outcome = run::run(env, &plan)?;
    Ok(outcome.transaction_count as f64 / outcome.seconds)
}

#[cfg(test)]
mod tests;
