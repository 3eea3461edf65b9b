//! The kill campaign: `cargo run --release -p ledgerstone-port --example kills -- --rounds 1000 [--seed N]`.
//!
//! A receiver and several senders, each a process, exchange numbered messages, multicasts and pages; the senders also
//! send to another site, through the process that has their site's network. One of them all after the other is stopped,
//! continued or killed at a random moment and started again. Every process checks what it gets: a wrong byte, a gap or
//! a repetition ends the campaign. The parent checks that everybody who lives makes progress, and at the end that
//! nothing is left: no name, no process, no shared memory.

use anyhow::{Context, bail, ensure};
use clap::{Parser, Subcommand};
use ledgerstone_port::{
    Address, Host, Instance, Network, NetworkOptions, Pages, Port, PortOptions, SendError, Sender, ServerInstance,
    ServerType, Site, Trust, Xid,
};
use ledgerstone_region::Random;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const SITE: Site = Site(1);
const ABROAD: Site = Site(2);
/// After this silence a site is dead. Others have to wait for it as long, so it is short.
const DEAD_AFTER: Duration = Duration::from_millis(250);
const SENDERS: u32 = 3;
const GROUP: Xid = Xid(7);
const AC: ServerType = ServerType(4);
/// Longer than anything takes that works, on a machine with much else to do.
const WATCHDOG: Duration = Duration::from_secs(60);
/// Messages that a process reports at a time.
const REPORT_EVERY: u64 = 64;

fn address(server: u32) -> Address {
    Address::port(Instance(0), AC, ServerInstance(server), SITE)
}

fn address_abroad() -> Address {
    Address::port(Instance(0), AC, ServerInstance(0), ABROAD)
}

fn options() -> PortOptions {
    PortOptions { buffer_count: 32, buffer_bytes: 240, ..PortOptions::default() }
}

/// Processes at ports, killed and stopped at random moments.
#[derive(Parser)]
struct Args {
    /// How many processes are stopped or killed, one after the other.
    #[arg(long, default_value_t = 50)]
    rounds: u64,
    /// Who and when; by itself, a new one.
    #[arg(long)]
    seed: Option<u64>,
    #[command(subcommand)]
    role: Option<Role>,
}

/// What this program is when it has started itself.
#[derive(Subcommand)]
enum Role {
    Receive { directory: PathBuf },
    Send { directory: PathBuf, no: u32 },
    Carry { directory: PathBuf, listen: String, other: String },
    Abroad { directory: PathBuf, listen: String, other: String },
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match args.role {
        Some(Role::Receive { directory }) => receive(&directory),
        Some(Role::Send { directory, no }) => send(&directory, no),
        Some(Role::Carry { directory, listen, other }) => carry(&directory, &listen, &other),
        Some(Role::Abroad { directory, listen, other }) => abroad(&directory, &listen, &other),
        None => campaign(args.rounds, args.seed.unwrap_or(u64::from(std::process::id()))),
    }
}

/// What every message carries: its number, and bytes that follow from it, so that no mixture of two passes.
fn fill(into: &mut [u8], life: u64, number: u64) {
    let mut word = life.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number;
    for chunk in into.chunks_mut(8) {
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number);
    }
}

/// 16 bytes of life and number, then what follows from them; the length depends on the number too.
fn message(life: u64, number: u64) -> Vec<u8> {
    message_of(life, number, 16 + (number % 200) as usize)
}

/// As [`message`]; one of eight is so long that it is carried in parts and in several datagrams.
fn message_abroad(life: u64, number: u64) -> Vec<u8> {
    message_of(life, number, 16 + (number % 200) as usize * if number % 8 == 3 { 60 } else { 1 })
}

