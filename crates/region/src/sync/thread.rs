//! Threads: the system's, or simulated ones when a simulated thread starts them.

use super::carrier::lock;
use super::scheduler::{self, Member, Run};
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Weak};
use std::thread::ThreadId;

/// A thread to wait for. Dropping it lets the thread go its way.
#[must_use = "a thread that nobody joins may outlive what it works on"]
pub struct JoinHandle<T>(Thread<T>);

enum Thread<T> {
    Real { name: String, handle: std::thread::JoinHandle<T> },
    Simulated { run: Arc<Run>, no: u32, name: String, result: Arc<Mutex<Option<T>>> },
}

/// Which thread it is, to ask later, when its [`JoinHandle`] may be gone.
#[derive(Clone)]
pub struct ThreadMark(Mark);

#[derive(Clone)]
enum Mark {
    Real(ThreadId),
    Simulated { run: Weak<Run>, no: u32 },
}

impl ThreadMark {
    /// The mark of the calling thread.
    #[must_use]
    pub fn current() -> ThreadMark {
        ThreadMark(match scheduler::current() {
            Some(member) => member.mark(|run, no| Mark::Simulated { run, no }),
            None => Mark::Real(std::thread::current().id()),
        })
    }

    /// Whether the caller runs in this thread.
    #[must_use]
    pub fn is_current(&self) -> bool {
        match (&self.0, scheduler::current()) {
            (Mark::Real(id), None) => *id == std::thread::current().id(),
            (Mark::Simulated { run, no }, Some(member)) => member.is(run, *no),
            _ => false,
        }
    }
}

impl fmt::Debug for ThreadMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Mark::Real(id) => write!(f, "ThreadMark({id:?})"),
            Mark::Simulated { no, .. } => write!(f, "ThreadMark(simulated {no})"),
        }
    }
}

/// A thread ended by a panic.
pub struct Panicked {
    /// The thread's name.
    pub thread: String,
    /// The message of the panic.
    pub message: String,
    payload: Box<dyn Any + Send>,
}

/// Starts a thread. A simulated thread starts simulated ones. Their numbers are in the order of starting.
///
/// # Panics
/// The system has no thread left.
#[track_caller]
pub fn spawn<T: Send + 'static>(name: &str, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    try_spawn(name, f).expect("the system has a thread for us")
}

/// As [`spawn`], for a thread without which its starter can do.
///
/// # Errors
/// The system has no thread left.
#[track_caller]
pub fn try_spawn<T: Send + 'static>(
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    let Some(member) = scheduler::current() else {
        let name = name.to_string();
        let handle = std::thread::Builder::new().name(name.clone()).spawn(f)?;
        return Ok(JoinHandle(Thread::Real { name, handle }));
    };
    Ok(spawn_simulated(member, member.process, name, f))
}

/// Starts a simulated thread in `process`.
#[track_caller]
pub(super) fn spawn_simulated<T: Send + 'static>(
    member: &Member,
    process: u32,
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let name = name.to_string();
    let result = Arc::new(Mutex::new(None));
    let for_thread = result.clone();
    let thread_name = name.clone();
    let body = move || {
        let outcome = catch_unwind(AssertUnwindSafe(f)).map_err(|payload| Panicked::new(thread_name, payload));
        // The result, and whatever dropping it does, belongs to the thread: nothing of it is left when it has ended.
        outcome.map(|value| {
            let mut place = for_thread;
            match Arc::get_mut(&mut place) {
                Some(_) => drop(catch_unwind(AssertUnwindSafe(|| drop(value)))),
                None => *lock(&place) = Some(value),
            }
        })
    };
    let (run, no) = member.spawn(process, &name, Box::new(body));
    JoinHandle(Thread::Simulated { run, no, name, result })
}

impl<T> JoinHandle<T> {
    /// Waits for the thread's end.
    ///
    /// # Errors
    /// If it panicked.
    #[track_caller]
    pub fn join(self) -> Result<T, Panicked> {
        match self.0 {
            Thread::Real { name, handle } => handle.join().map_err(|payload| Panicked::new(name, payload)),
            Thread::Simulated { run, no, name, result } => {
                if let Some(member) = scheduler::current() {
                    member.join(no);
                }
                let value = lock(&result).take();
                value.ok_or_else(|| run.take_panic(no).unwrap_or_else(|| Panicked::released(name)))
            }
        }
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Thread::Real { handle, .. } => handle.is_finished(),
            Thread::Simulated { run, no, .. } => run.is_ended(*no),
        }
    }

    /// Whether the caller runs in this thread, which then cannot be joined.
    pub fn is_current(&self) -> bool {
        self.mark().is_current()
    }

    /// Which thread it is.
    #[must_use]
    pub fn mark(&self) -> ThreadMark {
        ThreadMark(match &self.0 {
            Thread::Real { handle, .. } => Mark::Real(handle.thread().id()),
            Thread::Simulated { run, no, .. } => Mark::Simulated { run: Arc::downgrade(run), no: *no },
        })
    }

    /// The name given to [`spawn`].
    pub fn name(&self) -> &str {
        match &self.0 {
            Thread::Real { name, .. } | Thread::Simulated { name, .. } => name,
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinHandle({:?})", self.name())
    }
}

impl Panicked {
    pub(super) fn new(thread: String, payload: Box<dyn Any + Send>) -> Self {
        let message = if let Some(text) = payload.downcast_ref::<&str>() {
            (*text).to_string()
        } else if let Some(text) = payload.downcast_ref::<String>() {
            text.clone()
        } else {
            "a panic without a message".to_string()
        };
        Panicked { thread, message, payload }
    }

    /// For a thread that a stuck run has released.
    fn released(thread: String) -> Self {
        Panicked { thread, message: "released: the run was stuck".to_string(), payload: Box::new(scheduler::Released) }
    }

    /// Whether the thread did not fail itself: its process has died, or the run was stuck.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.payload.is::<scheduler::Released>()
    }

    /// Goes on panicking in this thread.
    pub fn resume(self) -> ! {
        std::panic::resume_unwind(self.payload)
    }
}

impl fmt::Debug for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {:?} panicked: {}", self.thread, self.message)
    }
}

impl std::error::Error for Panicked {}
