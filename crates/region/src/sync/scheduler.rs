//! The seeded scheduler: many threads, one baton.
//!
//! Simulated threads are real ones, so that ordinary code runs under them, but only the holder of the baton runs. At
//! each call of `sync` the holder decides, by the seed, who is next. Handing over is one futex wake and one wait; it is
//! cheap if the process stays on one processor, which is the caller's business.
//!
//! ```text
//!                  spawn                 picked
//!   (not there) ----------> runnable <-------------> holds the baton ---> ended
//!                              ^                          |
//!                              |  wake, deadline, end     | futex_wait, sleep_ns, join
//!                              +-------- blocked <--------+
//! ```
//! S1. What decides is the seed, the order of calls, and virtual time: never an address, a real clock, a thread-local,
//!     or which real thread is faster. Addresses are compared for equality only, among words that exist at one time.
//! S2. The state is changed by the holder only. The mutex around it is never contended, but for a late look from
//!     outside.
//! S3. Virtual time rises by [`STEP_NS`] a decision and 1 ns a look at the clock. If nobody is runnable it jumps to the
//!     first deadline.
//! S4. If nobody is runnable and there is no deadline, the run is stuck: it ends in [`Stuck`].
//!
//! **How a stuck run ends.** Every blocked thread is released. The call that it waits in unwinds with a payload that is
//! known here, so no panic message is printed. Each later call that would wait unwinds too. While a thread unwinds, its
//! destructors may call `sync` again; unwinding twice would abort, so there `futex_wait` comes back at once (`false` if
//! it has a time-out, else `true`). A destructor that goes on waiting after [`RELEASES_MAX`] such returns has no way
//! out. A spawned thread is then left asleep for ever, and the root aborts the process with the report. Code that
//! catches panics sees the payload go by and is released again at its next wait.
//!
//! **Panics.** A panic of a spawned thread is `join`'s result. What nobody joined, `run` resumes when all threads have
//! ended; so it does with the root's own panic, before anything else. A panic is told rather than `Stuck` if both
//! happened.
//!
//! **Processes.** Every thread belongs to a simulated process: the root to number 0, others to that of who started them
//! (`deaths.rs`). A process that dies does so between two steps of whichever of its threads runs, and its other
//! threads wherever they wait. None of them runs any more, and nothing unwinds, until all that live have ended. Then
//! the dead are released as the threads of a stuck run are, and what their destructors write is seen by nobody.
//! A stopped process gets the baton back when its time is over.
//!
//! How often a thread loses the baton at a mere yield point differs from seed to seed: always, one in 4, in 16, in 64.
//! So long undisturbed stretches occur as well as wild interleavings. One wait in 128 wakes for no reason (Y1).

use super::carrier::{Carrier, Job, lock};
use super::processes::{Doom, Process};
use super::thread::Panicked;
use super::views::FutexKey;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

use crate::{ByNumber, NumberSet, Random};

/// Virtual time of one decision.
const STEP_NS: u64 = 200;
/// Decisions after which [`Scheduler::run`] calls a run stuck: some thread goes round for ever.
pub const STEPS_MAX: u64 = 20_000_000;
/// How often a thread that unwinds is let through a wait before it is given up.
const RELEASES_MAX: u32 = 10_000;
/// Rounds of spinning before a simulated thread sleeps.
const SPIN_ROUNDS: u32 = 2;
/// Real time without a decision after which a waiting thread says so: a mutex is held across a scheduling point (Y2).
const STALL_NS: u64 = 30_000_000_000;
/// What `unix_time_ns` is when a run begins.
pub(super) const UNIX_TIME_NS_AT_START: u64 = 1_700_000_000_000_000_000;

/// Runs threads one at a time, in an order that a seed fixes.
///
/// ```
/// use ledgerstone_region::sync::{self, Scheduler};
/// let order = |seed| {
///     Scheduler::run(seed, || {
///         let threads: Vec<_> = (0..3).map(|no| sync::spawn("worker", move || { sync::sleep_ns(no); no })).collect();
///         (threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>(), sync::now_ns())
///     })
///     .unwrap()
/// };
/// assert_eq!(order(7), order(7));
/// ```
#[derive(Debug)]
pub struct Scheduler(());

