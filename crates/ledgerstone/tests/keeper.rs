//! A program's own keeper of the log: the log stays while it says so, it is told what goes, and what it fails at costs
//! nothing but log.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use ledgerstone::{Environment, Error, GoingSegment, KeptLog, LogKeeper, Lsn, Options};
use ledgerstone_disk::{Disk, SimDisk};

/// What a keeper is to say, and what it was told.
#[derive(Default)]
struct Said {
    /// 0: it needs nothing.
    needs: AtomicU64,
    bytes_max: AtomicU64,
    does_not_know: AtomicBool,
    panics: AtomicBool,
    /// Its thread has an hour between two calls, and not a millisecond.
    works_rarely: AtomicBool,
    refuses: AtomicBool,
    told: Mutex<Vec<GoingSegment>>,
    /// The bytes of each, read when it was told.
    read: Mutex<Vec<u8>>,
    worked: AtomicU64,
    /// It calls back into this one.
    env: Mutex<Option<Environment>>,
    called_back: Mutex<Option<Result<Lsn, Error>>>,
    /// It is held up once before it answers: says so, and waits.
    held_up: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

struct Own(Arc<Said>, KeptLog);

impl LogKeeper for Own {
    fn name(&self) -> String {
        "own".into()
    }

    fn needs_log_from(&self) -> Result<Option<Lsn>, Error> {
        if let Some(env) = &*self.0.env.lock().unwrap() {
            *self.0.called_back.lock().unwrap() = Some(env.checkpoint());
        }
        assert!(!self.0.panics.load(Relaxed), "the program's bug");
        if self.0.does_not_know.load(Relaxed) {
            return Err(Error::user("its disk is away"));
        }
        let needs = self.0.needs.load(Relaxed);
        let held_up = self.0.held_up.lock().unwrap().take();
        if let Some((entered, goes_on)) = held_up {
            entered.send(()).unwrap();
            goes_on.recv().unwrap();
        }
        Ok((needs != 0).then_some(Lsn(needs)))
    }

    fn log_bytes_max(&self) -> u64 {
        match self.0.bytes_max.load(Relaxed) {
            0 => u64::MAX,
            bytes => bytes,
        }
    }

    fn log_goes(&self, segments: &[GoingSegment]) -> Result<(), Error> {
        if self.0.refuses.load(Relaxed) {
            return Err(Error::user("not yet"));
        }
        for segment in segments {
            // The first block of the log holds nothing.
            let from = segment.start.max(self.1.oldest_lsn());
            let mut bytes = vec![0; (segment.end.0 - from.0) as usize];
            let have = self.1.read(from, &mut bytes)?;
            assert_eq!(have as u64, segment.end.0 - from.0, "it is all there when it is announced");
            self.0.read.lock().unwrap().extend_from_slice(&bytes[..have]);
        }
        self.0.told.lock().unwrap().extend_from_slice(segments);
        Ok(())
    }

    fn work_period(&self) -> Option<Duration> {
        let is_rare = self.0.works_rarely.load(Relaxed);
        Some(if is_rare { Duration::from_hours(1) } else { Duration::from_millis(1) })
    }

