//! What messages can be sent by on one host, each as an end that sends and receives.

use crate::rings::BareRing;
use ledgerstone_port::{Host, Instance, Port, PortOptions, Sender, ServerInstance, ServerType, Site, Wait};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// One end of a connection between two processes.
pub trait End {
    fn send(&mut self, bytes: &[u8]);
    /// The message's first bytes; all messages of an experiment have the length of `into`.
    fn receive(&mut self, into: &mut [u8]);
}

/// Makes both ends before the fork; each process then takes its own.
pub type Pair = Box<dyn FnOnce(bool) -> Box<dyn End>>;

pub fn bare_ring(bytes: usize, sleeps: bool) -> Pair {
    let (there, back) = (BareRing::new(bytes, sleeps), BareRing::new(bytes, sleeps));
    struct Rings(BareRing, BareRing);
    impl End for Rings {
        fn send(&mut self, bytes: &[u8]) {
            self.0.send(bytes);
        }
        fn receive(&mut self, into: &mut [u8]) {
            self.1.receive(into);
        }
    }
    Box::new(move |is_first| Box::new(if is_first { Rings(there, back) } else { Rings(back, there) }))
}

pub fn pipe() -> Pair {
    let (first, second) = (std::io::pipe().expect("a pipe"), std::io::pipe().expect("a pipe"));
    struct Pipes(std::io::PipeWriter, std::io::PipeReader);
    impl End for Pipes {
        fn send(&mut self, bytes: &[u8]) {
            self.0.write_all(bytes).expect("pipe");
        }
        fn receive(&mut self, into: &mut [u8]) {
            self.1.read_exact(into).expect("pipe");
        }
    }
    Box::new(move |is_first| Box::new(if is_first { Pipes(first.1, second.0) } else { Pipes(second.1, first.0) }))
}

impl End for UnixDatagram {
    fn send(&mut self, bytes: &[u8]) {
        UnixDatagram::send(self, bytes).expect("unix datagram");
    }
    fn receive(&mut self, into: &mut [u8]) {
        self.recv(into).expect("unix datagram");
    }
}

pub fn unix_datagram() -> Pair {
    let pair = UnixDatagram::pair().expect("a pair of sockets");
    Box::new(move |is_first| Box::new(if is_first { pair.0 } else { pair.1 }))
}

impl End for UdpSocket {
    fn send(&mut self, bytes: &[u8]) {
        UdpSocket::send(self, bytes).expect("udp");
    }
    fn receive(&mut self, into: &mut [u8]) {
        self.recv(into).expect("udp");
    }
}

