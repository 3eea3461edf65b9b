//! Multicast by number of receivers (figure 3): what one send costs the sender while receivers take them.

use crate::{Figure, process};
use ledgerstone_port::{Host, Instance, PortOptions, ServerInstance, ServerType, Site, Wait, Xid};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

const COUNTS: [usize; 5] = [1, 2, 4, 8, 16];
const AC: ServerType = ServerType(4);

pub fn run() -> Vec<Figure> {
    let mut figures = Vec::new();
    for count in COUNTS {
        let mut add = |name: &str, value: f64| {
            figures.push(Figure { name: name.to_owned(), x: count as f64, value });
        };
        add("port: one multicast", multicast(count));
        add("port: a message to each", to_each(count));
        add("UDP: a datagram to each", udp(count));
    }
    figures.push(Figure { name: "port: join and leave".to_owned(), x: 1.0, value: join_and_leave() });
    figures
}

/// The median time of a send, in microseconds, with receivers in processes on the other processor that drain the ring.
fn multicast(count: usize) -> f64 {
    measure(count, |host, ports| {
        let mut group = ports.group_sender(AC).expect("a group sender");
        let _ = host;
        Box::new(move |_| group.send(Xid(7), &[7; 20]).expect("send"))
    })
}

fn to_each(count: usize) -> f64 {
    measure(count, move |host, port| {
        let mut senders: Vec<_> = (1..=count as u32)
            .map(|no| port.connect(host.address(Instance(0), AC, ServerInstance(no))).expect("connect"))
            .collect();
        Box::new(move |_| senders.iter_mut().for_each(|sender| sender.send(&[7; 20]).expect("send")))
    })
}

type Send = Box<dyn FnMut(u32)>;

fn measure(count: usize, make: impl FnOnce(&Host, &ledgerstone_port::Port) -> Send) -> f64 {
    let numbers = process::apart(0, || {
        let directory = tempfile::tempdir().expect("a directory");
        let receivers: Vec<_> = (1..=count as u32)
            .map(|no| {
                let (mut ready, mut say) = std::io::pipe().expect("a pipe");
                let path = directory.path().to_owned();
                let pid = process::child(1, move || {
                    use std::io::Write;
                    let host = Host::at(path, Site(1)).expect("the directory");
                    let options = PortOptions { wait: Wait::Sleep, ..PortOptions::default() };
                    let address = host.address(Instance(0), AC, ServerInstance(no));
                    let mut port = host.open_port(address, options).expect("a port");
                    port.join(Xid(7)).expect("join");
                    say.write_all(&[1]).expect("the parent reads");
                    loop {
                        // Receivers take what has come now and then, as busy servers do.
                        while port.try_receive().is_some() {}
                        std::thread::sleep(Duration::from_micros(500));
                    }
                });
                use std::io::Read;
                ready.read_exact(&mut [0]).expect("the child is ready");
                pid
            })
            .collect();
        let host = Host::at(directory.path(), Site(1)).expect("the directory");
        let address = host.address(Instance(0), ServerType(9), ServerInstance(0));
        let port = host.open_port(address, PortOptions::default()).expect("a port");
        let mut send = make(&host, &port);
        let mut times = Vec::new();
        for no in 0..4_000 {
            let began = Instant::now();
            // Several at a time, since one is shorter than reading the clock.
            (0..8).for_each(|_| send(no));
            times.push(began.elapsed() / 8);
            if no % 4 == 3 {
                std::thread::sleep(Duration::from_micros(500));
            }
        }
        receivers.into_iter().for_each(process::end);
        vec![process::median(&times)]
    });
    numbers.first().copied().unwrap_or(f64::NAN)
}

fn udp(count: usize) -> f64 {
    let numbers = process::apart(0, || {
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let receivers: Vec<_> = (0..count).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket")).collect();
        let addresses: Vec<_> = receivers.iter().map(|socket| socket.local_addr().expect("address")).collect();
        let mut times = Vec::new();
        for _ in 0..4_000 {
            let began = Instant::now();
            for address in &addresses {
                sender.send_to(&[7; 20], address).expect("send");
            }
            times.push(began.elapsed());
            for receiver in &receivers {
                receiver.recv(&mut [0; 20]).expect("receive");
            }
        }
        vec![process::median(&times)]
    });
    numbers.first().copied().unwrap_or(f64::NAN)
}

/// Joining and leaving together, on average, in microseconds.
fn join_and_leave() -> f64 {
    const ROUNDS: u32 = 2_000_000;
    let numbers = process::apart(0, || {
        let directory = tempfile::tempdir().expect("a directory");
        let host = Host::at(directory.path(), Site(1)).expect("the directory");
        let mut port =
            host.open_port(host.address(Instance(0), AC, ServerInstance(0)), PortOptions::default()).expect("a port");
        let _sender = port.group_sender(AC).expect("a group sender");
        port.join(Xid(0)).expect("join");
        port.leave(Xid(0));
        let began = Instant::now();
        for xid in 0..ROUNDS {
            port.join(Xid(xid.into())).expect("join");
            port.leave(Xid(xid.into()));
        }
        vec![began.elapsed().as_nanos() as f64 / 1000.0 / f64::from(ROUNDS)]
    });
    numbers.first().copied().unwrap_or(f64::NAN)
}
