//! schedule: what it costs to let somebody else run (6).
//!
//! The cost of calls, of system calls, and of switches in user mode and by the kernel, on one processor and across.
//! The cost of idle threads, and of a wake-up by each mechanism. The wait above which sleeping is cheaper than
//! spinning. And what user-mode scheduling gains for work of each size.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::baton::{Baton, Kind};
use crate::context::{Context, at, timed};
use crate::error::ProbeError;
use crate::experiment::Experiment;
use crate::measure::Batch;
use crate::place;
use crate::report::{Better, Unit};
use crate::sys::child::Child;
use crate::sys::dynamic::Function;
use crate::sys::fiber::Fiber;
use crate::sys::usage;

pub(crate) struct Schedule;

impl Experiment for Schedule {
    fn id(&self) -> &'static str {
        "schedule"
    }

    fn title(&self) -> &'static str {
        "what it costs to let somebody else run"
    }

    fn section(&self) -> &'static str {
        "6"
    }

    fn weight(&self) -> u32 {
        12
    }

    fn run(&self, context: &mut Context<'_>) -> Result<(), ProbeError> {
        let idle = context.effort().pick(vec![0, 500], vec![0, 100, 500, 2000], vec![0, 100, 500, 1000, 2000]);
        let delays = context.effort().pick(
            vec![2, 20],
            vec![1, 2, 5, 10, 20, 50, 100],
            vec![1, 2, 5, 10, 20, 50, 100, 200, 500],
        );
        context.expect(14 + idle.len() + 9 + delays.len() * 4 + 6);
        let pinned = context.places.pin(context.places.here())?;
        switches(context)?;
        idle_threads(context, &idle)?;
        wake_ups(context)?;
        spinning(context, &delays)?;
        work(context)?;
        drop(pinned);
        Ok(())
    }
}

/// A call that stays a call.
#[inline(never)]
fn called(value: u64) -> u64 {
    std::hint::black_box(value) + 1
}

fn switches(context: &mut Context<'_>) -> Result<(), ProbeError> {
    context.group(
        "switch",
        "One call or one switch to another flow of control",
        None,
        Unit::Nanoseconds,
        Better::Lower,
    );
    let mut sum = 0;
    context.measure(at("switch", "call"), Batch::Auto, |n| {
        timed(n, || {
            sum = called(std::hint::black_box(sum));
            Ok(())
        })
    })?;
    match Function::find() {
        Ok(function) => {
            let mut value = -1;
            context.measure(at("switch", "call into a dynamic library"), Batch::Auto, |n| {
                timed(n, || {
                    value = -function.call(std::hint::black_box(value));
                    Ok(())
                })
            })?;
        }
        Err(error) => context.skip("a call into a dynamic library", error.to_string()),
    }
    context.measure(at("switch", "reading the clock"), Batch::Auto, |n| {
        timed(n, || {
            std::hint::black_box(Instant::now());
            Ok(())
        })
    })?;
    context.measure(at("switch", "system call"), Batch::Auto, |n| {
        timed(n, || {
            std::hint::black_box(rustix::process::getppid());
            Ok(())
        })
    })?;
    match Fiber::new() {
        Ok(mut fiber) => {
            context.measure(at("switch", "user-mode switch"), Batch::Auto, |n| {
                let time = timed(n, || {
                    std::hint::black_box(fiber.switch_to());
                    Ok(())
                })?;
                Ok(time / 2) // There and back are two.
            })?;
        }
        Err(error) => context.skip("a user-mode switch", error.to_string()),
    }
    let mut tasks = Tasks::new();
    context.measure(at("switch", "async task switch"), Batch::Auto, |n| {
        timed(n, || {
            tasks.poll_next();
            Ok(())
        })
    })?;
    let (here, other) = (context.places.here(), context.places.other());
    thread_round(context, "thread switch, same processor", Kind::Futex, here)?;
    process_round(context, "process switch, same processor", Kind::Futex, here)?;
    match other {
        Ok(other) => {
            thread_round(context, "thread switch, other processor", Kind::Futex, other)?;
            process_round(context, "process switch, other processor", Kind::Futex, other)?;
            thread_round(context, "spin hand-over, other processor", Kind::Spin, other)?;
            process_round(context, "spin hand-over, other process", Kind::Spin, other)?;
        }
        Err(error) => context.skip("switches to another processor", error.to_string()),
    }
    let of = |name| context.median(at("switch", name));
    let says = match (of("user-mode switch"), of("thread switch, same processor"), of("thread switch, other processor"))
    {
        (Some(fiber), Some(same), Some(other)) => format!(
            "A thread switch on one processor takes {:.2} us, {:.0} times a user-mode switch; one that wakes a thread on another processor takes {:.1} us.",
            same / 1e3,
            same / fiber,
            other / 1e3
        ),
        (_, Some(same), _) => format!("A thread switch on one processor takes {:.2} us.", same / 1e3),
        _ => "Too noisy to say what a thread switch costs.".into(),
    };
    context.say("switch", says);
    Ok(())
}

