//! The sending end of a lane: a ring in the receiver's memory that is ours alone to write.

use crate::address::Address;
use crate::bell::{self, NAP_NS_MAX, Waking};
use crate::bytes::store_bytes;
use crate::error::{ConnectError, SendError, SystemError};
use crate::futex;
use crate::host::Host;
use crate::keeper::{self, Watch, Watched};
use crate::link::{
    self, ANSWER_WITHIN, Answer, CARRIED_BYTES, FLAG_CARRIED, FLAG_PAGE, Hello, LANE_BELL, OWNER_BELL, Offer,
    PACKET_BYTES, Status, seqpacket,
};
use crate::memory::Mapping;
use crate::options::Wait;
use crate::poller;
use crate::ring::{Broken, CPU_UNKNOWN, Header, LINE_WORDS, SETTLED, SLOT_HEADER_WORDS, STATE, Shape, Writer};
use crate::typed::Kind;
use crate::wait::{self, Patience, Waiter};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketAddrUnix};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Messages after which we ask again on which processor we are.
const CPU_KNOWN_FOR: u8 = 16;
/// Bytes of the payload in the slot's first cache line.
const FIRST_LINE_BYTES: usize = (LINE_WORDS - SLOT_HEADER_WORDS) * 8;

pub(crate) struct LaneSender {
    to: Address,
    writer: Writer,
    link: Arc<Link>,
    /// The owner's bell.
    control: Mapping,
    /// Readable for the owner's event loop.
    event: OwnedFd,
    may_drop: bool,
    waiter: Waiter,
    cpu: u16,
    cpu_age: u8,
    _watch: Watch,
}

/// The connection, which says whether the owner lives.
pub(crate) struct Link {
    socket: OwnedFd,
    memory: Mapping,
    is_closed: AtomicBool,
    /// Offers of pages that the owner has accepted.
    accepted: Mutex<u64>,
    changed: Condvar,
}

impl Link {
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed) // Nothing is read on the strength of it.
    }

    fn accepted(&self) -> MutexGuard<'_, u64> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner) // A number is always whole.
    }
}

impl Watched for Link {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The owner accepts an offer of pages, or this is the end.
    fn ready(&self) -> bool {
        let mut bytes = [0; PACKET_BYTES];
        let is_yes = match link::receive(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((len, _)) => Answer::from_bytes(&bytes[..len]).is_some_and(|answer| answer.status == Status::Yes),
            Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
        };
        if is_yes {
            *self.accepted() += 1;
            self.changed.notify_all();
            return true;
        }
        self.is_closed.store(true, Ordering::Relaxed); // As in `is_closed`.
        drop(self.accepted()); // A waiter has looked before, or is asleep and will be woken.
        self.changed.notify_all();
        bell::awake(self.memory.bell(LANE_BELL));
        futex::wake(self.memory.bell(LANE_BELL));
        false
    }
}

impl LaneSender {
    /// Waits for the owner's answer for `answer_within` at most.
    pub(crate) fn connect(
        host: &Host,
        from: Address,
        to: Address,
        answer_within: Duration,
    ) -> Result<LaneSender, ConnectError> {
        LaneSender::connect_at(from, to, &host.socket_path(to), answer_within)
    }

    /// As [`connect`](LaneSender::connect), to a port whose socket is at `path` and which will pass messages on to
    /// `to`.
    pub(crate) fn connect_at(
        from: Address,
        to: Address,
        path: &Path,
        answer_within: Duration,
    ) -> Result<LaneSender, ConnectError> {
        let (socket, answer, descriptors) = LaneSender::ask(path, Hello { from }, to, answer_within)?;
        let strange = ConnectError::Version { address: to };
        let Some(shape) = Shape::of_stranger(answer.buffer_count, answer.buffer_bytes) else { return Err(strange) };
        let Ok([lane, control, event]) = <[OwnedFd; 3]>::try_from(descriptors) else { return Err(strange) };
        let memory = Mapping::attach(&lane, 1, shape.words(), true)?;
        let control = Mapping::attach(&control, 1, 0, true)?;
        let link = Arc::new(Link {
            socket,
            memory,
            is_closed: AtomicBool::new(false),
            accepted: Mutex::new(0),
            changed: Condvar::new(),
        });
        let watch = keeper::watch(Arc::clone(&link) as Arc<dyn Watched>)?;
        Ok(LaneSender {
            to,
            writer: Writer::new(shape),
            link,
            control,
            event,
            may_drop: answer.may_drop,
            waiter: Waiter::new(Wait::Adaptive),
            cpu: CPU_UNKNOWN,
            cpu_age: 0,
            _watch: watch,
        })
    }

