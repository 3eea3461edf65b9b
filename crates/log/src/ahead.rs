//! A thread that reads the log ahead of a scan: the device is at work while the scan checks what has come.
//!
//! ```text
//! room of a buffer:  ...... end of the piece before | piece
//!                    HEAD_BYTES                       PIECE_BYTES
//! ```
//! A1. What is read ahead is no promise. Where a read fails, or a segment ends or is missing, the thread ends, and the
//!     scan reads on for itself. So it meets all errors as if there were no thread.
//! A2. `call` is raised after what the other side shall see has happened. Both look at `call` before they look at the
//!     pieces. So no call is lost.
//! A3. The thread ends before the scan does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use ledgerstone_disk::AlignedBuf;
use ledgerstone_region::{Mutex, sync};

use crate::segment::Segments;

/// Read at once.
const PIECE_BYTES: usize = 512 << 10;
/// Room for the end of the piece before: a record that goes on.
const HEAD_BYTES: usize = 64 << 10;
/// Pieces that are read and not looked at, at most.
const PIECES: usize = 4;

/// Bytes of the log, and what was put before them.
pub(crate) struct Piece {
    buffer: AlignedBuf,
    /// Where the bytes begin.
    from: usize,
    to: usize,
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

#[derive(Default)]
struct Pieces {
    read: VecDeque<Piece>,
    free: Vec<AlignedBuf>,
    has_ended: bool,
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
}

/// The thread, and what it has read.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    thread: Option<sync::JoinHandle<()>>,
}

impl Ahead {
    /// Reads from `at` on, where a block begins. `None`: the system has no thread left.
    pub fn begin(segments: Segments, at: u64) -> Option<Ahead> {
        let shared = Arc::new(Shared::default());
        shared.pieces.lock().free.extend((0..PIECES).map(|_| AlignedBuf::new(HEAD_BYTES + PIECE_BYTES)));
        let theirs = Arc::clone(&shared);
        let thread = sync::try_spawn("log reader", move || {
            let ended = Ended(&theirs);
            read_on(&segments, at, &theirs);
            drop(ended);
        });
        Some(Ahead { shared, thread: Some(thread.ok()?) })
    }

    /// The next piece, which goes on where the one before has ended. `None`: the thread has ended (A1).
    pub fn next(&self) -> Option<Piece> {
        loop {
            let seen = self.shared.call.load(SeqCst);
            {
                let mut pieces = self.shared.pieces.lock();
                if let Some(piece) = pieces.read.pop_front() {
                    return Some(piece);
                }
                if pieces.has_ended {
                    return None;
                }
            }
            sync::futex_wait(&self.shared.call, seen, None);
        }
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
        if let Some(thread) = self.thread.take() {
            // A panic there was reported there; the scan reads for itself.
            let _panicked = thread.join();
        }
    }
}

/// However the thread ends, nobody waits for it any more.
struct Ended<'s>(&'s Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.change(|pieces| pieces.has_ended = true);
    }
}

fn read_on(segments: &Segments, mut at: u64, shared: &Shared) {
    loop {
        let seen = shared.call.load(SeqCst);
        let buffer = {
            let mut pieces = shared.pieces.lock();
            if pieces.is_stopped {
                return;
            }
            pieces.free.pop()
        };
        let Some(mut buffer) = buffer else {
            sync::futex_wait(&shared.call, seen, None);
            continue;
        };
        let Ok(count) = segments.read(at, &mut buffer[HEAD_BYTES..]) else { return };
        let piece = Piece { buffer, from: HEAD_BYTES, to: HEAD_BYTES + count };
        shared.change(|pieces| pieces.read.push_back(piece));
        if count < PIECE_BYTES {
            return;
        }
        at += count as u64;
    }
}
