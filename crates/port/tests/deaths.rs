//! Processes that die: each test starts this program again as the one that will be killed.

use ledgerstone_port::*;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const WATCHDOG: Duration = Duration::from_secs(60);
const ROLE: &str = "LEDGERSTONE_PORT_TEST_ROLE";
const PLACE: &str = "LEDGERSTONE_PORT_TEST_PLACE";

fn name(server: u32) -> Address {
    Address::port(Instance(1), ServerType(2), ServerInstance(server), Site(1))
}

fn options() -> PortOptions {
    PortOptions { buffer_count: 64, buffer_bytes: 112, ..PortOptions::default() }
}

/// What the other process does; nothing when the tests run it as one of them.
#[test]
fn the_other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let host = Host::at(std::env::var_os(PLACE).unwrap(), Site(1)).unwrap();
    match role.as_str() {
        "send for ever" => {
            let mut sender = host.connect(name(1), name(0)).unwrap();
            println!("ready");
            for i in 0u64.. {
                let mut loan = sender.loan(96).unwrap();
                loan.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&i.to_le_bytes()));
                loan.publish();
            }
        }
        "hold a loan" => {
            let mut sender = host.connect(name(1), name(0)).unwrap();
            let mut loan = sender.loan(96).unwrap();
            loan.fill(0xee);
            println!("ready");
            std::thread::park();
        }
        "own a port" => {
            let _port = host.open_port(name(0), options()).unwrap();
            println!("ready");
            std::thread::park();
        }
        other => panic!("unknown role {other}"),
    }
}

struct Other(Child);

impl Other {
    fn start(role: &str, place: &Path) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_other_process", "--nocapture"])
            .env(ROLE, role)
            .env(PLACE, place)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("ready")), "{role} did not start");
        Other(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_sender_killed_while_it_sends_leaves_whole_messages_only_and_blocks_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::at(directory.path(), Site(1)).unwrap();
    let mut port = host.open_port(name(0), options()).unwrap();
    for round in 0..10 {
        let mut killed = Other::start("send for ever", directory.path());
        let mut honest = host.connect(name(2), name(0)).unwrap();
        let mut next = 0u64;
        let check = |message: &Message<'_>, next: &mut u64| {
            assert_eq!(message.to_vec(), next.to_le_bytes().repeat(12), "round {round}");
            *next += 1;
        };
        while next < 100 + round * 37 {
            check(&port.receive_within(WATCHDOG).expect("a message"), &mut next);
        }
        killed.kill();
        honest.send(b"still here").unwrap();
        let mut is_heard = false;
        let began = Instant::now();
        while port.sender_count() > 1 || !is_heard {
            assert!(began.elapsed() < WATCHDOG, "the dead sender's buffers are kept");
            let Some(message) = port.receive_within(Duration::from_millis(1)) else { continue };
            if message.from() == name(2) { is_heard = true } else { check(&message, &mut next) }
        }
        drop(honest);
    }
    assert_eq!(port.violations(), 0);
}

#[test]
fn a_sender_killed_with_a_loan_has_sent_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::at(directory.path(), Site(1)).unwrap();
    let mut port = host.open_port(name(0), options()).unwrap();
    let mut killed = Other::start("hold a loan", directory.path());
    assert!(port.try_receive().is_none());
    assert_eq!(port.sender_count(), 1);
    killed.kill();
    let began = Instant::now();
    while port.sender_count() > 0 {
        assert!(port.try_receive().is_none());
        assert!(began.elapsed() < WATCHDOG, "the dead sender's buffers are kept");
    }
}

#[test]
fn a_receiver_that_is_killed_is_noticed_and_its_port_can_be_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::at(directory.path(), Site(1)).unwrap();
    let mut owner = Other::start("own a port", directory.path());
    let mut sender = host.connect(name(1), name(0)).unwrap();
    sender.send(b"x").unwrap();
    assert!(matches!(host.open_port(name(0), options()), Err(OpenError::AddressInUse { .. })));
    owner.kill();
    let closed = loop {
        if let Err(error) = sender.send(b"x") {
            break error;
        }
    };
    assert_eq!(closed, SendError::PortClosed { address: name(0) });
    assert!(matches!(host.connect(name(1), name(0)), Err(ConnectError::NoSuchPort { .. })));
    let mut port = host.open_port(name(0), options()).unwrap();
    host.connect(name(1), name(0)).unwrap().send(b"y").unwrap();
    assert_eq!(port.receive_within(WATCHDOG).unwrap().to_vec(), b"y");
}

#[test]
fn names_of_dead_owners_are_reclaimed_and_those_of_the_living_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::at(directory.path(), Site(1)).unwrap();
    let _living = host.open_port(name(7), options()).unwrap();
    let mut owner = Other::start("own a port", directory.path());
    assert_eq!(host.reclaim().unwrap(), 0);
    owner.kill();
    assert_eq!(host.reclaim().unwrap(), 1);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "the living port's socket and lock");
}
