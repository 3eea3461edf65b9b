//! A ring of slots with one writer, in words that two processes share: the algorithm, without mappings and sleeping.
//!
//! ```text
//! word  field
//!    0  head           messages that the reader is done with; written by the reader
//!    1  state, 2 settled   left alone by the ring: what a network says about a passage (`net/gateway.rs`)
//!    8  slots, each `slot_words` long, a multiple of a line:
//!       0  bits 63..32  sequence: position of the message + 1, low 32 bits; what is not the expected one is not a message
//!          bits 31..0   length in bytes
//!       1  bits 63..32  type of the message
//!          bits 31..16  version of the type
//!          bits 15..4   processor on which it was sent, for the wait that adapts itself; 4095 if not known
//!          bits  3..0   flags
//!       2  payload
//! ```
//!
//! N1. The writer fills a slot only while tail - head < slots, where head was loaded with acquire: the reader is done
//!     with what was there. The reader stores head with release.
//! N2. The slot's first word is stored last, with release, and loaded first, with acquire: a reader that sees the
//!     expected sequence sees the message. There is nothing between "not sent" and "sent", so a writer may die
//!     anywhere.
//! N3. The reader trusts its own position and its own shape only. What it reads decides whether there is a message and
//!     how long it is. A length beyond the slot ends the ring ([`Broken`]). No value that is read is used as a
//!     position, so no bits can make a reader loop or leave the ring.
//! N4. When the oldest message may be dropped, both sides move head by compare-exchange. The side that wins owns the
//!     step. The reader copies first and believes its copy only if it wins.

use crate::atomic::{AtomicU64, Ordering};

/// Words of 8 bytes in a cache line.
pub(crate) const LINE_WORDS: usize = 8;
const HEAD: usize = 0;
/// Words of the head's line that the ring leaves alone.
pub(crate) const STATE: usize = 1;
pub(crate) const SETTLED: usize = 2;
const SLOTS: usize = LINE_WORDS;
/// The most slots of a ring, and the longest payload that is asked for; it is rounded up to whole lines.
pub(crate) const SLOT_COUNT_MAX: u32 = 1 << 16;
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 1 << 20;
/// No ring lives long enough to get here.
const POSITION_END: u64 = 1 << 62;
/// Words of a slot before its payload.
pub(crate) const SLOT_HEADER_WORDS: usize = 2;

/// Number and size of the slots: private to each side, never read from shared memory by the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    slot_count: u32,
    slot_words: u32,
}

impl Shape {
    /// Slots for payloads of up to `payload_bytes`, rounded up to whole lines. `slot_count` is a power of two.
    pub(crate) fn new(slot_count: u32, payload_bytes: u32) -> Shape {
        debug_assert!(slot_count.is_power_of_two());
        let words = SLOT_HEADER_WORDS + (payload_bytes as usize).div_ceil(8);
        Shape { slot_count, slot_words: words.next_multiple_of(LINE_WORDS) as u32 }
    }

    /// The shape that another process says its ring has; `None` if none of this library's has.
    pub(crate) fn of_stranger(slot_count: u32, payload_bytes: u32) -> Option<Shape> {
        let is_possible = slot_count.is_power_of_two()
            && slot_count <= SLOT_COUNT_MAX
            && (1..=PAYLOAD_BYTES_MAX + LINE_WORDS as u32 * 8).contains(&payload_bytes);
        is_possible.then(|| Shape::new(slot_count, payload_bytes))
    }

    pub(crate) fn slot_count(self) -> u32 {
        self.slot_count
    }

    /// The longest payload: what is left of a slot's lines.
    pub(crate) fn payload_bytes_max(self) -> u32 {
        (self.slot_words - SLOT_HEADER_WORDS as u32) * 8
    }

    /// Words of the whole ring.
    pub(crate) fn words(self) -> usize {
        SLOTS + self.slot_count as usize * self.slot_words as usize
    }

    /// First word of the slot for `position`; always inside the ring.
    #[inline]
    pub(crate) fn slot(self, position: u64) -> usize {
        SLOTS + (position as u32 & (self.slot_count - 1)) as usize * self.slot_words as usize
    }
}

