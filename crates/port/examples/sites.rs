//! One of two sites of the network campaign (`make port-net`); the script runs each in a network namespace.
//!
//! `sites --help` says its arguments. The sender numbers its messages. For each hundred of them it sends a multicast to
//! the group of a transaction, which goes by IP multicast at the interface. The receiver ends with an error if a
//! message is missing, damaged, repeated or out of order. Then the script cuts the link, and the sender says when it
//! found the other site dead.

use anyhow::{Context, bail, ensure};
use clap::Parser;
use ledgerstone_port::{
    Address, Host, Instance, Multicast, Network, NetworkOptions, PortOptions, SendError, ServerInstance, ServerType,
    Site, SiteSecret, Trust, Xid,
};
use ledgerstone_region::Random;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// After this silence a site is dead.
const DEAD_AFTER: Duration = Duration::from_secs(2);
/// The IP group of the campaign: one, so that the relay knows which.
const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 255, 77, 1), 7003);
const XID: Xid = Xid(1);
const MESSAGES_A_MULTICAST: u64 = 100;

/// One of two sites of the network campaign.
#[derive(Parser)]
enum Args {
    /// Makes the keys of both sites.
    Keys { directory: PathBuf },
    /// Is site 2: receives, and ends with an error if anything is missing, damaged, repeated or out of order.
    Receive(Way),
    /// Is site 1: sends.
    Send(Way),
    /// A bad link between the two.
    Relay { near: SocketAddrV4, far: String, beyond: SocketAddr, percent: u64 },
}

#[derive(clap::Args)]
struct Way {
    directory: PathBuf,
    /// The socket address of this site.
    listen: String,
    /// The socket address of the other one.
    other: String,
    /// The address of the interface at which multicasts go.
    interface: Ipv4Addr,
    /// How many messages.
    count: u64,
}

fn main() -> anyhow::Result<()> {
    match Args::parse() {
        Args::Keys { directory } => keys(&directory),
        Args::Receive(way) => receive(&way.directory, &way.listen, &way.other, way.interface, way.count),
        Args::Send(way) => send(&way.directory, &way.listen, &way.other, way.interface, way.count),
        Args::Relay { near, far, beyond, percent } => relay(near, &far, beyond, percent),
    }
}

fn keys(directory: &Path) -> anyhow::Result<()> {
    for site in [1, 2] {
        let secret = SiteSecret::generate()?;
        std::fs::write(directory.join(format!("{site}.secret")), secret.to_text())?;
        std::fs::write(directory.join(format!("{site}.public")), secret.public().to_string())?;
    }
    Ok(())
}

fn name(site: u32) -> Address {
    Address::port(Instance(0), ServerType(1), ServerInstance(0), Site(site))
}

fn network(
    directory: &Path,
    site: u32,
    listen: &str,
    other: &str,
    interface: Ipv4Addr,
) -> anyhow::Result<(Host, Network)> {
    let read = |name: String| std::fs::read_to_string(directory.join(&name)).with_context(|| name);
    let opposite = 3 - site;
    let secret: SiteSecret = read(format!("{site}.secret"))?.parse()?;
    let mut options = NetworkOptions::new(listen.parse()?, Trust::Keys(secret));
    options.dead_after = DEAD_AFTER;
    options.multicast = Some(Multicast { group_count: 1, ..Multicast::new(GROUP, interface) });
    let key = read(format!("{opposite}.public"))?.parse()?;
    let options = options.with_site(Site(opposite), other.parse()?, Some(key));
    let host = Host::at(directory.join(format!("ports-{site}")), Site(site))?;
    let network = Network::start(&host, options)?;
    Ok((host, network))
}

