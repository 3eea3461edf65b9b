//! Round trips between two processes: `cargo run --release -p ledgerstone-port --example ping`.
//!
//! The parent starts itself once more as the server, sends it 20 bytes, and waits for them to come back.

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};
use ledgerstone_port::{
    Address, Host, Instance, Network, NetworkOptions, Port, PortOptions, Sender, ServerInstance, ServerType, Site,
    SiteSecret, Trust, Wait,
};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SITE: Site = Site(1);
const ROUND_TRIPS: usize = 20_000;
/// What goes before: processors take their time to get going.
const WARM_FOR: Duration = Duration::from_millis(300);

fn address(server: u32) -> Address {
    Address::port(Instance(0), ServerType(1), ServerInstance(server), SITE)
}

/// Round trips between two processes: on one host, and between two sites over loopback.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
}

/// What this program is when it has started itself.
#[derive(Subcommand)]
enum Role {
    Serve { directory: String, wait: String, cpu: String },
    Site { directory: String, listen: SocketAddr, other: SocketAddr, secret: String, key: String },
}

fn main() -> anyhow::Result<()> {
    match Args::parse().role {
        Some(Role::Serve { directory, wait, cpu }) => serve(&directory, parse_wait(&wait)?, &cpu),
        Some(Role::Site { directory, listen, other, secret, key }) => site(&directory, listen, other, &secret, &key),
        None => {
            local()?;
            remote()
        }
    }
}

/// The server: sends back what it gets, to whom it came from.
fn serve(directory: &str, wait: Wait, cpu: &str) -> anyhow::Result<()> {
    pin(cpu)?;
    let host = Host::at(directory, SITE)?;
    echo(host.open_port(address(1), PortOptions { wait, ..PortOptions::default() })?)
}

/// Sends back what comes, until an empty message comes.
fn echo(mut port: Port) -> anyhow::Result<()> {
    println!("ready");
    let mut bytes = [0; 1024];
    let mut answer = None;
    loop {
        let message = port.receive();
        let (len, from) = (message.copy_to(&mut bytes), message.from());
        drop(message);
        if len == 0 {
            return Ok(());
        }
        let sender = match &mut answer {
            Some(sender) => sender,
            none => none.insert(port.connect(from)?),
        };
        sender.send(&bytes[..len])?;
    }
}

fn local() -> anyhow::Result<()> {
    println!("round trip of 20 bytes between two processes, {ROUND_TRIPS} times");
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).map(|cpu| cpu.to_string());
    let first = cpus.next().context("a processor to run on")?;
    let second = cpus.next();
    let (one, two) = ([first.as_str(), &first], second.as_ref().map(|second| [first.as_str(), second]));
    for (title, wait, cpus) in [
        ("two processors, spinning", "spin", two),
        ("two processors, sleeping", "sleep", two),
        ("two processors, adaptive", "adaptive", two),
        ("one processor, sleeping", "sleep", Some(one)),
        ("one processor, adaptive", "adaptive", Some(one)),
        ("no placement, adaptive", "adaptive", Some(["any", "any"])),
    ] {
        let Some(cpus) = cpus else {
            println!("{title:26} not possible here");
            continue;
        };
        let mut times = round_trips(wait, cpus)?;
        times.sort_unstable();
        let at = |per_mille: usize| times[(times.len() - 1) * per_mille / 1000];
        println!("{title:26} p50 {:>9.2?}  p99 {:>9.2?}", at(500), at(990));
    }
    Ok(())
}

