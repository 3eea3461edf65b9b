//! message: what it costs to ask another process (7).
//!
//! An echo by mechanism, size and placement; the steps of a conversation (figure 7.1.2); and what larger buffers buy.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::net::{Shutdown, shutdown};
use rustix::thread::futex;

use super::baton::{Baton, Kind};
use super::channel::{self, Channel, Mechanism};
use crate::context::{Context, at, timed};
use crate::error::{On, ProbeError};
use crate::experiment::Experiment;
use crate::measure::Batch;
use crate::place;
use crate::report::{Better, Unit};
use crate::sys::child::Child;
use crate::sys::map::Map;

pub(crate) struct Message;

const KIB: usize = 1 << 10;

impl Experiment for Message {
    fn id(&self) -> &'static str {
        "message"
    }

    fn title(&self) -> &'static str {
        "what it costs to ask another process"
    }

    fn section(&self) -> &'static str {
        "7"
    }

    fn weight(&self) -> u32 {
        14
    }

    fn run(&self, context: &mut Context<'_>) -> Result<(), ProbeError> {
        let sizes = context.effort().pick(
            vec![16, 8 * KIB, 256 * KIB],
            vec![16, KIB, 8 * KIB, 64 * KIB, 256 * KIB, KIB * KIB],
            vec![16, 128, KIB, 4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, KIB * KIB],
        );
        context.expect((Mechanism::ALL.len() * 2 - 1) * sizes.len() + sizes.len() + 8 + 12);
        let pinned = context.places.pin(context.places.here())?;
        echoes(context, &sizes)?;
        steps(context)?;
        buffers(context)?;
        drop(pinned);
        Ok(())
    }
}

/// The paper's in-process service: it makes a copy of the message.
#[inline(never)]
fn serve(message: &[u8], copy: &mut [u8]) -> u8 {
    copy.copy_from_slice(message);
    std::hint::black_box(copy)[0]
}

