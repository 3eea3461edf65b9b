//! Page bytes that may change while they are read: always whole, aligned, relaxed `u64`s (R5).
//!
//! An atomic store that races with a plain access, or with an atomic one of another size, is undefined in Rust. So
//! there is one way to reach the bytes of a page, for readers and writers alike, and this file is it. Relaxed is
//! enough: what makes a reading whole is the latch's version around it (`latch.rs`), never an order among the words.
//!
//! W1. Reading never panics: bytes past the end are 0, and every loop is bounded by what the caller passed.
//! W2. Writing past the end is a bug of ours and is asserted.
//! W3. Byte i of the page is byte i % 8, counted from the low end, of word i / 8.
//!
//! A shared reference to atomics is all this file needs. Its only unsafe code gives hints to the processor, copies many
//! words by instructions that read two at once, and copies into memory that nobody has written yet.

use crate::PageBuf;
use crate::atomic::{AtomicU64, Ordering::Relaxed};
use std::cmp::Ordering;
use std::mem::MaybeUninit;

/// What is asked of memory at once: eight cache lines.
pub const STRETCH_BYTES: usize = 512;

/// Bytes to read, which may be changing. A reading counts only after the latch's version was found unchanged.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    words: &'a [AtomicU64],
}

/// Bytes that may be changed, because the caller has latched them exclusively.
pub struct WordsMut<'a> {
    words: &'a [AtomicU64],
}

/// The low `count` bytes of a word; `count` < 8.
#[inline(always)]
const fn low_mask(count: usize) -> u64 {
    (1u64 << (count * 8)) - 1
}

/// Up to seven bytes as the low end of a word.
#[inline(always)]
pub fn short_word(bytes: &[u8]) -> u64 {
    let n = bytes.len();
    if n >= 4 {
        let low = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as u64;
        let high = u32::from_le_bytes([bytes[n - 4], bytes[n - 3], bytes[n - 2], bytes[n - 1]]) as u64;
        low | high << ((n - 4) * 8)
    } else if n >= 2 {
        let low = u16::from_le_bytes([bytes[0], bytes[1]]) as u64;
        let high = u16::from_le_bytes([bytes[n - 2], bytes[n - 1]]) as u64;
        low | high << ((n - 2) * 8)
    } else if n == 1 {
        bytes[0] as u64
    } else {
        0
    }
}

#[inline(always)]
fn load_chunk(chunk: &[u8]) -> u64 {
    u64::from_le_bytes(chunk.try_into().expect("a chunk of 8 bytes"))
}

#[inline(always)]
fn load(word: &AtomicU64) -> u64 {
    u64::from_le(word.load(Relaxed))
}

#[inline(always)]
fn store(word: &AtomicU64, value: u64) {
    word.store(value.to_le(), Relaxed);
}

/// Eight bytes to copy to.
type Chunk = [MaybeUninit<u8>; 8];

#[inline(always)]
fn write(chunk: &mut Chunk, value: u64) {
    *chunk = value.to_le_bytes().map(MaybeUninit::new);
}

