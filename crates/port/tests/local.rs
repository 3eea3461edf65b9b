//! The promises of ports on one host, between threads of one process.

use ledgerstone_port::*;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Longer than anything takes that works.
const WATCHDOG: Duration = Duration::from_secs(60);

struct Ground {
    directory: tempfile::TempDir,
    host: Host,
}

fn ground() -> Ground {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::at(directory.path(), Site(1)).unwrap();
    Ground { directory, host }
}

fn name(server: u32) -> Address {
    Address::port(Instance(1), ServerType(2), ServerInstance(server), Site(1))
}

fn small(buffer_count: u32) -> PortOptions {
    PortOptions { buffer_count, buffer_bytes: 48, ..PortOptions::default() }
}

#[test]
fn each_senders_messages_come_in_order_and_once() {
    for wait in [Wait::Adaptive, Wait::Sleep, Wait::SpinFor(Duration::from_micros(20))] {
        let ground = ground();
        let mut port = ground.host.open_port(name(0), PortOptions { wait, ..small(8) }).unwrap();
        let senders: Vec<_> = (1..=4u32)
            .map(|no| {
                let mut sender = ground.host.connect(name(no), name(0)).unwrap();
                sender.set_wait(wait);
                std::thread::spawn(move || {
                    for i in 0..5_000u64 {
                        sender.send(&i.to_le_bytes()).unwrap();
                    }
                })
            })
            .collect();
        let mut next: HashMap<Address, u64> = HashMap::new();
        for _ in 0..4 * 5_000 {
            let message = port.receive_within(WATCHDOG).expect("a message");
            let expected = next.entry(message.from()).or_default();
            assert_eq!(message.to_vec(), expected.to_le_bytes(), "{}", message.from());
            *expected += 1;
        }
        assert!(port.try_receive().is_none());
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert_eq!(port.violations(), 0);
    }
}

#[test]
fn a_full_port_refuses_or_lets_wait_as_the_sender_likes() {
    let ground = ground();
    let mut port = ground.host.open_port(name(0), small(4)).unwrap();
    let mut sender = ground.host.connect(name(1), name(0)).unwrap();
    for i in 0..4u8 {
        sender.try_send(&[i]).unwrap();
    }
    assert_eq!(sender.try_send(&[9]), Err(SendError::Full { address: name(0), waiting: 4 }));
    assert_eq!(sender.send_before(&[9], Instant::now()), Err(SendError::TimedOut { address: name(0) }));
    assert_eq!((port.waiting(), port.sender_count()), (4, 1));
    let waits = std::thread::spawn(move || sender.send(&[4]).map(|()| sender));
    for i in 0..5u8 {
        assert_eq!(port.receive_within(WATCHDOG).unwrap().to_vec(), [i]);
    }
    let sender = waits.join().unwrap().unwrap();
    assert!(sender.is_drained());
}

#[test]
fn the_receiver_may_choose_to_lose_the_oldest_and_is_told_how_many() {
    let ground = ground();
    let options = PortOptions { when_full: WhenFull::DropOldest, ..small(4) };
    let mut port = ground.host.open_port(name(0), options).unwrap();
    let mut sender = ground.host.connect(name(1), name(0)).unwrap();
    for i in 0..10u8 {
        sender.try_send(&[i]).unwrap();
    }
    for i in 6..10u8 {
        assert_eq!(port.try_receive().unwrap().to_vec(), [i]);
    }
    assert!(port.try_receive().is_none());
    assert_eq!(port.dropped(), 6);
}

#[test]
fn dropping_the_oldest_while_they_are_read_never_mixes_two_messages() {
    let ground = ground();
    let options = PortOptions { when_full: WhenFull::DropOldest, buffer_count: 2, buffer_bytes: 496, ..small(2) };
    let mut port = ground.host.open_port(name(0), options).unwrap();
    let mut sender = ground.host.connect(name(1), name(0)).unwrap();
    let count = 50_000u64;
    let writes = std::thread::spawn(move || (0..count).for_each(|i| sender.send(&i.to_le_bytes().repeat(60)).unwrap()));
    let mut last = None;
    let mut seen = 0;
    while last != Some(count - 1) {
        let bytes = port.receive_within(WATCHDOG).expect("a message").to_vec();
        let (first, _) = bytes.split_first_chunk::<8>().unwrap();
        assert_eq!(bytes, first.repeat(60));
        let now = u64::from_le_bytes(*first);
        assert!(last < Some(now), "{last:?} {now}");
        last = Some(now);
        seen += 1;
    }
    writes.join().unwrap();
    assert_eq!((port.dropped(), port.violations()), (count - seen, 0));
}

