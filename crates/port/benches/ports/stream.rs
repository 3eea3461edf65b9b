//! Streams: messages a second, and what they cost in processor time.

use crate::mechanisms::Ports;
use crate::process::{self, cpu_us};
use crate::{Figure, mechanisms};
use ledgerstone_port::{
    Host, Instance, Network, NetworkOptions, Pages, PortOptions, ServerInstance, ServerType, Site, SiteSecret, Trust,
    Wait,
};
use std::time::Instant;

const BYTES: usize = 100;

/// Million messages a second, user and system time in microseconds a message, of both processes together.
fn run(name: &str, count: u64, both: impl FnOnce()) -> Vec<Figure> {
    let numbers = process::apart(0, || {
        let (before, began) = (cpu_us(), Instant::now());
        both();
        let (took, after) = (began.elapsed(), cpu_us());
        let each = |after: f64, before: f64| (after - before) / count as f64;
        vec![count as f64 / took.as_micros() as f64, each(after.0, before.0), each(after.1, before.1)]
    });
    let titles = ["million a second", "user us a message", "system us a message"];
    let figures = titles.into_iter().zip(numbers);
    figures.map(|(title, value)| Figure { name: format!("{name}: {title}"), x: BYTES as f64, value }).collect()
}

pub fn local() -> Vec<Figure> {
    let mut figures = Vec::new();
    for (name, wait) in [("port, spinning", Wait::Spin), ("port, adaptive", Wait::Adaptive)] {
        const COUNT: u64 = 20_000_000;
        figures.extend(run(name, COUNT, || {
            let directory = tempfile::tempdir().expect("a directory");
            let options = PortOptions { buffer_count: 4096, buffer_bytes: 112, wait, ..PortOptions::default() };
            let receiver = process::child(1, || {
                let mut end = Ports::meet(directory.path(), false, options.clone());
                let mut into = [0; BYTES];
                for no in 0..COUNT {
                    end.port.receive().copy_to(&mut into);
                    assert_eq!(into[..8], no.to_le_bytes());
                }
                end.sender.send(&[1]).expect("send");
            });
            let mut end = Ports::meet(directory.path(), true, options.clone());
            let mut bytes = [7; BYTES];
            for no in 0..COUNT {
                bytes[..8].copy_from_slice(&no.to_le_bytes());
                end.sender.send(&bytes).expect("send");
            }
            end.port.receive();
            process::wait(receiver);
        }));
    }
    const SLOW: u64 = 1_000_000;
    for (name, pair) in
        [("pipe", mechanisms::pipe as fn() -> mechanisms::Pair), ("Unix datagram", mechanisms::unix_datagram)]
    {
        figures.extend(run(name, SLOW, || one_way(pair, SLOW)));
    }
    figures.extend(bulk());
    figures
}

fn one_way(pair: fn() -> mechanisms::Pair, count: u64) {
    let mut pair = Some(pair());
    let receiver = process::child(1, || {
        let mut end = pair.take().expect("once in each process")(false);
        let mut into = [0; BYTES];
        (0..count).for_each(|_| end.receive(&mut into));
        end.send(&into);
    });
    let mut end = pair.take().expect("once in each process")(true);
    let mut bytes = [7; BYTES];
    (0..count).for_each(|_| end.send(&bytes));
    end.receive(&mut bytes);
    process::wait(receiver);
}

