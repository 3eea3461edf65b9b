//! The promises of the network between sites, over loopback.

use ledgerstone_port::*;
use ledgerstone_region::Random;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

const WATCHDOG: Duration = Duration::from_secs(60);
const AC: ServerType = ServerType(4);

struct TestSite {
    _directory: tempfile::TempDir,
    host: Host,
    network: Option<Network>,
}

fn name(server: u32, site: u32) -> Address {
    Address::port(Instance(1), AC, ServerInstance(server), Site(site))
}

/// A socket address that nobody else has now.
fn free() -> SocketAddr {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// Sites that know each other.
fn sites(count: u32, is_trusted: bool) -> Vec<TestSite> {
    sites_with(count, is_trusted, |_| None)
}

/// Sites that know each other, with IP multicast as `multicast` says for each.
fn sites_with(count: u32, is_trusted: bool, multicast: impl Fn(u32) -> Option<Multicast>) -> Vec<TestSite> {
    let addresses: Vec<_> = (0..count).map(|_| free()).collect();
    let secrets: Vec<_> = (0..count).map(|_| SiteSecret::generate().unwrap()).collect();
    (0..count as usize)
        .map(|no| {
            let trust = if is_trusted { Trust::Network } else { Trust::Keys(secrets[no].clone()) };
            let mut options = NetworkOptions::new(addresses[no], trust);
            options.dead_after = Duration::from_millis(1500);
            for other in (0..count as usize).filter(|other| *other != no) {
                options = options.with_site(Site(other as u32 + 1), addresses[other], Some(secrets[other].public()));
            }
            options.multicast = multicast(no as u32 + 1);
            start(no as u32 + 1, options)
        })
        .collect()
}

/// IP groups on the loopback interface that nobody else has now.
fn groups() -> Multicast {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let first = SocketAddrV4::new(Ipv4Addr::new(239, 255, 77, 0), socket.local_addr().unwrap().port());
    Multicast::new(first, Ipv4Addr::LOCALHOST)
}

/// Ports of all sites in the group of transaction 1, and a sender at site 1 whose site has sessions with the others.
fn members(sites: &[TestSite]) -> (Vec<Port>, GroupSender) {
    let members = |site: &TestSite| {
        let mut port = site.host.open_port(name(0, site.host.site().0), PortOptions::default()).unwrap();
        port.join(Xid(1)).unwrap();
        port
    };
    let ports: Vec<_> = sites.iter().map(members).collect();
    for other in 1..sites.len() as u32 {
        ports[0].connect(name(0, other + 1)).unwrap();
    }
    let sender = ports[0].group_sender(AC).unwrap();
    (ports, sender)
}

fn statistics(site: &TestSite) -> NetworkStatistics {
    site.network.as_ref().unwrap().statistics()
}

fn start(site: u32, options: NetworkOptions) -> TestSite {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::at(directory.path(), Site(site)).unwrap();
    let network = Some(Network::start(&host, options).unwrap());
    TestSite { _directory: directory, host, network }
}

fn wide() -> PortOptions {
    PortOptions { buffer_bytes: 1 << 20, buffer_count: 4, ..PortOptions::default() }
}

#[test]
fn a_message_and_its_answer_pass_between_sites_by_the_same_calls() {
    for is_trusted in [false, true] {
        let sites = sites(2, is_trusted);
        let mut here = sites[0].host.open_port(name(0, 1), PortOptions::default()).unwrap();
        let mut there = sites[1].host.open_port(name(0, 2), PortOptions::default()).unwrap();
        let mut asks = here.connect(name(0, 2)).unwrap();
        asks.send(b"question").unwrap();
        let message = there.receive_within(WATCHDOG).expect("the question");
        assert_eq!(
            (message.to_vec().as_slice(), message.from(), message.group()),
            (&b"question"[..], name(0, 1), None)
        );
        drop(message);
        there.connect(name(0, 1)).unwrap().send(b"answer").unwrap();
        let message = here.receive_within(WATCHDOG).expect("the answer");
        assert_eq!((message.to_vec().as_slice(), message.from()), (&b"answer"[..], name(0, 2)));
    }
}

#[test]
fn sites_are_at_addresses_of_either_ip_version() {
    let v6 = |address| UdpSocket::bind(SocketAddr::from((address, 0))).and_then(|socket| socket.local_addr());
    let Ok(ours) = v6(Ipv6Addr::LOCALHOST) else { return eprintln!("skipped: this machine has no IPv6") };
    let both = v6(Ipv6Addr::UNSPECIFIED).unwrap();
    // Where each of the two listens, and where the other one finds it.
    for [(listen, reached), (other_listens, other_reached)] in [
        [(ours, ours), {
            let other = v6(Ipv6Addr::LOCALHOST).unwrap();
            (other, other)
        }],
        [(both, (Ipv4Addr::LOCALHOST, both.port()).into()), {
            let other = free();
            (other, other)
        }],
    ] {
        let one = start(1, NetworkOptions::new(listen, Trust::Network).with_site(Site(2), other_reached, None));
        let two = start(2, NetworkOptions::new(other_listens, Trust::Network).with_site(Site(1), reached, None));
        let mut ports = [
            one.host.open_port(name(0, 1), PortOptions::default()).unwrap(),
            two.host.open_port(name(0, 2), PortOptions::default()).unwrap(),
        ];
        for (from, to) in [(0, 1), (1, 0)] {
            ports[from].connect(name(0, to as u32 + 1)).unwrap().send(b"x").unwrap();
            let message = ports[to].receive_within(WATCHDOG).expect("the message");
            assert_eq!((message.to_vec().as_slice(), message.from()), (&b"x"[..], name(0, from as u32 + 1)));
        }
    }
}

#[test]
fn messages_of_any_length_arrive_in_order() {
    let sites = sites(2, false);
    let mut port = sites[1].host.open_port(name(0, 2), wide()).unwrap();
    let mut sender = sites[0].host.connect(name(0, 1), name(0, 2)).unwrap();
    let lengths = [0, 1, 1300, 1330, 1340, 1400, 5000, 100_000, 1_000_000, 3];
    let sends = std::thread::spawn(move || {
        for (no, len) in lengths.into_iter().enumerate() {
            sender.send(&vec![no as u8; len]).unwrap();
        }
        let mut loan = sender.loan(4).unwrap();
        loan.copy_from_slice(b"last");
        loan.publish_as(Kind { id: 7, version: 8 }).unwrap();
        sender
    });
    for (no, len) in lengths.into_iter().enumerate() {
        let message = port.receive_within(WATCHDOG).expect("a message");
        assert!(message.to_vec() == vec![no as u8; len], "{no}: {} bytes", message.len());
    }
    let message = port.receive_within(WATCHDOG).expect("a message");
    assert_eq!((message.to_vec().as_slice(), message.kind()), (&b"last"[..], Kind { id: 7, version: 8 }));
    drop(message);
    let sender = sends.join().unwrap();
    let began = Instant::now();
    while !sender.is_drained() {
        assert!(began.elapsed() < WATCHDOG, "it is never acknowledged");
        std::thread::yield_now();
    }
}

#[test]
fn a_port_that_is_slow_makes_the_other_site_wait_and_loses_nothing() {
    let sites = sites(2, true);
    let mut port = sites[1].host.open_port(name(0, 2), wide()).unwrap();
    let mut sender = sites[0].host.connect(name(0, 1), name(0, 2)).unwrap();
    let mut sent = 0u32;
    let mut bytes = vec![0; 100_000];
    let full = loop {
        bytes[..4].copy_from_slice(&sent.to_le_bytes());
        match sender.try_send(&bytes) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, SendError::Full { .. }), "{full:?}");
    for no in 0..sent {
        let message = port.receive_within(WATCHDOG).expect("a message");
        assert_eq!((message.len(), &message.to_vec()[..4]), (100_000, &no.to_le_bytes()[..]));
    }
}

