//! Layers of a send (figure 1): what each part of sending 100 bytes costs the sender, in nanoseconds.

use crate::{Figure, process};
use ledgerstone_port::{Host, Instance, PortOptions, ServerInstance, ServerType, Site};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u32 = 200_000;

pub fn layers() -> Vec<Figure> {
    let numbers = process::apart(0, || {
        let directory = tempfile::tempdir().expect("a directory");
        let host = Host::at(directory.path(), Site(1)).expect("the directory");
        let name = host.address(Instance(0), ServerType(1), ServerInstance(0));
        let options = PortOptions { buffer_count: 1024, buffer_bytes: 112, ..PortOptions::default() };
        let mut port = host.open_port(name, options).expect("a port");
        let mut sender = host.connect(name, name).expect("a sender");
        let bytes = [7u8; 100];
        let mut target = vec![0u8; 128];
        let mut numbers = vec![
            time(|| {
                black_box(&mut target)[..100].copy_from_slice(black_box(&bytes));
            }),
            time(|| {
                // SAFETY: no arguments.
                black_box(unsafe { libc::sched_getcpu() });
            }),
            time(|| std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst)),
            // SAFETY: no arguments.
            time(|| unsafe {
                black_box(libc::syscall(libc::SYS_getppid));
            }),
        ];
        let (mut loans, mut sends, mut receives) = (0.0, 0.0, 0.0);
        for _ in 0..ROUNDS / 1000 {
            loans += batch(|| {
                black_box(sender.try_loan(100).expect("room").len());
            });
            sends += batch(|| sender.try_send(black_box(&bytes)).expect("room"));
            receives += batch(|| {
                black_box(port.try_receive().expect("a message").copy_to(&mut target));
            });
        }
        let rounds = f64::from(ROUNDS / 1000) * 1000.0;
        numbers.extend([loans / rounds, sends / rounds, receives / rounds]);
        let pair = std::os::unix::net::UnixDatagram::pair().expect("sockets");
        numbers.push(time(|| {
            pair.0.send(&bytes).expect("send");
            pair.1.recv(&mut target).expect("receive");
        }));
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        udp.connect(udp.local_addr().expect("address")).expect("connect");
        numbers.push(time(|| {
            udp.send(&bytes).expect("send");
            udp.recv(&mut target).expect("receive");
        }));
        numbers
    });
    let names = [
        "copy of the bytes",
        "asking which processor we are on",
        "full fence before looking at the bell",
        "a system call that does nothing",
        "port: finding a free buffer",
        "port: whole send, receiver awake",
        "port: whole receive with a copy",
        "Unix datagram: send and receive",
        "UDP: send and receive",
    ];
    let figures = names.into_iter().zip(numbers);
    figures.map(|(name, value)| Figure { name: name.to_owned(), x: 100.0, value }).collect()
}

fn batch(mut one: impl FnMut()) -> f64 {
    let began = Instant::now();
    (0..1000).for_each(|_| one());
    began.elapsed().as_nanos() as f64
}

fn time(mut one: impl FnMut()) -> f64 {
    (0..1000).for_each(|_| one());
    let began = Instant::now();
    (0..ROUNDS).for_each(|_| one());
    began.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
}
