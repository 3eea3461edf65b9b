//! The promises of sending to other sites from processes that did not start the network. The network of site 1 is a
//! process of its own: this program, started again. Site 2 and the senders of site 1 are the test's.

use ledgerstone_port::*;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const WATCHDOG: Duration = Duration::from_secs(60);
const PLACE: &str = "LEDGERSTONE_PORT_TEST_PLACE";
const ADDRESSES: &str = "LEDGERSTONE_PORT_TEST_ADDRESSES";
const AC: ServerType = ServerType(4);

fn name(server: u32, site: u32) -> Address {
    Address::port(Instance(1), AC, ServerInstance(server), Site(site))
}

fn free() -> SocketAddr {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

fn options(listen: SocketAddr, site: u32, other: SocketAddr) -> NetworkOptions {
    let mut options = NetworkOptions::new(listen, Trust::Network).with_site(Site(site), other, None);
    options.dead_after = Duration::from_millis(1000);
    options
}

/// The process that has the network of site 1; nothing when the tests run it as one of them.
#[test]
fn the_network_process() {
    let (Some(place), Ok(addresses)) = (std::env::var_os(PLACE), std::env::var(ADDRESSES)) else { return };
    let addresses: Vec<SocketAddr> = addresses.split(' ').map(|address| address.parse().unwrap()).collect();
    let host = Host::at(place, Site(1)).unwrap();
    let _network = Network::start(&host, options(addresses[0], 2, addresses[1])).unwrap();
    println!("ready");
    std::thread::park();
}

struct NetworkProcess(Child);

impl NetworkProcess {
    fn start(place: &Path, addresses: [SocketAddr; 2]) -> NetworkProcess {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_network_process", "--nocapture"])
            .env(PLACE, place)
            .env(ADDRESSES, format!("{} {}", addresses[0], addresses[1]))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("ready")), "the network did not start");
        NetworkProcess(child)
    }
}

impl Drop for NetworkProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Ground {
    directories: [tempfile::TempDir; 2],
    addresses: [SocketAddr; 2],
    /// Site 1, where this process has no network.
    here: Host,
    there: Host,
    network_there: Option<Network>,
    network_here: Option<NetworkProcess>,
}

fn ground() -> Ground {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let addresses = [free(), free()];
    let here = Host::at(directories[0].path(), Site(1)).unwrap();
    let there = Host::at(directories[1].path(), Site(2)).unwrap();
    let network_there = Some(Network::start(&there, options(addresses[1], 1, addresses[0])).unwrap());
    let network_here = Some(NetworkProcess::start(directories[0].path(), addresses));
    Ground { directories, addresses, here, there, network_there, network_here }
}

fn wide() -> PortOptions {
    PortOptions { buffer_bytes: 1 << 20, buffer_count: 4, ..PortOptions::default() }
}

fn wait_until(mut is_so: impl FnMut() -> bool, otherwise: &str) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < WATCHDOG, "{otherwise}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn messages_of_any_length_arrive_in_order_from_a_process_without_a_network() {
    let ground = ground();
    let mut there = ground.there.open_port(name(0, 2), wide()).unwrap();
    let mut here = ground.here.open_port(name(0, 1), wide()).unwrap();
    let mut sender = here.connect(name(0, 2)).unwrap();
    assert!(sender.is_drained() && !sender.is_closed());
    // A part has 4,080 bytes, the first 16 less; all buffers together 261,120.
    let lengths = [0, 1, 1400, 4063, 4064, 4065, 8144, 8145, 300_000, 1_000_000, 3];
    let sends = std::thread::spawn(move || {
        for (no, len) in lengths.into_iter().enumerate() {
            sender.send(&vec![no as u8; len]).unwrap();
        }
        let mut loan = sender.loan(4).unwrap();
        loan.copy_from_slice(b"last");
        loan.publish_as(Kind { id: 7, version: 8 }).unwrap();
        sender.flush();
        sender
    });
    for (no, len) in lengths.into_iter().enumerate() {
        let message = there.receive_within(WATCHDOG).expect("a message");
        assert!(message.to_vec() == vec![no as u8; len], "{no}: {} bytes", message.len());
        assert_eq!(message.from(), name(0, 1));
    }
    let message = there.receive_within(WATCHDOG).expect("the last message");
    assert_eq!((message.to_vec().as_slice(), message.kind()), (&b"last"[..], Kind { id: 7, version: 8 }));
    drop(message);
    let sender = sends.join().unwrap();
    wait_until(|| sender.is_drained(), "it is never acknowledged");
    there.connect(name(0, 1)).unwrap().send(b"answer").unwrap();
    assert_eq!(here.receive_within(WATCHDOG).expect("the answer").to_vec(), b"answer");
}

