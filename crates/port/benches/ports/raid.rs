//! The messages of a Raid transaction (section 3.4 and figure 7): about 180 for five operations, nine of ten local.
//!
//! Two processes play the servers of one site: for each operation a run of requests and answers between them; each
//! tenth message is for another site. What is compared is the system time of it all, by ports and by Unix datagrams.

use crate::Figure;
use crate::mechanisms::{self, End, Pair};
use crate::process::{self, cpu_us};
use ledgerstone_port::Wait;
use std::net::UdpSocket;

const TRANSACTIONS: u32 = 2_000;
const LOCAL: usize = 162;
const REMOTE: usize = 18;
/// A server sends what it has to say for one operation before it waits for answers.
const RUN: usize = 16;
const BYTES: usize = 100;

pub fn run() -> Vec<Figure> {
    let mut figures = Vec::new();
    for (place, cpus) in [("one processor", [0, 0]), ("two processors", [0, 1])] {
        for (name, pair) in [
            ("Unix datagrams", mechanisms::unix_datagram as fn() -> Pair),
            ("ports, adaptive", || mechanisms::ports(BYTES, Wait::Adaptive)),
            ("ports, sleeping", || mechanisms::ports(BYTES, Wait::Sleep)),
        ] {
            let numbers = process::apart(cpus[0], || transactions(cpus[1], pair));
            for (title, value) in ["user", "system"].into_iter().zip(numbers) {
                figures.push(Figure { name: format!("{name}, {place}: {title}"), x: (LOCAL + REMOTE) as f64, value });
            }
        }
    }
    figures
}

fn transactions(cpu: usize, pair: fn() -> Pair) -> Vec<f64> {
    let mut pair = Some(pair());
    let before = cpu_us();
    let server = process::child(cpu, || {
        let mut end = pair.take().expect("once in each process")(false);
        let mut buffer = [0; BYTES];
        (0..TRANSACTIONS).for_each(|_| serve(&mut *end, &mut buffer));
    });
    let mut end = pair.take().expect("once in each process")(true);
    let mut buffer = [7; BYTES];
    let network = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let other_site = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = other_site.local_addr().expect("address");
    for _ in 0..TRANSACTIONS {
        ask(&mut *end, &mut buffer);
        for _ in 0..REMOTE / 2 {
            network.send_to(&buffer, address).expect("send");
            other_site.recv(&mut buffer).expect("receive");
        }
    }
    process::wait(server);
    let after = cpu_us();
    [after.0 - before.0, after.1 - before.1].map(|us| us / f64::from(TRANSACTIONS)).to_vec()
}

fn ask(end: &mut dyn End, buffer: &mut [u8]) {
    let mut left = LOCAL / 2;
    while left > 0 {
        let run = left.min(RUN);
        (0..run).for_each(|_| end.send(buffer));
        (0..run).for_each(|_| end.receive(buffer));
        left -= run;
    }
}

fn serve(end: &mut dyn End, buffer: &mut [u8]) {
    let mut left = LOCAL / 2;
    while left > 0 {
        let run = left.min(RUN);
        (0..run).for_each(|_| end.receive(buffer));
        (0..run).for_each(|_| end.send(buffer));
        left -= run;
    }
}
