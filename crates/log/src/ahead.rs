//! Two threads ahead of a scan: one reads the log, the other checks the records of what has been read.
//!
//! ```text
//! free ─► log reader ─► read ─► log checker ─► checked ─► scan ─► free
//!
//! room of a buffer:  ...... end of the piece before | piece
//!                    HEAD_BYTES                       PIECE_BYTES
//! ```
//! A1. What is read ahead is no promise. Where a read fails, or a segment ends or is missing, the threads end, and the
//!     scan reads on for itself. So it meets all errors as if there were no threads.
//! A2. `call` is raised after what the others shall see has happened. All look at `call` before they look at the
//!     pieces. So no call is lost.
//! A3. The threads end before the scan does.
//! A4. A piece says which of its records are checked. Each of them is a record under the incarnation that is in force
//!     for the scan when it comes there. For the checker begins with the scan's seal, where the scan is, and goes from
//!     record to record as the scan does (S1 in `scan.rs`).
//! A5. What the checker finds wrong, it leaves to the scan, with all that lies behind. So it does with an incarnation
//!     that goes on in the next piece. A record that goes on there is the scan's, and the checker goes on behind it.

use ledgerstone_region::atomic::AtomicU32;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use ledgerstone_disk::AlignedBuf;
use ledgerstone_page::Lsn;
use ledgerstone_region::{Mutex, sync};

use crate::EnvironmentId;
use crate::error::Malformed;
use crate::record::{RECORD_BYTES_MAX, RecordKind, decode};
use crate::seal::Seal;
use crate::segment::Segments;

/// Read at once.
const PIECE_BYTES: usize = 512 << 10;
/// Room for the end of the piece before: a record that goes on.
const HEAD_BYTES: usize = RECORD_BYTES_MAX;
/// Pieces that are read and not looked at, at most.
const PIECES: usize = 6;

/// Bytes of the log, and what was put before them.
pub(crate) struct Piece {
    buffer: AlignedBuf,
    /// Where the bytes begin.
    from: usize,
    to: usize,
    /// The LSNs of the records that were checked (A4).
    pub checked: Range<u64>,
}

impl Piece {
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    /// Puts the end of the piece before in front. False if there is no room.
    pub fn put_before(&mut self, end: &[u8]) -> bool {
        let Some(from) = self.from.checked_sub(end.len()) else { return false };
        self.buffer[from..self.from].copy_from_slice(end);
        self.from = from;
        true
    }
}

/// Goes from record to record, and checks each.
pub(crate) struct Checker {
    environment: EnvironmentId,
    seal: Seal,
    /// Where the next record begins. `None`: the rest is the scan's (A5).
    at: Option<u64>,
}

impl Checker {
    /// From a record at `at` on, where `seal` is in force.
    pub fn new(environment: EnvironmentId, seal: Seal, at: u64) -> Checker {
        Checker { environment, seal, at: Some(at) }
    }

    /// Checks the records that begin and end in `bytes`, the first of which is at `start`. They lie one behind the
    /// other, and their LSNs are in what is returned.
    pub fn pass(&mut self, start: u64, bytes: &[u8]) -> Range<u64> {
        let Some(first) = self.at else { return 0..0 };
        let mut to = first;
        while let Some(at) = self.at
            && let Some(rest) = bytes.get((at - start) as usize..).filter(|rest| !rest.is_empty())
        {
            self.at = match decode(Lsn(at), rest) {
                Ok(record) if record.check(&self.seal).is_ok() => match record.incarnation() {
                    None => Some(record.end().0),
                    Some(found) if found > self.seal.incarnation() => {
                        self.seal = Seal::new(self.environment, found);
                        Some(record.end().0)
                    }
                    Some(_) => None,
                },
                Err(Malformed::Short { needed, .. })
                    if rest.get(7).is_some_and(|kind| *kind != RecordKind::Incarnation as u8) =>
                {
                    self.at = Some(at + needed);
                    break;
                }
                _ => None,
            };
            to = self.at.unwrap_or(at);
        }
        first..to
    }
}

#[derive(Default)]
struct Pieces {
    /// Each with its LSN.
    read: VecDeque<(u64, Piece)>,
    checked: VecDeque<Piece>,
    free: Vec<AlignedBuf>,
    has_read: bool,
    has_checked: bool,
    is_stopped: bool,
}

#[derive(Default)]
struct Shared {
    pieces: Mutex<Pieces>,
    call: AtomicU32,
}

impl Shared {
    fn ring(&self) {
        self.call.fetch_add(1, SeqCst);
        sync::futex_wake(&self.call, u32::MAX);
    }

    fn change(&self, change: impl FnOnce(&mut Pieces)) {
        change(&mut self.pieces.lock());
        self.ring();
    }

    /// Waits until `look` finds something.
    fn wait_for<T>(&self, mut look: impl FnMut(&mut Pieces) -> Option<T>) -> T {
        loop {
            let seen = self.call.load(SeqCst);
            let found = look(&mut self.pieces.lock());
            match found {
                Some(found) => return found,
                None => sync::futex_wait(&self.call, seen, None),
            };
        }
    }
}

/// The threads, and what they have read.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    threads: Vec<sync::JoinHandle<()>>,
}