/// One way between this thread and one on `cpu`.
fn thread_round(context: &mut Context<'_>, name: &str, kind: Kind, cpu: usize) -> Result<Option<f64>, ProbeError> {
    thread_round_at(context, "switch", name, kind, cpu)
}

fn thread_round_at(
    context: &mut Context<'_>,
    group: &str,
    name: &str,
    kind: Kind,
    cpu: usize,
) -> Result<Option<f64>, ProbeError> {
    let baton = Baton::new(kind)?;
    with_partner(
        &baton,
        cpu,
        || {},
        || {
            context.measure(at(group, name), Batch::Auto, |n| {
                let time = timed(n, || {
                    baton.round();
                    Ok(())
                })?;
                Ok(time / 2)
            })
        },
    )?
}

/// Runs `body` while a thread on `cpu` takes turns with it, doing `work` in its own.
fn with_partner<T>(
    baton: &Baton,
    cpu: usize,
    work: impl FnMut() + Send,
    body: impl FnOnce() -> T,
) -> Result<T, ProbeError> {
    std::thread::scope(|scope| {
        let partner = std::thread::Builder::new().spawn_scoped(scope, move || {
            let _ = place::pin(cpu); // Refused only if the processor went away; then the numbers show it.
            baton.partner(work);
        });
        let partner = partner.map_err(|e| ProbeError::system("a thread", e))?;
        baton.round(); // It has begun, where it belongs.
        let result = body();
        baton.end();
        let _ = partner.join(); // It cannot panic; if it did, the scope says so.
        Ok(result)
    })
}

fn process_round(context: &mut Context<'_>, name: &str, kind: Kind, cpu: usize) -> Result<(), ProbeError> {
    let baton = Baton::new(kind)?;
    let child = Child::run(|| {
        let _ = place::pin(cpu);
        baton.partner(|| {});
    })?;
    baton.round();
    let result = context.measure(at("switch", name), Batch::Auto, |n| {
        let time = timed(n, || {
            baton.round();
            Ok(())
        })?;
        Ok(time / 2)
    });
    baton.end();
    child.wait();
    result.map(|_| ())
}

/// Two tasks that yield to each other under an executor of nothing but their wake flags.
struct Tasks {
    tasks: [Task; 2],
    next: usize,
}

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    ready: Arc<Ready>,
    waker: Waker,
}

struct Ready(AtomicBool);

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Gives way once.
struct Yield(bool);

impl Future for Yield {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<()> {
        if self.0 {
            return Poll::Ready(());
        }
        self.0 = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Tasks {
    fn new() -> Tasks {
        let task = || {
            let ready = Arc::new(Ready(AtomicBool::new(true)));
            let waker = Waker::from(Arc::clone(&ready));
            let future: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async {
                let mut count = 0_u64;
                loop {
                    count = std::hint::black_box(count + 1);
                    Yield(false).await;
                }
            });
            Task { future, ready, waker }
        };
        Tasks { tasks: [task(), task()], next: 0 }
    }

