//! Many threads with short transactions: each inserts a record of its own, or all change the same few records.
//!
//! The cost of a crowd shows in its rate, compared with that of a few threads, and in the context switches of a
//! transaction. A thread that has to sleep and be woken for every transaction is slow on any machine.

use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use ledgerstone::{Environment, Error};

use crate::report::median;
use crate::{Counters, Machine, Place, Report, Workdir};

const TABLE: &str = "crowd";
/// Where in the table records are inserted: each thread has its share of these places, and inserts there in ascending
/// order.
const PLACES: u64 = 512;

/// `bench crowd`.
#[derive(Clone, Debug, clap::Args)]
pub struct CrowdArgs {
    /// Measure these numbers of threads, one after the other.
    #[arg(long, value_delimiter = ',', default_value = "4,8,50,200,500", value_parser = clap::value_parser!(u64).range(1..=4000))]
    pub threads: Vec<u64>,
    /// What a commit waits for.
    #[arg(long, value_enum, default_value_t = crate::Durability::Volatile)]
    pub durability: crate::Durability,
    /// Every transaction changes the same records, this many. Every second thread takes them in the reverse order, so
    /// transactions conflict and deadlock. With 0, each transaction inserts a record that nobody else touches.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=64))]
    pub hot: u64,
    /// Measure each number of threads for this long in each round.
    #[arg(long, default_value_t = 2.0, allow_negative_numbers = true, value_parser = crate::parse_seconds)]
    pub seconds: f64,
    /// Number of rounds. Each measures every number of threads, each in a new environment. The median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub rounds: u64,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

/// Measures.
///
/// # Errors
/// The environment's, and changes that are lost.
pub fn run(args: &CrowdArgs, progress: &mut dyn FnMut(&str, u64, u64)) -> anyhow::Result<Report> {
    let mut report = Report::new("crowd", Machine::here(&args.place.tmp));
    let mut crowds: Vec<Vec<Crowd>> = args.threads.iter().map(|_| Vec::new()).collect();
    for round in 0..args.rounds {
        for at in 0..args.threads.len() {
            // Each second round the other way, so that a machine that gets slower is not to the last one's cost.
            let at = if round % 2 == 0 { at } else { args.threads.len() - 1 - at };
            let done = crowds.iter().map(Vec::len).sum::<usize>() as u64;
            progress("crowds", done, args.rounds * args.threads.len() as u64);
            crowds[at].push(measure_in_new(args, args.threads[at])?);
        }
    }
    for (no, (thread_count, rounds)) in args.threads.iter().zip(&crowds).enumerate() {
        let median_of = |figure: &dyn Fn(&Crowd) -> f64| median(rounds.iter().map(figure).collect());
        report.add(format!("transactions, {thread_count} threads (1/s)"), median_of(&|crowd| crowd.rate));
        if no > 0 {
            // Of pairs in one round: the machine changes from round to round by more than what is looked for.
            let shares = rounds.iter().zip(&crowds[0]).map(|(crowd, first)| crowd.rate / first.rate * 100.0).collect();
            report.add(format!("  of the first rate, {thread_count} threads (%)"), median(shares));
        }
        let mut add = |name: &str, figure: &dyn Fn(&Crowd) -> f64| {
            report.add(format!("  {name}, {thread_count} threads"), median_of(figure));
        };
        add("processor time each (us)", &|crowd| crowd.each(crowd.cpu_ns as f64 / 1e3));
        add("context switches each", &|crowd| crowd.each(crowd.switch_count as f64));
        add("lock waits each", &|crowd| crowd.each(crowd.counters.lock_wait_count as f64));
        add("waits for room in the log each", &|crowd| crowd.each(crowd.counters.log_wait_count as f64));
        add("deadlocks each", &|crowd| crowd.each(crowd.counters.deadlock_count as f64));
        add("longest transaction (ms)", &|crowd| crowd.longest.as_secs_f64() * 1e3);
        add("least of a thread", &|crowd| crowd.least as f64);
    }
    Ok(report)
}

/// What one crowd did in one round.
struct Crowd {
    /// Commits a second, once all had begun.
    rate: f64,
    /// All commits, those of the beginning too, as in the figures below.
    commit_count: u64,
    /// Nanoseconds of the crowd's threads.
    cpu_ns: u64,
    /// Voluntary and involuntary ones, of the crowd's threads.
    switch_count: u64,
    longest: Duration,
    /// Commits of the thread with the fewest.
    least: u64,
    counters: Counters,
}

impl Crowd {
    fn each(&self, count: f64) -> f64 {
        count / self.commit_count.max(1) as f64
    }
}

fn measure_in_new(args: &CrowdArgs, thread_count: u64) -> anyhow::Result<Crowd> {
    let dir = Workdir::new(&args.place)?;
    let mut options = Environment::options().transaction_count_max(4096).durability(args.durability.into());
    let cache_bytes = args.place.cache.unwrap_or(1 << 30);
    options = options.cache_bytes(cache_bytes).lock_timeout(Duration::from_mins(1));
    let env = options.open(dir.path())?;
    grow(&env, cache_bytes / 2)?;
    env.transact(|txn| {
        let table = txn.bytes_or_create(TABLE)?;
        (0..args.hot).try_for_each(|key| table.put(&key.to_be_bytes(), &0_u64.to_le_bytes()))
    })?;
    let crowd = measure(&env, args.hot, thread_count, Duration::from_secs_f64(args.seconds))?;
    for key in 0..args.hot {
        let value = env.transact(|txn| txn.bytes(TABLE)?.get(&key.to_be_bytes()))?;
        let counted = value.as_deref().and_then(number_of).unwrap_or(0);
        let commit_count = crowd.commit_count;
        anyhow::ensure!(
            counted == commit_count,
            "{commit_count} commits, and record {key} was changed {counted} times"
        );
    }
    env.close()?;
    Ok(crowd)
}

/// Most that is in an environment before it is measured.
const GROWN_BYTES_MAX: u64 = 400 << 20;

/// Puts so much into the environment and takes it out again, as if it had been at work for a while. Otherwise the first
/// seconds measure how fast the system gives memory that nobody has touched. That was up to an eighth of the processor
/// time, and differs from run to run.
fn grow(env: &Environment, bytes: u64) -> Result<(), Error> {
    const VALUE: [u8; 800] = [b'.'; 800];
    let count = bytes.min(GROWN_BYTES_MAX) / VALUE.len() as u64;
    env.transact(|txn| {
        txn.bytes_or_create("before")?.load_sorted((0..count).map(|no| (no.to_be_bytes(), VALUE))).map(drop)
    })?;
    env.transact(|txn| txn.drop_table("before"))?;
    env.reclaim()?;
    env.checkpoint().map(drop)
}

/// What one thread of a crowd did.
struct Done {
    /// Commits before the time that counts, and within it.
    early_count: u64,
    count: u64,
    longest: Duration,
    switch_count: u64,
    cpu_ns: u64,
}

fn measure(env: &Environment, hot: u64, thread_count: u64, time: Duration) -> anyhow::Result<Crowd> {
    let before = Counters::of(env)?;
    let began = OnceLock::new();
    let all_here = Barrier::new(thread_count as usize);
    let results: Vec<Result<Done, Error>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..thread_count)
            .map(|thread_no| {
                let (began, all_here) = (&began, &all_here);
                scope.spawn(move || {
                    all_here.wait();
                    let began = *began.get_or_init(Instant::now);
                    writer(env, hot, (thread_no, thread_count), began, time)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err(Error::Panicked("a writer")))).collect()
    });
    let done: Vec<Done> = results.into_iter().collect::<Result<_, _>>()?;
    let counted: u64 = done.iter().map(|done| done.count).sum();
    Ok(Crowd {
        rate: counted as f64 / time.as_secs_f64(),
        commit_count: done.iter().map(|done| done.early_count + done.count).sum(),
        cpu_ns: done.iter().map(|done| done.cpu_ns).sum(),
        switch_count: done.iter().map(|done| done.switch_count).sum(),
        longest: done.iter().map(|done| done.longest).max().unwrap_or_default(),
        least: done.iter().map(|done| done.count).min().unwrap_or_default(),
        counters: Counters::of(env)?.since(before),
    })
}