impl Scheduler {
    /// Runs `root` as the first simulated thread, on the calling thread. Returns when it has ended, and all threads
    /// that it or its threads started by [`super::spawn`].
    ///
    /// # Errors
    /// [`Stuck`] if no thread could run any more, or after [`STEPS_MAX`] decisions.
    ///
    /// # Panics
    /// With the panic of a simulated thread that was not joined. If called inside a simulation.
    pub fn run<T>(seed: u64, root: impl FnOnce() -> T + Send) -> Result<T, Stuck> {
        Scheduler::run_within(seed, STEPS_MAX, root)
    }

    /// As [`Scheduler::run`], with another bound for the decisions.
    ///
    /// # Errors
    /// As [`Scheduler::run`].
    ///
    /// # Panics
    /// As [`Scheduler::run`].
    pub fn run_within<T>(seed: u64, steps_max: u64, root: impl FnOnce() -> T + Send) -> Result<T, Stuck> {
        assert!(current().is_none(), "a simulation inside a simulation");
        let run = Arc::new(Run { state: Mutex::new(State::new(seed, steps_max)) });
        let outer_claims = crate::slot::replace_claims(crate::slot::Claims::none());
        let outcome = {
            let carrier = lock(&run.state).threads[0].carrier.clone();
            let doom = lock(&run.state).processes[0].doom.clone();
            let member = Member { run: run.clone(), no: ROOT, process: 0, carrier, doom };
            let _entered = Entered::new(&member);
            let mut outcome = catch_unwind(AssertUnwindSafe(root));
            member.wait_for_all();
            let is_stuck = lock(&run.state).ending.is_some();
            if is_stuck && let Ok(value) = outcome {
                // Dropped while simulated: for what waits in its destructor is released there, not hung for real.
                drop(catch_unwind(AssertUnwindSafe(|| drop(value))));
                outcome = Err(Box::new(Released));
            }
            crate::slot::give_back_claims();
            outcome
        };
        drop(crate::slot::replace_claims(outer_claims));
        let (stuck, panic) = {
            let mut state = lock(&run.state);
            (state.ending.take(), state.panics.pop_first())
        };
        match outcome {
            Err(payload) if !payload.is::<Released>() => resume_unwind(payload),
            outcome => {
                if let Some((_, panicked)) = panic {
                    panicked.resume();
                }
                match (outcome, stuck) {
                    (Ok(value), None) => Ok(value),
                    (_, Some(stuck)) => Err(stuck),
                    (Err(payload), None) => resume_unwind(payload),
                }
            }
        }
    }
}

const ROOT: u32 = 0;

/// The payload that unwinds a thread out of a stuck run.
pub(super) struct Released;

/// Whether this payload is the one that unwinds the threads of a run that has ended: who catches panics lets it pass.
#[must_use]
pub fn ends_a_run(payload: &(dyn std::any::Any + Send)) -> bool {
    payload.is::<Released>()
}

/// No thread could run any more: a hang was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// The run's seed.
    pub seed: u64,
    /// Why the run was given up.
    pub why: WhyStuck,
    /// Virtual time when it was.
    pub now_ns: u64,
    /// Decisions until then.
    pub steps: u64,
    /// The threads that had not ended, by number.
    pub threads: Vec<StuckThread>,
}

/// Why a run was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyStuck {
    /// Every thread waits for another.
    AllBlocked,
    /// The bound for decisions was reached.
    TooManySteps,
}