#[test]
fn a_site_that_ends_is_dead_to_its_senders_and_can_come_back() {
    let mut sites = sites(2, false);
    let port = sites[1].host.open_port(name(0, 2), PortOptions::default()).unwrap();
    let mut sender = sites[0].host.connect(name(0, 1), name(0, 2)).unwrap();
    sender.send(b"x").unwrap();
    sites[1].network = None;
    let began = Instant::now();
    while !sender.is_closed() {
        assert!(began.elapsed() < WATCHDOG, "its death is never noticed");
        std::thread::yield_now();
    }
    assert_eq!(sender.send(b"x"), Err(SendError::PortClosed { address: name(0, 2) }));
    let again = sites[0].host.connect(name(0, 1), name(0, 2));
    assert!(matches!(again, Err(ConnectError::Unresponsive { .. })), "{again:?}");
    drop(port);
}

#[test]
fn a_site_without_the_key_is_not_talked_to() {
    let [a, b] = [free(), free()];
    let [ours, theirs, forged] = std::array::from_fn(|_| SiteSecret::generate().unwrap());
    let options = |listen, secret: &SiteSecret, site, other, key: &SiteSecret| {
        let mut options = NetworkOptions::new(listen, Trust::Keys(secret.clone()));
        options.dead_after = Duration::from_millis(200);
        options.with_site(Site(site), other, Some(key.public()))
    };
    let one = start(1, options(a, &ours, 2, b, &theirs));
    let two = start(2, options(b, &forged, 1, a, &ours));
    let refused = one.host.connect(name(0, 1), name(0, 2));
    assert!(matches!(refused, Err(ConnectError::Unresponsive { .. })), "{refused:?}");
    assert!(two.network.as_ref().unwrap().statistics().datagrams_refused > 0);
}