    /// Connects to the port's socket and asks for its memory.
    fn ask(
        path: &Path,
        hello: Hello,
        to: Address,
        answer_within: Duration,
    ) -> Result<(OwnedFd, Answer, Vec<OwnedFd>), ConnectError> {
        let socket = seqpacket()?;
        for timeout in [rustix::net::sockopt::Timeout::Send, rustix::net::sockopt::Timeout::Recv] {
            rustix::net::sockopt::set_socket_timeout(&socket, timeout, Some(answer_within))
                .map_err(|error| SystemError::new("setsockopt(SO_RCVTIMEO)", error))?;
        }
        let name = SocketAddrUnix::new(path).map_err(|error| SystemError::new("socket path", error))?;
        match rustix::net::connect(&socket, &name) {
            Ok(()) => {}
            Err(Errno::NOENT | Errno::CONNREFUSED) => {
                return Err(ConnectError::NoSuchPort { address: to, path: path.to_owned() });
            }
            Err(Errno::ACCESS | Errno::PERM) => return Err(ConnectError::Refused { address: to }),
            Err(Errno::AGAIN) => return Err(ConnectError::Unresponsive { address: to }),
            Err(error) => return Err(SystemError::new("connect", error).into()),
        }
        link::send(&socket, &hello.to_bytes(), &[])?;
        let mut bytes = [0; PACKET_BYTES];
        let (len, descriptors) = match link::receive(&socket, &mut bytes, RecvFlags::empty()) {
            Ok((0, _)) => return Err(ConnectError::NoSuchPort { address: to, path: path.to_owned() }),
            Ok(received) => received,
            Err(Errno::AGAIN) => return Err(ConnectError::Unresponsive { address: to }),
            Err(Errno::CONNRESET) => return Err(ConnectError::NoSuchPort { address: to, path: path.to_owned() }),
            Err(error) => return Err(SystemError::new("recvmsg", error).into()),
        };
        let answer = Answer::from_bytes(&bytes[..len]).ok_or(ConnectError::Version { address: to })?;
        match answer.status {
            Status::Yes => Ok((socket, answer, descriptors)),
            Status::Refused => Err(ConnectError::Refused { address: to }),
            Status::SendersExhausted => Err(ConnectError::SendersExhausted { address: to }),
        }
    }

    pub(crate) fn to(&self) -> Address {
        self.to
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.writer.shape().payload_bytes_max() as usize
    }