#[test]
fn a_slow_port_at_another_site_makes_its_sender_wait_and_no_other() {
    let ground = ground();
    let mut slow = ground.there.open_port(name(0, 2), wide()).unwrap();
    let mut sender = ground.here.connect(name(0, 1), name(0, 2)).unwrap();
    let mut sent = 0u32;
    let mut bytes = vec![0; 100_000];
    let full = loop {
        bytes[..4].copy_from_slice(&sent.to_le_bytes());
        match sender.send_within(&bytes, Duration::from_millis(300)) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full, SendError::TimedOut { address: name(0, 2) });
    assert!(matches!(sender.try_send(&bytes), Err(SendError::Full { .. })));
    assert!(!sender.is_drained());
    for no in 0..sent {
        let message = slow.receive_within(WATCHDOG).expect("a message");
        assert_eq!((message.len(), &message.to_vec()[..4]), (100_000, &no.to_le_bytes()[..]));
    }
    // What was given up in its middle has left nothing behind.
    sender.send(b"after").unwrap();
    assert_eq!(slow.receive_within(WATCHDOG).expect("the message after").to_vec(), b"after");
}

#[test]
fn when_the_network_process_is_killed_its_senders_know_and_can_come_back() {
    let mut ground = ground();
    let mut port = ground.there.open_port(name(0, 2), PortOptions::default()).unwrap();
    let mut sender = ground.here.connect(name(0, 1), name(0, 2)).unwrap();
    sender.send(b"before").unwrap();
    assert_eq!(port.receive_within(WATCHDOG).expect("a message").to_vec(), b"before");
    ground.network_here = None;
    wait_until(|| sender.is_closed(), "its death is never noticed");
    assert_eq!(sender.send(b"x"), Err(SendError::PortClosed { address: name(0, 2) }));
    let none = ground.here.connect(name(0, 1), name(0, 2));
    assert!(matches!(none, Err(ConnectError::NoNetwork { .. })), "{none:?}");
    ground.network_here = Some(NetworkProcess::start(ground.directories[0].path(), ground.addresses));
    let mut sender = ground.here.connect(name(0, 1), name(0, 2)).unwrap();
    sender.send(b"after").unwrap();
    assert_eq!(port.receive_within(WATCHDOG).expect("a message").to_vec(), b"after");
}

#[test]
fn sites_and_ports_that_are_not_there_are_told_apart() {
    let mut ground = ground();
    let unknown = ground.here.connect(name(0, 1), name(0, 7));
    assert!(matches!(unknown, Err(ConnectError::UnknownSite { site: Site(7) })), "{unknown:?}");
    let network = Address::port(Instance(1), ServerType::NETWORK, ServerInstance(0), Site(2));
    let refused = ground.here.connect(name(0, 1), network);
    assert!(matches!(refused, Err(ConnectError::Refused { .. })), "only networks speak to networks: {refused:?}");
    let mut nobody = ground.here.connect(name(0, 1), name(9, 2)).unwrap();
    wait_until(|| nobody.send(b"x").is_err(), "nobody says that there is no such port");
    let sender = ground.here.connect(name(0, 1), name(0, 2)).unwrap();
    ground.network_there = None;
    wait_until(|| sender.is_closed(), "the site's death is never noticed");
    let dead = ground.here.connect(name(0, 1), name(0, 2));
    assert!(matches!(dead, Err(ConnectError::Unresponsive { .. })), "{dead:?}");
}

#[test]
fn who_may_send_to_other_sites_is_the_networks_choice() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::at(directory.path(), Site(1)).unwrap();
    let mut options = options(free(), 2, free());
    options.access = Access::Ask(Arc::new(|_| false));
    let _network = Network::start(&host, options.clone()).unwrap();
    // The same site, seen by a part of the program that has no network.
    let other = Host::at(directory.path(), Site(1)).unwrap();
    let refused = other.connect(name(0, 1), name(0, 2));
    assert!(matches!(refused, Err(ConnectError::Refused { address }) if address == name(0, 2)), "{refused:?}");
    let twice = Network::start(&other, NetworkOptions { listen: free(), ..options });
    assert!(matches!(twice, Err(NetworkError::StartedTwice)), "{twice:?}");
}

#[test]
fn a_multicast_from_a_process_without_a_network_reaches_the_members_of_all_sites_once() {
    let mut ground = ground();
    let mut ports = [
        ground.here.open_port(name(0, 1), PortOptions::default()).unwrap(),
        ground.there.open_port(name(0, 2), PortOptions::default()).unwrap(),
    ];
    ports.iter_mut().for_each(|port| assert!(port.join(Xid(1)).unwrap()));
    let coordinator = ground.here.open_port(name(100, 1), PortOptions::default()).unwrap();
    let mut sender = coordinator.group_sender(AC).unwrap();
    for round in 0..50u8 {
        sender.send(Xid(1), &[round]).unwrap();
        sender.send(Xid(2), &[round]).unwrap();
        for port in &mut ports {
            let message = port.receive_within(WATCHDOG).expect("the multicast");
            assert_eq!((message.to_vec(), message.from(), message.group()), (vec![round], name(100, 1), Some(Xid(1))));
        }
    }
    ground.network_here = None;
    ground.network_here = Some(NetworkProcess::start(ground.directories[0].path(), ground.addresses));
    // The sender finds the new network by itself, sooner or later; the members here miss nothing meanwhile.
    let mut expected = 0u32;
    wait_until(
        || {
            sender.send(Xid(1), &expected.to_le_bytes()).unwrap();
            assert_eq!(ports[0].receive_within(WATCHDOG).expect("here").to_vec(), expected.to_le_bytes());
            expected += 1;
            ports[1].try_receive().is_some()
        },
        "the new network is never found",
    );
}