/// One thread of a stuck run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckThread {
    /// Its number: the order of starting, the root is 0.
    pub no: u32,
    /// Its name.
    pub name: String,
    /// What the thread waits for.
    pub waits: Waits,
    /// Where it called `sync` last: file, line.
    pub at: String,
    /// The last yield point that it passed.
    pub last_point: &'static str,
}

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// For nothing. It can run.
    Runnable,
    /// To be woken on some word.
    Futex,
    /// For a time.
    Sleep,
    /// For the end of another thread.
    Join(u32),
    /// The root has returned and waits for the others.
    AllEnded,
    /// For nothing any more: its process has died.
    Dead,
    /// It has ended.
    Ended,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            WhyStuck::AllBlocked => "every thread waits for another",
            WhyStuck::TooManySteps => "too many steps",
        };
        write!(f, "seed {} is stuck after {} steps at {} ns: {why}", self.seed, self.steps, self.now_ns)?;
        for thread in &self.threads {
            let StuckThread { no, name, waits, at, last_point } = thread;
            write!(f, "\n  thread {no} {name:?}: {waits:?} at {at}, last yield point {last_point:?}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Stuck {}

/// One run.
pub(super) struct Run {
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    seed: u64,
    pub(super) random: Random,
    switch_one_in: u64,
    pub(super) now_ns: u64,
    steps: u64,
    steps_max: u64,
    threads: Vec<Thread>,
    runnable: Vec<u32>,
    /// Who waits on a word, in the order of waiting.
    waiting: Vec<u32>,
    deadlines: NumberSet<(u64, u32)>,
    /// Threads that have not ended.
    live: u32,
    /// Set when the run is stuck, and why.
    ending: Option<Stuck>,
    panics: ByNumber<u32, Panicked>,
    pub(super) processes: Vec<Process>,
    /// Threads of processes that have died, and that have not been released.
    dead: u32,
    /// Whether a process may be stopped.
    pub(super) has_stops: bool,
}

struct Thread {
    name: String,
    process: u32,
    /// Its process has died.
    is_dead: bool,
    /// It died at a step of its own, where it may hold mutexes of its process.
    died_at_step: bool,
    carrier: Arc<Carrier>,
    waits: Waits,
    key: FutexKey,
    deadline_ns: Option<u64>,
    has_timed_out: bool,
    at: &'static Location<'static>,
    last_point: &'static str,
    releases: u32,
}

/// How the holder lets go of the baton.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hand {
    /// It could go on.
    Yield,
    /// It could go on, but waits for another thread.
    Spin,
    /// It is blocked or has ended.
    Block,
}

thread_local! {
    /// The simulated thread that this thread carries; null if none.
    static CURRENT: Cell<*const Member> = const { Cell::new(std::ptr::null()) };
}

/// The simulated thread that runs here.
#[inline(always)]
pub(super) fn current() -> Option<&'static Member> {
    let member = CURRENT.get();
    if member.is_null() {
        None
    } else {
        // SAFETY: set by `Entered::new` and reset when that is dropped, both on this thread's stack below us, while the
        // member is borrowed (R6). 'static is a lie that does not leave `sync`: no caller keeps the reference.
        Some(unsafe { &*member })
    }
}

/// A simulated thread, as it knows itself.
pub(super) struct Member {
    pub(super) run: Arc<Run>,
    no: u32,
    pub(super) process: u32,
    carrier: Arc<Carrier>,
    pub(super) doom: Arc<Doom>,
}

/// While this lives, this thread is `member`.
struct Entered<'a>(std::marker::PhantomData<&'a Member>);

impl<'a> Entered<'a> {
    fn new(member: &'a Member) -> Self {
        CURRENT.set(member);
        Entered(std::marker::PhantomData)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.set(std::ptr::null());
    }
}

impl Member {
    pub(super) fn now_ns(&self) -> u64 {
        let mut state = lock(&self.run.state);
        state.now_ns += 1;
        state.now_ns
    }

    pub(super) fn random_u64(&self) -> u64 {
        lock(&self.run.state).random.number()
    }

