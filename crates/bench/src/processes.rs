//! What it costs to share an environment: TPC-B by one process that has it alone, by one that shares it, and by several
//! that do, with as many threads in all.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use ledgerstone::{Environment, Options, Sharing};

use crate::report::median;
use crate::tpcb::{self, Scale};
use crate::{Durability, Machine, Place, Report, Workdir};

/// `bench processes`.
#[derive(Clone, Debug, clap::Args)]
pub struct ProcessesArgs {
    /// Accounts of the bank.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub accounts: u64,
    /// Threads of the one process, and processes with a thread each.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub processes: u64,
    /// What a commit waits for.
    #[arg(long, value_enum, default_value_t = Durability::Sync)]
    pub durability: Durability,
    /// Measure each way for this long in each round.
    #[arg(long, default_value_t = 3.0, allow_negative_numbers = true, value_parser = crate::parse_seconds)]
    pub seconds: f64,
    /// Number of rounds. Each measures every way in turn. The median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub rounds: u64,
    /// Directory for the memory that is shared.
    #[arg(long, default_value = "/dev/shm")]
    pub region_dir: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

/// One of the processes.
#[derive(Clone, Debug, clap::Args)]
pub struct OneArgs {
    /// The environment's directory.
    pub environment: PathBuf,
    /// Directory for the memory that is shared.
    pub region_dir: PathBuf,
    /// Its number.
    pub number: u64,
    /// How long it works.
    pub seconds: f64,
    /// What a commit waits for.
    #[arg(value_enum)]
    pub durability: Durability,
}

/// The ways to have an environment.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Alone,
    SharedByOne,
    SharedByAll,
}

/// Measures.
///
/// # Errors
/// The environment's, and processes that cannot be started.
pub fn run(args: &ProcessesArgs, progress: &mut dyn FnMut(&str, u64, u64)) -> anyhow::Result<Report> {
    let dir = Workdir::new(&args.place)?;
    let scale = Scale::of(args.accounts, tpcb::KeyKind::U64);
    let open = |sharing| options(args, sharing).open(dir.path());
    let env = open(Sharing::Private)?;
    tpcb::load(&env, &scale, &mut |done, all| progress("load", done, all)).context("loading the bank")?;
    env.close()?;
    let ways = [Way::Alone, Way::SharedByOne, Way::SharedByAll];
    let mut rates: [Vec<f64>; 3] = Default::default();
    for round in 0..args.rounds {
        for no in 0..ways.len() {
            // Each second round the other way, so that a machine that gets slower is not to the last one's cost.
            let no = if round % 2 == 0 { no } else { ways.len() - 1 - no };
            progress("ways", round * 3, args.rounds * 3);
            let time = Duration::from_secs_f64(args.seconds);
            let rate = match ways[no] {
                Way::SharedByAll => rate_of_all(args, dir.path())?,
                way => {
                    let env = open(if way == Way::Alone { Sharing::Private } else { Sharing::Shared })?;
                    tpcb::rate(&env, scale, 0, args.processes, Duration::from_millis(300), round)?; // Warm.
                    let rate = tpcb::rate(&env, scale, 0, args.processes, time, round + 1)?;
                    env.close()?;
                    rate
                }
            };
            rates[no].push(rate);
        }
    }
    let mut report = Report::new("processes", Machine::here(dir.path()));
    let names = ["one process, alone", "one process, sharing", "processes with a thread each, sharing"];
    for (name, rates) in names.iter().zip(&rates) {
        report.add(format!("transactions, {name} (1/s)"), median(rates.clone()));
    }
    for (name, no, of) in
        [("sharing, of alone", 1, 0), ("processes, of threads alone", 2, 0), ("processes, of threads sharing", 2, 1)]
    {
        // Of pairs in one round: the machine changes from round to round by more than what is looked for.
        let shares = rates[no].iter().zip(&rates[of]).map(|(this, other)| this / other * 100.0).collect();
        report.add(format!("{name} (%)"), median(shares));
    }
    Ok(report)
}

fn options(args: &ProcessesArgs, sharing: Sharing) -> Options {
    Environment::options()
        .cache_bytes(args.place.cache.unwrap_or(64 << 20))
        .durability(args.durability.into())
        .sharing(sharing)
        .region_dir(&args.region_dir)
}

/// A process that works. It is killed if it is not waited for.
struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It has ended.
        let _ = self.child.wait();
    }
}

impl Worker {
    fn start(args: &ProcessesArgs, dir: &Path, number: u64) -> anyhow::Result<Worker> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", "processes-one"])
            .args([dir, &args.region_dir])
            .args([number.to_string(), args.seconds.to_string(), format!("{:?}", args.durability).to_lowercase()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("a process cannot be started")?;
        let stdin = child.stdin.take();
        let said = BufReader::new(child.stdout.take().context("it was asked for")?);
        Ok(Worker { child, stdin, said })
    }

    fn hear(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        ensure!(!line.is_empty(), "a process has ended by itself; what it said is above");
        Ok(line.trim().to_owned())
    }
}

/// All have opened the environment before any begins.
fn rate_of_all(args: &ProcessesArgs, dir: &Path) -> anyhow::Result<f64> {
    // It has the settings, and leads: the others work.
    let env = options(args, Sharing::Shared).open(dir)?;
    let mut workers =
        (0..args.processes).map(|number| Worker::start(args, dir, number)).collect::<anyhow::Result<Vec<_>>>()?;
    for worker in &mut workers {
        ensure!(worker.hear()? == "open", "a process did not open the environment");
    }
    for worker in &mut workers {
        worker.stdin.as_mut().context("it was asked for")?.write_all(b"go\n")?;
    }
    let mut rate = 0.0;
    for worker in &mut workers {
        rate += worker.hear()?.parse::<f64>().context("a rate")?;
    }
    for worker in &mut workers {
        drop(worker.stdin.take());
        ensure!(worker.child.wait()?.success(), "a process did not close the environment");
    }
    env.close()?;
    Ok(rate)
}

/// Works as one of the processes, and says at which rate.
///
/// # Errors
/// The environment's.
pub fn work(args: &OneArgs) -> anyhow::Result<()> {
    let env = Environment::options().sharing(Sharing::Shared).region_dir(&args.region_dir).create(false);
    let env = env.durability(args.durability.into()).open(&args.environment)?;
    let scale = Scale::find(&env)?.context("there is no bank")?;
    println!("open");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    tpcb::rate(&env, scale, args.number, 1, Duration::from_millis(300), args.number)?; // Warm.
    let rate = tpcb::rate(&env, scale, args.number, 1, Duration::from_secs_f64(args.seconds), args.number + 100)?;
    println!("{rate}");
    std::io::stdin().lock().read_line(&mut line)?; // The others are measured still.
    env.close()?;
    Ok(())
}