fn echoes(context: &mut Context<'_>, sizes: &[usize]) -> Result<(), ProbeError> {
    let x = Some(("message size", Unit::Bytes));
    let here = context.places.here();
    let mut placements = vec![("same", "An echo by message size, both sides on one processor", here)];
    match context.places.other() {
        Ok(other) => placements.push(("other", "An echo by message size, each side on its processor", other)),
        Err(error) => context.skip("messages to another processor", error.to_string()),
    }
    for (group, title, cpu) in placements {
        context.group(group, title, x, Unit::Nanoseconds, Better::Lower);
        for size in sizes {
            let (mut message, mut copy) = (vec![1; *size], vec![0; *size]);
            context.measure(at(group, "call in the process, with a copy").bytes(*size as u64), Batch::Auto, |n| {
                timed(n, || {
                    message[0] = serve(std::hint::black_box(&message), &mut copy);
                    Ok(())
                })
            })?;
            for mechanism in Mechanism::ALL {
                if mechanism == Mechanism::Spinning && cpu == here {
                    continue; // Two that spin on one processor wait for the scheduler.
                }
                let at = at(group, mechanism.name()).bytes(*size as u64);
                match Channel::new(mechanism, *size, context.work) {
                    Ok(channel) => echo(context, at, &channel, cpu).map(drop)?,
                    Err(error) => context.skip_at(at, &error),
                }
            }
        }
        let best = Mechanism::ALL
            .iter()
            .filter_map(|m| Some((m.name(), context.median(at(group, m.name()).bytes(8192))?)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        let tcp = context.median(at(group, "TCP").bytes(8192));
        let says = match (best, tcp) {
            (Some((name, ns)), Some(tcp)) => {
                format!("8 KiB there and back take {:.1} us by {name} and {:.1} us by TCP.", ns / 1e3, tcp / 1e3)
            }
            _ => "Too noisy to compare the mechanisms.".into(),
        };
        context.say(group, says);
    }
    Ok(())
}

fn echo(
    context: &mut Context<'_>,
    at: crate::context::At<'_>,
    channel: &Channel,
    cpu: usize,
) -> Result<Option<f64>, ProbeError> {
    let (mut ours, mut theirs) = (channel.buffer(), channel.buffer());
    let child = Child::run(|| {
        let _ = place::pin(cpu);
        channel.echo(&mut theirs);
    })?;
    let result = context.measure(at, Batch::Auto, |n| timed(n, || channel.ask(&mut ours)));
    drop(child);
    result
}

/// The steps of one conversation.
const STEPS: [&str; 5] = ["connect", "write", "first byte", "rest", "shutdown"];

/// The sizes of messages that are looked at by step, each a group.
const STEP_SIZES: [(&str, usize); 2] = [("step", 4 * KIB), ("step-large", 256 * KIB)];

fn steps(context: &mut Context<'_>) -> Result<(), ProbeError> {
    let cpu = context.places.other().unwrap_or(context.places.here());
    for (group, size) in STEP_SIZES {
        let title = format!("Steps of a conversation of one message of {} KiB, there and back", size / KIB);
        context.group(group, &title, None, Unit::Nanoseconds, Better::Lower);
        fifo_steps(context, group, size, cpu)?;
        unix_steps(context, group, size, cpu)?;
        tcp_steps(context, group, size, cpu)?;
        memory_steps(context, group, size, cpu)?;
        say_steps(context, group);
    }
    Ok(())
}

fn say_steps(context: &mut Context<'_>, group: &str) {
    let of = |name, step: &str| context.median(at(group, &format!("{name}: {step}")));
    let each = |step| Some((of("TCP", step)? / 1e3, of("Unix stream", step)? / 1e3, of("FIFO", step)? / 1e3));
    let says = match (each("connect"), each("write")) {
        (Some(connect), Some(write)) => format!(
            "Connecting takes {:.1} us by TCP, {:.1} us by Unix stream and {:.1} us by FIFO; writing {:.1}, {:.1} and {:.1} us.",
            connect.0, connect.1, connect.2, write.0, write.1, write.2
        ),
        _ => "Too noisy to compare the steps.".into(),
    };
    context.say(group, says);
}

/// Measures conversations and notes their steps.
fn note_steps(
    context: &mut Context<'_>,
    group: &str,
    name: &str,
    mut conversation: impl FnMut() -> Result<[f64; 5], ProbeError>,
) -> Result<(), ProbeError> {
    let names = STEPS.map(|step| format!("{name}: {step}"));
    context.sample_all(&names.each_ref().map(|name| at(group, name)), |times| {
        times.extend(conversation()?);
        Ok(())
    })
}

/// Times a conversation: after each step the clock is read.
struct Steps {
    last: Instant,
    times: [f64; 5],
    next: usize,
}

impl Steps {
    fn begin() -> Steps {
        Steps { last: Instant::now(), times: [0.0; 5], next: 0 }
    }

    fn step(&mut self) {
        let now = Instant::now();
        self.times[self.next] = (now - self.last).as_nanos() as f64;
        self.next += 1;
        self.last = now;
    }
}

fn fifo_steps(context: &mut Context<'_>, group: &str, size: usize, cpu: usize) -> Result<(), ProbeError> {
    let paths = channel::fifo(context.work).and_then(|to| Ok((to, channel::fifo(context.work)?)));
    let (to, from) = match paths {
        Ok(paths) => paths,
        Err(error) => {
            context.skip("FIFO", error.to_string());
            return Ok(());
        }
    };
    let open = |path: &std::path::Path, how| rustix::fs::open(path, how, Mode::empty()).on("open");
    let mut theirs = vec![0; size];
    // Conversations that we have begun and that the other side has closed: otherwise two could meet in one FIFO.
    let counts = Map::anonymous(4096)?;
    let (begun, closed) = (counts.word(0), counts.word(256));
    let child = Child::run(|| {
        let _ = place::pin(cpu);
        let mut once = || -> Result<(), ProbeError> {
            let (reads, writes) = (open(&to, OFlags::RDONLY)?, open(&from, OFlags::WRONLY)?);
            channel::read_all(&reads, &mut theirs)?;
            channel::write_all(&writes, &theirs)
        };
        // Until it is killed: a conversation that failed must not leave the next one waiting.
        loop {
            let done = closed.load(Ordering::Relaxed);
            while begun.load(Ordering::Acquire) == done {
                let _ = futex::wait(begun, futex::Flags::empty(), done, None); // Woken, or begun already.
            }
            let _ = once();
            closed.fetch_add(1, Ordering::Release);
        }
    })?;
    let mut ours = vec![1; size];
    let result = note_steps(context, group, "FIFO", || {
        let wait_from = Instant::now();
        while closed.load(Ordering::Acquire) < begun.load(Ordering::Relaxed) {
            if wait_from.elapsed() > Duration::from_secs(2) {
                return Err(ProbeError::Missing("the other side of the FIFO does not answer".into()));
            }
            std::thread::yield_now();
        }
        begun.fetch_add(1, Ordering::Release);
        let _ = futex::wake(begun, futex::Flags::empty(), 1); // Cannot fail: the word is mapped.
        let mut steps = Steps::begin();
        let (writes, reads) = (open(&to, OFlags::WRONLY)?, open(&from, OFlags::RDONLY)?);
        steps.step();
        channel::write_all(&writes, &ours)?;
        steps.step();
        channel::read_all(&reads, &mut ours[..4])?;
        steps.step();
        channel::read_all(&reads, &mut ours[4..])?;
        steps.step();
        drop((writes, reads));
        steps.step();
        Ok(steps.times)
    });
    drop(child);
    let _ = (std::fs::remove_file(&to), std::fs::remove_file(&from)); // They go with the directory otherwise.
    result
}

/// A server process that takes one conversation after the other, and a client that times its steps.
fn socket_steps(
    context: &mut Context<'_>,
    group: &str,
    name: &str,
    size: usize,
    cpu: usize,
    accept: impl Fn() -> Result<std::os::fd::OwnedFd, ProbeError>,
    connect: impl Fn() -> Result<std::os::fd::OwnedFd, ProbeError>,
) -> Result<(), ProbeError> {
    let mut theirs = vec![0; size];
    let child = Child::run(|| {
        let _ = place::pin(cpu);
        let mut once = || -> Result<(), ProbeError> {
            let socket = accept()?;
            channel::read_all(&socket, &mut theirs)?;
            channel::write_all(&socket, &theirs)
        };
        loop {
            let _ = once(); // Until it is killed, as above.
        }
    })?;
    let mut ours = vec![1; size];
    let result = note_steps(context, group, name, || {
        let mut steps = Steps::begin();
        let socket = connect()?;
        steps.step();
        channel::write_all(&socket, &ours)?;
        steps.step();
        channel::read_all(&socket, &mut ours[..4])?;
        steps.step();
        channel::read_all(&socket, &mut ours[4..])?;
        steps.step();
        let _ = shutdown(&socket, Shutdown::Both); // Refused if the server was faster; either way it is shut.
        drop(socket);
        steps.step();
        Ok(steps.times)
    });
    drop(child);
    result
}

fn unix_steps(context: &mut Context<'_>, group: &str, size: usize, cpu: usize) -> Result<(), ProbeError> {
    match channel::unix_listener() {
        Ok((listener, address)) => socket_steps(
            context,
            group,
            "Unix stream",
            size,
            cpu,
            || rustix::net::accept(&listener).on("accept"),
            || channel::unix_connect(&address),
        ),
        Err(error) => {
            context.skip("Unix stream", error.to_string());
            Ok(())
        }
    }
}

fn tcp_steps(context: &mut Context<'_>, group: &str, size: usize, cpu: usize) -> Result<(), ProbeError> {
    match channel::tcp_listener() {
        Ok((listener, address)) => socket_steps(
            context,
            group,
            "TCP",
            size,
            cpu,
            || channel::tcp_accept(&listener),
            || channel::tcp_connect(&address),
        ),
        Err(error) => {
            context.skip("TCP", error.to_string());
            Ok(())
        }
    }
}

fn memory_steps(context: &mut Context<'_>, group: &str, size: usize, cpu: usize) -> Result<(), ProbeError> {
    let made = rustix::fs::memfd_create("ledgerstone-probe", rustix::fs::MemfdFlags::CLOEXEC).on("memfd_create");
    let file = match made.and_then(|fd| rustix::fs::ftruncate(&fd, size as u64).on("ftruncate").map(|()| fd)) {
        Ok(fd) => std::fs::File::from(fd),
        Err(error) => {
            context.skip("shared memory by a file", error.to_string());
            return Ok(());
        }
    };
    let theirs = Map::file(&file, size)?;
    let baton = Baton::new(Kind::Futex)?;
    let child = Child::run(|| {
        let _ = place::pin(cpu);
        baton.partner(|| {
            std::hint::black_box(theirs.sum(0, size));
            theirs.word(0).fetch_add(1, Ordering::Relaxed); // Ordered by the baton.
        });
    })?;
    let mut ours = vec![1; size];
    let result = note_steps(context, group, "shared memory", || {
        let mut steps = Steps::begin();
        let map = Map::file(&file, size)?;
        steps.step();
        map.write(0, &ours);
        steps.step();
        baton.round();
        std::hint::black_box(map.touch(0, 4, 1));
        steps.step();
        map.read(0, &mut ours);
        steps.step();
        drop(map);
        steps.step();
        Ok(steps.times)
    });
    baton.end();
    child.wait();
    result
}

fn buffers(context: &mut Context<'_>) -> Result<(), ProbeError> {
    context.group(
        "buffer",
        "An echo of 256 KiB to another processor, by the size of the kernel's buffers",
        Some(("buffer size", Unit::Bytes)),
        Unit::Nanoseconds,
        Better::Lower,
    );
    let cpu = context.places.other().unwrap_or(context.places.here());
    let sizes = [8 * KIB, 64 * KIB, 256 * KIB, KIB * KIB];
    for mechanism in [Mechanism::Pipe, Mechanism::UnixStream, Mechanism::Tcp] {
        // With 8 KiB TCP waits for delayed acknowledgements: seconds for an echo, all the time that the others have.
        for bytes in sizes.into_iter().filter(|bytes| mechanism != Mechanism::Tcp || *bytes > 8 * KIB) {
            let at = at("buffer", mechanism.name()).bytes(bytes as u64);
            let channel = Channel::new(mechanism, 256 * KIB, context.work);
            match channel.and_then(|channel| channel.set_buffers(bytes).map(|()| channel)) {
                Ok(channel) => echo(context, at, &channel, cpu).map(drop)?,
                Err(error) => context.skip_at(at, &error),
            }
        }
    }
    let of = |bytes: usize| context.median(at("buffer", "pipe").bytes(bytes as u64));
    let says = match (of(64 * KIB), of(KIB * KIB)) {
        (Some(small), Some(large)) => format!(
            "A pipe with 1 MiB of buffer instead of 64 KiB changes an echo of 256 KiB by {:+.0} %.",
            (large / small - 1.0) * 100.0
        ),
        _ => "Too noisy to say what larger buffers buy.".into(),
    };
    context.say("buffer", says);
    Ok(())
}