    #[track_caller]
    pub(super) fn futex_wait(&self, key: FutexKey, is_expected: impl Fn() -> bool, timeout_ns: Option<u64>) -> bool {
        let at = Location::caller();
        let (mut state, released) = self.release_if_ending(lock(&self.run.state), timeout_ns.is_some());
        if let Some(outcome) = released {
            self.hand_over(state, Hand::Spin, at);
            return outcome;
        }
        // Nobody else runs between this look and the entry in the list: the compare of a futex.
        if !is_expected() || state.random.below(128) == 0 {
            self.hand_over(state, Hand::Yield, at);
            return true;
        }
        let deadline_ns = timeout_ns.map(|ns| state.now_ns.saturating_add(ns));
        state.waiting.push(self.no);
        self.block(state, Waits::Futex, key, deadline_ns, at)
    }

    #[track_caller]
    pub(super) fn futex_wake(&self, key: FutexKey, count: u32) {
        let mut state = lock(&self.run.state);
        for _ in 0..count {
            let threads = &state.threads;
            let sleepers = state.waiting.iter().filter(|no| threads[**no as usize].key == key).count() as u64;
            if sleepers == 0 {
                break;
            }
            let chosen = state.random.below(sleepers) as usize;
            let threads = &state.threads;
            let of_key = |no: &&u32| threads[**no as usize].key == key;
            if let Some(no) = state.waiting.iter().filter(of_key).nth(chosen).copied() {
                state.make_runnable(no, false);
            }
        }
        self.hand_over(state, Hand::Yield, Location::caller());
    }

    #[track_caller]
    pub(super) fn wake_all_waiters(&self) {
        let mut state = lock(&self.run.state);
        while let Some(no) = state.waiting.first().copied() {
            state.make_runnable(no, false);
        }
        self.hand_over(state, Hand::Yield, Location::caller());
    }

    #[track_caller]
    pub(super) fn spin(&self, round: u32) -> bool {
        let (state, _) = self.release_if_ending(lock(&self.run.state), false);
        self.hand_over(state, Hand::Spin, Location::caller());
        round < SPIN_ROUNDS
    }

    #[track_caller]
    pub(super) fn yield_point(&self, what: &'static str) {
        let mut state = lock(&self.run.state);
        state.threads[self.no as usize].last_point = what;
        if state.ending.as_ref().is_some_and(|stuck| stuck.why == WhyStuck::TooManySteps) {
            (state, _) = self.release_if_ending(state, false);
        }
        self.hand_over(state, Hand::Yield, Location::caller());
    }

    #[track_caller]
    pub(super) fn sleep_ns(&self, ns: u64) {
        let (state, released) = self.release_if_ending(lock(&self.run.state), true);
        if released.is_some() {
            return self.hand_over(state, Hand::Spin, Location::caller());
        }
        let deadline_ns = state.now_ns.saturating_add(ns.max(1));
        self.block(state, Waits::Sleep, FutexKey::NONE, Some(deadline_ns), Location::caller());
    }