/// Copies many lines two words at a time, where the processor reads both at once. Else false, and nothing is copied.
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
#[inline(always)]
fn copy_lines(words: &[[AtomicU64; 8]], to: &mut [[Chunk; 8]]) -> bool {
    const LINES_MIN: usize = 8;
    let count = words.len().min(to.len());
    let is_aligned = words.as_ptr().addr().is_multiple_of(16);
    if count < LINES_MIN || !is_aligned || !std::arch::is_x86_feature_detected!("avx") {
        return false;
    }
    // SAFETY: the loop reads `count` lines of 64 bytes and writes as many, which is what there is at both places. The
    // two do not overlap, since `to` is borrowed alone. It changes nothing else but the registers named and the flags.
    // Processors with AVX read 16 aligned bytes by one access (Intel's manual, volume 3, 9.1.1; AMD's says the same).
    // So each `movdqa` does what two relaxed loads of its two words do, whoever stores there meanwhile.
    unsafe {
        std::arch::asm!(
            "2:",
            "movdqa {a}, [{from}]",
            "movdqa {b}, [{from} + 16]",
            "movdqa {c}, [{from} + 32]",
            "movdqa {d}, [{from} + 48]",
            "movdqu [{to}], {a}",
            "movdqu [{to} + 16], {b}",
            "movdqu [{to} + 32], {c}",
            "movdqu [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "dec {count}",
            "jnz 2b",
            from = inout(reg) words.as_ptr() => _,
            to = inout(reg) to.as_mut_ptr() => _,
            count = inout(reg) count => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
    true
}

#[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
fn copy_lines(_: &[[AtomicU64; 8]], _: &mut [[Chunk; 8]]) -> bool {
    false
}

/// Copies words to as many chunks, a cache line at a time: such a copy is of a whole page, as a rule.
#[inline(always)]
fn copy_words(words: &[AtomicU64], to: &mut [Chunk]) {
    let (lines, rest) = to.as_chunks_mut::<8>();
    let (word_lines, word_rest) = words.as_chunks::<8>();
    if !copy_lines(word_lines, lines) {
        for (line, words) in lines.iter_mut().zip(word_lines) {
            for (chunk, word) in line.iter_mut().zip(words) {
                write(chunk, load(word));
            }
        }
    }
    for (chunk, word) in rest.iter_mut().zip(word_rest) {
        write(chunk, load(word));
    }
}

/// Puts chunks into as many words, four at a time.
#[inline(always)]
fn store_chunks(words: &[AtomicU64], chunks: &[[u8; 8]]) {
    let (fours, rest) = chunks.as_chunks::<4>();
    let (word_fours, word_rest) = words.as_chunks::<4>();
    for (words, four) in word_fours.iter().zip(fours) {
        for (word, chunk) in words.iter().zip(four) {
            store(word, u64::from_le_bytes(*chunk));
        }
    }
    for (word, chunk) in word_rest.iter().zip(rest) {
        store(word, u64::from_le_bytes(*chunk));
    }
}

/// Asks the processor to fetch the cache line where something begins, to be written.
#[inline(always)]
pub fn prefetch_to_write<T>(at: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    // SAFETY: a prefetch changes nothing that the program could see and faults on no address at all; processors that do
    // not know this one take it for no operation.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) std::ptr::from_ref(at), options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
    let _ = at;
}

/// Asks the processor to fetch the cache line where something begins.
#[inline(always)]
pub fn prefetch<T>(at: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    // SAFETY: a prefetch reads nothing that the program could see and faults on no address at all.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(std::ptr::from_ref(at).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
    let _ = at;
}

impl<'a> Words<'a> {
    /// The bytes that these words are.
    #[inline]
    pub const fn new(words: &'a [AtomicU64]) -> Self {
        Words { words }
    }

    /// How many bytes there are.
    #[inline]
    pub const fn len_bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// Asks the processor to fetch the first `line_count` cache lines behind the first one, for a reader that goes on.
    /// It does not read them.
    #[inline(always)]
    pub fn prefetch_beginning(&self, line_count: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
        for line in 1..line_count + 1 {
            let at = self.words.as_ptr().wrapping_add(line * 8).cast::<i8>();
            // SAFETY: a prefetch reads nothing that the program could see and faults on no address at all.
            unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
        let _ = line_count;
    }

    /// The same with stretch `no` of these bytes, of [`STRETCH_BYTES`] each. Nothing past the end.
    #[inline(always)]
    pub fn prefetch_stretch(&self, no: usize) {
        const WORDS: usize = STRETCH_BYTES / 8;
        if let Some(stretch) = self.words.as_chunks::<WORDS>().0.get(no) {
            stretch.as_chunks::<8>().0.iter().for_each(prefetch);
        }
    }

    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        match self.words.get(index) {
            Some(word) => load(word),
            None => 0,
        }
    }

    /// The byte at `off`.
    #[inline]
    pub fn u8(&self, off: usize) -> u8 {
        (self.word(off / 8) >> (off % 8 * 8)) as u8
    }

    /// The two bytes at `off`.
    #[inline]
    pub fn u16(&self, off: usize) -> u16 {
        let (index, bits) = (off / 8, off % 8 * 8);
        let low = self.word(index) >> bits;
        if bits <= 48 { low as u16 } else { (low | self.word(index + 1) << (64 - bits)) as u16 }
    }

    /// The four bytes at `off`.
    #[inline]
    pub fn u32(&self, off: usize) -> u32 {
        let (index, bits) = (off / 8, off % 8 * 8);
        let low = self.word(index) >> bits;
        if bits <= 32 { low as u32 } else { (low | self.word(index + 1) << (64 - bits)) as u32 }
    }

    /// The eight bytes at `off`.
    #[inline]
    pub fn u64(&self, off: usize) -> u64 {
        let (index, bits) = (off / 8, off % 8 * 8);
        let low = self.word(index);
        if bits == 0 { low } else { low >> bits | self.word(index + 1) << (64 - bits) }
    }

    /// Copies the bytes from `off` on into `out`. What lies past the end becomes 0.
    #[inline]
    pub fn copy_to(&self, off: usize, out: &mut [u8]) {
        let have = self.len_bytes().saturating_sub(off).min(out.len());
        let (out, past) = out.split_at_mut(have);
        if !past.is_empty() {
            past.fill(0);
        }
        // SAFETY: a byte may be where a byte may be that was never written, and `copy_inside` writes all of them.
        self.copy_inside(off, unsafe { &mut *(std::ptr::from_mut(out) as *mut [MaybeUninit<u8>]) });
    }

    /// Appends the bytes from `off` on to `out`, `len` of them or as many as there are.
    #[inline]
    pub fn append_to(&self, off: usize, len: usize, out: &mut Vec<u8>) {
        let len = self.len_bytes().saturating_sub(off).min(len);
        if out.capacity() == 0 {
            *out = Vec::with_capacity(len); // As large as the bytes, and without a look at what there was before.
        } else {
            out.reserve(len);
        }
        self.copy_inside(off, &mut out.spare_capacity_mut()[..len]);
        // SAFETY: there is room for so many, and `copy_inside` has written all of them.
        unsafe { out.set_len(out.len() + len) };
    }

    /// Writes all of `out`, which ends at the end of the page at the latest.
    ///
    /// Words are read where they lie, and stored where they belong. So nothing is shifted but the first and the last.
    #[inline]
    fn copy_inside(&self, off: usize, out: &mut [MaybeUninit<u8>]) {
        let (skip, end_at) = (off % 8, (off + out.len()).wrapping_sub(8));
        let Some(start) = out.first_chunk_mut() else {
            let bytes = self.u64(off).to_le_bytes();
            for (to, from) in out.iter_mut().zip(bytes) {
                to.write(from);
            }
            return;
        };
        if skip != 0 {
            write(start, self.word(off / 8) >> (skip * 8)); // What is not of this word is written again below.
        }
        let body_at = skip.wrapping_neg() % 8;
        let first = (off + body_at) / 8;
        let (chunks, rest) = out[body_at..].as_chunks_mut();
        copy_words(&self.words[first..first + chunks.len()], chunks);
        if !rest.is_empty()
            && let Some(end) = out.last_chunk_mut()
        {
            write(end, self.u64(end_at));
        }
    }

    /// The bytes from `off` on, `len` of them or as many as there are.
    #[inline]
    pub fn to_vec(&self, off: usize, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        self.append_to(off, len, &mut out);
        out
    }

    /// Compares the `len` bytes at `off` with `other`, as slices of bytes compare.
    #[inline]
    pub fn compare(&self, off: usize, len: usize, other: &[u8]) -> Ordering {
        let common = len.min(other.len());
        let mut chunks = other[..common].chunks_exact(8);
        let mut at = off;
        for chunk in chunks.by_ref() {
            let (mine, theirs) = (self.u64(at), load_chunk(chunk));
            if mine != theirs {
                return mine.swap_bytes().cmp(&theirs.swap_bytes());
            }
            at = at.saturating_add(8);
        }
        let tail = chunks.remainder();
        if !tail.is_empty() {
            let (mine, theirs) = (self.u64(at) & low_mask(tail.len()), short_word(tail));
            if mine != theirs {
                return mine.swap_bytes().cmp(&theirs.swap_bytes());
            }
        }
        len.cmp(&other.len())
    }

    /// Whether the bytes at `off` are `other`. False past the end.
    #[inline]
    pub fn equals(&self, off: usize, other: &[u8]) -> bool {
        if off.checked_add(other.len()).is_none_or(|end| end > self.len_bytes()) {
            return false;
        }
        let (first, bits) = (off / 8, off % 8 * 8);
        let (chunks, tail) = other.as_chunks::<8>();
        let is_equal = if bits == 0 {
            let words = self.words.get(first..).unwrap_or(&[]);
            chunks.iter().zip(words).all(|(chunk, word)| load(word) == u64::from_le_bytes(*chunk))
        } else {
            let words = self.words.get(first + 1..).unwrap_or(&[]);
            let mut low = self.word(first);
            chunks.iter().zip(words).all(|(chunk, word)| {
                let high = load(word);
                let mine = low >> bits | high << (64 - bits);
                low = high;
                mine == u64::from_le_bytes(*chunk)
            })
        };
        let tail_at = off + chunks.len() * 8;
        is_equal && (tail.is_empty() || self.u64(tail_at) & low_mask(tail.len()) == short_word(tail))
    }

    /// Copies all words into a private page, as many as both have.
    #[inline]
    pub fn copy_words_to(&self, to: &PageBuf) {
        for (to, from) in to.as_atomics().iter().zip(self.words) {
            to.store(from.load(Relaxed), Relaxed);
        }
    }

    /// The words themselves.
    #[inline]
    pub const fn as_atomics(&self) -> &'a [AtomicU64] {
        self.words
    }
}

impl std::fmt::Debug for Words<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Words({} bytes)", self.len_bytes())
    }
}

