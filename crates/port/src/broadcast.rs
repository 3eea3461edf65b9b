//! Rings that many read: one writer each, one copy of a message whatever the number of readers. The algorithm, in
//! words.
//!
//! ```text
//! word  field
//!    0  readers       bit r: reader r has been there; never cleared
//!    8  writers       bit w: ring w has been used; never cleared
//!   16  sleepers      bit r: reader r may be asleep
//!   24  of each reader r, a line:
//!       0  groups     in how many groups it is; 0: writers do not wait for it
//!       1  filter     bit (hash of xid): it may be in that group
//!       2  lossy      1: it would rather lose messages than be waited for
//!    :  of each reader r, a word for each writer w: cursor, the messages of w that r is done with
//!    :  rings, one for each writer:
//!       0  tail       messages written
//!       8  slots:     0  sequence and length; 2^32 - 1 while it is written
//!                     1  type, version, processor, flags: as in a lane (`ring.rs`)
//!                     2  xid     3, 4  address of the sender     5  payload
//! ```
//!
//! M1. A slot is filled only when every reader with groups > 0 that is not lossy has a cursor above the message that
//!     was there. A writer's knowledge of cursors may be old. An old cursor is a lower one, which is safe.
//! M2. A reader that enters its first group says so (groups = 1), then a full fence, then takes the tails for its
//!     positions. A writer stores its tail, then a full fence, then looks who has groups. So a writer that did not see
//!     the reader has written nothing beyond `slots` messages behind the position that the reader took.
//! M3. The reader copies, then checks that the sequence is still the same. A reader may be too slow, because it is
//!     lossy or because a bad writer does not wait for it. It never takes what it missed for a message.
//! M4. Positions are private and only grow; lengths are checked; each look reads a bounded number of words.
//! M5. A writer that died is followed in its place by another, which goes on where the slots end.

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::bytes::{load_bytes, store_bytes};
use crate::ring::{Broken, Header, LINE_WORDS, SLOT_HEADER_WORDS, Shape};

/// Members that one host's ring for groups has at a time.
#[cfg(not(loom))]
pub(crate) const PLACES: usize = 64;
#[cfg(loom)]
pub(crate) const PLACES: usize = 2;

const READERS: usize = 0;
const WRITERS: usize = LINE_WORDS;
const SLEEPERS: usize = 2 * LINE_WORDS;
const ABOUT: usize = 3 * LINE_WORDS;
const CURSORS: usize = ABOUT + PLACES * LINE_WORDS;
const RINGS: usize = CURSORS + PLACES * PLACES;
/// Xid and address, before the payload proper.
const ENVELOPE_WORDS: usize = 3;

/// First word of a slot while it is written: what no message has, whatever its sequence.
const BEING_WRITTEN: u64 = u32::MAX as u64;

const GROUPS: usize = 0;
const FILTER: usize = 1;
const LOSSY: usize = 2;

/// Words of everything.
pub(crate) fn words(shape: Shape) -> usize {
    RINGS + PLACES * shape.words()
}

/// Words before the first ring, and where ring `writer` lies.
pub(crate) fn ring_words(shape: Shape, writer: usize) -> std::ops::Range<usize> {
    let start = RINGS + writer * shape.words();
    start..start + shape.words()
}

/// The longest payload.
pub(crate) fn payload_bytes_max(shape: Shape) -> usize {
    shape.payload_bytes_max() as usize - ENVELOPE_WORDS * 8
}

/// A shape whose slots hold payloads of that many bytes.
pub(crate) fn shape(slot_count: u32, payload_bytes: u32) -> Shape {
    Shape::new(slot_count, payload_bytes + ENVELOPE_WORDS as u32 * 8)
}

fn about(reader: usize) -> usize {
    ABOUT + reader * LINE_WORDS
}

fn cursor(reader: usize, writer: usize) -> usize {
    CURSORS + reader * PLACES + writer
}