    /// True if this is thread `no` of `run`.
    pub(super) fn is(&self, run: &Weak<Run>, no: u32) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.run), run.as_ptr()) && self.no == no
    }

    /// What names this thread: its run and its number.
    pub(super) fn mark<T>(&self, make: impl FnOnce(Weak<Run>, u32) -> T) -> T {
        make(Arc::downgrade(&self.run), self.no)
    }

    /// Waits for the end of thread `no`.
    #[track_caller]
    pub(super) fn join(&self, no: u32) {
        loop {
            let state = lock(&self.run.state);
            if matches!(state.threads[no as usize].waits, Waits::Ended | Waits::Dead) {
                return self.hand_over(state, Hand::Yield, Location::caller());
            }
            let (state, released) = self.release_if_ending(state, false);
            if released.is_some() {
                self.hand_over(state, Hand::Spin, Location::caller());
            } else {
                self.block(state, Waits::Join(no), FutexKey::NONE, None, Location::caller());
            }
        }
    }

    /// Starts a thread in `process` whose life is `body`.
    #[track_caller]
    pub(super) fn spawn(
        &self,
        process: u32,
        name: &str,
        body: Box<dyn FnOnce() -> Result<(), Panicked> + Send>,
    ) -> (Arc<Run>, u32) {
        let at = Location::caller();
        let mut state = lock(&self.run.state);
        let no = state.threads.len() as u32;
        let run = self.run.clone();
        let doom = state.process(process).doom.clone();
        let carrier = Carrier::take(move |carrier| {
            let member = Member { run, no, process, carrier: carrier.clone(), doom };
            Box::new(move || live(member, body)) as Job
        });
        state.threads.push(Thread::new(name, process, carrier, at));
        state.runnable.push(no);
        state.live += 1;
        self.hand_over(state, Hand::Yield, at);
        (self.run.clone(), no)
    }

    /// The root's last wait. Never released: the others end, if need be by being released.
    fn wait_for_all(&self) {
        loop {
            let mut state = lock(&self.run.state);
            if state.live == 1 {
                return;
            }
            state.release_the_dead(true);
            self.block(state, Waits::AllEnded, FutexKey::NONE, None, Location::caller());
        }
    }

    /// Enters this thread among the blocked and lets others run; `false` if its deadline came.
    fn block(
        &self,
        mut state: MutexGuard<'_, State>,
        waits: Waits,
        key: FutexKey,
        deadline_ns: Option<u64>,
        at: &'static Location<'static>,
    ) -> bool {
        let thread = &mut state.threads[self.no as usize];
        thread.waits = waits;
        thread.key = key;
        thread.deadline_ns = deadline_ns;
        thread.has_timed_out = false;
        if let Some(deadline_ns) = deadline_ns {
            state.deadlines.insert((deadline_ns, self.no));
        }
        state.runnable.retain(|no| *no != self.no);
        self.hand_over(state, Hand::Block, at);
        let state = lock(&self.run.state);
        let has_timed_out = state.threads[self.no as usize].has_timed_out;
        if waits == Waits::AllEnded {
            return true;
        }
        let (state, released) = self.release_if_ending(state, deadline_ns.is_some());
        drop(state);
        released.unwrap_or(!has_timed_out)
    }

    /// The process dies now, and this thread, which is of it, with it.
    #[cold]
    pub(super) fn die(&self) {
        let mut state = lock(&self.run.state);
        state.threads[self.no as usize].died_at_step = true;
        state.kill(self.process);
        self.hand_over(state, Hand::Block, Location::caller());
    }

    /// The process stops where this thread, which is of it, lets go of the baton.
    #[cfg(feature = "deaths")]
    pub(super) fn stop_at_next_decision(&self, ns: u64) {
        let mut state = lock(&self.run.state);
        let until_ns = state.now_ns.saturating_add(ns);
        state.process(self.process).stopped_until_ns = until_ns;
        state.has_stops = true;
    }

    /// Others run, after the state of processes has changed.
    #[track_caller]
    pub(super) fn let_others_run(&self, state: MutexGuard<'_, State>) {
        self.hand_over(state, Hand::Yield, Location::caller());
    }

    /// If the run is ending, or this thread's process has died and is being released, unwinds; or, if this thread
    /// unwinds already, says how its wait shall come back.
    fn release_if_ending<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        has_timeout: bool,
    ) -> (MutexGuard<'a, State>, Option<bool>) {
        if state.ending.is_none() && !state.threads[self.no as usize].is_dead {
            return (state, None);
        }
        if !std::thread::panicking() {
            drop(state);
            // Not a panic to be shown: the run's result tells it all.
            resume_unwind(Box::new(Released));
        }
        if state.threads[self.no as usize].releases >= RELEASES_MAX {
            if self.no == ROOT
                && let Some(stuck) = &state.ending
            {
                eprintln!("the root waits in a destructor that cannot end\n{stuck}");
                std::process::abort();
            }
            self.leave_for_ever(state);
        }
        state.threads[self.no as usize].releases += 1;
        (state, Some(!has_timeout))
    }

    /// Ends the simulated thread and leaves its real one asleep.
    fn leave_for_ever(&self, mut state: MutexGuard<'_, State>) -> ! {
        state.end(self.no);
        self.hand_over(state, Hand::Block, Location::caller());
        loop {
            self.carrier.wait_for_baton(None);
        }
    }

    /// One decision: picks the next holder and, if that is another, lets it run and waits for the baton's return.
    fn hand_over(&self, mut state: MutexGuard<'_, State>, hand: Hand, at: &'static Location<'static>) {
        let thread = &mut state.threads[self.no as usize];
        thread.at = at;
        let has_ended = thread.waits == Waits::Ended;
        let next = state.choose(self.no, hand);
        let Some(next) = next.filter(|next| *next != self.no) else { return };
        let carrier = state.threads[next as usize].carrier.clone();
        drop(state);
        carrier.give_baton();
        if !has_ended {
            self.wait_for_baton();
            // Released from its death: wherever it was, it goes no further.
            if self.doom.has_struck() && !std::thread::panicking() {
                resume_unwind(Box::new(Released));
            }
        }
    }

    fn wait_for_baton(&self) {
        let mut steps_seen = u64::MAX;
        while !self.carrier.wait_for_baton(Some(STALL_NS)) {
            let state = match self.run.state.try_lock() {
                Ok(state) => state,
                Err(TryLockError::Poisoned(state)) => state.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            if steps_seen == state.steps {
                let holder = state.threads.iter().enumerate().filter(|(_, thread)| thread.waits == Waits::Runnable);
                eprintln!(
                    "seed {}: no decision for {} s of real time: is a mutex held across a scheduling point? runnable:",
                    state.seed,
                    STALL_NS / 1_000_000_000
                );
                for (no, thread) in holder {
                    eprintln!(
                        "  thread {no} {:?} at {}, last yield point {:?}",
                        thread.name, thread.at, thread.last_point
                    );
                }
            }
            steps_seen = state.steps;
        }
    }
}