pub fn udp() -> Pair {
    let [a, b] = std::array::from_fn(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    a.connect(b.local_addr().expect("address")).expect("connect");
    b.connect(a.local_addr().expect("address")).expect("connect");
    Box::new(move |is_first| Box::new(if is_first { a } else { b }))
}

impl End for TcpStream {
    fn send(&mut self, bytes: &[u8]) {
        self.write_all(bytes).expect("tcp");
    }
    fn receive(&mut self, into: &mut [u8]) {
        self.read_exact(into).expect("tcp");
    }
}

pub fn tcp() -> Pair {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let a = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let (b, _) = listener.accept().expect("accept");
    for stream in [&a, &b] {
        stream.set_nodelay(true).expect("nodelay");
    }
    Box::new(move |is_first| Box::new(if is_first { a } else { b }))
}

/// POSIX message queues; `None` if the system has none, or none for messages of that length.
pub fn message_queues(bytes: usize) -> Option<Pair> {
    struct Queues(libc::mqd_t, libc::mqd_t, Vec<u8>);
    impl End for Queues {
        fn send(&mut self, bytes: &[u8]) {
            // SAFETY: the bytes outlive the call.
            let sent = unsafe { libc::mq_send(self.0, bytes.as_ptr().cast(), bytes.len(), 0) };
            assert_eq!(sent, 0, "mq_send");
        }
        fn receive(&mut self, into: &mut [u8]) {
            // SAFETY: the buffer is as long as the queue's messages.
            let len =
                unsafe { libc::mq_receive(self.1, self.2.as_mut_ptr().cast(), self.2.len(), std::ptr::null_mut()) };
            assert_eq!(usize::try_from(len), Ok(into.len()), "mq_receive");
            into.copy_from_slice(&self.2[..into.len()]);
        }
    }
    let open = |no: u32| {
        let name = std::ffi::CString::new(format!("/ledgerstone-bench-{}-{no}", std::process::id())).ok()?;
        // SAFETY: zeros are attributes; name and attributes outlive the calls.
        let queue = unsafe {
            let mut attributes: libc::mq_attr = std::mem::zeroed();
            attributes.mq_maxmsg = 8;
            attributes.mq_msgsize = bytes as libc::c_long;
            let queue = libc::mq_open(name.as_ptr(), libc::O_CREAT | libc::O_RDWR, 0o600 as libc::mode_t, &attributes);
            libc::mq_unlink(name.as_ptr());
            queue
        };
        (queue >= 0).then_some(queue)
    };
    let (there, back) = (open(0)?, open(1)?);
    let space = vec![0; bytes];
    Some(Box::new(move |is_first| {
        Box::new(if is_first { Queues(there, back, space) } else { Queues(back, there, space) })
    }))
}

/// This crate, between two processes.
pub struct Ports {
    pub port: Port,
    pub sender: Sender,
}

pub fn options(bytes: usize, wait: Wait) -> PortOptions {
    PortOptions { buffer_count: 256, buffer_bytes: bytes as u32, wait, ..PortOptions::default() }
}

impl Ports {
    /// Opens this process's port and waits until the other has opened its own.
    pub fn meet(directory: &Path, is_first: bool, options: PortOptions) -> Ports {
        let host = Host::at(directory, Site(1)).expect("the directory");
        let name = |no| host.address(Instance(0), ServerType(1), ServerInstance(no));
        let (ours, theirs) = (name(is_first.into()), name((!is_first).into()));
        let wait = options.wait;
        let port = host.open_port(ours, options).expect("a port");
        let mut sender = loop {
            match port.connect(theirs) {
                Ok(sender) => break sender,
                Err(_) => std::thread::yield_now(),
            }
        };
        sender.set_wait(wait);
        Ports { port, sender }
    }
}

impl End for Ports {
    fn send(&mut self, bytes: &[u8]) {
        self.sender.send(bytes).expect("send");
    }
    fn receive(&mut self, into: &mut [u8]) {
        self.port.receive().copy_to(into);
    }
}

pub fn ports(bytes: usize, wait: Wait) -> Pair {
    let directory = tempfile::tempdir().expect("a directory").keep();
    Box::new(move |is_first| Box::new(Ports::meet(&directory, is_first, options(bytes, wait))))
}

/// iceoryx2, polled: the best-known public library for messages in shared memory.
#[cfg(feature = "peers")]
pub fn iceoryx2() -> Pair {
    use iceoryx2::prelude::*;
    type Service = ipc::Service;
    struct Iceoryx {
        publisher: iceoryx2::port::publisher::Publisher<Service, [u8], ()>,
        subscriber: iceoryx2::port::subscriber::Subscriber<Service, [u8], ()>,
        _node: Node<Service>,
    }
    impl End for Iceoryx {
        fn send(&mut self, bytes: &[u8]) {
            let sample = self.publisher.loan_slice_uninit(bytes.len()).expect("a loan");
            sample.write_from_slice(bytes).send().expect("send");
        }
        fn receive(&mut self, into: &mut [u8]) {
            loop {
                if let Some(sample) = self.subscriber.receive().expect("receive") {
                    into.copy_from_slice(&sample.payload()[..into.len()]);
                    return;
                }
                std::hint::spin_loop();
            }
        }
    }
    let key = std::process::id();
    Box::new(move |is_first| {
        set_log_level(LogLevel::Fatal);
        let node = NodeBuilder::new().create::<Service>().expect("a node");
        let service = |direction: u32| {
            let name = format!("ledgerstone-bench-{key}-{direction}");
            node.service_builder(&name.as_str().try_into().expect("a name"))
                .publish_subscribe::<[u8]>()
                .open_or_create()
                .expect("a service")
        };
        let (out, back) = (service(is_first.into()), service((!is_first).into()));
        let publisher = out.publisher_builder().initial_max_slice_len(65536).create().expect("a publisher");
        let subscriber = back.subscriber_builder().create().expect("a subscriber");
        while out.dynamic_config().number_of_subscribers() == 0 || back.dynamic_config().number_of_publishers() == 0 {
            std::thread::yield_now();
        }
        Box::new(Iceoryx { publisher, subscriber, _node: node })
    })
}