/// Which of the 64 bits of a filter a transaction has.
pub(crate) fn filter_bit(xid: u64) -> u32 {
    (xid.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as u32
}

/// Who a message is for and from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) xid: u64,
    pub(crate) from: u128,
}

/// The writing end of one place's ring.
#[derive(Debug)]
pub(crate) struct Writer {
    place: usize,
    shape: Shape,
    tail: u64,
    /// First position that may not be written before cursors are looked at again.
    limit: u64,
}

impl Writer {
    /// Takes over the ring of a place that this process has for itself (M5).
    pub(crate) fn new(words: &[AtomicU64], shape: Shape, place: usize) -> Writer {
        let ring = &words[ring_words(shape, place)];
        let mut tail = ring[0].load(Ordering::Acquire); // Pairs with the Release in `publish` of the writer before.
        for _ in 0..shape.slot_count() {
            let first = ring[shape.slot(tail)].load(Ordering::Acquire); // As above.
            if (first >> 32) as u32 != tail.wrapping_add(1) as u32 || first == BEING_WRITTEN {
                break;
            }
            tail = tail.wrapping_add(1);
        }
        ring[0].store(tail, Ordering::Release);
        words[WRITERS].fetch_or(1 << place, Ordering::Release); // Pairs with the Acquire in `Reader::writers`.
        Writer { place, shape, tail, limit: tail }
    }

    /// First word of the next slot, and the sequence that its message will have.
    pub(crate) fn next_slot(&self) -> (usize, u64) {
        let slot = ring_words(self.shape, self.place).start + self.shape.slot(self.tail);
        (slot, u64::from(self.tail.wrapping_add(1) as u32))
    }

    /// Whether a slot is free (M1).
    #[inline]
    pub(crate) fn has_room(&mut self, words: &[AtomicU64]) -> bool {
        self.tail < self.limit || self.blockers(words) == 0
    }

    /// Looks at the cursors again: the readers, as bits, that are waited for.
    pub(crate) fn blockers(&mut self, words: &[AtomicU64]) -> u64 {
        fence(Ordering::SeqCst); // M2: our tail is stored before we look who has groups.
        let slots = u64::from(self.shape.slot_count());
        let mut slowest = self.tail;
        let mut blockers = 0;
        for reader in bits(words[READERS].load(Ordering::Relaxed)) {
            let line = &words[about(reader)..about(reader) + LINE_WORDS];
            // Relaxed: the fence above and the one in `Reader::enter` order them.
            if line[GROUPS].load(Ordering::Relaxed) == 0 || line[LOSSY].load(Ordering::Relaxed) != 0 {
                continue;
            }
            // Pairs with the Release in `Reader::advance`: the reader has copied what we will overwrite.
            let done = words[cursor(reader, self.place)].load(Ordering::Acquire);
            if self.tail.saturating_sub(done) >= slots {
                blockers |= 1 << reader;
            }
            slowest = slowest.min(done);
        }
        if blockers == 0 {
            self.limit = slowest.saturating_add(slots);
        }
        blockers
    }

    /// Writes a message into the free slot and shows it to all readers.
    #[inline]
    pub(crate) fn publish(&mut self, words: &[AtomicU64], header: Header, envelope: Envelope, bytes: &[u8]) {
        self.begin(words);
        let ring = &words[ring_words(self.shape, self.place)];
        let slot = self.shape.slot(self.tail);
        ring[slot + 1].store(header.second_word(), Ordering::Relaxed); // Released, with all below, by the last store.
        ring[slot + SLOT_HEADER_WORDS].store(envelope.xid, Ordering::Relaxed);
        ring[slot + SLOT_HEADER_WORDS + 1].store(envelope.from as u64, Ordering::Relaxed);
        ring[slot + SLOT_HEADER_WORDS + 2].store((envelope.from >> 64) as u64, Ordering::Relaxed);
        store_bytes(&ring[slot + SLOT_HEADER_WORDS + ENVELOPE_WORDS..], bytes);
        self.tail = self.tail.wrapping_add(1);
        let first = u64::from(self.tail as u32) << 32 | u64::from(header.len);
        ring[slot].store(first, Ordering::Release); // Pairs with the Acquire in `Reader::peek`.
        ring[0].store(self.tail, Ordering::Release); // Pairs with the Acquire in `Reader::enter`.
    }