/// What a message says about itself, copied out of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) len: u32,
    pub(crate) kind: u32,
    pub(crate) version: u16,
    pub(crate) cpu: u16,
    pub(crate) flags: u8,
}

/// The processor is not known.
pub(crate) const CPU_UNKNOWN: u16 = 0xfff;

impl Header {
    pub(crate) fn second_word(self) -> u64 {
        u64::from(self.kind) << 32
            | u64::from(self.version) << 16
            | u64::from(self.cpu & 0xfff) << 4
            | u64::from(self.flags & 0xf)
    }

    pub(crate) fn from_words(first: u64, second: u64) -> Header {
        Header {
            len: first as u32,
            kind: (second >> 32) as u32,
            version: (second >> 16) as u16,
            cpu: (second >> 4) as u16 & 0xfff,
            flags: second as u8 & 0xf,
        }
    }
}

/// Counters of what went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    pub(crate) dropped: u64,
    pub(crate) broken: u64,
}

/// The other side wrote what no writer writes: nothing in this ring can be believed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// The writing end: positions that only this process knows.
#[derive(Debug)]
pub(crate) struct Writer {
    shape: Shape,
    tail: u64,
    /// Head as last seen; the ring has at least the room that follows from it.
    head_seen: u64,
}

impl Writer {
    pub(crate) fn new(shape: Shape) -> Writer {
        Writer { shape, tail: 0, head_seen: 0 }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// The sequence that the next message will have.
    pub(crate) fn sequence(&self) -> u64 {
        u64::from((self.tail + 1) as u32)
    }

    /// Whether a slot is free; looks at the reader's head only when the ring seems full.
    #[inline]
    pub(crate) fn has_room(&mut self, ring: &[AtomicU64]) -> Result<bool, Broken> {
        if self.tail.wrapping_sub(self.head_seen) < u64::from(self.shape.slot_count) {
            return Ok(true);
        }
        let head = ring[HEAD].load(Ordering::Acquire); // Pairs with the Release in `Reader::advance` (N1).
        let used = self.tail.wrapping_sub(head);
        if used > u64::from(self.shape.slot_count) {
            return Err(Broken);
        }
        self.head_seen = head;
        Ok(used < u64::from(self.shape.slot_count))
    }

    /// Messages written so far.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// Slots that are free for certain.
    pub(crate) fn room(&mut self, ring: &[AtomicU64]) -> Result<u32, Broken> {
        let used = self.tail.wrapping_sub(ring[HEAD].load(Ordering::Acquire)); // As in `has_room`.
        u32::try_from(used).ok().and_then(|used| self.shape.slot_count.checked_sub(used)).ok_or(Broken)
    }

    /// Whether everything written was taken.
    pub(crate) fn is_drained(&self, ring: &[AtomicU64]) -> bool {
        ring[HEAD].load(Ordering::Acquire) == self.tail // As in `has_room`.
    }

    /// Gives up the oldest message for room (N4). `false` if the reader was faster, which made room too.
    pub(crate) fn drop_oldest(&mut self, ring: &[AtomicU64]) -> bool {
        let oldest = self.tail - u64::from(self.shape.slot_count);
        // AcqRel: what we write next comes after the step, and after the reader's if it was faster.
        let step = ring[HEAD].compare_exchange(oldest, oldest + 1, Ordering::AcqRel, Ordering::Acquire);
        self.head_seen = oldest + 1;
        step.is_ok()
    }

    /// First payload word of the slot to be written next. There must be room.
    #[inline]
    pub(crate) fn payload(&self) -> usize {
        self.shape.slot(self.tail) + SLOT_HEADER_WORDS
    }

    /// Publishes the slot whose payload has been written (N2).
    #[inline]
    pub(crate) fn publish(&mut self, ring: &[AtomicU64], header: Header) {
        debug_assert!(header.len <= self.shape.payload_bytes_max());
        let slot = self.shape.slot(self.tail);
        self.tail += 1;
        ring[slot + 1].store(header.second_word(), Ordering::Relaxed); // Released by the next line.
        let first = u64::from(self.tail as u32) << 32 | u64::from(header.len);
        ring[slot].store(first, publication()); // Pairs with the Acquire in `Reader::peek`.
    }
}

/// The ordering of publication. With the planted bug a message can be seen before its bytes.
fn publication() -> Ordering {
    if cfg!(feature = "planted-early-publication") { Ordering::Relaxed } else { Ordering::Release }
}

/// Whether a message that was copied is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    Taken,
    Lost(u64),
}