#[test]
fn a_port_that_the_site_does_not_have_is_closed_to_its_senders() {
    let sites = sites(2, false);
    let mut sender = sites[0].host.connect(name(0, 1), name(9, 2)).unwrap();
    let began = Instant::now();
    let refused = loop {
        if let Err(error) = sender.send(b"x") {
            break error;
        }
        assert!(began.elapsed() < WATCHDOG, "nobody says that there is no such port");
    };
    assert_eq!(refused, SendError::PortClosed { address: name(9, 2) });
    let unknown = sites[0].host.connect(name(0, 1), name(0, 7));
    assert!(matches!(unknown, Err(ConnectError::UnknownSite { site: Site(7) })), "{unknown:?}");
}

#[test]
fn a_multicast_reaches_the_members_of_all_sites_once() {
    let sites = sites(3, false);
    let mut ports: Vec<_> = (0..6u32)
        .map(|no| {
            let host = &sites[no as usize % 3].host;
            let mut port = host.open_port(name(no, no % 3 + 1), PortOptions::default()).unwrap();
            port.join(Xid(if no < 5 { 1 } else { 2 })).unwrap();
            port
        })
        .collect();
    let coordinator = sites[0].host.open_port(name(100, 1), PortOptions::default()).unwrap();
    let mut sender = coordinator.group_sender(AC).unwrap();
    for round in 0..50u8 {
        sender.send(Xid(1), &[round]).unwrap();
        for port in &mut ports[..5] {
            let message = port.receive_within(WATCHDOG).expect("the multicast");
            assert_eq!((message.to_vec(), message.from(), message.group()), (vec![round], name(100, 1), Some(Xid(1))));
        }
    }
    assert!(ports.iter_mut().all(|port| port.try_receive().is_none()), "something came twice, or to others");
}