    pub(crate) fn set_wait(&mut self, wait: Wait) {
        self.waiter = Waiter::new(wait);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.link.is_closed()
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Gives the owner pages, and waits until it has mapped them.
    pub(crate) fn offer(&self, offer: Offer, pages: &OwnedFd, holders: &OwnedFd) -> Result<(), SendError> {
        let closed = SendError::PortClosed { address: self.to };
        let accepted = *self.link.accepted();
        link::send(&self.link.socket, &offer.to_bytes(), &[pages.as_fd(), holders.as_fd()]).map_err(|_| closed)?;
        let is_waiting = |now: &mut u64| *now == accepted && !self.link.is_closed();
        let (_now, timeout) = self
            .link
            .changed
            .wait_timeout_while(self.link.accepted(), ANSWER_WITHIN, is_waiting)
            .unwrap_or_else(PoisonError::into_inner);
        match timeout.timed_out() {
            _ if self.link.is_closed() => Err(closed),
            true => Err(SendError::TimedOut { address: self.to }),
            false => Ok(()),
        }
    }

    /// Sends what came from another site, with the sender's address before it.
    pub(crate) fn send_carried(
        &mut self,
        from: Address,
        kind: Kind,
        bytes: &[u8],
        patience: Patience,
    ) -> Result<(), SendError> {
        self.send_with_address(from, kind, bytes, FLAG_CARRIED, patience)
    }

    /// Sends an address and bytes behind it.
    pub(crate) fn send_with_address(
        &mut self,
        address: Address,
        kind: Kind,
        bytes: &[u8],
        flags: u8,
        patience: Patience,
    ) -> Result<(), SendError> {
        let len = bytes.len() + CARRIED_BYTES;
        self.wait_for_room(len, patience)?;
        let payload = &self.link.memory.words()[self.writer.payload()..];
        store_bytes(payload, &address.to_bytes());
        store_bytes(&payload[CARRIED_BYTES / 8..], bytes);
        self.publish_flagged(kind, len, flags);
        Ok(())
    }

    /// Sends bytes with flags that mean something to the port's owner.
    pub(crate) fn send_part(
        &mut self,
        kind: Kind,
        bytes: &[u8],
        flags: u8,
        patience: Patience,
    ) -> Result<(), SendError> {
        self.wait_for_room(bytes.len(), patience)?;
        store_bytes(&self.link.memory.words()[self.writer.payload()..], bytes);
        self.publish_flagged(kind, bytes.len(), flags);
        Ok(())
    }

    /// Buffers that are free now.
    pub(crate) fn room(&mut self) -> u32 {
        self.writer.room(self.link.memory.words()).unwrap_or(0) // A ring that is broken shows when it is used.
    }

    pub(crate) fn buffer_count(&self) -> u32 {
        self.writer.shape().slot_count()
    }

    /// What the network says about the passage.
    pub(crate) fn state(&self) -> u64 {
        self.link.memory.words()[STATE].load(Ordering::Acquire) // Pairs with the Release in `Passage::say`.
    }

    /// Messages sent so far.
    pub(crate) fn sent_count(&self) -> u64 {
        self.writer.tail()
    }

    /// Whether the network says that everything sent so far was acknowledged.
    pub(crate) fn is_settled(&self) -> bool {
        self.link.memory.words()[SETTLED].load(Ordering::Relaxed) == self.writer.tail() // Nothing is read after it.
    }

    /// Waits until the state is another than `known`, the port is closed, or the deadline has passed.
    pub(crate) fn wait_for_state(&mut self, known: u64, deadline: Instant) {
        let bell = self.link.memory.bell(LANE_BELL);
        while self.state() == known && !self.is_closed() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            bell::prepare(bell, Waking::Futex);
            if self.state() == known && !self.is_closed() {
                futex::sleep(bell, left.min(Duration::from_nanos(NAP_NS_MAX)));
            }
            bell::awake(bell);
        }
    }

    /// Sends a reference to a page; there is room.
    pub(crate) fn send_reference(&mut self, reference: &[u8]) {
        store_bytes(&self.link.memory.words()[self.writer.payload()..], reference);
        self.publish_flagged(Kind::default(), reference.len(), FLAG_PAGE);
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.writer.is_drained(self.link.memory.words())
    }

    #[inline]
    pub(crate) fn send(&mut self, kind: Kind, bytes: &[u8], patience: Patience) -> Result<(), SendError> {
        self.wait_for_room(bytes.len(), patience)?;
        let payload = &self.link.memory.words()[self.writer.payload()..];
        // The line that the receiver looks at is written last, and all at once: it would take it away in between.
        if let Some((first, rest)) = bytes.split_at_checked(FIRST_LINE_BYTES)
            && !rest.is_empty()
        {
            store_bytes(&payload[FIRST_LINE_BYTES / 8..], rest);
            store_bytes(payload, first);
        } else {
            store_bytes(payload, bytes);
        }
        self.publish(kind, bytes.len());
        Ok(())
    }

