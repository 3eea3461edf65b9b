//! Multicast by transaction: `cargo run --release -p ledgerstone-port --example group`.
//!
//! A coordinator asks the participants of a transaction to prepare, with one message for all of them, and counts their
//! votes. Each participant is a process of its own, and joined the transaction's group without telling anybody.

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};
use ledgerstone_port::{
    Address, Host, Instance, Kind, Port, PortOptions, ServerInstance, ServerType, Site, Typed, Xid,
};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const SITE: Site = Site(1);
/// Raid's atomicity controller: who takes part in commitment.
const AC: ServerType = ServerType(4);
const PARTICIPANTS: u32 = 4;
const TRANSACTIONS: u64 = 2_000;

/// The coordinator's question.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Prepare {
    xid: u64,
}

impl Typed for Prepare {
    const KIND: Kind = Kind { id: 1, version: 1 };
}

/// A participant has joined the transaction's group. Only this example says so; a real one joins because it was asked
/// to do something for the transaction.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Joined {
    xid: u64,
}

impl Typed for Joined {
    const KIND: Kind = Kind { id: 3, version: 1 };
}

/// A participant's answer.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Vote {
    xid: u64,
    is_yes: u64,
}

impl Typed for Vote {
    const KIND: Kind = Kind { id: 2, version: 1 };

    fn is_valid(&self) -> bool {
        self.is_yes < 2
    }
}

fn address(server: u32) -> Address {
    Address::port(Instance(0), AC, ServerInstance(server), SITE)
}

/// A coordinator asks the participants of a transaction to prepare, and counts their votes.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
}

/// What this program is when it has started itself.
#[derive(Subcommand)]
enum Role {
    Participant { directory: String, no: u32 },
}

fn main() -> anyhow::Result<()> {
    match Args::parse().role {
        Some(Role::Participant { directory, no }) => participant(&directory, no),
        None => coordinator(),
    }
}

/// Joins the group of each transaction, votes, and leaves it.
fn participant(directory: &str, no: u32) -> anyhow::Result<()> {
    let host = Host::at(directory, SITE)?;
    let mut port = host.open_port(address(no), PortOptions::default())?;
    let mut coordinator = port.connect(address(0))?;
    for xid in 1..=TRANSACTIONS {
        port.join(Xid(xid))?;
        if xid == 1 {
            println!("ready");
        }
        coordinator.send_typed(&Joined { xid })?;
        let prepare: Prepare = port.receive().typed()?;
        coordinator.send_typed(&Vote { xid: prepare.xid, is_yes: 1 })?;
        port.leave(Xid(xid));
    }
    Ok(())
}

fn coordinator() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let host = Host::at(directory.path(), SITE)?;
    let mut port = host.open_port(address(0), PortOptions::default())?;
    let mut participants =
        (1..=PARTICIPANTS).map(|no| start(directory.path(), no)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut group = port.group_sender(AC)?;
    let mut heard = Heard::default();
    let (mut sending, mut voting) = (Duration::ZERO, Duration::ZERO);
    for xid in 1..=TRANSACTIONS {
        heard.wait(&mut port, xid, Joined::KIND)?;
        let began = Instant::now();
        group.send_typed(Xid(xid), &Prepare { xid })?;
        sending += began.elapsed();
        heard.wait(&mut port, xid, Vote::KIND)?;
        voting += began.elapsed();
    }
    for participant in &mut participants {
        participant.wait()?;
    }
    println!("{TRANSACTIONS} transactions, {PARTICIPANTS} participants, each in a process of its own");
    println!("one multicast to all of them       {:>9.2?} on average", sending / TRANSACTIONS as u32);
    println!("from the question to the last vote {:>9.2?} on average", voting / TRANSACTIONS as u32);
    joining(&mut port)
}

/// What joining and leaving cost: no message, no system call.
fn joining(port: &mut Port) -> anyhow::Result<()> {
    const ROUNDS: u32 = 1_000_000;
    port.join(Xid(1))?;
    port.leave(Xid(1));
    let began = Instant::now();
    for xid in 0..ROUNDS {
        port.join(Xid(xid.into()))?;
        port.leave(Xid(xid.into()));
    }
    println!("joining and leaving together       {:>9.2?} on average", began.elapsed() / ROUNDS);
    Ok(())
}

/// How many participants said what about which transaction. A fast one is in the next already.
#[derive(Default)]
struct Heard(HashMap<(u64, Kind), u32>);

impl Heard {
    /// Waits until all participants have said it.
    fn wait(&mut self, port: &mut Port, xid: u64, kind: Kind) -> anyhow::Result<()> {
        while self.0.get(&(xid, kind)) != Some(&PARTICIPANTS) {
            let message = port.receive();
            let about = match message.typed::<Vote>() {
                Ok(vote) => vote.xid,
                Err(_) => message.typed::<Joined>()?.xid,
            };
            *self.0.entry((about, message.kind())).or_default() += 1;
        }
        self.0.remove(&(xid, kind));
        Ok(())
    }
}

/// Starts this program once more as a participant, and waits until it is in the first group.
fn start(directory: &std::path::Path, no: u32) -> anyhow::Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("participant")
        .arg(directory)
        .arg(no.to_string())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("stdout")?).read_line(&mut line)?;
    if line.trim() != "ready" {
        bail!("participant {no} did not start");
    }
    Ok(child)
}