/// The same between two sites, each with a network of its own, over loopback.
fn remote() -> anyhow::Result<()> {
    println!("round trip of 20 bytes between two sites over loopback, sealed, {ROUND_TRIPS} times");
    pin("any")?;
    let [ours, theirs] = [SiteSecret::generate()?, SiteSecret::generate()?];
    let [listen, other] = [free()?, free()?];
    let directories = [tempfile::tempdir()?, tempfile::tempdir()?];
    let text = |path: &std::path::Path| path.to_str().map(str::to_owned).context("temporary directory");
    let (place, listens, opposite) = (text(directories[1].path())?, other.to_string(), listen.to_string());
    let mut server = start(&["site", &place, &listens, &opposite, &theirs.to_text(), &ours.public().to_string()])?;
    let host = Host::at(directories[0].path(), SITE)?;
    let options = NetworkOptions::new(listen, Trust::Keys(ours)).with_site(Site(2), other, Some(theirs.public()));
    let _network = Network::start(&host, options)?;
    let mut port = host.open_port(address(2), PortOptions::default())?;
    let mut sender = port.connect(Address::port(Instance(0), ServerType(1), ServerInstance(1), Site(2)))?;
    let mut times = exchange(&mut port, &mut sender)?;
    times.sort_unstable();
    let at = |per_mille: usize| times[(times.len() - 1) * per_mille / 1000];
    println!("{:26} p50 {:>9.2?}  p99 {:>9.2?}", "two sites", at(500), at(990));
    sender.send(&[])?;
    server.wait()?;
    Ok(())
}

/// The other site: directory, where it listens, where we listen, its secret, our key.
fn site(directory: &str, listen: SocketAddr, other: SocketAddr, secret: &str, key: &str) -> anyhow::Result<()> {
    let host = Host::at(directory, Site(2))?;
    let options = NetworkOptions::new(listen, Trust::Keys(secret.parse()?));
    let _network = Network::start(&host, options.with_site(SITE, other, Some(key.parse()?)))?;
    echo(host.open_port(host.address(Instance(0), ServerType(1), ServerInstance(1)), PortOptions::default())?)
}

/// A socket address that nobody else has now.
fn free() -> anyhow::Result<SocketAddr> {
    Ok(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn round_trips(wait: &str, cpus: [&str; 2]) -> anyhow::Result<Vec<Duration>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().to_str().context("temporary directory")?;
    pin(cpus[0])?;
    let mut server = start(&["serve", path, wait, cpus[1]])?;
    let host = Host::at(directory.path(), SITE)?;
    let mut port = host.open_port(address(2), PortOptions { wait: parse_wait(wait)?, ..PortOptions::default() })?;
    let mut sender = port.connect(address(1))?;
    let times = exchange(&mut port, &mut sender)?;
    sender.send(&[])?;
    server.wait()?;
    Ok(times)
}

fn exchange(port: &mut Port, sender: &mut Sender) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(ROUND_TRIPS);
    let warm = Instant::now() + WARM_FOR;
    while times.len() < ROUND_TRIPS {
        let began = Instant::now();
        sender.send(&[7; 20])?;
        let len = port.receive().len();
        let took = began.elapsed();
        if len != 20 {
            bail!("{len} bytes came back");
        }
        if began > warm {
            times.push(took);
        }
    }
    Ok(times)
}

/// Starts this program once more and waits until it says that it is ready.
fn start(arguments: &[&str]) -> anyhow::Result<Child> {
    let mut child = Command::new(std::env::current_exe()?).args(arguments).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("stdout")?).read_line(&mut line)?;
    if line.trim() != "ready" {
        bail!("the other process did not start");
    }
    Ok(child)
}

fn parse_wait(name: &str) -> anyhow::Result<Wait> {
    Ok(match name {
        "spin" => Wait::Spin,
        "sleep" => Wait::Sleep,
        "adaptive" => Wait::Adaptive,
        other => bail!("unknown wait {other}"),
    })
}

/// Runs this process on one processor, or on any.
fn pin(cpu: &str) -> anyhow::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    match cpu {
        "any" => (0..rustix::thread::CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu)),
        cpu => set.set(cpu.parse()?),
    }
    rustix::thread::sched_setaffinity(None, &set)?;
    Ok(())
}
