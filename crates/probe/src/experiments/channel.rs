//! One conversation between this process and a forked one: every local mechanism behind the same four calls.
//!
//! Both sides know the length of a message. Neither allocates while it talks.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, acceptfrom, bind, connect,
    getsockname, listen, recv, send, socket_with, socketpair, sockopt,
};

use super::baton::{Baton, Kind, Side};
use crate::error::{On, ProbeError};
use crate::sys::map::Map;
use crate::sys::queue::{Posix, SystemV, TYPE_BYTES};
use crate::workdir::WorkDir;

/// The mechanisms, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    Spinning,
    SharedMemory,
    Pipe,
    Fifo,
    UnixStream,
    UnixDatagram,
    Tcp,
    Udp,
    PosixQueue,
    SystemVQueue,
}

impl Mechanism {
    pub(crate) const ALL: [Mechanism; 10] = [
        Mechanism::Spinning,
        Mechanism::SharedMemory,
        Mechanism::Pipe,
        Mechanism::Fifo,
        Mechanism::UnixStream,
        Mechanism::UnixDatagram,
        Mechanism::Tcp,
        Mechanism::Udp,
        Mechanism::PosixQueue,
        Mechanism::SystemVQueue,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mechanism::Spinning => "shared memory, spinning",
            Mechanism::SharedMemory => "shared memory, futex",
            Mechanism::Pipe => "pipe",
            Mechanism::Fifo => "FIFO",
            Mechanism::UnixStream => "Unix stream",
            Mechanism::UnixDatagram => "Unix datagram",
            Mechanism::Tcp => "TCP",
            Mechanism::Udp => "UDP",
            Mechanism::PosixQueue => "POSIX queue",
            Mechanism::SystemVQueue => "System V queue",
        }
    }
}

/// Both ends of a conversation, made before the fork.
pub(crate) struct Channel {
    ends: Ends,
    bytes: usize,
}

enum Ends {
    /// What we write to, they read from; and back.
    Streams {
        our_in: OwnedFd,
        our_out: OwnedFd,
        their_in: OwnedFd,
        their_out: OwnedFd,
    },
    Sockets {
        ours: OwnedFd,
        theirs: OwnedFd,
        is_stream: bool,
    },
    Memory {
        baton: Baton,
        message: Map,
    },
    Posix {
        to: Posix,
        from: Posix,
    },
    SystemV {
        to: SystemV,
        from: SystemV,
    },
}

/// A datagram that is lost ends the wait for it.
const LOST_AFTER: std::time::Duration = std::time::Duration::from_secs(1);