    /// Makes the message that stands in the buffer visible, and wakes the owner if it sleeps.
    #[inline]
    pub(crate) fn publish(&mut self, kind: Kind, len: usize) {
        self.publish_flagged(kind, len, 0);
    }

    #[inline]
    fn publish_flagged(&mut self, kind: Kind, len: usize, flags: u8) {
        let header = Header { len: len as u32, kind: kind.id, version: kind.version, cpu: self.cpu(), flags };
        self.writer.publish(self.link.memory.words(), header);
        if let Some(waking) = bell::ring(self.control.bell(OWNER_BELL)) {
            self.wake(waking);
        }
    }

    /// The processor that we run on, or did some messages ago: a wait that is misled by it is soon put right.
    #[inline]
    fn cpu(&mut self) -> u16 {
        if self.cpu_age.is_multiple_of(CPU_KNOWN_FOR) {
            self.cpu = wait::cpu();
        }
        self.cpu_age = self.cpu_age.wrapping_add(1);
        self.cpu
    }

    #[cold]
    fn wake(&self, waking: Waking) {
        match waking {
            Waking::Futex => futex::wake(self.control.bell(OWNER_BELL)),
            Waking::Descriptor => poller::signal(&self.event),
        }
    }

    /// Returns when a buffer is free for a message of that length.
    #[inline]
    pub(crate) fn wait_for_room(&mut self, bytes: usize, patience: Patience) -> Result<(), SendError> {
        if self.is_closed() {
            return Err(SendError::PortClosed { address: self.to });
        }
        if bytes > self.bytes_max() {
            return Err(SendError::TooLong { address: self.to, bytes, bytes_max: self.bytes_max() });
        }
        match self.writer.has_room(self.link.memory.words()) {
            Ok(true) => Ok(()),
            full_or_broken => self.wait_for_room_longer(full_or_broken, patience),
        }
    }

    #[cold]
    fn wait_for_room_longer(&mut self, mut room: Result<bool, Broken>, patience: Patience) -> Result<(), SendError> {
        let deadline = if let Patience::Until(deadline) = patience { Some(deadline) } else { None };
        let memory = &self.link.memory;
        loop {
            match room {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // The owner itself wrote nonsense into its ring.
                Err(Broken) => self.link.is_closed.store(true, Ordering::Relaxed),
            }
            if self.is_closed() {
                return Err(SendError::PortClosed { address: self.to });
            }
            if self.may_drop {
                self.writer.drop_oldest(memory.words());
                return Ok(());
            }
            match patience {
                Patience::None => {
                    return Err(SendError::Full { address: self.to, waiting: self.writer.shape().slot_count() });
                }
                Patience::Until(deadline) if Instant::now() >= deadline => {
                    return Err(SendError::TimedOut { address: self.to });
                }
                Patience::Until(_) | Patience::Endless => {}
            }
            let looked = self.waiter.look(CPU_UNKNOWN, deadline, || match self.writer.has_room(memory.words()) {
                Ok(false) => None,
                room => Some(room),
            });
            room = looked.unwrap_or_else(|| {
                let bell = memory.bell(LANE_BELL);
                bell::prepare(bell, Waking::Futex);
                let room = self.writer.has_room(memory.words());
                if room == Ok(false) && !self.link.is_closed.load(Ordering::Relaxed) {
                    let nap = Duration::from_nanos(NAP_NS_MAX);
                    let until = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                    futex::sleep(bell, until.map_or(nap, |until| until.min(nap)));
                }
                bell::awake(bell);
                self.writer.has_room(memory.words())
            });
        }
    }

    pub(crate) fn buffer(&self, len: usize) -> &[u8] {
        let start = self.link.memory.bytes_at(self.writer.payload(), len);
        // SAFETY: inside the mapping, which lives as long as the link; nobody but us touches the buffer before it is
        // published (P4).
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
    }

