//! Round trips (figures 2 and 6).

use crate::Figure;
use crate::mechanisms::{self, Pair};
use crate::process;
use ledgerstone_port::{
    Host, Instance, Network, NetworkOptions, PortOptions, ServerInstance, ServerType, Site, SiteSecret, Trust, Wait,
};
use std::time::{Duration, Instant};

const SIZES: [usize; 6] = [20, 100, 512, 1024, 4096, 16384];
const FOR: Duration = Duration::from_millis(300);

/// Round trips between a process on each of the processors, for a while: the median in microseconds.
fn round_trip(bytes: usize, cpus: [usize; 2], pair: impl FnOnce() -> Pair) -> f64 {
    let result = process::apart(cpus[0], || {
        let pair = pair();
        // Boxes cannot be shared by two processes, but a fork copies them.
        let mut pair = Some(pair);
        let echo = process::child(cpus[1], || {
            let mut end = pair.take().expect("once in each process")(false);
            let mut buffer = vec![0; bytes];
            loop {
                end.receive(&mut buffer);
                end.send(&buffer);
            }
        });
        let mut end = pair.take().expect("once in each process")(true);
        let mut buffer = vec![7; bytes];
        let mut times = Vec::with_capacity(1 << 20);
        let began = Instant::now();
        while times.len() < times.capacity() && began.elapsed() < FOR * 2 {
            let start = Instant::now();
            end.send(&buffer);
            end.receive(&mut buffer);
            let took = start.elapsed();
            if began.elapsed() > FOR {
                times.push(took);
            }
        }
        process::end(echo);
        vec![process::median(&times)]
    });
    result.first().copied().unwrap_or(f64::NAN)
}

fn figure(name: &str, x: usize, value: f64) -> Figure {
    Figure { name: name.to_owned(), x: x as f64, value }
}

pub fn two_processors() -> Vec<Figure> {
    let mut figures = Vec::new();
    for bytes in SIZES {
        let mut add = |name: &str, pair: &dyn Fn() -> Pair| {
            figures.push(figure(name, bytes, round_trip(bytes, [0, 1], pair)));
        };
        add("bare ring, spinning", &|| mechanisms::bare_ring(bytes, false));
        add("port, spinning", &|| mechanisms::ports(bytes, Wait::Spin));
        add("port, adaptive", &|| mechanisms::ports(bytes, Wait::Adaptive));
        #[cfg(feature = "peers")]
        add("iceoryx2, polled", &mechanisms::iceoryx2);
        if bytes == 20 || bytes == 4096 {
            add("bare ring, sleeping", &|| mechanisms::bare_ring(bytes, true));
            add("port, sleeping", &|| mechanisms::ports(bytes, Wait::Sleep));
            add("pipe", &mechanisms::pipe);
            add("Unix datagram", &mechanisms::unix_datagram);
            add("UDP", &mechanisms::udp);
        }
        figures.extend(crate::aeron::round_trip(bytes).map(|value| figure("Aeron IPC", bytes, value)));
    }
    figures
}

pub fn one_processor() -> Vec<Figure> {
    let mut figures = Vec::new();
    for bytes in SIZES {
        let mut add = |name: &str, pair: &dyn Fn() -> Pair| {
            figures.push(figure(name, bytes, round_trip(bytes, [0, 0], pair)));
        };
        add("bare ring, sleeping", &|| mechanisms::bare_ring(bytes, true));
        add("port, sleeping", &|| mechanisms::ports(bytes, Wait::Sleep));
        add("port, adaptive", &|| mechanisms::ports(bytes, Wait::Adaptive));
        add("pipe", &mechanisms::pipe);
        if mechanisms::message_queues(bytes).is_some() {
            add("message queue", &|| mechanisms::message_queues(bytes).expect("a message queue"));
        }
        add("Unix datagram", &mechanisms::unix_datagram);
        add("UDP", &mechanisms::udp);
        add("TCP", &mechanisms::tcp);
    }
    figures
}

/// Whether the port finds out by itself what is best.
pub fn adaptive() -> Vec<Figure> {
    let mut figures = Vec::new();
    for (place, cpus) in [("two processors", [0, 1]), ("one processor", [0, 0])] {
        for (title, wait) in [("spinning", Wait::Spin), ("sleeping", Wait::Sleep), ("adaptive", Wait::Adaptive)] {
            if wait == Wait::Spin && cpus == [0, 0] {
                continue; // Each round trip would take two time slices.
            }
            let value = round_trip(20, cpus, || mechanisms::ports(20, wait));
            figures.push(figure(&format!("{place}, {title}"), 20, value));
        }
    }
    figures
}