impl Channel {
    /// A channel for messages of `bytes`.
    pub(crate) fn new(mechanism: Mechanism, bytes: usize, work: &WorkDir) -> Result<Channel, ProbeError> {
        let ends = match mechanism {
            Mechanism::Spinning => Ends::Memory { baton: Baton::new(Kind::Spin)?, message: Map::anonymous(bytes)? },
            Mechanism::SharedMemory => {
                Ends::Memory { baton: Baton::new(Kind::Futex)?, message: Map::anonymous(bytes)? }
            }
            Mechanism::Pipe => {
                let (their_in, our_out) = rustix::pipe::pipe().on("pipe")?;
                let (our_in, their_out) = rustix::pipe::pipe().on("pipe")?;
                Ends::Streams { our_in, our_out, their_in, their_out }
            }
            Mechanism::Fifo => {
                let (to, from) = (fifo(work)?, fifo(work)?);
                // For reading and writing: such an open does not wait for the other side.
                let open = |path: &std::path::Path| {
                    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).on("open")
                };
                let ends = Ends::Streams {
                    our_in: open(&from)?,
                    our_out: open(&to)?,
                    their_in: open(&to)?,
                    their_out: open(&from)?,
                };
                // They go with the directory otherwise.
                let _ = (std::fs::remove_file(&to), std::fs::remove_file(&from));
                ends
            }
            Mechanism::UnixStream | Mechanism::UnixDatagram => {
                let is_stream = mechanism == Mechanism::UnixStream;
                let kind = if is_stream { SocketType::STREAM } else { SocketType::DGRAM };
                let (ours, theirs) =
                    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).on("socketpair")?;
                Ends::Sockets { ours, theirs, is_stream }
            }
            Mechanism::Tcp => {
                let (listener, address) = tcp_listener()?;
                let ours = tcp_connect(&address)?;
                let theirs = tcp_accept(&listener)?;
                Ends::Sockets { ours, theirs, is_stream: true }
            }
            Mechanism::Udp => {
                let socket = || -> Result<(OwnedFd, SocketAddr), ProbeError> {
                    let socket =
                        socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).on("socket")?;
                    bind(&socket, &SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))).on("bind")?;
                    let address = SocketAddr::try_from(getsockname(&socket).on("getsockname")?).on("getsockname")?;
                    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(LOST_AFTER)).on("setsockopt")?;
                    Ok((socket, address))
                };
                let ((ours, our_address), (theirs, their_address)) = (socket()?, socket()?);
                connect(&ours, &their_address).on("connect")?;
                connect(&theirs, &our_address).on("connect")?;
                Ends::Sockets { ours, theirs, is_stream: false }
            }
            Mechanism::PosixQueue => Ends::Posix { to: Posix::new(bytes)?, from: Posix::new(bytes)? },
            Mechanism::SystemVQueue => Ends::SystemV { to: SystemV::new()?, from: SystemV::new()? },
        };
        Ok(Channel { ends, bytes })
    }

    /// Room that a buffer needs: System V messages have their type in front.
    pub(crate) fn buffer(&self) -> Vec<u8> {
        let mut buffer = vec![1_u8; self.bytes + TYPE_BYTES];
        buffer[..TYPE_BYTES].copy_from_slice(&1_i64.to_ne_bytes()[..TYPE_BYTES]);
        buffer
    }

    /// Buffers of the kernel, where the mechanism has them to set.
    pub(crate) fn set_buffers(&self, bytes: usize) -> Result<(), ProbeError> {
        match &self.ends {
            Ends::Streams { our_out, their_out, .. } => {
                rustix::pipe::fcntl_setpipe_size(our_out, bytes).on("F_SETPIPE_SZ")?;
                rustix::pipe::fcntl_setpipe_size(their_out, bytes).on("F_SETPIPE_SZ")?;
            }
            Ends::Sockets { ours, theirs, .. } => {
                for socket in [ours, theirs] {
                    sockopt::set_socket_send_buffer_size(socket, bytes).on("SO_SNDBUF")?;
                    sockopt::set_socket_recv_buffer_size(socket, bytes).on("SO_RCVBUF")?;
                }
            }
            Ends::Memory { .. } | Ends::Posix { .. } | Ends::SystemV { .. } => {}
        }
        Ok(())
    }

    /// Sends a message and receives it back.
    pub(crate) fn ask(&self, buffer: &mut [u8]) -> Result<(), ProbeError> {
        match &self.ends {
            Ends::Streams { our_in, our_out, .. } => {
                write_all(our_out, &buffer[TYPE_BYTES..])?;
                read_all(our_in, &mut buffer[TYPE_BYTES..])
            }
            Ends::Sockets { ours, is_stream, .. } => {
                send_all(ours, &buffer[TYPE_BYTES..], *is_stream)?;
                receive_all(ours, &mut buffer[TYPE_BYTES..], *is_stream)
            }
            Ends::Memory { baton, message } => {
                message.write(0, &buffer[TYPE_BYTES..]);
                baton.round();
                message.read(0, &mut buffer[TYPE_BYTES..]);
                Ok(())
            }
            Ends::Posix { to, from } => {
                to.send(&buffer[TYPE_BYTES..])?;
                from.receive(&mut buffer[TYPE_BYTES..]).map(drop)
            }
            Ends::SystemV { to, from } => {
                to.send(buffer)?;
                from.receive(buffer).map(drop)
            }
        }
    }

    /// The other process's whole life: sends every message back, until it is ended or something fails.
    pub(crate) fn echo(&self, buffer: &mut [u8]) {
        while self.echo_once(buffer).is_ok() {}
    }

    fn echo_once(&self, buffer: &mut [u8]) -> Result<(), ProbeError> {
        match &self.ends {
            Ends::Streams { their_in, their_out, .. } => {
                read_all(their_in, &mut buffer[TYPE_BYTES..])?;
                write_all(their_out, &buffer[TYPE_BYTES..])
            }
            Ends::Sockets { theirs, is_stream, .. } => {
                receive_all(theirs, &mut buffer[TYPE_BYTES..], *is_stream)?;
                send_all(theirs, &buffer[TYPE_BYTES..], *is_stream)
            }
            Ends::Memory { baton, message } => {
                // One copy in memory, looked at and handed back, as in the paper.
                baton.take(Side::Theirs);
                std::hint::black_box(message.sum(0, self.bytes));
                message.dirty(0, 1, 1);
                baton.pass(Side::Ours);
                Ok(())
            }
            Ends::Posix { to, from } => {
                let count = to.receive(&mut buffer[TYPE_BYTES..])?;
                from.send(&buffer[TYPE_BYTES..TYPE_BYTES + count])
            }
            Ends::SystemV { to, from } => {
                to.receive(buffer)?;
                from.send(buffer)
            }
        }
    }
}