/// The life of a spawned thread, on its carrier.
fn live(member: Member, body: Box<dyn FnOnce() -> Result<(), Panicked> + Send>) {
    let entered = Entered::new(&member);
    // `body` catches what its closure throws; this is for what the destructors of its captures throw.
    // A thread whose process died before it ran at all does not begin to.
    let is_released = member.doom.has_struck();
    let body = || {
        if is_released {
            return Ok(());
        }
        body()
    };
    let outcome = catch_unwind(AssertUnwindSafe(body));
    #[cfg(feature = "deaths")]
    super::deaths::panic_at_step(0); // The next thread here is another.
    // Its slots are given back by steps, at which it may die still.
    let outcome = catch_unwind(crate::slot::give_back_claims).and(outcome);
    drop(entered);
    let mut state = lock(&member.run.state);
    let panicked = match outcome {
        Ok(outcome) => outcome.err(),
        Err(payload) => Some(Panicked::new(state.threads[member.no as usize].name.clone(), payload)),
    };
    if let Some(panicked) = panicked.filter(|panicked| !panicked.is_released()) {
        state.panics.insert(member.no, panicked);
    }
    state.end(member.no);
    member.carrier.put_back();
    member.hand_over(state, Hand::Block, Location::caller());
}

impl Run {
    pub(super) fn is_ended(&self, no: u32) -> bool {
        lock(&self.state).threads[no as usize].waits == Waits::Ended
    }

    /// The panic of thread `no`, which is then told to somebody.
    pub(super) fn take_panic(&self, no: u32) -> Option<Panicked> {
        lock(&self.state).panics.remove(no)
    }
}

impl Thread {
    fn new(name: &str, process: u32, carrier: Arc<Carrier>, at: &'static Location<'static>) -> Self {
        Thread {
            name: name.to_string(),
            process,
            is_dead: false,
            died_at_step: false,
            carrier,
            waits: Waits::Runnable,
            key: FutexKey::NONE,
            deadline_ns: None,
            has_timed_out: false,
            at,
            last_point: "",
            releases: 0,
        }
    }
}