    /// From now on nobody takes half of the old message with half of the new one for whole (M3).
    #[inline]
    fn begin(&self, words: &[AtomicU64]) {
        let slot = ring_words(self.shape, self.place).start + self.shape.slot(self.tail);
        words[slot].store(BEING_WRITTEN, Ordering::Relaxed);
        fence(Ordering::Release); // Pairs with the fence(Acquire) in `Reader::peek`.
    }

    /// After publishing: the sleeping readers that may be in the group, as bits; they are to be woken.
    #[inline]
    pub(crate) fn sleepers(&self, words: &[AtomicU64], xid: u64) -> u64 {
        fence(Ordering::SeqCst); // B1: published before we look who sleeps.
        let sleepers = words[SLEEPERS].load(Ordering::Relaxed);
        if sleepers == 0 {
            return 0;
        }
        let bit = filter_bit(xid);
        // Relaxed: a reader sets its filter before it sleeps, and the fences order both.
        let is_meant = |reader: &usize| words[about(*reader) + FILTER].load(Ordering::Relaxed) >> bit & 1 == 1;
        bits(sleepers).filter(is_meant).fold(0, |all, reader| all | 1 << reader)
    }
}

/// Forgets what a dead reader was in: nobody waits for it any more.
pub(crate) fn bury(words: &[AtomicU64], reader: usize) {
    words[about(reader) + GROUPS].store(0, Ordering::Relaxed); // Old news is harmless: it makes writers wait.
    words[SLEEPERS].fetch_and(!(1 << reader), Ordering::Relaxed);
}

/// The bits that are set, lowest first.
pub(crate) fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        (bit < PLACES).then_some(bit)
    })
}

/// The reading end: one place's positions in the rings of all.
#[derive(Debug)]
pub(crate) struct Reader {
    place: usize,
    shape: Shape,
    positions: [u64; PLACES],
}

/// What a look at one ring gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Nothing,
    /// A message; its bytes are in the buffer.
    Message(Header, Envelope),
    /// A message for a group that we are not in.
    NotOurs,
    /// So many messages were overwritten before we read them.
    Lost(u64),
}

impl Reader {
    pub(crate) fn new(words: &[AtomicU64], shape: Shape, place: usize, is_lossy: bool) -> Reader {
        let line = &words[about(place)..];
        line[GROUPS].store(0, Ordering::Relaxed); // What a dead reader of this place left; nobody waits for it now.
        line[FILTER].store(0, Ordering::Relaxed);
        line[LOSSY].store(u64::from(is_lossy), Ordering::Relaxed);
        words[READERS].fetch_or(1 << place, Ordering::Release); // The fence in `enter` follows before it matters.
        Reader { place, shape, positions: [0; PLACES] }
    }

    /// Says in how many groups we are, and which bits of the filter they have. From none to some: what was sent before
    /// is not for us (M2).
    #[inline]
    pub(crate) fn enter(&mut self, words: &[AtomicU64], groups: u64, filter: u64) {
        let line = &words[about(self.place)..];
        line[FILTER].store(filter, Ordering::Relaxed); // Read by writers that see us asleep; fences are between.
        let was = line[GROUPS].load(Ordering::Relaxed); // Ours alone to write.
        line[GROUPS].store(groups, Ordering::Release); // Leaving: our copies were made before.
        if was == 0 && groups > 0 {
            fence(Ordering::SeqCst); // M2.
            for writer in self.writers(words) {
                // Pairs with the Release in `publish`.
                let tail = words[ring_words(self.shape, writer).start].load(Ordering::Acquire);
                self.positions[writer] = self.positions[writer].max(tail);
                words[cursor(self.place, writer)].store(self.positions[writer], Ordering::Release); // As in `advance`.
            }
        }
    }