fn message_of(life: u64, number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[..8].copy_from_slice(&life.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    fill(&mut bytes[16..], life, number);
    bytes
}

fn check(bytes: &[u8], message: fn(u64, u64) -> Vec<u8>) -> anyhow::Result<(u64, u64)> {
    ensure!(bytes.len() >= 16, "a message of {} bytes", bytes.len());
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let (life, number) = (word(0), word(8));
    ensure!(bytes == message(life, number), "message {number} of life {life} is damaged");
    Ok((life, number))
}

/// Owns the port that all send to, and is in the group.
fn receive(directory: &Path) -> anyhow::Result<()> {
    let host = Host::at(directory.join("here"), SITE)?;
    let mut port: Port = host.open_port(address(0), options())?;
    port.join(GROUP)?;
    println!("ready");
    let mut next: HashMap<(Address, u64, &str), u64> = HashMap::new();
    let mut count = 0;
    loop {
        let received = port.receive();
        let (kind, bytes) = match received.page() {
            Ok(page) => ("page", page.to_vec()),
            Err(_) if received.group().is_some() => ("multicast", received.to_vec()),
            Err(_) => ("message", received.to_vec()),
        };
        let (life, number) = check(&bytes, message).with_context(|| format!("{kind} from {}", received.from()))?;
        // A receiver that was started again begins in the middle.
        let expected = next.entry((received.from(), life, kind)).or_insert(number);
        ensure!(*expected == number, "{kind} {number} came from {}, {expected} was next", received.from());
        *expected += 1;
        drop(received);
        count += 1;
        if count % REPORT_EVERY == 0 {
            println!("{count}");
        }
        ensure!(port.violations() == 0, "a sender was cut off");
    }
}

fn network(host: &Host, site: Site, listen: &str, other: &str) -> anyhow::Result<Network> {
    let mut options = NetworkOptions::new(listen.parse()?, Trust::Network).with_site(site, other.parse()?, None);
    options.dead_after = DEAD_AFTER;
    Ok(Network::start(host, options)?)
}

/// Has the network of the senders' site, and does nothing but carry.
fn carry(directory: &Path, listen: &str, other: &str) -> anyhow::Result<()> {
    let host = Host::at(directory.join("here"), SITE)?;
    let network = network(&host, ABROAD, listen, other)?;
    println!("ready");
    let mut reported = 0;
    loop {
        let carried = network.statistics().messages_carried;
        if carried >= reported + REPORT_EVERY {
            reported = carried;
            println!("{carried}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The other site: one process with its network, a port, and a member of the group.
fn abroad(directory: &Path, listen: &str, other: &str) -> anyhow::Result<()> {
    let host = Host::at(directory.join("abroad"), ABROAD)?;
    let mut port = host.open_port(address_abroad(), PortOptions { buffer_bytes: 16_384, ..options() })?;
    port.join(GROUP)?;
    // Started last: what comes before the port is there would be refused, and is then missing.
    let _network = network(&host, SITE, listen, other)?;
    println!("ready");
    let mut next: HashMap<(Address, u64, bool), u64> = HashMap::new();
    for count in 1u64.. {
        let received = port.receive();
        let (from, is_multicast, bytes) = (received.from(), received.group().is_some(), received.to_vec());
        drop(received);
        let (life, number) = check(&bytes, if is_multicast { message } else { message_abroad })
            .with_context(|| format!("from {from}"))?;
        let expected = next.entry((from, life, is_multicast)).or_insert(0);
        // A connection is a life, from its first message on. A multicast waits for no site, so some may be missing.
        let is_good = if is_multicast { number >= *expected } else { number == *expected };
        ensure!(is_good, "{number} came from {from}, {expected} was next, multicast: {is_multicast}");
        *expected = number + 1;
        if count % REPORT_EVERY == 0 {
            println!("{count}");
        }
    }
    Ok(())
}

/// A sender's way to the other site. Each connection is a life of its own.
struct Away {
    sender: Option<Sender>,
    life: u64,
    sent: u64,
}

impl Away {
    /// Sends the next message, or looks for the site again.
    fn step(&mut self, host: &Host, from: Address) -> anyhow::Result<()> {
        let Some(sender) = &mut self.sender else {
            (self.life, self.sent) = (self.life + (1 << 16), 0);
            self.sender = host.connect(from, address_abroad()).ok();
            return Ok(());
        };
        let bytes = message_abroad(self.life, self.sent);
        match sender.send_before(&bytes, Instant::now() + Duration::from_millis(20)) {
            Ok(()) => self.sent += 1,
            Err(SendError::TimedOut { .. }) => {}
            Err(SendError::PortClosed { .. }) => self.sender = None,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Sends for ever, to whoever owns the port; connects again when its owner is gone.
fn send(directory: &Path, no: u32) -> anyhow::Result<()> {
    let host = Host::at(directory.join("here"), SITE)?;
    let mine = host.open_port(address(no), options())?;
    let mut group = mine.group_sender(AC)?;
    let mut pages = Pages::create(4096, 4)?;
    println!("ready");
    let life = u64::from(std::process::id()) << 32 | u64::from(no);
    let (mut messages, mut multicasts, mut paged) = (0, 0, 0);
    let mut count = 0u64;
    let mut sender: Option<Sender> = None;
    let mut away = Away { sender: None, life, sent: 0 };
    loop {
        let Some(to) = &mut sender else {
            sender = host.connect(address(no), address(0)).ok();
            // A new receiver begins with what it gets first.
            std::thread::yield_now();
            continue;
        };
        let sent = match count % 8 {
            0 => {
                let bytes = message(life, multicasts);
                let sent = group.send_before(GROUP, &bytes, Instant::now() + Duration::from_millis(100));
                multicasts += u64::from(sent.is_ok());
                if matches!(sent, Err(SendError::TimedOut { .. })) { Ok(()) } else { sent }
            }
            1 => match pages.take() {
                Some(mut page) => {
                    let bytes = message(life, paged);
                    page[..bytes.len()].copy_from_slice(&bytes);
                    let sent = page.share(bytes.len()).send(to);
                    paged += u64::from(sent.is_ok());
                    sent
                }
                None => Ok(()),
            },
            2 => {
                let bytes = message(life, messages);
                let loan = to.loan(bytes.len());
                loan.and_then(|mut loan| {
                    loan.copy_from_slice(&bytes);
                    loan.publish()
                })
                .map(|()| messages += 1)
            }
            3 => {
                away.step(&host, mine.address())?;
                Ok(())
            }
            _ => to.send(&message(life, messages)).map(|()| messages += 1),
        };
        match sent {
            Ok(()) => count += 1,
            Err(SendError::PortClosed { .. } | SendError::TimedOut { .. }) => sender = None,
            Err(error) => return Err(error.into()),
        }
        if count.is_multiple_of(REPORT_EVERY) {
            println!("{count}");
        }
    }
}

/// A process of the campaign, as the parent sees it.
struct Actor {
    child: Child,
    reports: Receiver<String>,
    arguments: Vec<String>,
}

impl Actor {
    fn start(directory: &Path, arguments: &[&str]) -> anyhow::Result<Actor> {
        let mut all = vec![arguments[0].to_owned(), directory.to_string_lossy().into_owned()];
        all.extend(arguments[1..].iter().map(|argument| (*argument).to_owned()));
        Actor::start_with(all)
    }

    fn start_with(arguments: Vec<String>) -> anyhow::Result<Actor> {
        let mut child = Command::new(std::env::current_exe()?).args(&arguments).stdout(Stdio::piped()).spawn()?;
        let reports = read_lines(child.stdout.take().context("stdout")?);
        let mut actor = Actor { child, reports, arguments };
        actor.report().context("it did not start")?;
        Ok(actor)
    }

    /// The next sign of life.
    fn report(&mut self) -> anyhow::Result<String> {
        match self.reports.recv_timeout(WATCHDOG) {
            Ok(line) => Ok(line),
            Err(_) => bail!("{:?} made no progress: {:?}", self.arguments, self.child.try_wait()),
        }
    }

    /// Waits until it has done something since now.
    fn progress(&mut self) -> anyhow::Result<()> {
        while self.reports.try_recv().is_ok() {}
        self.report().map(drop)
    }

    fn signal(&self, signal: rustix::process::Signal) -> anyhow::Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        Ok(rustix::process::kill_process(pid, signal)?)
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{:?} ended by itself: {status}", self.arguments);
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_lines(stdout: ChildStdout) -> Receiver<String> {
    let (say, hear) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if say.send(line).is_err() {
                return;
            }
        }
    });
    hear
}

fn campaign(rounds: u64, seed: u64) -> anyhow::Result<()> {
    println!("kills: {rounds} rounds, seed {seed}");
    let memory_before = shared_memory_kib()?;
    let directory = tempfile::tempdir()?;
    let mut random = Random::new(seed);
    let addresses = [0, 1].map(|_| std::net::UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()));
    let [here, there] = addresses.map(|address| address.map(|address| address.to_string()));
    let (here, there) = (here?, there?);
    let mut actors = vec![
        Actor::start(directory.path(), &["receive"])?,
        Actor::start(directory.path(), &["carry", &here, &there])?,
        Actor::start(directory.path(), &["abroad", &there, &here])?,
    ];
    for no in 1..=SENDERS {
        actors.push(Actor::start(directory.path(), &["send", &no.to_string()])?);
    }
    let began = Instant::now();
    let (mut kills, mut stops) = (0, 0);
    for round in 0..rounds {
        // Half of the time one of those that all others depend on.
        let services = actors.len() as u64 - u64::from(SENDERS);
        let among = if random.below(2) == 0 { services } else { actors.len() as u64 };
        let victim = random.below(among) as usize;
        spin_for(Duration::from_micros(random.below(3_000)));
        let step = (|| -> anyhow::Result<()> {
            if random.below(3) == 0 {
                stops += 1;
                actors[victim].signal(rustix::process::Signal::STOP)?;
                spin_for(Duration::from_micros(random.below(5_000)));
                if random.below(2) == 0 {
                    actors[victim].signal(rustix::process::Signal::CONT)?;
                    return Ok(());
                }
            }
            kills += 1;
            actors[victim].kill()?;
            let arguments = actors[victim].arguments.clone();
            actors[victim] = Actor::start_with(arguments)?;
            Ok(())
        })();
        step.with_context(|| format!("round {round}, seed {seed}"))?;
        for actor in &mut actors {
            actor.progress().with_context(|| format!("round {round}, seed {seed}, after {}", victim))?;
        }
    }
    let took = began.elapsed();
    for actor in &mut actors {
        actor.kill()?;
    }
    drop(actors);
    for (site, name) in [(SITE, "here"), (ABROAD, "abroad")] {
        let host = Host::at(directory.path().join(name), site)?;
        host.reclaim()?;
        let left = std::fs::read_dir(host.directory())?.count();
        ensure!(left == 0, "{left} names are left in {}", host.directory().display());
    }
    let memory_after = shared_memory_kib()?;
    // Other programs use shared memory too; what a leak of one lane a round would leave is far more.
    let leak_kib = memory_after.saturating_sub(memory_before);
    ensure!(leak_kib < 2048 + rounds, "{leak_kib} KiB of shared memory are left");
    println!("kills: {rounds} rounds in {took:.1?}: {kills} kills, {stops} stops; no hang, no damage, nothing left");
    Ok(())
}

fn spin_for(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::thread::yield_now();
    }
}

/// Shared memory that the system has in use.
fn shared_memory_kib() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Shmem:")).context("Shmem in /proc/meminfo")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