impl State {
    fn new(seed: u64, steps_max: u64) -> Self {
        let mut state = State {
            seed,
            random: Random::new(seed),
            switch_one_in: 1,
            now_ns: 1_000_000_000,
            steps: 0,
            steps_max,
            threads: vec![Thread::new("root", 0, Carrier::of_root(), Location::caller())],
            runnable: vec![ROOT],
            waiting: Vec::new(),
            deadlines: NumberSet::new(),
            live: 1,
            ending: None,
            panics: ByNumber::new(),
            processes: vec![Process::default()],
            dead: 0,
            has_stops: false,
        };
        state.switch_one_in = [1, 4, 16, 64][state.random.below(4) as usize];
        state
    }

    fn make_runnable(&mut self, no: u32, has_timed_out: bool) {
        let thread = &mut self.threads[no as usize];
        if let Some(deadline_ns) = thread.deadline_ns.take() {
            self.deadlines.remove((deadline_ns, no));
        }
        if thread.waits == Waits::Futex {
            self.waiting.retain(|waiting| *waiting != no);
        }
        thread.waits = Waits::Runnable;
        thread.has_timed_out = has_timed_out;
        self.runnable.push(no);
    }

    fn end(&mut self, no: u32) {
        self.threads[no as usize].waits = Waits::Ended;
        self.runnable.retain(|runnable| *runnable != no);
        self.live -= 1;
        for waiter in 0..self.threads.len() {
            if self.threads[waiter].waits == Waits::Join(no) {
                self.make_runnable(waiter as u32, false);
            }
        }
        if self.live == 1 && self.threads[ROOT as usize].waits == Waits::AllEnded {
            self.make_runnable(ROOT, false);
        }
        self.release_the_dead(self.threads[ROOT as usize].waits == Waits::AllEnded);
    }

    /// Once all that live have ended, lets the dead unwind: nobody sees it. Those that died at a step go first, and let
    /// go of the mutexes that others want on their way.
    fn release_the_dead(&mut self, root_waits: bool) {
        let is_over = self.live == self.dead + 1 && root_waits;
        if self.dead == 0 || !(is_over || self.ending.is_some()) {
            return;
        }
        let are_first = |thread: &Thread| thread.waits == Waits::Dead && thread.died_at_step;
        let has_first = self.threads.iter().any(are_first);
        for no in 0..self.threads.len() {
            let thread = &self.threads[no];
            if thread.waits == Waits::Dead && (thread.died_at_step || !has_first) {
                self.dead -= 1;
                self.make_runnable(no as u32, false);
            }
        }
    }

    /// The process of that number; there are as many as were asked for.
    pub(super) fn process(&mut self, no: u32) -> &mut Process {
        let count = self.processes.len().max(no as usize + 1);
        self.processes.resize_with(count, Process::default);
        &mut self.processes[no as usize]
    }

    /// All threads of a process stay where they are.
    pub(super) fn kill(&mut self, process: u32) {
        assert!(process != 0, "the root's process does not die");
        // Some are known at once, most after a time.
        let after_ns = self.random.below(2) * self.random.below(2_000_000);
        let known_ns = self.now_ns + after_ns;
        if !self.process(process).die(known_ns) {
            return;
        }
        for no in 0..self.threads.len() as u32 {
            let thread = &mut self.threads[no as usize];
            if thread.process != process || thread.waits == Waits::Ended {
                continue;
            }
            thread.is_dead = true;
            if let Some(deadline_ns) = thread.deadline_ns.take() {
                self.deadlines.remove((deadline_ns, no));
            }
            thread.waits = Waits::Dead;
            self.waiting.retain(|waiting| *waiting != no);
            self.runnable.retain(|runnable| *runnable != no);
            self.dead += 1;
            for waiter in 0..self.threads.len() as u32 {
                if self.threads[waiter as usize].waits == Waits::Join(no) {
                    self.make_runnable(waiter, false);
                }
            }
        }
        self.release_the_dead(self.threads[ROOT as usize].waits == Waits::AllEnded);
    }

    /// Whether no stop keeps the thread from running. Stops that are over are forgotten.
    fn may_run(&self, no: u32) -> bool {
        self.processes[self.threads[no as usize].process as usize].stopped_until_ns <= self.now_ns
    }

