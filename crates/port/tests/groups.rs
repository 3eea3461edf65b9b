//! The promises of groups on one host.

use ledgerstone_port::*;
use rustix::event::{PollFd, PollFlags, poll};
use std::time::{Duration, Instant};

const WATCHDOG: Duration = Duration::from_secs(60);
const AC: ServerType = ServerType(4);

struct Ground {
    _directory: tempfile::TempDir,
    host: Host,
}

fn ground() -> Ground {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::at(directory.path(), Site(1)).unwrap();
    Ground { _directory: directory, host }
}

fn name(server: u32) -> Address {
    Address::port(Instance(1), AC, ServerInstance(server), Site(1))
}

fn open(ground: &Ground, server: u32) -> Port {
    ground.host.open_port(name(server), PortOptions::default()).unwrap()
}

#[test]
fn a_multicast_reaches_every_member_and_nobody_else() {
    let ground = ground();
    let mut ports: Vec<_> = (0..9).map(|no| open(&ground, no)).collect();
    let sender_port = open(&ground, 100);
    let mut sender = sender_port.group_sender(AC).unwrap();
    for port in &mut ports[..8] {
        assert!(port.join(Xid(5)).unwrap());
        assert!(!port.join(Xid(5)).unwrap());
    }
    ports[8].join(Xid(6)).unwrap();
    sender.send(Xid(5), b"prepare").unwrap();
    for port in &mut ports[..8] {
        let message = port.try_receive().expect("the multicast");
        assert_eq!((message.from(), message.group()), (name(100), Some(Xid(5))));
        assert_eq!((message.to_vec().as_slice(), message.peer()), (&b"prepare"[..], None));
        drop(message);
        assert!(port.try_receive().is_none(), "it came twice");
    }
    assert!(ports[8].try_receive().is_none());
    assert_eq!(sender.address(Xid(5)), Address::group(Instance(1), AC, Xid(5)));
}

#[test]
fn who_has_left_hears_nothing_more() {
    let ground = ground();
    let mut port = open(&ground, 0);
    let mut sender = port.group_sender(AC).unwrap();
    port.join(Xid(1)).unwrap();
    port.join(Xid(2)).unwrap();
    sender.send(Xid(1), b"a").unwrap();
    assert!(port.leave(Xid(1)) && !port.leave(Xid(1)));
    sender.send(Xid(1), b"b").unwrap();
    sender.send(Xid(2), b"c").unwrap();
    assert_eq!(port.receive_within(WATCHDOG).unwrap().to_vec(), b"c");
    assert!(port.try_receive().is_none());
}

#[test]
fn servers_of_another_type_or_instance_are_other_groups() {
    let ground = ground();
    let mut port = open(&ground, 0);
    port.join(Xid(1)).unwrap();
    let other_type = Address::port(Instance(1), ServerType(9), ServerInstance(0), Site(1));
    let other_instance = Address::port(Instance(2), AC, ServerInstance(0), Site(1));
    let other_type = ground.host.open_port(other_type, PortOptions::default()).unwrap();
    let other_instance = ground.host.open_port(other_instance, PortOptions::default()).unwrap();
    other_type.group_sender(ServerType(9)).unwrap().send(Xid(1), b"x").unwrap();
    other_instance.group_sender(AC).unwrap().send(Xid(1), b"x").unwrap();
    assert!(port.try_receive().is_none());
    other_type.group_sender(AC).unwrap().send(Xid(1), b"y").unwrap();
    assert_eq!(port.try_receive().unwrap().to_vec(), b"y");
}

#[test]
fn members_that_sleep_are_woken_and_miss_nothing() {
    let ground = ground();
    let count = 3_000u64;
    let members: Vec<_> = (0..3)
        .map(|no| {
            let options = PortOptions { wait: Wait::Sleep, ..PortOptions::default() };
            let mut port = ground.host.open_port(name(no), options).unwrap();
            port.join(Xid(1)).unwrap();
            std::thread::spawn(move || {
                let mut next = [0u64; 2];
                while next != [count; 2] {
                    let message = port.receive_within(WATCHDOG).expect("a message");
                    let from = message.from().server_instance().0 as usize - 100;
                    assert_eq!(message.to_vec(), next[from].to_le_bytes());
                    next[from] += 1;
                }
                assert_eq!(port.dropped(), 0);
            })
        })
        .collect();
    let senders: Vec<_> = (100..102)
        .map(|no| {
            let port = open(&ground, no);
            let mut sender = port.group_sender(AC).unwrap();
            std::thread::spawn(move || {
                for i in 0..count {
                    sender.send_before(Xid(1), &i.to_le_bytes(), Instant::now() + WATCHDOG).unwrap();
                }
            })
        })
        .collect();
    senders.into_iter().chain(members).for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_member_that_would_rather_lose_is_not_waited_for_and_told_what_it_lost() {
    let ground = ground();
    let options = PortOptions { when_full: WhenFull::DropOldest, ..PortOptions::default() };
    let mut port = ground.host.open_port(name(0), options).unwrap();
    let mut sender = port.group_sender(AC).unwrap();
    port.join(Xid(1)).unwrap();
    for i in 0..1000u64 {
        sender.try_send(Xid(1), &i.to_le_bytes()).unwrap();
    }
    let mut seen = 0;
    let mut last = 0;
    while let Some(message) = port.try_receive() {
        last = u64::from_le_bytes(message.to_vec().try_into().unwrap());
        seen += 1;
    }
    assert_eq!((last, seen + port.dropped()), (999, 1000));
}

#[test]
fn a_multicast_makes_the_descriptor_readable() {
    let ground = ground();
    let mut port = open(&ground, 0);
    let mut sender = port.group_sender(AC).unwrap();
    port.join(Xid(1)).unwrap();
    for round in 0..20u8 {
        assert!(port.prepare_poll());
        sender.send(Xid(1), &[round]).unwrap();
        let timeout = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&port, PollFlags::IN)], Some(&timeout)), Ok(1));
        assert_eq!(port.try_receive().unwrap().to_vec(), [round]);
    }
}

#[test]
fn what_is_too_long_for_a_multicast_is_refused() {
    let ground = ground();
    let port = open(&ground, 0);
    let mut sender = port.group_sender(AC).unwrap();
    let bytes_max = sender.bytes_max();
    sender.send(Xid(1), &vec![1; bytes_max]).unwrap();
    let refused = sender.send(Xid(1), &vec![1; bytes_max + 1]);
    assert!(matches!(refused, Err(SendError::TooLong { .. })), "{refused:?}");
}