/// Commits until a quarter of `time`, when all have begun and the memory has been touched, and then for `time`.
fn writer(
    env: &Environment,
    hot: u64,
    (thread_no, thread_count): (u64, u64),
    began: Instant,
    time: Duration,
) -> Result<Done, Error> {
    let mut done = Done { early_count: 0, count: 0, longest: Duration::ZERO, switch_count: 0, cpu_ns: 0 };
    let early = time / 4;
    let mut last = began.elapsed();
    // The same places whatever the number of threads, so that only that differs.
    let places: Vec<u64> = (thread_no..PLACES.max(thread_no + 1)).step_by(thread_count as usize).collect();
    loop {
        let count = done.early_count + done.count;
        let key = places[(count % places.len() as u64) as usize] << 32 | count;
        env.transact(|txn| {
            let table = txn.bytes(TABLE)?;
            if hot == 0 {
                return table.put(&key.to_be_bytes(), &[b'.'; 100]);
            }
            (0..hot).try_for_each(|at| {
                let key = if thread_no % 2 == 0 { at } else { hot - 1 - at };
                let add = |old: &[u8]| Some((number_of(old).unwrap_or(0) + 1).to_le_bytes().to_vec());
                table.modify(&key.to_be_bytes(), add).map(drop)
            })
        })?;
        let now = began.elapsed();
        done.longest = done.longest.max(now - last);
        last = now;
        if now < early {
            done.early_count += 1;
        } else if now < early + time {
            done.count += 1;
        } else {
            done.early_count += 1; // Too late to count, as those before.
            break;
        }
    }
    (done.switch_count, done.cpu_ns) = (switches_of_this_thread(), processor_time_of_this_thread());
    Ok(done)
}

fn number_of(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// Context switches of the calling thread since it began; 0 if the system does not say.
fn switches_of_this_thread() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let lines = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
    lines.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
}

/// Nanoseconds that the calling thread has run; 0 if the system does not say.
fn processor_time_of_this_thread() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}
