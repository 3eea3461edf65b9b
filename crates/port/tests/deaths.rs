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
                loan.publish().unwrap();
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
        "be in a group" => {
            let mut port = host.open_port(name(5), options()).unwrap();
            port.join(Xid(7)).unwrap();
            println!("ready");
            std::thread::park();
        }
        "multicast for ever" => {
            let port = host.open_port(name(6), options()).unwrap();
            let mut sender = port.group_sender(ServerType(2)).unwrap();
            println!("ready");
            for i in 0u64.. {
                sender.send(Xid(7), &i.to_le_bytes().repeat(12)).unwrap();
            }
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

#[test]
fn a_member_that_is_killed_holds_up_no_multicast() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::at(directory.path(), Site(1)).unwrap();
    let mut port = host.open_port(name(0), options()).unwrap();
    let mut sender = port.group_sender(ServerType(2)).unwrap();
    for _ in 0..5 {
        let mut member = Other::start("be in a group", directory.path());
        let full = (0..10_000).find_map(|_| sender.try_send(Xid(7), b"x").err());
        assert!(matches!(full, Some(SendError::Full { .. })), "the member does not read: {full:?}");
        member.kill();
        sender.send_before(Xid(7), b"x", Instant::now() + WATCHDOG).unwrap();
        port.join(Xid(7)).unwrap();
        sender.send(Xid(7), b"y").unwrap();
        assert_eq!(port.receive_within(WATCHDOG).unwrap().to_vec(), b"y");
        port.leave(Xid(7));
    }
}

#[test]
fn a_sender_killed_while_it_multicasts_leaves_whole_messages_only_and_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::at(directory.path(), Site(1)).unwrap();
    let mut port = host.open_port(name(0), options()).unwrap();
    port.join(Xid(7)).unwrap();
    for round in 0..5 {
        let mut killed = Other::start("multicast for ever", directory.path());
        let mut next = 0u64;
        let check = |message: Message<'_>, next: &mut u64| {
            assert_eq!((message.from(), message.group()), (name(6), Some(Xid(7))));
            assert_eq!(message.to_vec(), next.to_le_bytes().repeat(12), "round {round}");
            *next += 1;
        };
        while next < 1000 + round * 37 {
            check(port.receive_within(WATCHDOG).expect("a message"), &mut next);
        }
        killed.kill();
        while let Some(message) = port.receive_within(Duration::from_millis(1)) {
            check(message, &mut next);
        }
    }
    assert_eq!((port.violations(), port.dropped()), (0, 0));
}

#[test]
fn the_ring_for_groups_outlives_who_made_it() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::at(directory.path(), Site(1)).unwrap();
    let mut maker = Other::start("be in a group", directory.path());
    let mut port = host.open_port(name(0), options()).unwrap();
    port.join(Xid(7)).unwrap();
    maker.kill();
    let other = host.open_port(name(1), options()).unwrap();
    other.group_sender(ServerType(2)).unwrap().send(Xid(7), b"x").unwrap();
    assert_eq!(port.receive_within(WATCHDOG).unwrap().to_vec(), b"x");
    drop((port, other));
    host.reclaim().unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "names are left behind");
}

#[test]
fn pages_that_a_killed_receiver_had_are_free_again() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::at(directory.path(), Site(1)).unwrap();
    let mut pages = Pages::create(4096, 2).unwrap();
    for _ in 0..3 {
        let mut owner = Other::start("own a port", directory.path());
        let mut sender = host.connect(name(1), name(0)).unwrap();
        for _ in 0..2 {
            pages.take().expect("a page").share(10).send(&mut sender).unwrap();
        }
        assert!(pages.take().is_none());
        assert_eq!(pages.lent(), 2);
        owner.kill();
        let began = Instant::now();
        while pages.take().is_none() {
            assert!(began.elapsed() < WATCHDOG, "the dead receiver keeps its pages");
        }
        assert_eq!(pages.lent(), 0);
    }
}
