//! lock: locks of the file system against locks in memory (8.2).
//!
//! Alone: taking and giving back. Against another: how many locks one process gets while the other takes 5,000 write
//! locks, as in the paper. And the throughput of several processes, with the share of the one that got least.
//!
//! Everybody is a process of its own, pinned: locks by `fcntl` exclude processes only, and the memory locks work across
//! processes too. The bare lock in memory is the paper's: no fairness, no deadlock detection.

use std::fs::File;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex;

use crate::context::{Context, at, timed};
use crate::error::{On, ProbeError};
use crate::experiment::Experiment;
use crate::measure::Batch;
use crate::place;
use crate::report::{Better, Unit};
use crate::sys::child::Child;
use crate::sys::file_lock::{self, Family, Want};
use crate::sys::map::Map;
use crate::sys::pthread::Locks;
use crate::workdir::WorkFile;

pub(crate) struct Lock;

/// Write locks of the paper's second phase.
const WRITES: u64 = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File(Family),
    Mutex,
    ReadWrite,
    BareMutex,
    BareReadWrite,
    Spin,
    Ticket,
}

const KINDS: [(&str, Kind); 9] = [
    ("fcntl", Kind::File(Family::Fcntl)),
    ("open file description", Kind::File(Family::Ofd)),
    ("flock", Kind::File(Family::Flock)),
    ("pthread mutex", Kind::Mutex),
    ("pthread rwlock", Kind::ReadWrite),
    ("bare futex mutex", Kind::BareMutex),
    ("bare futex rwlock", Kind::BareReadWrite),
    ("spin lock", Kind::Spin),
    ("ticket lock", Kind::Ticket),
];

impl Experiment for Lock {
    fn id(&self) -> &'static str {
        "lock"
    }

    fn title(&self) -> &'static str {
        "locks of the file system against locks in memory"
    }

    fn section(&self) -> &'static str {
        "8.2"
    }

    fn weight(&self) -> u32 {
        20
    }

    fn run(&self, context: &mut Context<'_>) -> Result<(), ProbeError> {
        let contenders: &[usize] = context.effort().pick(&[2], &[1, 2, 4], &[1, 2, 4, 8]);
        context.expect(KINDS.len() * (2 + 2 + contenders.len()));
        let lock_file = context.file("lock", 4096)?;
        let pinned = context.places.pin(context.places.here())?;
        alone(context, &lock_file)?;
        against(context, &lock_file)?;
        together(context, &lock_file, contenders)?;
        drop(pinned);
        Ok(())
    }
}

/// One lock, as one process sees it. Processes share `words` and `pthread`; each has an open file of its own.
struct Held<'a> {
    kind: Kind,
    file: File,
    pthread: &'a Locks,
    words: &'a Map,
}

const STATE: usize = 0;
const WAITERS: usize = 256;
const NEXT: usize = 512;
const SERVING: usize = 768;
const WRITER: u32 = 1 << 31;

impl Held<'_> {
    #[inline]
    fn read(&self) {
        match self.kind {
            Kind::File(family) => {
                file_lock::set(&self.file, family, Want::Read);
                file_lock::set(&self.file, family, Want::Unlock);
            }
            Kind::ReadWrite => self.pthread.with_read(|| {}),
            Kind::BareReadWrite => {
                let state = self.words.word(STATE);
                loop {
                    let seen = state.load(Ordering::Relaxed);
                    if seen & WRITER == 0
                        && state.compare_exchange(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
                    {
                        break;
                    }
                    if seen & WRITER != 0 {
                        self.sleep(state, seen);
                    }
                }
                if state.fetch_sub(1, Ordering::Release) == 1 {
                    self.wake(state);
                }
            }
            // These know no readers: a read is like a write.
            Kind::Mutex | Kind::BareMutex | Kind::Spin | Kind::Ticket => self.write(),
        }
    }

    #[inline]
    fn write(&self) {
        let state = self.words.word(STATE);
        match self.kind {
            Kind::File(family) => {
                file_lock::set(&self.file, family, Want::Write);
                file_lock::set(&self.file, family, Want::Unlock);
            }
            Kind::Mutex => self.pthread.with_mutex(|| {}),
            Kind::ReadWrite => self.pthread.with_write(|| {}),
            Kind::BareMutex | Kind::BareReadWrite => {
                while let Err(seen) = state.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed) {
                    self.sleep(state, seen);
                }
                state.store(0, Ordering::Release);
                self.wake(state);
            }
            Kind::Spin => {
                while state.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
                    std::hint::spin_loop();
                }
                state.store(0, Ordering::Release);
            }
            Kind::Ticket => {
                let mine = self.words.word(NEXT).fetch_add(1, Ordering::Relaxed);
                let serving = self.words.word(SERVING);
                while serving.load(Ordering::Acquire) != mine {
                    std::hint::spin_loop();
                }
                serving.store(mine.wrapping_add(1), Ordering::Release);
            }
        }
    }

    #[cold]
    fn sleep(&self, state: &AtomicU32, seen: u32) {
        let waiters = self.words.word(WAITERS);
        // SeqCst with `wake`: either the waker sees us waiting, or we see the state changed.
        waiters.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wait(state, futex::Flags::empty(), seen, None); // Woken, or changed already.
        waiters.fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    fn wake(&self, state: &AtomicU32) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.words.word(WAITERS).load(Ordering::SeqCst) > 0 {
            let _ = futex::wake(state, futex::Flags::empty(), i32::MAX as u32);
        }
    }
}