impl Ahead {
    /// Reads from `at` on, where a block begins. `None`: the system has no thread left.
    pub fn begin(segments: Segments, at: u64, mut checker: Checker) -> Option<Ahead> {
        let shared = Arc::new(Shared::default());
        shared.pieces.lock().free.extend((0..PIECES).map(|_| AlignedBuf::new(HEAD_BYTES + PIECE_BYTES)));
        let mut ahead = Ahead { shared, threads: Vec::new() };
        ahead.spawn("log reader", |pieces| pieces.has_read = true, move |shared| read_on(&segments, at, shared))?;
        ahead.spawn("log checker", |pieces| pieces.has_checked = true, move |shared| check_on(&mut checker, shared))?;
        Some(ahead)
    }

    /// However the thread ends, nobody waits for it any more.
    fn spawn(&mut self, name: &str, end: fn(&mut Pieces), work: impl FnOnce(&Shared) + Send + 'static) -> Option<()> {
        let shared = Arc::clone(&self.shared);
        let thread = sync::try_spawn(name, move || {
            let ended = Ended(&shared, end);
            work(&shared);
            drop(ended);
        });
        self.threads.push(thread.ok()?);
        Some(())
    }

    /// The next piece, which goes on where the one before has ended. `None`: the threads have ended (A1).
    pub fn next(&self) -> Option<Piece> {
        self.shared.wait_for(|pieces| match pieces.checked.pop_front() {
            None if !pieces.has_checked => None,
            piece => Some(piece),
        })
    }

    /// Gives a piece's memory back, to be used again.
    pub fn give_back(&self, piece: Piece) {
        self.shared.change(|pieces| pieces.free.push(piece.buffer));
    }
}

/// A3.
impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.change(|pieces| pieces.is_stopped = true);
        for thread in self.threads.drain(..) {
            // A panic there was reported there; the scan reads for itself.
            let _panicked = thread.join();
        }
    }
}

struct Ended<'s>(&'s Shared, fn(&mut Pieces));

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.change(self.1);
    }
}

fn read_on(segments: &Segments, mut at: u64, shared: &Shared) {
    loop {
        let buffer = shared.wait_for(|pieces| match pieces.free.pop() {
            _ if pieces.is_stopped || pieces.has_checked => Some(None),
            None => None,
            buffer => Some(buffer),
        });
        let Some(mut buffer) = buffer else { return };
        let Ok(count) = segments.read(at, &mut buffer[HEAD_BYTES..]) else { return };
        let piece = Piece { buffer, from: HEAD_BYTES, to: HEAD_BYTES + count, checked: 0..0 };
        shared.change(|pieces| pieces.read.push_back((at, piece)));
        if count < PIECE_BYTES {
            return;
        }
        at += count as u64;
    }
}

fn check_on(checker: &mut Checker, shared: &Shared) {
    loop {
        let read = shared.wait_for(|pieces| match pieces.read.pop_front() {
            _ if pieces.is_stopped => Some(None),
            None if !pieces.has_read => None,
            read => Some(read),
        });
        let Some((at, mut piece)) = read else { return };
        piece.checked = checker.pass(at, piece.bytes());
        shared.change(|pieces| pieces.checked.push_back(piece));
    }
}

#[cfg(test)]
mod tests {
    use ledgerstone_page::{OpId, Xid};

    use super::*;
    use crate::record::NewRecord;

    const ENVIRONMENT: EnvironmentId = *b"test environment";
    const START: u64 = 4096;

    /// Puts a record behind the others, and says where it ends.
    fn put(log: &mut Vec<u8>, kind: RecordKind, number: u64, seal: &Seal) -> u64 {
        let body = [&number.to_le_bytes()[..], &[7; 100]];
        let body = if kind == RecordKind::Incarnation { &body[..1] } else { &body[..] };
        let record = NewRecord { kind, xid: Xid(0), prev_lsn: Lsn(0), op: OpId(0), flags: 0, page: None, body };
        log.extend(record.encode(Lsn(START + log.len() as u64), seal));
        START + log.len() as u64
    }

    #[test]
    fn every_record_that_is_sound_needs_no_second_check() {
        let seals = [1, 2].map(|incarnation| Seal::new(ENVIRONMENT, incarnation));
        let mut log = Vec::new();
        for no in 0..9 {
            put(&mut log, RecordKind::User, no, &seals[0]);
        }
        let life = put(&mut log, RecordKind::Incarnation, 2, &seals[0]);
        let last = put(&mut log, RecordKind::User, 9, &seals[1]);
        let end = put(&mut log, RecordKind::User, 10, &seals[1]);
        let checked = |log: &[u8], cut: u64| {
            let mut checker = Checker::new(ENVIRONMENT, seals[0], START);
            let (first, second) = log.split_at((cut - START) as usize);
            [checker.pass(START, first), checker.pass(cut, second)]
        };
        assert_eq!(checked(&log, end), [START..end, end..end]);
        // One that goes on in the next piece is checked by the scan, those behind it are not.
        assert_eq!(checked(&log, last - 16), [START..life, last..end]);
        assert_eq!(checked(&log, last), [START..last, last..end]);
        // What begins a life and goes on there leaves the rest to the scan.
        let [first, second] = checked(&log, life - 8);
        assert!(first.end < life && second.is_empty());
        // So nothing that the life before has left behind it counts as checked.
        let mut left = log[..(life - START) as usize].to_vec();
        put(&mut left, RecordKind::User, 9, &seals[0]);
        let [_, second] = checked(&left, life - 8);
        assert!(second.is_empty(), "{second:?}");
        // So does what is wrong, wherever it is.
        for at in (0..log.len()).step_by(8) {
            log[at] ^= 1;
            let [found, _] = checked(&log, end);
            assert!(found.end <= START + at as u64, "damage at {at}: {found:?}");
            log[at] ^= 1;
        }
    }
}
