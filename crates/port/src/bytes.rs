//! Bytes in and out of shared words, by accesses that may race with anybody.
//!
//! Every access is a relaxed load or store of a whole aligned `u64`: a race gives bytes that mean nothing, never
//! undefined behaviour (P2). Long runs go through the processor's string copy, which the compiler cannot see into.

use crate::atomic::{AtomicU64, Ordering};

/// From here on the string copy beats copying word by word.
#[cfg(all(target_arch = "x86_64", not(loom)))]
const STRING_COPY_BYTES: usize = 512;

/// Stores `bytes` into the first words. What is left of the last word becomes zero.
///
/// # Panics
/// If the words cannot hold them: our own bug.
#[inline]
pub(crate) fn store_bytes(words: &[AtomicU64], bytes: &[u8]) {
    assert!(bytes.len() <= words.len() * 8, "{} bytes into {} words", bytes.len(), words.len());
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    if bytes.len() >= STRING_COPY_BYTES {
        // SAFETY: the destination holds that many bytes (asserted) and is shared memory, not ours. What races with the
        // copy does so outside of what the compiler assumes, since it does not look into assembly (P2).
        unsafe { string_copy(bytes.as_ptr(), words.as_ptr().cast_mut().cast(), bytes.len()) };
        return;
    }
    let (whole, rest) = bytes.as_chunks::<8>();
    for (word, bytes) in words.iter().zip(whole) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed); // The publication that follows releases it.
    }
    if !rest.is_empty() {
        words[whole.len()].store(last_word(bytes, rest), Ordering::Relaxed);
    }
}

/// The rest that is not a whole word, as one. Taken out of the last eight bytes where there are as many, which is one
/// load and a shift.
#[inline]
fn last_word(bytes: &[u8], rest: &[u8]) -> u64 {
    match bytes.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// Loads the first bytes of the words.
///
/// # Panics
/// If there are not as many: our own bug.
#[inline]
pub(crate) fn load_bytes(words: &[AtomicU64], into: &mut [u8]) {
    assert!(into.len() <= words.len() * 8, "{} bytes from {} words", into.len(), words.len());
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    if into.len() >= STRING_COPY_BYTES {
        // SAFETY: the source has that many bytes (asserted), the destination is ours alone; races as in `store_bytes`.
        unsafe { string_copy(words.as_ptr().cast(), into.as_mut_ptr(), into.len()) };
        return;
    }
    let (whole, rest) = into.as_chunks_mut::<8>();
    let mut before = 0;
    for (word, bytes) in words.iter().zip(whole.iter_mut()) {
        before = word.load(Ordering::Relaxed); // The acquiring load of the slot's first word went before.
        *bytes = before.to_le_bytes();
    }
    let (whole_count, rest_len) = (whole.len(), rest.len());
    if rest_len == 0 {
        return;
    }
    let last = words[whole_count].load(Ordering::Relaxed);
    match into.last_chunk_mut::<8>() {
        // One store, which begins inside the word before.
        Some(end) => *end = (before >> (8 * rest_len) | last << (64 - 8 * rest_len)).to_le_bytes(),
        None => into.iter_mut().zip(last.to_le_bytes()).for_each(|(to, byte)| *to = byte),
    }
}

/// Copies with the processor's string instruction.
///
/// # Safety
/// Both ranges are mapped, and they do not overlap.
#[cfg(all(target_arch = "x86_64", not(loom)))]
#[inline]
unsafe fn string_copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller vouches for the ranges; the direction flag is clear in Rust code.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_as_they_went_in_whatever_their_length() {
        for len in (0..40).chain([511, 512, 513, 4096]) {
            let words: Vec<AtomicU64> = (0..513).map(|_| AtomicU64::new(u64::MAX)).collect();
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + 1) as u8).collect();
            store_bytes(&words, &bytes);
            let mut back = vec![0; len];
            load_bytes(&words, &mut back);
            assert_eq!(back, bytes, "{len}");
        }
    }
}