    pub(crate) fn buffer_mut(&mut self, len: usize) -> &mut [u8] {
        let start = self.link.memory.bytes_at(self.writer.payload(), len);
        // SAFETY: as in `buffer`, and `&mut self` is the only way to it in this process.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) }
    }

    /// Writes a word of the lane as no sender does.
    pub(crate) fn scribble(&self, at: usize, value: u64) {
        let words = self.link.memory.words();
        words[at % words.len()].store(value, Ordering::Relaxed);
    }

    /// Writes a word of the slot that is next, its first with the right sequence.
    pub(crate) fn scribble_next(&self, at: usize, value: u64) {
        let words = self.link.memory.words();
        let slot = self.writer.payload() - SLOT_HEADER_WORDS;
        let sequence = if at == 0 { self.writer.sequence() << 32 } else { 0 };
        words[(slot + at) % words.len()].store(sequence | value, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Instance, ServerInstance, ServerType, Site};
    use crate::link::Status;
    use crate::options::PortOptions;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    #[test]
    fn who_silences_the_bell_delays_an_event_loop_no_longer_than_a_sleep() {
        let directory = tempfile::tempdir().unwrap();
        let host = Host::at(directory.path(), Site(1)).unwrap();
        let name = host.address(Instance(0), ServerType(1), ServerInstance(0));
        let mut port = host.open_port(name, PortOptions::default()).unwrap();
        let mut sender = LaneSender::connect(&host, name, name, ANSWER_WITHIN).unwrap();
        assert!(port.prepare_poll());
        bell::awake(sender.control.bell(OWNER_BELL));
        sender.send(Kind::default(), b"x", Patience::None).unwrap();
        let mut fds = [PollFd::new(&port, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&Timespec { tv_sec: 60, tv_nsec: 0 })), Ok(1));
        assert!(port.try_receive().is_some());
    }

    #[test]
    fn a_sender_of_another_version_is_told_ours() {
        let directory = tempfile::tempdir().unwrap();
        let host = Host::at(directory.path(), Site(1)).unwrap();
        let name = host.address(Instance(0), ServerType(1), ServerInstance(0));
        let _port = host.open_port(name, PortOptions::default()).unwrap();
        let socket = seqpacket().unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(host.socket_path(name)).unwrap()).unwrap();
        let mut hello = Hello { from: name }.to_bytes();
        hello[4] = 2;
        link::send(&socket, &hello, &[]).unwrap();
        let mut answer = [0; PACKET_BYTES];
        assert_eq!(link::receive(&socket, &mut answer, RecvFlags::empty()).unwrap().0, PACKET_BYTES);
        assert_eq!(&answer[..8], b"LSPT\x01\x00\x01\x00");
    }

    #[test]
    fn an_owner_that_answers_what_none_answers_is_another_version() {
        let directory = tempfile::tempdir().unwrap();
        let to = Address::port(Instance(0), ServerType(1), ServerInstance(0), Site(1));
        let answers = [(0, 48), (3, 48), (1 << 31, 48), (u32::MAX, 48), (4, 0), (4, u32::MAX)];
        for (no, (buffer_count, buffer_bytes)) in answers.into_iter().enumerate() {
            let path = directory.path().join(no.to_string());
            let listener = seqpacket().unwrap();
            rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
            rustix::net::listen(&listener, 1).unwrap();
            let owner = std::thread::spawn(move || {
                let socket = rustix::net::accept(&listener).unwrap();
                link::receive(&socket, &mut [0; PACKET_BYTES], RecvFlags::empty()).unwrap();
                let (file, _memory) = Mapping::create("test", 1, 8).unwrap();
                let answer = Answer { status: Status::Yes, buffer_count, buffer_bytes, may_drop: false };
                link::send(&socket, &answer.to_bytes(), &[file.as_fd(); 3]).unwrap();
            });
            let answer = LaneSender::connect_at(to, to, &path, ANSWER_WITHIN);
            assert!(matches!(answer, Err(ConnectError::Version { .. })), "{buffer_count} {buffer_bytes}");
            owner.join().unwrap();
        }
    }
}
