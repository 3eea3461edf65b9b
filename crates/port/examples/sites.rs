//! One of two sites of the network campaign (`make port-net`); the script runs each in a network namespace.
//!
//! `sites keys DIR` makes keys; `sites receive DIR LISTEN OTHER COUNT` is site 2, `sites send DIR LISTEN OTHER COUNT` site 1.
//! The sender numbers its messages; the receiver ends with an error if one is missing, damaged, repeated or out of order.
//! Then the script cuts the link, and the sender says when it found the other site dead.

use anyhow::{Context, bail, ensure};
use ledgerstone_port::{
    Address, Host, Instance, Network, NetworkOptions, PortOptions, SendError, ServerInstance, ServerType, Site,
    SiteSecret, Trust,
};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

/// After this silence a site is dead.
const DEAD_AFTER: Duration = Duration::from_secs(2);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["keys", directory] => keys(directory.as_ref()),
        ["receive", directory, listen, other, count] => receive(directory.as_ref(), listen, other, count.parse()?),
        ["send", directory, listen, other, count] => send(directory.as_ref(), listen, other, count.parse()?),
        ["relay", near, far, beyond, percent] => relay(near, far, beyond.parse()?, percent.parse()?),
        _ => bail!(
            "keys DIR | receive DIR LISTEN OTHER COUNT | send DIR LISTEN OTHER COUNT | relay NEAR FAR BEYOND PERCENT"
        ),
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

fn network(directory: &Path, site: u32, listen: &str, other: &str) -> anyhow::Result<(Host, Network)> {
    let read = |name: String| std::fs::read_to_string(directory.join(&name)).with_context(|| name);
    let opposite = 3 - site;
    let secret: SiteSecret = read(format!("{site}.secret"))?.parse()?;
    let mut options = NetworkOptions::new(listen.parse()?, Trust::Keys(secret));
    options.dead_after = DEAD_AFTER;
    let key = read(format!("{opposite}.public"))?.parse()?;
    let options = options.with_site(Site(opposite), other.parse()?, Some(key));
    let host = Host::at(directory.join(format!("ports-{site}")), Site(site))?;
    let network = Network::start(&host, options)?;
    Ok((host, network))
}

/// A bad link, where the kernel has none: what comes to `near` goes to `beyond` from `far`, and what comes to `far` goes to
/// who sent to `near` last. So many in a hundred are lost, as many repeated, and as many held back for up to 20 ms.
fn relay(near: &str, far: &str, beyond: SocketAddr, percent: u64) -> anyhow::Result<()> {
    let sockets = [UdpSocket::bind(near)?, UdpSocket::bind(far)?];
    for socket in &sockets {
        socket.set_nonblocking(true)?;
    }
    let mut targets = [None, Some(beyond)];
    let mut held: Vec<(Instant, usize, Vec<u8>)> = Vec::new();
    let mut random = percent;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
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
                    held.push((Instant::now() + Duration::from_micros(delay_us), 1 - from, space[..len].to_vec()));
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

/// Messages of all lengths, one to five datagrams long.
fn message(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + (number * 37 % 5_000) as usize, number as u8);
    bytes
}

fn receive(directory: &Path, listen: &str, other: &str, count: u64) -> anyhow::Result<()> {
    let (host, _network) = network(directory, 2, listen, other)?;
    let options = PortOptions { buffer_bytes: 8192, ..PortOptions::default() };
    let mut port = host.open_port(name(2), options)?;
    println!("ready");
    for number in 0..count {
        let received = port.receive_within(Duration::from_secs(60)).with_context(|| format!("message {number}"))?;
        ensure!(received.to_vec() == message(number), "message {number} is damaged, repeated or out of order");
    }
    println!("received {count} messages, each once and in order");
    // What the network still repeats must not come again.
    if let Some(more) = port.receive_within(Duration::from_secs(3600)) {
        bail!("{} bytes came after the last message", more.len());
    }
    Ok(())
}

fn send(directory: &Path, listen: &str, other: &str, count: u64) -> anyhow::Result<()> {
    let (host, network) = network(directory, 1, listen, other)?;
    let mut sender = host.connect(name(1), name(2))?;
    let began = Instant::now();
    for number in 0..count {
        sender.send(&message(number))?;
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