    /// As the end of [`State::choose`], where some process may be stopped.
    fn choose_among_the_going(&mut self, me: u32, hand: Hand) -> Option<u32> {
        loop {
            let going: Vec<u32> = self.runnable.iter().copied().filter(|no| self.may_run(*no)).collect();
            let others = going.iter().copied().filter(|no| *no != me || hand != Hand::Spin);
            let candidates: Vec<u32> = if going.len() > 1 { others.collect() } else { going };
            if hand == Hand::Yield && candidates.contains(&me) && self.random.below(self.switch_one_in) != 0 {
                return Some(me);
            }
            if let Some(chosen) = (candidates.len() as u64).checked_sub(1).map(|last| self.random.below(last + 1)) {
                self.has_stops = self.processes.iter().any(|process| process.stopped_until_ns > self.now_ns);
                return Some(candidates[chosen as usize]);
            }
            let ends = self.runnable.iter().map(|no| self.threads[*no as usize].process);
            let first_end = ends.map(|process| self.processes[process as usize].stopped_until_ns).min()?;
            let next = self.deadlines.first().map_or(first_end, |(deadline_ns, _)| deadline_ns.min(first_end));
            self.now_ns = self.now_ns.max(next);
            self.wake_the_late();
        }
    }

    /// Lets those run whose deadline has come.
    fn wake_the_late(&mut self) {
        while let Some((deadline_ns, no)) = self.deadlines.first() {
            if deadline_ns > self.now_ns {
                break;
            }
            self.make_runnable(no, true);
        }
    }

    /// Who runs next, after `me` has let go; `None` if nobody is left.
    fn choose(&mut self, me: u32, hand: Hand) -> Option<u32> {
        self.steps += 1;
        self.now_ns += STEP_NS;
        if self.steps > self.steps_max {
            self.begin_ending(WhyStuck::TooManySteps);
        }
        while let Some((deadline_ns, no)) = self.deadlines.first() {
            if deadline_ns > self.now_ns && !self.runnable.is_empty() {
                break;
            }
            self.now_ns = self.now_ns.max(deadline_ns);
            self.make_runnable(no, true);
        }
        if self.runnable.is_empty() {
            self.begin_ending(WhyStuck::AllBlocked);
        }
        if self.has_stops {
            return self.choose_among_the_going(me, hand);
        }
        match (self.runnable.len() as u64, hand) {
            (0, _) => None,
            (1, _) => Some(self.runnable[0]),
            (_, Hand::Yield) if self.random.below(self.switch_one_in) != 0 => Some(me),
            (count, Hand::Spin) => {
                let chosen = self.random.below(count - 1) as usize;
                self.runnable.iter().filter(|no| **no != me).nth(chosen).copied()
            }
            (count, _) => {
                let chosen = self.random.below(count) as usize;
                Some(self.runnable[chosen])
            }
        }
    }

    /// Gives the run up: notes who waits where, and lets all of them go.
    fn begin_ending(&mut self, why: WhyStuck) {
        if let Some(stuck) = &self.ending {
            if self.steps > self.steps_max.max(stuck.steps).saturating_add(STEPS_MAX) {
                eprintln!("released threads of a stuck run do not end\n{stuck}");
                std::process::abort();
            }
            return;
        }
        let of_thread = |(no, thread): (usize, &Thread)| StuckThread {
            no: no as u32,
            name: thread.name.clone(),
            waits: thread.waits,
            at: format!("{}:{}", thread.at.file(), thread.at.line()),
            last_point: thread.last_point,
        };
        let threads = self.threads.iter().enumerate().map(of_thread);
        self.ending = Some(Stuck {
            seed: self.seed,
            why,
            now_ns: self.now_ns,
            steps: self.steps,
            threads: threads.filter(|thread| thread.waits != Waits::Ended).collect(),
        });
        for no in 0..self.threads.len() {
            if matches!(self.threads[no].waits, Waits::Futex | Waits::Sleep | Waits::Join(_)) {
                self.make_runnable(no as u32, false);
            }
        }
        self.release_the_dead(self.threads[ROOT as usize].waits == Waits::AllEnded);
    }
}