/// Pairs of the spinning mechanisms, one close behind the other and again: what the targets for 20 bytes are about. The
/// median of each, the best, and the median of the factors between neighbours.
pub fn pairs() -> Vec<Figure> {
    const ROUNDS: usize = 9;
    let mut values: Vec<(&str, Vec<f64>)> = Vec::new();
    let mut add = |name, value| match values.iter_mut().find(|(known, _)| *known == name) {
        Some((_, all)) => all.push(value),
        None => values.push((name, vec![value])),
    };
    for _ in 0..ROUNDS {
        add("bare ring, spinning", round_trip(20, [0, 1], || mechanisms::bare_ring(20, false)));
        add("port, spinning", round_trip(20, [0, 1], || mechanisms::ports(20, Wait::Spin)));
        add("port, adaptive", round_trip(20, [0, 1], || mechanisms::ports(20, Wait::Adaptive)));
        #[cfg(feature = "peers")]
        add("iceoryx2, polled", round_trip(20, [0, 1], mechanisms::iceoryx2));
        if let Some(value) = crate::aeron::round_trip(20) {
            add("Aeron IPC", value);
        }
    }
    let bare = values[0].1.clone();
    let mut figures = Vec::new();
    for (name, all) in values {
        let factors = all.iter().zip(&bare).map(|(value, bare)| value / bare).collect();
        let best = all.iter().copied().fold(f64::INFINITY, f64::min);
        figures.push(figure(name, 20, process::middle(all)));
        figures.push(figure(&format!("{name}: best turn"), 20, best));
        figures.push(figure(&format!("{name}: times the bare ring"), 20, process::middle(factors)));
    }
    figures
}

/// Between two sites on this machine, sealed and not, beside the sockets.
pub fn remote() -> Vec<Figure> {
    let mut figures = Vec::new();
    for bytes in [20, 100, 1024, 16384] {
        for (place, cpus) in [("two processors", [0, 1]), ("one processor", [0, 0])] {
            figures.push(figure(&format!("UDP, {place}"), bytes, round_trip(bytes, cpus, mechanisms::udp)));
            for (title, is_trusted) in [("port, sealed", false), ("port, trusted", true)] {
                let value = round_trip(bytes, cpus, || remote_ports(bytes, is_trusted));
                figures.push(figure(&format!("{title}, {place}"), bytes, value));
            }
        }
    }
    figures
}

fn remote_ports(bytes: usize, is_trusted: bool) -> Pair {
    let secrets = [SiteSecret::generate().expect("a key"), SiteSecret::generate().expect("a key")];
    let sockets = [0, 1].map(|_| std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    let addresses = [0, 1].map(|no: usize| sockets[no].local_addr().expect("address"));
    drop(sockets);
    let directories = [0, 1].map(|_| tempfile::tempdir().expect("a directory").keep());
    Box::new(move |is_first| {
        let (no, other) = if is_first { (0, 1) } else { (1, 0) };
        let site = |no: usize| Site(no as u32 + 1);
        let host = Host::at(&directories[no], site(no)).expect("the directory");
        let trust = if is_trusted { Trust::Network } else { Trust::Keys(secrets[no].clone()) };
        let options = NetworkOptions::new(addresses[no], trust);
        let options = options.with_site(site(other), addresses[other], Some(secrets[other].public()));
        let name = |site| ledgerstone_port::Address::port(Instance(0), ServerType(1), ServerInstance(0), site);
        let port_options = PortOptions { buffer_bytes: bytes as u32 + 16, ..PortOptions::default() };
        let port = host.open_port(name(site(no)), port_options).expect("a port");
        // After the port: what came before it would be refused.
        let network = Network::start(&host, options).expect("the network");
        let sender = loop {
            match port.connect(name(site(other))) {
                Ok(sender) => break sender,
                Err(_) => std::thread::yield_now(),
            }
        };
        std::mem::forget(network); // It lives as long as the process.
        Box::new(mechanisms::Ports { port, sender })
    })
}