    /// Runs the next task that is ready until it yields: one switch.
    #[inline]
    fn poll_next(&mut self) {
        let task = &mut self.tasks[self.next];
        self.next ^= 1;
        if task.ready.0.swap(false, Ordering::Acquire) {
            let _ = task.future.as_mut().poll(&mut TaskContext::from_waker(&task.waker)); // Never ready: it loops.
        }
    }
}

/// The address space that idle threads leave to the rest of the process. A thread that finds no room for its own start
/// ends the process, so no thread is started that might not find it.
const ADDRESS_SPACE_LEFT_MIN: u64 = 32 << 20;

fn idle_threads(context: &mut Context<'_>, counts: &[usize]) -> Result<(), ProbeError> {
    context.group(
        "idle",
        "A thread switch on one processor, with idle threads in the process",
        Some(("idle threads", Unit::Count)),
        Unit::Nanoseconds,
        Better::Lower,
    );
    let here = context.places.here();
    for count in counts {
        let (state, begun, over) = (Mutex::new((0, false)), Condvar::new(), Condvar::new());
        let started = std::thread::scope(|scope| {
            let mut started = 0;
            for _ in 0..*count {
                if usage::address_space_left().is_some_and(|left| left < ADDRESS_SPACE_LEFT_MIN) {
                    break;
                }
                let idle = std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, || {
                    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                    state.0 += 1;
                    begun.notify_one();
                    while !state.1 {
                        state = over.wait(state).unwrap_or_else(PoisonError::into_inner);
                    }
                });
                if idle.is_err() {
                    break; // A limit on threads: measured with what there are.
                }
                started += 1;
                // Each has taken all that it needs before the next is asked for.
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                while state.0 < started {
                    state = begun.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
            let baton = Baton::new(Kind::Futex);
            let result = baton.and_then(|baton| {
                with_partner(
                    &baton,
                    here,
                    || {},
                    || {
                        context.measure(
                            at("idle", "thread switch, same processor").x(started as f64),
                            Batch::Auto,
                            |n| {
                                let time = timed(n, || {
                                    baton.round();
                                    Ok(())
                                })?;
                                Ok(time / 2)
                            },
                        )
                    },
                )
            });
            state.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
            over.notify_all();
            result.and_then(|r| r).map(|_| started)
        })?;
        if started < *count {
            context.skip(format!("{count} idle threads"), format!("the system allows {started}"));
            break;
        }
    }
    let points =
        context.outcome.groups.iter().find(|g| g.id == "schedule/idle").map(|g| g.points.clone()).unwrap_or_default();
    let mut known: Vec<_> = points.iter().filter_map(|p| Some((p.x?, p.value.median?))).collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    let says = match (known.first(), known.last()) {
        (Some(none), Some(many)) if many.0 > none.0 => format!(
            "With {:.0} idle threads behind a switch takes {:.2} times as long as with {:.0}.",
            many.0,
            many.1 / none.1,
            none.0
        ),
        _ => "Too noisy to say whether idle threads slow the scheduler.".into(),
    };
    context.say("idle", says);
    Ok(())
}

fn wake_ups(context: &mut Context<'_>) -> Result<(), ProbeError> {
    context.group("wake", "Waking a sleeping thread, until it runs", None, Unit::Nanoseconds, Better::Lower);
    let (here, other) = (context.places.here(), context.places.other());
    for kind in [Kind::Futex, Kind::EventFd, Kind::Pipe, Kind::Condvar] {
        thread_round_at(context, "wake", &format!("{}, same processor", kind.name()), kind, here)?;
        if let Ok(other) = other {
            thread_round_at(context, "wake", &format!("{}, other processor", kind.name()), kind, other)?;
        }
    }
    let of = |name| context.median(at("wake", name));
    let says = match (of("futex, same processor"), of("futex, other processor")) {
        (Some(same), Some(other)) => format!(
            "Waking by futex takes {:.1} us on the same processor and {:.1} us on another: placement decides a factor of {:.0}.",
            same / 1e3,
            other / 1e3,
            (other / same).max(same / other)
        ),
        (Some(same), None) => format!("Waking by futex takes {:.1} us on the same processor.", same / 1e3),
        _ => "Too noisy to say what waking costs.".into(),
    };
    context.say("wake", says);
    Ok(())
}

/// Busy for a time.
fn work_for(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn spinning(context: &mut Context<'_>, delays_us: &[u64]) -> Result<(), ProbeError> {
    let x = Some(("time until the event", Unit::Nanoseconds));
    context.group("spin-late", "How late a waiter notices, by how it waits", x, Unit::Nanoseconds, Better::Lower);
    context.group("spin-used", "Processor time a waiter uses for one event", x, Unit::Nanoseconds, Better::Lower);
    let other = match context.places.other() {
        Ok(other) => other,
        Err(error) => {
            context.skip("spinning against sleeping", error.to_string());
            return Ok(());
        }
    };
    for (series, kind) in [("spinning", Kind::Spin), ("sleeping", Kind::Futex)] {
        for delay_us in delays_us {
            let delay = Duration::from_micros(*delay_us);
            let x = delay.as_nanos() as f64;
            let baton = Baton::new(kind)?;
            with_partner(
                &baton,
                other,
                || work_for(delay),
                || -> Result<(), ProbeError> {
                    context.measure(at("spin-late", series).x(x), Batch::Auto, |n| {
                        let time = timed(n, || {
                            baton.round();
                            Ok(())
                        })?;
                        // At least a nanosecond each: a waiter cannot notice before it happens.
                        Ok(time
                            .saturating_sub(delay * u32::try_from(n).unwrap_or(u32::MAX))
                            .max(Duration::from_nanos(n)))
                    })?;
                    context.measure(at("spin-used", series).x(x), Batch::Auto, |n| {
                        let before = usage::thread_cpu_ns();
                        for _ in 0..n {
                            baton.round();
                        }
                        Ok(Duration::from_nanos(usage::thread_cpu_ns() - before))
                    })?;
                    Ok(())
                },
            )??;
        }
    }
    let medians = context.outcome.clone();
    let of = |group: &str, series: &str, us: u64| {
        let group = medians.groups.iter().find(|g| g.id == format!("schedule/{group}"))?;
        group.points.iter().find(|p| p.series == series && p.x == Some(us as f64 * 1e3))?.value.median
    };
    let crossing = delays_us.iter().find(|us| {
        matches!((of("spin-used", "spinning", **us), of("spin-used", "sleeping", **us)), (Some(spin), Some(sleep)) if spin > sleep)
    });
    let gain =
        delays_us.first().and_then(|us| Some(of("spin-late", "sleeping", *us)? - of("spin-late", "spinning", *us)?));
    context.say(
        "spin-late",
        gain.map_or("Too noisy to say what spinning gains.".into(), |gain| {
            format!("A waiter that spins notices {:.1} us earlier than one that sleeps.", gain / 1e3)
        }),
    );
    let last = delays_us.last().copied().unwrap_or(0);
    let says = match crossing {
        Some(us) => {
            format!("Spinning uses more of the processor than sleeping for events that come after {us} us or later.")
        }
        None if of("spin-used", "spinning", last).is_some() && of("spin-used", "sleeping", last).is_some() => {
            format!("Up to {last} us spinning uses no more of the processor than going to sleep and being woken.")
        }
        None => "Too noisy to say where spinning and sleeping cross.".into(),
    };
    context.say("spin-used", says);
    Ok(())
}

/// K12: two users whose requests alternate on one processor, as threads and as user-mode switches.
fn work(context: &mut Context<'_>) -> Result<(), ProbeError> {
    context.group(
        "work",
        "Requests a second on one processor, a switch after each, by the work of a request",
        Some(("work of a request", Unit::Nanoseconds)),
        Unit::PerSecond,
        Better::Higher,
    );
    let here = context.places.here();
    for work_us in [1_u64, 10, 100] {
        let work = Duration::from_micros(work_us);
        let x = work.as_nanos() as f64;
        let baton = Baton::new(Kind::Futex)?;
        with_partner(
            &baton,
            here,
            || work_for(work),
            || {
                context.measure(at("work", "threads").x(x), Batch::Auto, |n| {
                    let time = timed(n, || {
                        work_for(work);
                        baton.round();
                        Ok(())
                    })?;
                    Ok(time / 2)
                })
            },
        )??;
        let Ok(mut fiber) = Fiber::new() else { continue };
        context.measure(at("work", "user-mode switches").x(x), Batch::Auto, |n| {
            let time = timed(n, || {
                work_for(work);
                std::hint::black_box(fiber.switch_to());
                work_for(work);
                Ok(())
            })?;
            Ok(time / 2)
        })?;
    }
    let of = |series| context.median(at("work", series).x(10_000.0));
    let says = match (of("threads"), of("user-mode switches")) {
        (Some(threads), Some(fibers)) => format!(
            "For requests of 10 us scheduling in user mode serves {:.1} % more than threads.",
            (fibers / threads - 1.0) * 100.0
        ),
        _ => "Too noisy, or no user-mode switch, to say what scheduling in user mode gains.".into(),
    };
    context.say("work", says);
    Ok(())
}