#[test]
fn with_ip_multicast_one_datagram_brings_a_message_to_all_sites() {
    for is_trusted in [false, true] {
        let groups = groups();
        let sites = sites_with(4, is_trusted, |_| Some(groups));
        let (mut ports, mut sender) = members(&sites);
        let before = statistics(&sites[0]);
        for round in 0..100u8 {
            sender.send(Xid(1), &[round]).unwrap();
            for port in &mut ports {
                let message = port.receive_within(WATCHDOG).expect("the multicast");
                assert_eq!((message.to_vec(), message.group()), (vec![round], Some(Xid(1))));
            }
        }
        assert!(ports.iter_mut().all(|port| port.try_receive().is_none()), "something came twice");
        // A busy machine may lose some of them or hear them late; the sessions have repaired that.
        let after = statistics(&sites[0]);
        assert!(after.multicasts_sent - before.multicasts_sent > 50, "{after:?}");
        for site in &sites[1..] {
            assert!(statistics(site).multicasts_received > 50, "{:?}", statistics(site));
        }
    }
}

#[test]
fn a_site_that_hears_no_ip_multicast_gets_every_message_once_and_in_order() {
    let (heard, not_heard) = (groups(), groups());
    let sites = sites_with(3, false, |site| if site == 3 { Some(not_heard) } else { Some(heard) });
    let (mut ports, mut sender) = members(&sites);
    let mut single = ports[0].connect(name(0, 3)).unwrap();
    for round in 0..200u8 {
        sender.send(Xid(1), &[round]).unwrap();
        single.send(&[round]).unwrap();
        for port in &mut ports {
            assert_eq!(port.receive_within(WATCHDOG).expect("the multicast").to_vec(), [round]);
        }
        assert_eq!(ports[2].receive_within(WATCHDOG).expect("the message").to_vec(), [round]);
    }
    assert!(ports.iter_mut().all(|port| port.try_receive().is_none()), "something came twice");
    assert_eq!(statistics(&sites[2]).multicasts_received, 0);
}

#[test]
fn datagrams_of_strangers_do_no_harm() {
    let groups = groups();
    let sites = sites_with(2, false, |_| Some(groups));
    let mut port = sites[1].host.open_port(name(0, 2), PortOptions::default()).unwrap();
    let mut sender = sites[0].host.connect(name(0, 1), name(0, 2)).unwrap();
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut targets: Vec<_> =
        sites.iter().map(|site| site.network.as_ref().unwrap().local_address().unwrap()).collect();
    targets.push((Ipv4Addr::LOCALHOST, groups.first.port()).into());
    let mut random = Random::new(1);
    for round in 0..200u32 {
        sender.send(&round.to_le_bytes()).unwrap();
        for kind in 0..7 {
            let mut bytes = b"LP\x01".to_vec();
            bytes.push(kind);
            for _ in 0..round {
                bytes.push(random.below(256) as u8);
            }
            for target in &targets {
                stranger.send_to(&bytes, target).unwrap();
            }
        }
        assert_eq!(port.receive_within(WATCHDOG).expect("a message").to_vec(), round.to_le_bytes());
    }
}

#[test]
fn options_that_no_network_can_have_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::at(directory.path(), Site(1)).unwrap();
    let good = || NetworkOptions::new((Ipv4Addr::LOCALHOST, 0).into(), Trust::Network);
    let secret = SiteSecret::generate().unwrap();
    for options in [
        NetworkOptions { datagram_bytes: 100, ..good() },
        NetworkOptions { dead_after: Duration::ZERO, ..good() },
        NetworkOptions { multicast: Some(Multicast { group_count: 21, ..groups() }), ..good() },
        good().with_site(Site(1), free(), None),
        good().with_site(Site(2), free(), None).with_site(Site(2), free(), None),
        NetworkOptions { trust: Trust::Keys(secret), ..good() }.with_site(Site(2), free(), None),
    ] {
        let refused = Network::start(&host, options.clone());
        assert!(refused.is_err(), "{options:?}");
    }
    let network = Network::start(&host, good()).unwrap();
    assert!(matches!(Network::start(&host, good()), Err(NetworkError::StartedTwice)));
    drop(network);
    Network::start(&host, good()).unwrap();
}