/// A bad link, where the kernel has none: what comes to `near` goes to `beyond` from `far`, and what comes to `far`
/// goes to who sent to `near` last. What comes to the IP group at the interface of `near` goes to the same group on the
/// loopback interface. So many in a hundred are lost, as many repeated, and as many held back for up to 20 ms.
fn relay(near: SocketAddrV4, far: &str, beyond: SocketAddr, percent: u64) -> anyhow::Result<()> {
    let sockets = [UdpSocket::bind(near)?, UdpSocket::bind(far)?, group_socket(*near.ip())?];
    for socket in &sockets {
        socket.set_nonblocking(true)?;
    }
    let mut targets = [None, Some(beyond), Some(GROUP.into())];
    let mut held: Vec<(Instant, usize, Vec<u8>)> = Vec::new();
    let mut random = Random::new(percent);
    let mut below = |bound| random.below(bound);
    let mut space = [0; 9216];
    println!("ready");
    loop {
        let mut is_idle = true;
        for (from, socket) in sockets.iter().enumerate() {
            while let Ok((len, source)) = socket.recv_from(&mut space) {
                is_idle = false;
                if from == 0 {
                    targets[0] = Some(source);
                }
                let copies = match below(100) {
                    roll if roll < percent => 0,
                    roll if roll < 2 * percent => 2,
                    _ => 1,
                };
                for _ in 0..copies {
                    let delay_us = if below(100) < percent { below(20_000) } else { 0 };
                    let to = [1, 0, 2][from];
                    held.push((Instant::now() + Duration::from_micros(delay_us), to, space[..len].to_vec()));
                }
            }
        }
        let now = Instant::now();
        for (_, to, bytes) in held.extract_if(.., |(due, _, _)| *due <= now) {
            if let Some(target) = targets[to] {
                let _ = sockets[to].send_to(&bytes, target); // A link that is cut loses all.
            }
        }
        if is_idle {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Hears the group at an interface and sends to it on the loopback interface.
fn group_socket(interface: Ipv4Addr) -> anyhow::Result<UdpSocket> {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, GROUP.port())).into())?;
    socket.set_multicast_all_v4(false)?;
    socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST)?;
    socket.join_multicast_v4(GROUP.ip(), &interface)?;
    Ok(socket.into())
}

/// Messages of all lengths, one to five datagrams long.
fn message(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + (number * 37 % 5_000) as usize, number as u8);
    bytes
}

fn receive(directory: &Path, listen: &str, other: &str, interface: Ipv4Addr, count: u64) -> anyhow::Result<()> {
    let (host, network) = network(directory, 2, listen, other, interface)?;
    let options = PortOptions { buffer_bytes: 8192, ..PortOptions::default() };
    let mut port = host.open_port(name(2), options)?;
    port.join(XID)?;
    println!("ready");
    let (mut number, mut multicast) = (0, 0);
    while number < count || multicast < count / MESSAGES_A_MULTICAST {
        let received = port.receive_within(Duration::from_secs(60)).with_context(|| format!("message {number}"))?;
        if received.group().is_some() {
            ensure!(received.to_vec() == multicast.to_le_bytes(), "multicast {multicast} is repeated or out of order");
            multicast += 1;
        } else {
            ensure!(received.to_vec() == message(number), "message {number} is damaged, repeated or out of order");
            number += 1;
        }
    }
    let by_ip = network.statistics().multicasts_received;
    ensure!(by_ip > 0, "no datagram came by IP multicast");
    println!("received {number} messages and {multicast} multicasts ({by_ip} by IP multicast), each once and in order");
    // What the network still repeats must not come again.
    if let Some(more) = port.receive_within(Duration::from_secs(3600)) {
        bail!("{} bytes came after the last message", more.len());
    }
    Ok(())
}

fn send(directory: &Path, listen: &str, other: &str, interface: Ipv4Addr, count: u64) -> anyhow::Result<()> {
    let (host, network) = network(directory, 1, listen, other, interface)?;
    let port = host.open_port(name(1), PortOptions::default())?;
    let mut sender = port.connect(name(2))?;
    let mut group = port.group_sender(ServerType(1))?;
    let began = Instant::now();
    for number in 0..count {
        sender.send(&message(number))?;
        if number % MESSAGES_A_MULTICAST == 0 {
            // A multicast waits for no site: without room it would be lost.
            while !sender.is_drained() {
                sender.flush();
                std::thread::sleep(Duration::from_micros(50));
            }
            group.send(XID, &(number / MESSAGES_A_MULTICAST).to_le_bytes())?;
        }
    }
    sender.flush();
    while !sender.is_drained() {
        ensure!(!sender.is_closed(), "the other site is taken for dead, but it lives");
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("drained: {count} messages in {:.1?}, {:?}", began.elapsed(), network.statistics());
    let mut connected = Instant::now();
    while !sender.is_closed() {
        ensure!(connected.elapsed() < Duration::from_secs(60), "the cut was never noticed");
        std::thread::sleep(Duration::from_millis(1));
        if !std::path::Path::new(&directory.join("cut")).exists() {
            connected = Instant::now();
        }
    }
    ensure!(matches!(sender.send(b"x"), Err(SendError::PortClosed { .. })), "a dead site takes messages");
    println!("dead after {:.2?}, configured {DEAD_AFTER:?}", connected.elapsed());
    ensure!(connected.elapsed() < DEAD_AFTER * 2, "its death was noticed late");
    Ok(())
}