#[test]
fn what_is_too_long_is_refused_before_anything_is_sent() {
    let ground = ground();
    let mut port = ground.host.open_port(name(0), small(4)).unwrap();
    let mut sender = ground.host.connect(name(1), name(0)).unwrap();
    assert_eq!(sender.bytes_max(), 48);
    sender.send(&[1; 48]).unwrap();
    let refused = sender.send(&[1; 49]);
    assert_eq!(refused, Err(SendError::TooLong { address: name(0), bytes: 49, bytes_max: 48 }));
    assert_eq!(port.try_receive().unwrap().len(), 48);
    assert!(port.try_receive().is_none());
}

#[test]
fn a_loaned_buffer_arrives_when_published_and_never_otherwise() {
    let ground = ground();
    let mut port = ground.host.open_port(name(0), small(4)).unwrap();
    let mut sender = ground.host.connect(name(1), name(0)).unwrap();
    sender.loan(12).unwrap().copy_from_slice(b"not this one");
    let mut loan = sender.try_loan(4).unwrap();
    loan.copy_from_slice(b"this");
    loan.publish_as(Kind { id: 5, version: 6 }).unwrap();
    let message = port.try_receive().unwrap();
    assert_eq!((message.to_vec().as_slice(), message.kind()), (&b"this"[..], Kind { id: 5, version: 6 }));
    // SAFETY: the sender is this thread, which writes nothing meanwhile.
    assert_eq!(unsafe { message.bytes_in_place() }, b"this");
    drop(message);
    assert!(port.try_receive().is_none());
}

#[test]
fn a_closed_port_is_noticed_by_its_senders_even_while_they_wait() {
    let ground = ground();
    let port = ground.host.open_port(name(0), small(1)).unwrap();
    let mut sender = ground.host.connect(name(1), name(0)).unwrap();
    sender.set_wait(Wait::Sleep);
    sender.send(&[1]).unwrap();
    let waits = std::thread::spawn(move || sender.send(&[2]));
    drop(port);
    assert_eq!(waits.join().unwrap(), Err(SendError::PortClosed { address: name(0) }));
    assert!(matches!(ground.host.connect(name(1), name(0)), Err(ConnectError::NoSuchPort { .. })));
    assert_eq!(std::fs::read_dir(ground.directory.path()).unwrap().count(), 0, "names are left behind");
}

#[test]
fn what_a_sender_sent_before_it_ended_still_arrives() {
    let ground = ground();
    let mut port = ground.host.open_port(name(0), small(4)).unwrap();
    let mut sender = ground.host.connect(name(1), name(0)).unwrap();
    sender.send(b"last words").unwrap();
    drop(sender);
    assert_eq!(port.receive_within(WATCHDOG).unwrap().to_vec(), b"last words");
    let began = Instant::now();
    while port.sender_count() > 0 {
        assert!(port.try_receive().is_none());
        assert!(began.elapsed() < WATCHDOG, "the sender's buffers are kept");
        std::thread::yield_now();
    }
}

#[test]
fn a_port_has_one_owner_and_its_name_is_free_again_when_it_is_closed() {
    let ground = ground();
    let port = ground.host.open_port(name(0), small(4)).unwrap();
    assert!(matches!(ground.host.open_port(name(0), small(4)), Err(OpenError::AddressInUse { .. })));
    assert_eq!(ground.host.reclaim().unwrap(), 0);
    drop(port);
    ground.host.open_port(name(0), small(4)).unwrap();
    let elsewhere = Address::port(Instance(1), ServerType(2), ServerInstance(0), Site(2));
    assert!(matches!(ground.host.open_port(elsewhere, small(4)), Err(OpenError::NotOurs { .. })));
}

#[test]
fn options_that_no_port_can_have_are_refused() {
    let ground = ground();
    for options in [
        small(0),
        small(3),
        small(1 << 17),
        PortOptions { buffer_bytes: 0, ..small(4) },
        PortOptions { buffer_bytes: (1 << 20) + 1, ..small(4) },
        PortOptions { senders_max: 0, ..small(4) },
    ] {
        let refused = ground.host.open_port(name(0), options.clone());
        assert!(matches!(refused, Err(OpenError::Options { .. })), "{options:?}");
    }
}