    /// The rings that have been used.
    #[inline]
    pub(crate) fn writers(&self, words: &[AtomicU64]) -> impl Iterator<Item = usize> + use<> {
        bits(words[WRITERS].load(Ordering::Acquire)) // Pairs with the Release in `Writer::new`.
    }

    /// Looks at the next message of one ring, and copies it if it is for a group that we are in.
    #[inline]
    pub(crate) fn peek(
        &mut self,
        words: &[AtomicU64],
        writer: usize,
        is_ours: impl Fn(u64) -> bool,
        into: &mut Vec<u8>,
    ) -> Result<Look, Broken> {
        let ring = &words[ring_words(self.shape, writer)];
        let position = self.positions[writer];
        let slot = self.shape.slot(position);
        let first = ring[slot].load(Ordering::Acquire); // Pairs with the Release in `Writer::publish`.
        let ahead = ((first >> 32) as u32).wrapping_sub(position.wrapping_add(1) as u32);
        if ahead != 0 || first == BEING_WRITTEN {
            return self.peek_elsewhere(words, writer, first, ahead);
        }
        let header = Header::from_words(first, ring[slot + 1].load(Ordering::Relaxed)); // Acquired above, as all below.
        if header.len as usize > payload_bytes_max(self.shape) {
            return Err(Broken);
        }
        let word = |no: usize| ring[slot + SLOT_HEADER_WORDS + no].load(Ordering::Relaxed);
        let envelope = Envelope { xid: word(0), from: u128::from(word(1)) | u128::from(word(2)) << 64 };
        let is_ours = is_ours(envelope.xid);
        if is_ours {
            into.resize(header.len as usize, 0);
            load_bytes(&ring[slot + SLOT_HEADER_WORDS + ENVELOPE_WORDS..], into);
        }
        fence(Ordering::Acquire); // Pairs with the fence(Release) in `Writer::publish`: our loads end before the check.
        if ring[slot].load(Ordering::Relaxed) != first {
            return Ok(Look::Nothing); // Overwritten meanwhile; the next look finds out by how many (M3).
        }
        self.advance(words, writer, position.wrapping_add(1));
        Ok(if is_ours { Look::Message(header, envelope) } else { Look::NotOurs })
    }

    /// Passes over everything that one ring has now: something in it is impossible.
    pub(crate) fn pass(&mut self, words: &[AtomicU64], writer: usize) {
        let tail = words[ring_words(self.shape, writer).start].load(Ordering::Acquire); // As in `enter`.
        self.advance(words, writer, tail.max(self.positions[writer].wrapping_add(1)));
    }

    /// Not the expected message: none yet, or later ones already.
    #[inline]
    fn peek_elsewhere(&mut self, words: &[AtomicU64], writer: usize, first: u64, ahead: u32) -> Result<Look, Broken> {
        // A slot holds 0 until it is written first; and else, if nothing was lost, what was written one round ago.
        if first == 0 || first == BEING_WRITTEN || ahead == self.shape.slot_count().wrapping_neg() {
            return Ok(Look::Nothing);
        }
        let position = self.positions[writer];
        let tail = words[ring_words(self.shape, writer).start].load(Ordering::Acquire); // As in `enter`.
        let oldest = tail.saturating_sub(u64::from(self.shape.slot_count()) - 1);
        if oldest <= position {
            // Older than anything that can be there: a reader that entered when the ring was young, or nonsense, which
            // stays nonsense however often it is read.
            return Ok(Look::Nothing);
        }
        self.advance(words, writer, oldest);
        Ok(Look::Lost(oldest - position))
    }