/// The reading end: the next position and the shape, which only this process knows (N3).
#[derive(Debug)]
pub(crate) struct Reader {
    shape: Shape,
    head: u64,
}

impl Reader {
    pub(crate) fn new(shape: Shape) -> Reader {
        Reader { shape, head: 0 }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// The next message, if it is there.
    #[inline]
    pub(crate) fn peek(&self, ring: &[AtomicU64]) -> Result<Option<Header>, Broken> {
        let slot = self.shape.slot(self.head);
        let first = ring[slot].load(Ordering::Acquire); // Pairs with the Release in `Writer::publish` (N2).
        if (first >> 32) as u32 != (self.head + 1) as u32 {
            return Ok(None);
        }
        let header = Header::from_words(first, ring[slot + 1].load(Ordering::Relaxed)); // Acquired by the line above.
        if header.len > self.shape.payload_bytes_max() { Err(Broken) } else { Ok(Some(header)) }
    }

    /// Messages that are there, as far as can be seen now; at most as many as there are slots.
    pub(crate) fn waiting(&self, ring: &[AtomicU64]) -> usize {
        (0..u64::from(self.shape.slot_count))
            .take_while(|ahead| {
                let position = self.head + ahead;
                let first = ring[self.shape.slot(position)].load(Ordering::Relaxed); // Only counted, not read.
                (first >> 32) as u32 == (position + 1) as u32
            })
            .count()
    }

    /// Messages that were taken so far.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// First payload word of the next message.
    #[inline]
    pub(crate) fn payload(&self) -> usize {
        self.shape.slot(self.head) + SLOT_HEADER_WORDS
    }

    /// Done with the message: its slot is free for the writer.
    #[inline]
    pub(crate) fn advance(&mut self, ring: &[AtomicU64]) {
        self.head += 1;
        ring[HEAD].store(self.head, Ordering::Release); // Pairs with the Acquire in `Writer::has_room` (N1).
    }

    /// Takes the message that was copied, if the writer has not dropped it meanwhile (N4). Else the copy is worthless,
    /// and so many messages are lost, this one among them: look again.
    pub(crate) fn take_copied(&mut self, ring: &[AtomicU64]) -> Result<Take, Broken> {
        let head = self.head;
        match ring[HEAD].compare_exchange(head, head + 1, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                self.head += 1;
                Ok(Take::Taken)
            }
            Err(now) => self.skip_to(now).map(Take::Lost),
        }
    }

    /// Catches up with a writer that drops the oldest, and returns how many messages were lost.
    pub(crate) fn skip_dropped(&mut self, ring: &[AtomicU64]) -> Result<u64, Broken> {
        self.skip_to(ring[HEAD].load(Ordering::Acquire)) // Pairs with the AcqRel in `Writer::drop_oldest`.
    }