impl<'a> WordsMut<'a> {
    /// The bytes that these words are. The caller has latched them exclusively, or has them for itself: else
    /// two writers lose each other's bytes (nothing worse, they are atomics).
    #[inline]
    pub const fn new(words: &'a [AtomicU64]) -> Self {
        WordsMut { words }
    }

    /// The reading half.
    #[inline]
    pub const fn as_words(&self) -> Words<'_> {
        Words { words: self.words }
    }

    /// How many bytes there are.
    #[inline]
    pub const fn len_bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// Fails if `off..off + len` is not inside (W2).
    #[inline(always)]
    fn assert_inside(&self, off: usize, len: usize) {
        assert!(
            len <= self.len_bytes() && off <= self.len_bytes() - len,
            "{len} bytes at {off} are not inside a page of {} bytes",
            self.len_bytes()
        );
    }

    /// Replaces bytes `from_byte..from_byte + count` of one word by the low ones of `value`.
    #[inline(always)]
    fn put_part(&mut self, index: usize, from_byte: usize, count: usize, value: u64) {
        let mask = low_mask(count) << (from_byte * 8);
        let word = &self.words[index];
        store(word, load(word) & !mask | value << (from_byte * 8) & mask);
    }

    /// Puts the low `count` bytes of `value` at `off`; `count` < 8; inside.
    #[inline(always)]
    fn put_short(&mut self, off: usize, count: usize, value: u64) {
        let (index, from_byte) = (off / 8, off % 8);
        let here = count.min(8 - from_byte);
        if here > 0 {
            self.put_part(index, from_byte, here, value);
        }
        if here < count {
            self.put_part(index + 1, 0, count - here, value >> (here * 8));
        }
    }

    /// Puts `bytes` at `off`.
    ///
    /// # Panics
    /// If they do not lie inside. The same holds for all other `put`s.
    #[inline]
    pub fn put(&mut self, off: usize, bytes: &[u8]) {
        self.assert_inside(off, bytes.len());
        let head = (off.wrapping_neg() % 8).min(bytes.len());
        let (head_bytes, rest) = bytes.split_at(head);
        if head > 0 {
            self.put_part(off / 8, off % 8, head, short_word(head_bytes));
        }
        let first = (off + head) / 8;
        let (chunks, tail) = rest.as_chunks();
        store_chunks(&self.words[first..first + chunks.len()], chunks);
        if !tail.is_empty() {
            self.put_part(first + chunks.len(), 0, tail.len(), short_word(tail));
        }
    }

    /// Puts the low `count` bytes of `value`, fewer than eight.
    #[inline]
    pub fn put_low(&mut self, off: usize, count: usize, value: u64) {
        assert!(count < 8, "{count} bytes of a word");
        self.assert_inside(off, count);
        self.put_short(off, count, value);
    }

    /// Puts one byte.
    #[inline]
    pub fn put_u8(&mut self, off: usize, value: u8) {
        self.assert_inside(off, 1);
        self.put_part(off / 8, off % 8, 1, value as u64);
    }

    /// Puts two bytes.
    #[inline]
    pub fn put_u16(&mut self, off: usize, value: u16) {
        self.assert_inside(off, 2);
        self.put_short(off, 2, value as u64);
    }

    /// Puts four bytes.
    #[inline]
    pub fn put_u32(&mut self, off: usize, value: u32) {
        self.assert_inside(off, 4);
        self.put_short(off, 4, value as u64);
    }

    /// Puts eight bytes.
    #[inline]
    pub fn put_u64(&mut self, off: usize, value: u64) {
        self.assert_inside(off, 8);
        let (index, bits) = (off / 8, off % 8 * 8);
        if bits == 0 {
            store(&self.words[index], value);
        } else if let [low, high] = &self.words[index..index + 2] {
            store(low, load(low) & ((1 << bits) - 1) | value << bits);
            store(high, load(high) >> bits << bits | value >> (64 - bits));
        }
    }

    /// Moves the `len` bytes at `from` to `to`. The two places may overlap.
    #[inline]
    pub fn shift(&mut self, from: usize, to: usize, len: usize) {
        self.assert_inside(from, len);
        self.assert_inside(to, len);
        if to < from {
            self.shift_down(from, to, len);
        } else if to > from {
            self.shift_up(from, to, len);
        }
    }

    /// Ascending: whatever is written lies below what is still to be read.
    fn shift_down(&mut self, from: usize, to: usize, len: usize) {
        let head = (to.wrapping_neg() % 8).min(len);
        self.put_short(to, head, self.as_words().u64(from));
        let (from, to) = (from + head, to + head);
        let whole = (len - head) / 8;
        let (source, target, bits) = (from / 8, to / 8, from % 8 * 8);
        if bits == 0 {
            for i in 0..whole {
                store(&self.words[target + i], load(&self.words[source + i]));
            }
        } else if whole > 0 {
            // The word carried over was read before anything at or above it was written.
            let mut low = load(&self.words[source]);
            for i in 0..whole {
                let high = load(&self.words[source + i + 1]);
                store(&self.words[target + i], low >> bits | high << (64 - bits));
                low = high;
            }
        }
        let done = whole * 8;
        let tail = len - head - done;
        self.put_short(to + done, tail, self.as_words().u64(from + done));
    }

    /// Descending: whatever is written lies above what is still to be read.
    fn shift_up(&mut self, from: usize, to: usize, len: usize) {
        let tail = ((to + len) % 8).min(len);
        let len = len - tail;
        self.put_short(to + len, tail, self.as_words().u64(from + len));
        let whole = len / 8;
        let head = len % 8;
        let (source, target, bits) = ((from + head) / 8, (to + head) / 8, (from + head) % 8 * 8);
        if bits == 0 {
            let (from, to) = (&self.words[source..source + whole], &self.words[target..target + whole]);
            for (to, from) in to.iter().zip(from).rev() {
                store(to, load(from));
            }
        } else if whole > 0 {
            // The word carried over was read before anything at or below it was written.
            let mut high = load(&self.words[source + whole]);
            for i in (0..whole).rev() {
                let low = load(&self.words[source + i]);
                store(&self.words[target + i], low >> bits | high << (64 - bits));
                high = low;
            }
        }
        self.put_short(to, head, self.as_words().u64(from));
    }

    /// Makes `len` bytes at `off` equal to `byte`.
    #[inline]
    pub fn fill(&mut self, off: usize, len: usize, byte: u8) {
        self.assert_inside(off, len);
        let value = u64::from_le_bytes([byte; 8]);
        let head = (off.wrapping_neg() % 8).min(len);
        if head > 0 {
            self.put_part(off / 8, off % 8, head, value);
        }
        let first = (off + head) / 8;
        let whole = (len - head) / 8;
        for word in &self.words[first..first + whole] {
            store(word, value);
        }
        let tail = (len - head) % 8;
        if tail > 0 {
            self.put_part(first + whole, 0, tail, value);
        }
    }

    /// Becomes a copy of `from`.
    ///
    /// # Panics
    /// If the two are not of one length.
    #[inline]
    pub fn copy_from(&mut self, from: Words<'_>) {
        assert_eq!(self.len_bytes(), from.len_bytes(), "pages of different size");
        for (to, from) in self.words.iter().zip(from.words) {
            to.store(from.load(Relaxed), Relaxed);
        }
    }
}

impl std::fmt::Debug for WordsMut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WordsMut({} bytes)", self.len_bytes())
    }
}
