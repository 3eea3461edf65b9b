//! One host's ring for the groups of one server type, and how a process gets it.
//!
//! The ring is a memory file without a name. Each process that has it holds a place. The socket of a place is named by
//! the group address, with the place's number in place of the transaction. A process that connects there is given the
//! file. So the ring lives as long as any process has it, and no single process's death matters.
//!
//! U1. Places are taken, and a new ring is made, only by a process that holds the door: the lock of the last place's
//!     number + 1.
//! U2. A new ring is made only when no place is held by a living process.

use crate::address::{Address, Instance, ServerType, Xid};
use crate::broadcast::{self, PLACES};
use crate::credentials::Credentials;
use crate::error::{OpenError, SystemError};
use crate::host::{Host, Lease};
use crate::keeper::{self, Watch, Watched};
use crate::link::{self, Answer, BACKLOG, PACKET_BYTES, Status, seqpacket};
use crate::memory::Mapping;
use crate::options::Access;
use crate::ring::Shape;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{RecvFlags, SocketAddrUnix};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Slots of each writer and payload of each slot: multicasts are short control messages (paper 002, 4.1).
const SLOT_COUNT: u32 = 256;
const PAYLOAD_BYTES: u32 = 472;
/// How long to wait for the door, and for a member's answer.
const DOOR_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Membership in the ring of one server type: a place in it. It ends when this is dropped or the process dies.
pub(crate) struct Bus {
    pub(crate) memory: Mapping,
    pub(crate) shape: Shape,
    pub(crate) place: usize,
    pub(crate) instance: Instance,
    pub(crate) server_type: ServerType,
    file: OwnedFd,
    host: Host,
    _watch: Watch,
    _lease: Lease,
}

impl Bus {
    /// Takes a place, in the ring of those that have one, or else in a new one.
    pub(crate) fn join(
        host: &Host,
        instance: Instance,
        server_type: ServerType,
        mode: u32,
        access: &Access,
    ) -> Result<Arc<Bus>, OpenError> {
        let name = |number: usize| host.socket_path(Address::group(instance, server_type, Xid(number as u64)));
        let _door = enter_door(&name(PLACES))?;
        let began = Instant::now();
        let Survey { free, found, living } = loop {
            let survey = Survey::take(name)?;
            // A process that looks whether a member is dead holds its lock for a moment, and cannot answer for it.
            if survey.found.is_some() || survey.living.is_none() || began.elapsed() > ANSWER_WITHIN {
                break survey;
            }
        };
        let Some((place, lease)) = free else {
            return Err(OpenError::PlacesTaken {
                places_max: PLACES,
                instance: instance.0,
                server_type: server_type.0,
            });
        };
        let (file, memory, shape) = match (found, living) {
            (Some(found), _) => found,
            (None, Some(path)) => return Err(OpenError::Unresponsive { path }),
            (None, None) => {
                let shape = broadcast::shape(SLOT_COUNT, PAYLOAD_BYTES);
                // The rings are allocated one by one, when they get their first writer.
                let allocated = broadcast::ring_words(shape, 0).start;
                let (file, memory) =
                    Mapping::create_partly("ledgerstone-groups", PLACES, broadcast::words(shape), allocated)?;
                (file, memory, shape)
            }
        };
        let socket = lease.listen(mode)?;
        let copy = rustix::io::fcntl_dupfd_cloexec(&file, 0).map_err(|error| SystemError::new("dup", error))?;
        let watch = keeper::watch(Arc::new(Doorman { socket, file: copy, shape, access: access.clone() }))?;
        let host = host.clone();
        Ok(Arc::new(Bus { memory, shape, place, instance, server_type, file, host, _watch: watch, _lease: lease }))
    }

    /// Allocates the memory of our own ring, so that a full machine says so here.
    pub(crate) fn allocate_ring(&self) -> Result<(), SystemError> {
        self.memory.allocate(&self.file, broadcast::ring_words(self.shape, self.place))
    }