fn held<'a>(kind: Kind, lock_file: &WorkFile, pthread: &'a Locks, words: &'a Map) -> Result<Held<'a>, ProbeError> {
    let file = File::options().read(true).write(true).open(lock_file.path()).on("open")?;
    if let Kind::File(family) = kind {
        let works = file_lock::set(&file, family, Want::Write) && file_lock::set(&file, family, Want::Unlock);
        if !works {
            return Err(ProbeError::system("lock", std::io::Error::last_os_error()));
        }
    }
    Ok(Held { kind, file, pthread, words })
}

fn alone(context: &mut Context<'_>, lock_file: &WorkFile) -> Result<(), ProbeError> {
    context.group("alone", "Taking a lock that is free and giving it back", None, Unit::Nanoseconds, Better::Lower);
    for (name, kind) in KINDS {
        let (pthread, words) = (Locks::new()?, Map::anonymous(4096)?);
        let (read, write) = (format!("{name}, read"), format!("{name}, write"));
        let lock = match held(kind, lock_file, &pthread, &words) {
            Ok(lock) => lock,
            Err(error) => {
                context.skip_at(at("alone", &write), &error);
                continue;
            }
        };
        if matches!(kind, Kind::File(_) | Kind::ReadWrite | Kind::BareReadWrite) {
            context.measure(at("alone", &read), Batch::Auto, |n| {
                timed(n, || {
                    lock.read();
                    Ok(())
                })
            })?;
        }
        context.measure(at("alone", &write), Batch::Auto, |n| {
            timed(n, || {
                lock.write();
                Ok(())
            })
        })?;
    }
    let of = |name| context.median(at("alone", name));
    let says = match (of("fcntl, write"), of("bare futex rwlock, write")) {
        (Some(file), Some(bare)) => format!(
            "A write lock of the file system takes {file:.0} ns, a bare one in memory {bare:.0} ns: {:.0} times less.",
            file / bare
        ),
        _ => "Too noisy to compare the locks.".into(),
    };
    context.say("alone", says);
    Ok(())
}

const GO: usize = 2048;
const OVER: usize = 2304;
/// Counters of the contenders, 128 bytes apart.
const COUNTS: usize = 4096;

fn against(context: &mut Context<'_>, lock_file: &WorkFile) -> Result<(), ProbeError> {
    context.group(
        "against",
        "Read locks that another process gets during 5,000 write locks",
        None,
        Unit::Count,
        Better::Higher,
    );
    context.group("against-time", "Time of 5,000 write locks against a reader", None, Unit::Nanoseconds, Better::Lower);
    let other = match context.places.other() {
        Ok(other) => other,
        Err(error) => {
            context.skip("locks against another process", error.to_string());
            return Ok(());
        }
    };
    let mut starved = Vec::new();
    for (name, kind) in KINDS {
        let (pthread, words) = (Locks::new()?, Map::anonymous(8192)?);
        let locks =
            held(kind, lock_file, &pthread, &words).and_then(|a| Ok((a, held(kind, lock_file, &pthread, &words)?)));
        let (ours, theirs) = match locks {
            Ok(both) => both,
            Err(error) => {
                context.skip_at(at("against", name), &error);
                continue;
            }
        };
        let reader = Child::run(|| {
            let _ = place::pin(other);
            words.word(GO).store(1, Ordering::Release);
            let mut count = 0;
            while words.word(OVER).load(Ordering::Relaxed) == 0 {
                theirs.read();
                count += 1;
                words.word64(COUNTS).store(count, Ordering::Relaxed); // A count, read while it grows.
            }
        })?;
        while words.word(GO).load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        let limit = Duration::from_millis(context.effort().pick(60, 150, 500));
        let mut last = Duration::ZERO;
        let result = context.sample(at("against", name), || {
            let before = words.word64(COUNTS).load(Ordering::Relaxed);
            let begin = Instant::now();
            let mut writes = 0;
            while writes < WRITES && (writes % 64 != 0 || begin.elapsed() < limit) {
                ours.write();
                writes += 1;
            }
            last = begin.elapsed().mul_f64(WRITES as f64 / writes as f64);
            let reads = words.word64(COUNTS).load(Ordering::Relaxed) - before;
            Ok(reads as f64 * WRITES as f64 / writes as f64)
        });
        let time = result.and_then(|reads| {
            context.measure(at("against-time", name), Batch::One, |_| {
                let begin = Instant::now();
                let mut writes = 0;
                while writes < WRITES && (writes % 64 != 0 || begin.elapsed() < limit) {
                    ours.write();
                    writes += 1;
                }
                Ok(begin.elapsed().mul_f64(WRITES as f64 / writes as f64))
            })?;
            Ok(reads)
        });
        words.word(OVER).store(1, Ordering::Relaxed);
        reader.wait();
        match time? {
            Some(reads) if reads < WRITES as f64 / 100.0 => starved.push(name),
            Some(_) | None => {}
        }
    }
    let of = |name| context.median(at("against", name));
    let says = match (of("fcntl"), of("open file description"), of("bare futex rwlock")) {
        (Some(fcntl), Some(ofd), Some(bare)) => format!(
            "During 5,000 write locks a reader gets {fcntl:.0} locks by fcntl, {ofd:.0} by open file description and {bare:.0} of the bare lock in memory."
        ),
        _ => "Too noisy to compare what readers get.".into(),
    };
    context.say("against", says);
    context.say("against-time", "The paper took 35 ms for its lock in memory and 22 ms for the file system's.");
    context.fact(
        "readers starved by a writer",
        if starved.is_empty() { "none".to_owned() } else { starved.join(", ") },
        "fewer than one read lock in a hundred write locks",
    );
    Ok(())
}