    fn work(&self) {
        self.0.worked.fetch_add(1, Relaxed);
        assert!(!self.0.panics.load(Relaxed), "the program's bug");
    }
}

fn with_keeper(said: &Arc<Said>) -> Options {
    let said = Arc::clone(said);
    tiny().log_keeper(move |log| Ok(Arc::new(Own(Arc::clone(&said), log))))
}

fn open(disk: &SimDisk, said: &Arc<Said>) -> Environment {
    with_keeper(said).open_on(Arc::new(disk.clone())).unwrap()
}

/// A few segments of log, and a checkpoint that gives up what it may.
fn work(env: &Environment) {
    for n in 0..200 {
        env.transact(|txn| txn.bytes_or_create("t")?.put(&key(n), &[7; 700])).unwrap();
    }
    env.checkpoint().unwrap();
}

/// The same, and always as much: keys that were never there.
fn grow(env: &Environment) {
    let tag = env.stat().unwrap().log_tail_lsn;
    for n in 0..200 {
        env.transact(|txn| txn.bytes_or_create("t")?.put(&key(tag + n), &[7; 700])).unwrap();
    }
    env.checkpoint().unwrap();
}

/// The checkpoint at the end of a redo in the background may give up what the reader was going to read.
fn oldest(env: &Environment) -> Lsn {
    loop {
        match env.log_reader(Lsn(0)).unwrap().next() {
            Err(Error::LogGone { .. }) => {}
            found => return found.unwrap().unwrap().lsn(),
        }
    }
}

fn trouble(env: &Environment) -> Option<String> {
    let troubles = env.stat().unwrap().keeper_troubles;
    assert!(troubles.iter().all(|trouble| trouble.name == "own"));
    troubles.into_iter().next().map(|trouble| trouble.what)
}

#[test]
fn the_log_is_kept_while_a_keeper_says_so_and_it_is_told_what_goes() {
    let (disk, said) = (SimDisk::new(), Arc::new(Said::default()));
    said.needs.store(8, Relaxed);
    let env = open(&disk, &said);
    let begin = oldest(&env);
    (0..3).for_each(|_| work(&env));
    assert_eq!(oldest(&env), begin);
    assert!(said.told.lock().unwrap().is_empty());
    let pin = env.stat().unwrap().log_pins.into_iter().find(|pin| pin.name == "own").unwrap();
    assert!(pin.lsn <= begin.0 && pin.bytes_max.is_none(), "it is shown");

    let half = Lsn(env.stat().unwrap().log_tail_lsn / 2);
    said.needs.store(half.0, Relaxed);
    work(&env);
    let told = std::mem::take(&mut *said.told.lock().unwrap());
    assert!(told[0].start.0 == 0 || told[0].start <= begin);
    assert!(told.windows(2).all(|two| two[0].end == two[1].start), "one behind the other: {told:?}");
    let last = told.last().unwrap();
    assert!(last.end <= half && half.0 - last.end.0 < last.end.0 - last.start.0, "up to its place: {told:?}");
    assert!(told.iter().all(|segment| !disk.exists(&segment.file).unwrap()), "they are gone");
    assert!(oldest(&env) >= last.end && oldest(&env) <= half);
    assert!(!said.read.lock().unwrap().is_empty());

    // It needs nothing any more: all that recovery does not need goes.
    said.needs.store(0, Relaxed);
    work(&env);
    assert!(oldest(&env) > half);
    assert!(env.stat().unwrap().log_pins.is_empty());
    env.close().unwrap();
}

#[test]
fn a_new_process_keeps_all_that_is_there_until_it_asks() {
    let (disk, said) = (SimDisk::new(), Arc::new(Said::default()));
    said.needs.store(8, Relaxed);
    let env = open(&disk, &said);
    let begin = oldest(&env);
    work(&env);
    drop(env);
    let crashed = disk.after_crash(3);
    said.does_not_know.store(true, Relaxed); // Not at the checkpoint of the recovery either.
    let env = open(&crashed, &said);
    (0..3).for_each(|_| work(&env));
    assert_eq!(oldest(&env), begin);
    assert_eq!(trouble(&env).as_deref(), Some("its disk is away"));
    said.does_not_know.store(false, Relaxed);
    said.needs.store(env.stat().unwrap().log_tail_lsn, Relaxed);
    work(&env);
    assert!(oldest(&env) > begin);
    assert_eq!(trouble(&env), None);
}

#[test]
fn a_keeper_that_fails_or_panics_costs_log_and_not_the_environment() {
    for harm in 0..3 {
        let (disk, said) = (SimDisk::new(), Arc::new(Said::default()));
        said.needs.store(8, Relaxed);
        let env = open(&disk, &said);
        let begin = oldest(&env);
        work(&env);
        let (flag, expected) = match harm {
            0 => (&said.does_not_know, "its disk is away"),
            1 => (&said.panics, "it panicked"),
            _ => (&said.refuses, "not yet"),
        };
        flag.store(true, Relaxed);
        said.needs.store(env.stat().unwrap().log_tail_lsn, Relaxed);
        (0..3).for_each(|_| work(&env));
        assert!(!env.is_failed());
        assert_eq!(oldest(&env), begin, "{expected}: what was kept for it stays");
        assert_eq!(trouble(&env).as_deref(), Some(expected));
        flag.store(false, Relaxed);
        work(&env);
        assert!(oldest(&env) > begin, "{expected}: it was asked again");
        assert_eq!(trouble(&env), None);
        assert_sound(&env, expected);
        env.close().unwrap();
    }
}

#[test]
fn a_keeper_that_cannot_be_made_refuses_the_open_and_a_reader_has_none() {
    let disk = SimDisk::new();
    common::open(&disk).unwrap().close().unwrap();
    let refusing = tiny().log_keeper(|_| Err(Error::user("no place for copies")));
    let refused = refusing.clone().open_on(Arc::new(disk.clone())).map(drop);
    assert!(matches!(refused, Err(Error::User(why)) if why.to_string() == "no place for copies"));
    common::open(&disk).unwrap().close().unwrap(); // The open that was refused had begun.
    let env = refusing.read_only(true).open_on(Arc::new(disk.clone())).unwrap();
    assert!(env.stat().unwrap().log_pins.is_empty());
    env.close().unwrap();
    common::open(&disk).unwrap().close().unwrap();
}

#[test]
fn a_keeper_too_far_behind_holds_nothing_back() {
    let (disk, said) = (SimDisk::new(), Arc::new(Said::default()));
    said.needs.store(8, Relaxed);
    said.bytes_max.store(64 << 10, Relaxed);
    let env = open(&disk, &said);
    let begin = oldest(&env);
    (0..3).for_each(|_| work(&env));
    assert!(oldest(&env) > begin);
    assert!(!said.told.lock().unwrap().is_empty(), "it is told all the same");
}

#[test]
fn a_keeper_works_in_a_thread_of_its_own_before_a_checkpoint_and_at_the_close() {
    let said = Arc::new(Said::default());
    said.works_rarely.store(true, Relaxed); // Its thread adds nothing to what is counted.
    let env = open(&SimDisk::new(), &said);
    env.checkpoint().unwrap();
    assert_eq!(said.worked.load(Relaxed), 1);
    env.close().unwrap();
    assert_eq!(said.worked.load(Relaxed), 2);
    said.works_rarely.store(false, Relaxed);

    let dir = tempfile::tempdir().unwrap();
    let (options, own) = (Environment::options().cache_bytes(4 << 20), Arc::clone(&said));
    let env = options.log_keeper(move |log| Ok(Arc::new(Own(Arc::clone(&own), log)))).open(dir.path()).unwrap();
    said.panics.store(true, Relaxed);
    within(60, "it works, and works on after a panic", move || {
        while said.worked.load(Relaxed) < 5 {
            std::thread::sleep(Duration::from_millis(1));
        }
        env.close().unwrap();
    });
}

#[test]
fn a_keeper_that_calls_back_is_told_so() {
    let said = Arc::new(Said::default());
    let env = open(&SimDisk::new(), &said);
    *said.env.lock().unwrap() = Some(env.clone());
    env.checkpoint().unwrap();
    assert!(matches!(said.called_back.lock().unwrap().take(), Some(Err(Error::Busy))));
    said.env.lock().unwrap().take();
    env.close().unwrap();
}

/// The answer that `stat` asked for comes late, when a checkpoint has been told something else.
#[test]
fn a_late_answer_does_not_let_go_of_what_was_asked_for_since() {
    let (disk, said) = (SimDisk::new(), Arc::new(Said::default()));
    let env = open(&disk, &said);
    grow(&env);
    let (entered, has_entered) = channel();
    let (go_on, goes_on) = channel();
    *said.held_up.lock().unwrap() = Some((entered, goes_on));
    let asking = env.clone();
    let asks = std::thread::spawn(move || asking.stat().map(drop));
    has_entered.recv().unwrap(); // It is going to say that it needs nothing.
    let from = env.stat().unwrap().log_tail_lsn;
    said.needs.store(from, Relaxed);
    env.checkpoint().unwrap();
    go_on.send(()).unwrap();
    within(60, "stat", move || asks.join().unwrap()).unwrap();
    said.does_not_know.store(true, Relaxed); // Nobody hears from it again.
    (0..3).for_each(|_| grow(&env));
    assert!(oldest(&env).0 <= from, "{} is gone", from);
    said.does_not_know.store(false, Relaxed);
    said.needs.store(0, Relaxed);
    grow(&env);
    assert!(oldest(&env).0 > from, "it let go");
}

/// The same where it has said meanwhile that it needs less, and the log of the late answer is gone.
#[test]
fn a_late_answer_that_names_what_is_gone_lets_go_of_nothing() {
    let (disk, said) = (SimDisk::new(), Arc::new(Said::default()));
    let env = open(&disk, &said);
    said.needs.store(oldest(&env).0, Relaxed);
    (0..3).for_each(|_| grow(&env));
    let (entered, has_entered) = channel();
    let (go_on, goes_on) = channel();
    *said.held_up.lock().unwrap() = Some((entered, goes_on));
    let asking = env.clone();
    let asks = std::thread::spawn(move || asking.stat());
    has_entered.recv().unwrap(); // It is going to say that it needs all.
    let from = env.stat().unwrap().log_tail_lsn;
    said.needs.store(from, Relaxed);
    grow(&env);
    grow(&env);
    go_on.send(()).unwrap();
    let stat = within(60, "stat", move || asks.join().unwrap()).unwrap();
    assert_eq!((stat.keeper_troubles, stat.log_pins.len()), (vec![], 1));
    said.does_not_know.store(true, Relaxed); // Nobody hears from it again.
    (0..3).for_each(|_| grow(&env));
    assert!(oldest(&env).0 <= from, "{from} is gone");
}

#[test]
fn a_keeper_whose_log_is_gone_is_told_of_in_stat() {
    let (disk, said) = (SimDisk::new(), Arc::new(Said::default()));
    let env = open(&disk, &said);
    let early = oldest(&env);
    (0..3).for_each(|_| grow(&env));
    assert!(oldest(&env) > early);
    said.needs.store(early.0, Relaxed);
    let told = trouble(&env).unwrap();
    assert!(told.contains(&format!("LSN {early}")), "{told}");
    env.checkpoint().unwrap();
    assert!(trouble(&env).is_some());
    said.needs.store(env.stat().unwrap().log_tail_lsn, Relaxed);
    assert_eq!(trouble(&env), None);
    // One that asks for too much of it is told when it is gone, too.
    said.bytes_max.store(100 << 10, Relaxed);
    env.close().unwrap();
    let env = open(&disk, &said);
    (0..3).for_each(|_| grow(&env));
    let told = trouble(&env).unwrap();
    assert!(told.contains(&format!("LSN {}", said.needs.load(Relaxed))), "{told}");
}

/// It could never go on, and the log would be kept until the disk is full.
#[test]
fn a_keeper_without_a_bound_whose_log_is_gone_holds_nothing_until_it_begins_anew() {
    let (disk, said) = (SimDisk::new(), Arc::new(Said::default()));
    let env = open(&disk, &said);
    let early = oldest(&env);
    (0..3).for_each(|_| grow(&env));
    said.needs.store(early.0, Relaxed);
    let mut before = oldest(&env);
    for _ in 0..3 {
        grow(&env);
        assert!(oldest(&env) > before, "it holds the log from {before} on");
        before = oldest(&env);
        assert!(trouble(&env).unwrap().contains(&format!("LSN {early}")));
        assert!(env.stat().unwrap().log_pins.is_empty());
    }
    // The same for one that held some, and goes back.
    let anew = env.stat().unwrap().log_tail_lsn;
    said.needs.store(anew, Relaxed);
    (0..3).for_each(|_| grow(&env));
    assert!(oldest(&env).0 <= anew, "kept again");
    assert_eq!(trouble(&env), None);
    said.needs.store(early.0, Relaxed);
    grow(&env);
    assert!(oldest(&env).0 > anew);
    env.close().unwrap();
}

/// It cannot say yet what it needs. As much is kept as it says that its part of the log can be worth.
#[test]
fn a_new_keeper_with_a_bound_keeps_that_much_until_it_answers() {
    const BOUND: u64 = 300 << 10;
    let (disk, said) = (SimDisk::new(), Arc::new(Said::default()));
    said.needs.store(8, Relaxed);
    let env = open(&disk, &said);
    (0..6).for_each(|_| grow(&env));
    env.close().unwrap();
    said.bytes_max.store(BOUND, Relaxed);
    said.does_not_know.store(true, Relaxed);
    let env = open(&disk, &said);
    let tail = || env.stat().unwrap().log_tail_lsn;
    assert!(tail() > 2 * BOUND);
    for _ in 0..4 {
        let (before, bound) = (oldest(&env).0, BOUND + (64 << 10));
        assert!(before <= tail() - BOUND, "{before} {}", tail());
        grow(&env);
        assert!(oldest(&env).0 > before && oldest(&env).0 + bound + 4096 > tail(), "no more than that");
    }
    let needs = tail() - BOUND + 8192; // A checkpoint adds to the log.
    said.needs.store(needs, Relaxed);
    said.does_not_know.store(false, Relaxed);
    env.checkpoint().unwrap();
    assert_eq!(trouble(&env), None, "all that it needs is there");
    assert!(oldest(&env).0 <= needs);
}

/// The log's first LSN is long gone, and farther behind the end than any bound: it means all that is there.
#[test]
fn a_keeper_with_a_bound_that_names_the_beginning_keeps_what_is_there_then() {
    const BOUND: u64 = 1 << 20;
    let (disk, said) = (SimDisk::new(), Arc::new(Said::default()));
    let env = open(&disk, &said);
    while env.stat().unwrap().log_tail_lsn <= 2 * BOUND {
        grow(&env);
    }
    said.bytes_max.store(BOUND, Relaxed);
    said.needs.store(8, Relaxed);
    let begin = oldest(&env);
    grow(&env);
    assert!(env.stat().unwrap().log_tail_lsn < begin.0 + BOUND);
    assert_eq!((oldest(&env), trouble(&env)), (begin, None));
    // Beyond its bound it goes, and that is said.
    while env.stat().unwrap().log_tail_lsn <= begin.0 + 2 * BOUND {
        grow(&env);
    }
    assert!(oldest(&env) > begin);
    assert!(trouble(&env).is_some());
    said.needs.store(env.stat().unwrap().log_tail_lsn, Relaxed);
    assert_eq!(trouble(&env), None);
    env.close().unwrap();
}

/// Whoever holds the log back for a moment may let go of it just when a checkpoint looks: nothing goes that was not
/// announced.
#[test]
fn whatever_goes_was_announced() {
    let (disk, said) = (SimDisk::new(), Arc::new(Said::default()));
    let env = open(&disk, &said);
    let ended = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (env, ended) = (env.clone(), Arc::clone(&ended));
            std::thread::spawn(move || {
                while !ended.load(Relaxed) {
                    drop(env.changes(Lsn(u64::MAX)).unwrap());
                }
            })
        })
        .collect();
    for _ in 0..12 {
        grow(&env);
    }
    ended.store(true, Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    grow(&env);
    let oldest = env.log_reader(Lsn(0)).unwrap().oldest().unwrap().0;
    let told = said.told.lock().unwrap();
    let gone: Vec<u64> = (0..oldest / (64 << 10)).map(|no| no * (64 << 10)).collect();
    assert!(gone.len() > 10, "{gone:?}");
    for start in gone {
        assert!(told.iter().any(|segment| segment.start.0 == start), "{start} went in silence");
    }
}