/// 64 KiB from process to process: microseconds each, by copy and by reference.
fn bulk() -> Vec<Figure> {
    const COUNT: u32 = 20_000;
    const LEN: usize = 65536;
    let numbers = process::apart(0, || {
        let directory = tempfile::tempdir().expect("a directory");
        let options =
            PortOptions { buffer_count: 16, buffer_bytes: LEN as u32, wait: Wait::Spin, ..PortOptions::default() };
        let receiver = process::child(1, || {
            let mut end = Ports::meet(directory.path(), false, options.clone());
            for _ in 0..2 {
                for _ in 0..COUNT {
                    let message = end.port.receive();
                    // SAFETY: the sender is this program.
                    let first = message.page().map_or_else(
                        |_| unsafe { message.bytes_in_place()[0] },
                        // SAFETY: as above.
                        |page| unsafe { page.bytes_in_place()[0] },
                    );
                    assert_eq!(first, 7);
                }
                end.sender.send(&[1]).expect("send");
            }
        });
        let mut end = Ports::meet(directory.path(), true, options.clone());
        let bytes = vec![7; LEN];
        let began = Instant::now();
        (0..COUNT).for_each(|_| end.sender.send(&bytes).expect("send"));
        end.port.receive();
        let by_copy = began.elapsed().as_nanos() as f64 / 1000.0 / f64::from(COUNT);
        let mut pages = Pages::create(LEN as u32, 32).expect("pages");
        for _ in 0..32 {
            pages.take().expect("a page").fill(7);
        }
        let began = Instant::now();
        for _ in 0..COUNT {
            let page = loop {
                if let Some(page) = pages.take() {
                    break page.share(LEN);
                }
                std::hint::spin_loop();
            };
            { page }.send(&mut end.sender).expect("send");
        }
        end.port.receive();
        let by_reference = began.elapsed().as_nanos() as f64 / 1000.0 / f64::from(COUNT);
        process::wait(receiver);
        let mut target = vec![0; LEN];
        let began = Instant::now();
        for _ in 0..COUNT {
            std::hint::black_box(&mut target).copy_from_slice(std::hint::black_box(&bytes));
        }
        vec![by_copy, by_reference, began.elapsed().as_nanos() as f64 / 1000.0 / f64::from(COUNT)]
    });
    let names = ["64 KiB by one copy (us)", "64 KiB by reference (us)", "64 KiB memcpy alone (us)"];
    let figures = names.into_iter().zip(numbers);
    figures.map(|(name, value)| Figure { name: name.to_owned(), x: LEN as f64, value }).collect()
}

pub fn network() -> Vec<Figure> {
    const COUNT: u64 = 500_000;
    let mut figures = run("UDP, a call each", COUNT, udp);
    for (name, is_trusted) in [("port, sealed", false), ("port, trusted", true)] {
        figures.extend(run(name, COUNT, || sites(COUNT, is_trusted)));
    }
    figures
}

/// UDP loses what the receiver is too slow for, so the receiver answers every 64th.
fn udp() {
    const COUNT: u64 = 500_000;
    let mut pair = Some(mechanisms::udp());
    let receiver = process::child(1, || {
        let mut end = pair.take().expect("once in each process")(false);
        let mut into = [0; BYTES];
        for no in 0..COUNT {
            end.receive(&mut into);
            if no % 64 == 63 {
                end.send(&[1]);
            }
        }
    });
    let mut end = pair.take().expect("once in each process")(true);
    let mut answer = [0];
    for no in 0..COUNT {
        end.send(&[7; BYTES]);
        if no % 64 == 63 && no > 128 {
            end.receive(&mut answer);
        }
    }
    process::wait(receiver);
}

fn sites(count: u64, is_trusted: bool) {
    let secrets = [SiteSecret::generate().expect("a key"), SiteSecret::generate().expect("a key")];
    let sockets = [0, 1].map(|_| std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    let addresses = [0, 1].map(|no: usize| sockets[no].local_addr().expect("address"));
    drop(sockets);
    let site = |no: usize| Site(no as u32 + 1);
    let name = |no| ledgerstone_port::Address::port(Instance(0), ServerType(1), ServerInstance(0), site(no));
    let start = |no: usize| {
        let directory = tempfile::tempdir().expect("a directory");
        let host = Host::at(directory.path(), site(no)).expect("the directory");
        let trust = if is_trusted { Trust::Network } else { Trust::Keys(secrets[no].clone()) };
        let options = NetworkOptions::new(addresses[no], trust);
        let options = options.with_site(site(1 - no), addresses[1 - no], Some(secrets[1 - no].public()));
        let network = Network::start(&host, options).expect("the network");
        let options = PortOptions { buffer_count: 4096, ..PortOptions::default() };
        (host.open_port(name(no), options).expect("a port"), network, directory)
    };
    let receiver = process::child(1, || {
        let (mut port, _network, _directory) = start(1);
        for no in 0..count {
            let mut into = [0; BYTES];
            port.receive().copy_to(&mut into);
            assert_eq!(into[..8], no.to_le_bytes());
        }
        port.connect(name(0)).expect("connect").send(&[1]).expect("send");
        port.receive_within(std::time::Duration::from_millis(200));
    });
    let (mut port, _network, _directory) = start(0);
    let mut sender = loop {
        match port.connect(name(1)) {
            Ok(sender) => break sender,
            Err(_) => std::thread::yield_now(),
        }
    };
    let mut bytes = [7; BYTES];
    for no in 0..count {
        bytes[..8].copy_from_slice(&no.to_le_bytes());
        sender.send(&bytes).expect("send");
    }
    sender.flush();
    port.receive();
    process::wait(receiver);
}