#[test]
fn only_those_allowed_may_send() {
    let ground = ground();
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let ask = {
        let asked = Arc::clone(&asked);
        Arc::new(move |peer: Credentials| {
            asked.lock().unwrap().push(peer);
            false
        })
    };
    let _port = ground.host.open_port(name(0), PortOptions { access: Access::Ask(ask), ..small(4) }).unwrap();
    assert!(matches!(ground.host.connect(name(1), name(0)), Err(ConnectError::Refused { .. })));
    let pid = std::process::id() as i32;
    assert_eq!(asked.lock().unwrap().iter().map(|peer| peer.pid).collect::<Vec<_>>(), [pid]);
}

#[test]
fn a_port_takes_as_many_senders_as_its_owner_said() {
    let ground = ground();
    let _port = ground.host.open_port(name(0), PortOptions { senders_max: 2, ..small(4) }).unwrap();
    let _first = ground.host.connect(name(1), name(0)).unwrap();
    let second = ground.host.connect(name(2), name(0)).unwrap();
    assert!(matches!(ground.host.connect(name(3), name(0)), Err(ConnectError::SendersExhausted { .. })));
    drop(second);
    let began = Instant::now();
    while ground.host.connect(name(3), name(0)).is_err() {
        assert!(began.elapsed() < WATCHDOG, "the place of a sender that ended is not free again");
    }
}

#[test]
fn senders_that_left_messages_and_are_gone_are_bounded_too() {
    let ground = ground();
    let mut port = ground.host.open_port(name(0), PortOptions { senders_max: 2, ..small(4) }).unwrap();
    let mut left = 0;
    for _ in 0..200 {
        match ground.host.connect(name(1), name(0)) {
            Ok(mut sender) => {
                sender.send(b"left").unwrap();
                left += 1;
            }
            // Or the last ones' ends have not been seen yet.
            Err(ConnectError::SendersExhausted { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    assert!((1..=4).contains(&left), "{left}");
    assert_eq!(port.sender_count(), left);
    for _ in 0..left {
        assert_eq!(port.receive_within(WATCHDOG).expect("what was left").to_vec(), b"left");
    }
    let began = Instant::now();
    while ground.host.connect(name(1), name(0)).is_err() {
        assert!(port.try_receive().is_none() && began.elapsed() < WATCHDOG);
    }
}

#[test]
fn the_descriptor_is_readable_when_there_is_something_to_take() {
    let ground = ground();
    let mut port = ground.host.open_port(name(0), small(4)).unwrap();
    let mut sender = ground.host.connect(name(1), name(0)).unwrap();
    let is_readable = |port: &Port, ms: i64| {
        let timeout = rustix::event::Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
        poll(&mut [PollFd::new(port, PollFlags::IN)], Some(&timeout)).unwrap() == 1
    };
    // It is readable after a tenth of a second too, which may be over.
    assert!((0..100).any(|_| port.prepare_poll() && !is_readable(&port, 0)));
    let sends = std::thread::spawn(move || sender.send(b"x").map(|()| sender));
    assert!(is_readable(&port, 60_000));
    assert!(!port.prepare_poll(), "a message waits");
    drop(port.try_receive().unwrap());
    assert!((0..100).any(|_| port.prepare_poll() && !is_readable(&port, 0)));
    drop(sends.join());
}

#[derive(Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Vote {
    xid: u64,
    site: u32,
    is_yes: u32,
}

impl Typed for Vote {
    const KIND: Kind = Kind { id: 7, version: 2 };

    fn is_valid(&self) -> bool {
        self.is_yes < 2
    }
}

#[test]
fn a_typed_message_is_its_value_or_an_error_that_says_why_not() {
    let ground = ground();
    let mut port = ground.host.open_port(name(0), small(8)).unwrap();
    let mut sender = ground.host.connect(name(1), name(0)).unwrap();
    sender.send_typed(&Vote { xid: 1, site: 2, is_yes: 1 }).unwrap();
    sender.send_typed(&Vote { xid: 1, site: 2, is_yes: 9 }).unwrap();
    sender.send(&[0; 16]).unwrap();
    for (kind, len) in [(Kind { id: 7, version: 1 }, 16), (Vote::KIND, 15)] {
        sender.loan(len).unwrap().publish_as(kind).unwrap();
    }
    let mut next = || port.try_receive().unwrap().typed::<Vote>();
    assert_eq!(next(), Ok(Vote { xid: 1, site: 2, is_yes: 1 }));
    assert_eq!(next(), Err(MessageError::Invalid { kind: 7 }));
    assert_eq!(next(), Err(MessageError::Kind { found: 0, expected: 7 }));
    assert_eq!(next(), Err(MessageError::Version { kind: 7, found: 1, expected: 2 }));
    assert_eq!(next(), Err(MessageError::Length { kind: 7, found: 15, expected: 16 }));
}