    /// Whether the process that held the place has ended.
    pub(crate) fn is_dead(&self, place: usize) -> bool {
        let address = Address::group(self.instance, self.server_type, Xid(place as u64));
        place != self.place && matches!(Lease::take(&self.host.socket_path(address)), Ok(Some(_)))
    }
}

/// What the places are like.
#[derive(Default)]
struct Survey {
    /// The first that nobody has.
    free: Option<(usize, Lease)>,
    /// The ring, from the first member that answered.
    found: Option<(OwnedFd, Mapping, Shape)>,
    /// A member, whether it answered or not.
    living: Option<PathBuf>,
}

impl Survey {
    fn take(name: impl Fn(usize) -> PathBuf) -> Result<Survey, OpenError> {
        let mut survey = Survey::default();
        for place in 0..PLACES {
            let path = name(place);
            if survey.free.is_some() && (survey.found.is_some() || !path.exists()) {
                continue;
            }
            match Lease::take(&path)? {
                // A lease that is not kept takes away what a dead process left.
                Some(lease) if survey.free.is_none() => survey.free = Some((place, lease)),
                Some(_) => {}
                None => {
                    if survey.found.is_none() {
                        survey.found = ask(&path)?;
                    }
                    survey.living = Some(path);
                }
            }
        }
        Ok(survey)
    }
}

/// Waits until nobody else takes places.
fn enter_door(path: &Path) -> Result<Lease, OpenError> {
    let began = Instant::now();
    loop {
        if let Some(door) = Lease::take(path)? {
            return Ok(door);
        }
        if began.elapsed() > DOOR_WITHIN {
            return Err(OpenError::Unresponsive { path: path.to_owned() });
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Asks a member for the ring; `None` if it does not answer.
fn ask(path: &Path) -> Result<Option<(OwnedFd, Mapping, Shape)>, OpenError> {
    let socket = seqpacket()?;
    for timeout in [rustix::net::sockopt::Timeout::Send, rustix::net::sockopt::Timeout::Recv] {
        rustix::net::sockopt::set_socket_timeout(&socket, timeout, Some(ANSWER_WITHIN))
            .map_err(|error| SystemError::new("setsockopt(SO_RCVTIMEO)", error))?;
    }
    let name = SocketAddrUnix::new(path).map_err(|error| SystemError::new("socket path", error))?;
    if rustix::net::connect(&socket, &name).is_err() {
        return Ok(None);
    }
    let mut bytes = [0; PACKET_BYTES];
    let Ok((len, mut descriptors)) = link::receive(&socket, &mut bytes, RecvFlags::empty()) else { return Ok(None) };
    let (Some(answer), Some(file)) = (Answer::from_bytes(&bytes[..len]), descriptors.pop()) else { return Ok(None) };
    let Some(shape) =
        Shape::of_stranger(answer.buffer_count, answer.buffer_bytes).filter(|_| answer.status == Status::Yes)
    else {
        return Ok(None);
    };
    let memory = Mapping::attach(&file, PLACES, broadcast::words(shape), true)?;
    Ok(Some((file, memory, shape)))
}

/// Gives the file to those who may have it.
struct Doorman {
    socket: OwnedFd,
    file: OwnedFd,
    shape: Shape,
    access: Access,
}

impl Watched for Doorman {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn ready(&self) -> bool {
        use rustix::net::SocketFlags;
        for _ in 0..BACKLOG {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(peer) = rustix::net::accept_with(&self.socket, flags) else { break };
            let may_have = Credentials::of_peer(&peer).is_ok_and(|peer| self.access.allows(peer));
            let answer = Answer {
                status: if may_have { Status::Yes } else { Status::Refused },
                buffer_count: self.shape.slot_count(),
                buffer_bytes: self.shape.payload_bytes_max(),
                may_drop: false,
            };
            let files = [self.file.as_fd()];
            // A peer that is gone before the answer needs none.
            let _ = link::send(&peer, &answer.to_bytes(), if may_have { &files } else { &[] });
        }
        true
    }
}