/// Several processes that take write locks as fast as they get them.
fn together(context: &mut Context<'_>, lock_file: &WorkFile, counts: &[usize]) -> Result<(), ProbeError> {
    let x = Some(("processes", Unit::Count));
    context.group("together", "Write locks a second of all processes together", x, Unit::PerSecond, Better::Higher);
    context.group(
        "fair",
        "Share of the process that got least, of the one that got most",
        x,
        Unit::Count,
        Better::Higher,
    );
    let window = Duration::from_millis(context.effort().pick(20, 60, 200));
    let (here, other) = (context.places.here(), context.places.other().ok());
    for (name, kind) in KINDS {
        for count in counts {
            let (pthread, words) = (Locks::new()?, Map::anonymous(8192)?);
            let locks: Result<Vec<_>, _> = (0..*count).map(|_| held(kind, lock_file, &pthread, &words)).collect();
            let locks = match locks {
                Ok(locks) => locks,
                Err(error) => {
                    context.skip_at(at("together", name), &error);
                    break;
                }
            };
            let mut children = Vec::new();
            for (no, lock) in locks.iter().enumerate() {
                let cpu = if no % 2 == 0 { here } else { other.unwrap_or(here) };
                let words = &words;
                children.push(Child::run(move || {
                    let _ = place::pin(cpu);
                    words.word(GO).fetch_add(1, Ordering::Release);
                    let mut taken = 0;
                    while words.word(OVER).load(Ordering::Relaxed) == 0 {
                        lock.write();
                        taken += 1;
                        // A count, read while it grows.
                        words.word64(COUNTS + no * 128).store(taken, Ordering::Relaxed);
                    }
                })?);
            }
            while (words.word(GO).load(Ordering::Acquire) as usize) < *count {
                std::thread::sleep(Duration::from_micros(200));
            }
            let look = || -> Vec<u64> {
                (0..*count).map(|no| words.word64(COUNTS + no * 128).load(Ordering::Relaxed)).collect()
            };
            let x = *count as f64;
            let ats = [at("together", name).x(x), at("fair", name).x(x)];
            let result = context.sample_all(&ats[..(*count).min(2)], |values| {
                let (before, begin) = (look(), Instant::now());
                std::thread::sleep(window);
                let (after, time) = (look(), begin.elapsed());
                let got: Vec<u64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
                let (least, most) = (got.iter().min().copied().unwrap_or(0), got.iter().max().copied().unwrap_or(0));
                values.extend([got.iter().sum::<u64>() as f64 / time.as_secs_f64(), least as f64 / most.max(1) as f64]);
                Ok(())
            });
            words.word(OVER).store(1, Ordering::Relaxed);
            for child in children {
                child.wait();
            }
            result?;
        }
    }
    let among = KINDS.iter().flat_map(|(name, _)| counts.iter().map(move |count| (name, count)));
    let starves = |(name, count): &(&&str, &usize)| {
        context.median(at("fair", name).x(**count as f64)).is_some_and(|share| share < 0.01)
    };
    let starved: Vec<_> = among.filter(starves).map(|(name, count)| format!("{name} among {count}")).collect();
    let two = counts.iter().find(|c| **c > 1).copied().unwrap_or(2) as f64;
    let of = |name| context.median(at("together", name).x(two));
    let says = match (of("fcntl"), of("pthread mutex")) {
        (Some(file), Some(mutex)) => format!(
            "{two:.0} processes together take {file:.0} locks of the file system a second, and {mutex:.0} of a mutex in memory."
        ),
        _ => "Too noisy to compare the throughput.".into(),
    };
    context.say("together", says);
    let says = if starved.is_empty() {
        "No process starved: each got more than a hundredth of what the luckiest got.".to_owned()
    } else {
        format!("Starved, with less than a hundredth of what the luckiest got: {}.", starved.join(", "))
    };
    context.say("fair", says);
    Ok(())
}