    #[inline]
    fn advance(&mut self, words: &[AtomicU64], writer: usize, position: u64) {
        self.positions[writer] = position;
        // Pairs with the Acquire in `Writer::blockers`.
        words[cursor(self.place, writer)].store(position, Ordering::Release);
    }

    /// Rings whose next message is there.
    pub(crate) fn waiting(&self, words: &[AtomicU64]) -> usize {
        let is_waiting = |writer: &usize| {
            let position = self.positions[*writer];
            let slot = ring_words(self.shape, *writer).start + self.shape.slot(position);
            let first = words[slot].load(Ordering::Relaxed); // Only counted, not read.
            (first >> 32) as u32 == position.wrapping_add(1) as u32 && first != BEING_WRITTEN
        };
        self.writers(words).filter(is_waiting).count()
    }

    /// Before the last look and the sleep.
    pub(crate) fn will_sleep(&self, words: &[AtomicU64]) {
        words[SLEEPERS].fetch_or(1 << self.place, Ordering::SeqCst);
        fence(Ordering::SeqCst); // B1; pairs with the one in `Writer::sleepers`.
    }

    /// After the sleep.
    pub(crate) fn is_awake(&self, words: &[AtomicU64]) {
        words[SLEEPERS].fetch_and(!(1 << self.place), Ordering::Relaxed); // A waking too many is harmless.
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const FROM: u128 = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;

    fn ground(slot_count: u32) -> (Vec<AtomicU64>, Shape) {
        let shape = shape(slot_count, 24);
        ((0..words(shape)).map(|_| AtomicU64::new(0)).collect(), shape)
    }

    fn header(len: u32) -> Header {
        Header { len, kind: 3, version: 4, cpu: 5, flags: 0 }
    }

    fn publish(words: &[AtomicU64], writer: &mut Writer, xid: u64, text: &str) {
        assert!(writer.has_room(words), "no room for {text}");
        writer.publish(words, header(text.len() as u32), Envelope { xid, from: FROM }, text.as_bytes());
    }

    fn take(words: &[AtomicU64], reader: &mut Reader, writer: usize) -> Option<String> {
        let mut bytes = Vec::new();
        match reader.peek(words, writer, |xid| xid == 7, &mut bytes).unwrap() {
            Look::Message(_, envelope) => {
                assert_eq!(envelope, Envelope { xid: 7, from: FROM });
                Some(String::from_utf8(bytes).unwrap())
            }
            Look::NotOurs => Some("-".to_owned()),
            Look::Lost(count) => Some(format!("lost {count}")),
            Look::Nothing => None,
        }
    }

    #[test]
    fn every_member_reads_the_one_copy_and_others_pass_it_over() {
        let (words, shape) = ground(4);
        let mut writer = Writer::new(&words, shape, 3);
        let mut readers: Vec<_> = (0..2).map(|place| Reader::new(&words, shape, place, false)).collect();
        readers.iter_mut().for_each(|reader| reader.enter(&words, 1, u64::MAX));
        for round in 0..10 {
            publish(&words, &mut writer, 7, &format!("{round}"));
            publish(&words, &mut writer, 8, "others");
            for reader in &mut readers {
                assert_eq!(take(&words, reader, 3), Some(format!("{round}")));
                assert_eq!(take(&words, reader, 3).as_deref(), Some("-"));
                assert_eq!(take(&words, reader, 3), None);
            }
        }
    }

    #[test]
    fn the_writer_waits_for_members_only() {
        let (words, shape) = ground(2);
        let mut writer = Writer::new(&words, shape, 0);
        let mut slow = Reader::new(&words, shape, 5, false);
        let _nowhere = Reader::new(&words, shape, 6, false);
        let mut lossy = Reader::new(&words, shape, 7, true);
        slow.enter(&words, 1, u64::MAX);
        lossy.enter(&words, 1, u64::MAX);
        publish(&words, &mut writer, 7, "a");
        publish(&words, &mut writer, 7, "b");
        assert!(!writer.has_room(&words));
        assert_eq!(writer.blockers(&words), 1 << 5);
        assert_eq!(take(&words, &mut slow, 0).as_deref(), Some("a"));
        publish(&words, &mut writer, 7, "c");
        assert_eq!(take(&words, &mut lossy, 0).as_deref(), Some("lost 2"));
        assert_eq!(take(&words, &mut lossy, 0).as_deref(), Some("c"));
        slow.enter(&words, 0, 0);
        publish(&words, &mut writer, 7, "d");
    }

    #[test]
    fn who_enters_hears_what_is_sent_from_then_on() {
        let (words, shape) = ground(2);
        let mut writer = Writer::new(&words, shape, 0);
        let mut reader = Reader::new(&words, shape, 1, false);
        for round in 0..5 {
            (0..round).for_each(|_| publish(&words, &mut writer, 7, "before"));
            reader.enter(&words, 1, u64::MAX);
            publish(&words, &mut writer, 7, "after");
            assert_eq!(take(&words, &mut reader, 0).as_deref(), Some("after"), "{round}");
            assert_eq!(take(&words, &mut reader, 0), None, "{round}");
            reader.enter(&words, 0, 0);
        }
    }

    #[test]
    fn a_message_is_no_message_while_it_is_written_though_sequences_begin_again() {
        let (words, shape) = ground(4);
        words[ring_words(shape, 0).start].store((1 << 32) - 3, Ordering::Relaxed);
        let mut writer = Writer::new(&words, shape, 0);
        let mut reader = Reader::new(&words, shape, 1, false);
        reader.enter(&words, 1, u64::MAX);
        // Empty ones: their first word is the sequence alone, and one of these is 0.
        for round in 0..10 {
            assert!(writer.has_room(&words));
            writer.begin(&words);
            assert_eq!((take(&words, &mut reader, 0), reader.waiting(&words)), (None, 0), "{round}");
            publish(&words, &mut writer, 7, "");
            assert_eq!(reader.waiting(&words), 1, "{round}");
            assert_eq!(take(&words, &mut reader, 0).as_deref(), Some(""), "{round}");
        }
    }

    #[test]
    fn a_writer_goes_on_where_a_dead_one_stopped() {
        let (words, shape) = ground(4);
        let mut reader = Reader::new(&words, shape, 1, false);
        let mut dead = Writer::new(&words, shape, 0);
        reader.enter(&words, 1, u64::MAX);
        publish(&words, &mut dead, 7, "a");
        publish(&words, &mut dead, 7, "b");
        // It died between publishing and counting.
        words[ring_words(shape, 0).start].store(1, Ordering::Relaxed);
        let mut writer = Writer::new(&words, shape, 0);
        publish(&words, &mut writer, 7, "c");
        for expected in ["a", "b", "c"] {
            assert_eq!(take(&words, &mut reader, 0).as_deref(), Some(expected));
        }
    }

    #[test]
    fn lengths_and_tails_that_no_writer_wrote_do_no_harm() {
        let (words, shape) = ground(4);
        let mut writer = Writer::new(&words, shape, 0);
        let mut reader = Reader::new(&words, shape, 1, false);
        reader.enter(&words, 1, u64::MAX);
        publish(&words, &mut writer, 7, "a");
        let slot = ring_words(shape, 0).start + shape.slot(0);
        words[slot].store(1 << 32 | 25, Ordering::Relaxed);
        assert_eq!(reader.peek(&words, 0, |_| true, &mut Vec::new()), Err(Broken));
        words[slot].store(99 << 32, Ordering::Relaxed);
        words[ring_words(shape, 0).start].store(u64::MAX, Ordering::Relaxed);
        assert!(take(&words, &mut reader, 0).unwrap().starts_with("lost"));
        assert_eq!(take(&words, &mut reader, 0), None);
    }
}