/// A FIFO in the directory of the run.
pub(crate) fn fifo(work: &WorkDir) -> Result<std::path::PathBuf, ProbeError> {
    static NO: AtomicU32 = AtomicU32::new(0);
    let path = work.path().join(format!("fifo-{}", NO.fetch_add(1, Ordering::Relaxed)));
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).on("mkfifo")?;
    Ok(path)
}

/// A listener on the loopback address, and where it listens.
pub(crate) fn tcp_listener() -> Result<(OwnedFd, SocketAddr), ProbeError> {
    let listener = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).on("socket")?;
    bind(&listener, &SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))).on("bind")?;
    listen(&listener, 64).on("listen")?;
    let address = SocketAddr::try_from(getsockname(&listener).on("getsockname")?).on("getsockname")?;
    Ok((listener, address))
}

pub(crate) fn tcp_connect(address: &SocketAddr) -> Result<OwnedFd, ProbeError> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).on("socket")?;
    connect(&socket, address).on("connect")?;
    sockopt::set_tcp_nodelay(&socket, true).on("TCP_NODELAY")?;
    Ok(socket)
}

pub(crate) fn tcp_accept(listener: &OwnedFd) -> Result<OwnedFd, ProbeError> {
    let (socket, _) = acceptfrom(listener).on("accept")?;
    sockopt::set_tcp_nodelay(&socket, true).on("TCP_NODELAY")?;
    Ok(socket)
}

/// A listener under a name that no file system holds.
pub(crate) fn unix_listener() -> Result<(OwnedFd, SocketAddrUnix), ProbeError> {
    static NO: AtomicU32 = AtomicU32::new(0);
    let name = format!("ledgerstone-probe-{}-{}", std::process::id(), NO.fetch_add(1, Ordering::Relaxed));
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).on("an abstract name")?;
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).on("socket")?;
    bind(&listener, &address).on("bind")?;
    listen(&listener, 64).on("listen")?;
    Ok((listener, address))
}

pub(crate) fn unix_connect(address: &SocketAddrUnix) -> Result<OwnedFd, ProbeError> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).on("socket")?;
    connect(&socket, address).on("connect")?;
    Ok(socket)
}

/// Writes all of it, waiting for the reader where the kernel's buffer is smaller.
pub(crate) fn write_all(fd: &OwnedFd, mut bytes: &[u8]) -> Result<(), ProbeError> {
    while !bytes.is_empty() {
        let count = rustix::io::write(fd, bytes).on("write")?;
        bytes = &bytes[count..];
    }
    Ok(())
}

pub(crate) fn read_all(fd: &OwnedFd, bytes: &mut [u8]) -> Result<(), ProbeError> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::read(fd, &mut bytes[done..]).on("read")? {
            0 => return Err(gone()),
            count => done += count,
        }
    }
    Ok(())
}

fn send_all(fd: &OwnedFd, mut bytes: &[u8], is_stream: bool) -> Result<(), ProbeError> {
    loop {
        let count = send(fd, bytes, SendFlags::NOSIGNAL).on("send")?;
        if !is_stream || count >= bytes.len() {
            return Ok(());
        }
        bytes = &bytes[count..];
    }
}

fn receive_all(fd: &OwnedFd, bytes: &mut [u8], is_stream: bool) -> Result<(), ProbeError> {
    let mut done = 0;
    loop {
        let (count, _) = recv(fd, &mut bytes[done..], RecvFlags::empty()).on("receive")?;
        done += count;
        if !is_stream || done >= bytes.len() {
            return Ok(());
        }
        if count == 0 {
            return Err(gone());
        }
    }
}

fn gone() -> ProbeError {
    ProbeError::system("receive", std::io::Error::from(std::io::ErrorKind::UnexpectedEof))
}