    /// Forwards only, whatever is written there: no bits can make the reader go round for ever.
    fn skip_to(&mut self, head: u64) -> Result<u64, Broken> {
        let lost = head.checked_sub(self.head).filter(|_| head < POSITION_END).ok_or(Broken)?;
        self.head = head;
        Ok(lost)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ring(slot_count: u32) -> (Vec<AtomicU64>, Writer, Reader) {
        let shape = Shape::new(slot_count, 48);
        ((0..shape.words()).map(|_| AtomicU64::new(0)).collect(), Writer::new(shape), Reader::new(shape))
    }

    fn header(len: u32) -> Header {
        Header { len, kind: 0xdead_beef, version: 0xabcd, cpu: 5, flags: 9 }
    }

    #[test]
    fn what_was_published_is_read_once_and_in_order() {
        let (words, mut writer, mut reader) = ring(4);
        for round in 0..100u32 {
            assert_eq!(reader.peek(&words), Ok(None));
            for i in 0..4 {
                assert_eq!(writer.has_room(&words), Ok(true), "{round}");
                writer.publish(&words, header(i));
            }
            assert_eq!(writer.has_room(&words), Ok(false));
            for i in 0..4 {
                assert_eq!(reader.peek(&words), Ok(Some(header(i))));
                reader.advance(&words);
            }
        }
    }

    #[test]
    fn the_slots_first_word_has_the_layout_in_the_table() {
        let (words, mut writer, _) = ring(4);
        writer.publish(&words, header(20));
        assert_eq!(words[8].load(Ordering::Relaxed), 1 << 32 | 20);
        assert_eq!(words[9].load(Ordering::Relaxed), 0xdead_beef_abcd_0059);
        assert_eq!((writer.payload(), Shape::new(4, 48).words()), (8 + 8 + 2, 8 + 4 * 8));
    }

    #[test]
    fn a_length_beyond_the_slot_ends_the_ring() {
        let (words, mut writer, reader) = ring(4);
        writer.publish(&words, header(48));
        words[8].store(1 << 32 | 49, Ordering::Relaxed);
        assert_eq!(reader.peek(&words), Err(Broken));
    }

    #[test]
    fn a_head_that_no_reader_wrote_ends_the_ring() {
        let (words, mut writer, _) = ring(4);
        for _ in 0..4 {
            writer.publish(&words, header(0));
        }
        for nonsense in [5, u64::MAX, 1 << 40] {
            words[HEAD].store(nonsense, Ordering::Relaxed);
            assert_eq!(writer.has_room(&words), Err(Broken), "{nonsense}");
        }
    }

    #[test]
    fn the_oldest_is_dropped_and_the_reader_knows_how_many() {
        let (words, mut writer, mut reader) = ring(4);
        for i in 0..7 {
            if !writer.has_room(&words).unwrap() {
                assert!(writer.drop_oldest(&words));
            }
            writer.publish(&words, header(i));
        }
        assert_eq!(reader.skip_dropped(&words), Ok(3));
        for i in 3..7 {
            assert_eq!(reader.peek(&words), Ok(Some(header(i))));
            assert_eq!(reader.take_copied(&words), Ok(Take::Taken));
        }
        assert_eq!(reader.peek(&words), Ok(None));
    }

    #[test]
    fn sequences_that_begin_again_are_no_beginning() {
        let (words, mut writer, mut reader) = ring(4);
        let start = (1 << 32) - 6;
        (writer.tail, writer.head_seen, reader.head) = (start, start, start);
        words[HEAD].store(start, Ordering::Relaxed);
        for round in 0..3 {
            for no in 0..4 {
                assert_eq!(reader.waiting(&words), no as usize, "{round}");
                assert_eq!(writer.has_room(&words), Ok(true));
                writer.publish(&words, header(no));
            }
            assert_eq!(writer.has_room(&words), Ok(false));
            for no in 0..4 {
                assert_eq!(reader.peek(&words), Ok(Some(header(no))), "{round}");
                reader.advance(&words);
            }
            assert_eq!(reader.peek(&words), Ok(None), "{round}");
        }
    }

    #[test]
    fn shapes_that_no_ring_has_are_none() {
        for (slots, bytes) in
            [(0, 48), (3, 48), (1 << 17, 48), (u32::MAX, 48), (4, 0), (4, (1 << 20) + 65), (4, u32::MAX)]
        {
            assert_eq!(Shape::of_stranger(slots, bytes), None, "{slots} {bytes}");
        }
        for bytes in [1, 48, 1008, 1 << 20] {
            let shape = Shape::new(SLOT_COUNT_MAX, bytes);
            assert_eq!(Shape::of_stranger(SLOT_COUNT_MAX, bytes), Some(shape));
            assert_eq!(Shape::of_stranger(SLOT_COUNT_MAX, shape.payload_bytes_max()), Some(shape));
        }
    }

    #[test]
    fn a_dropped_message_is_not_taken_though_it_was_copied() {
        let (words, mut writer, mut reader) = ring(2);
        writer.publish(&words, header(0));
        writer.publish(&words, header(1));
        assert!(reader.peek(&words).unwrap().is_some());
        assert!(!writer.has_room(&words).unwrap() && writer.drop_oldest(&words));
        writer.publish(&words, header(2));
        assert_eq!(reader.take_copied(&words), Ok(Take::Lost(1)));
        assert_eq!(reader.peek(&words), Ok(Some(header(1))));
    }
}
