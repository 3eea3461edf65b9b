//! The bare ring that everything is compared to: slots of one writer and one reader in shared memory, nothing checked,
//! nobody recovered; spinning, or sleeping on a futex.

use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

const SLOTS: usize = 256;

/// A ring in memory that children inherit.
#[derive(Clone, Copy)]
pub struct BareRing {
    words: &'static [AtomicU64],
    bell: &'static AtomicU32,
    slot_words: usize,
    position: u64,
    sleeps: bool,
}

impl BareRing {
    pub fn new(bytes: usize, sleeps: bool) -> BareRing {
        let slot_words = (1 + bytes.div_ceil(8)).next_multiple_of(8);
        let (words, bell) = shared(16 + SLOTS * slot_words);
        BareRing { words, bell, slot_words, position: 0, sleeps }
    }

    fn slot(&self) -> &'static [AtomicU64] {
        let start = 16 + self.position as usize % SLOTS * self.slot_words;
        &self.words[start..start + self.slot_words]
    }

    #[inline]
    pub fn send(&mut self, bytes: &[u8]) {
        // The reader's position, looked at once a round.
        if self.position.is_multiple_of(SLOTS as u64) {
            while self.position - self.words[0].load(Ordering::Acquire) >= SLOTS as u64 {
                std::hint::spin_loop();
            }
        }
        let slot = self.slot();
        for (word, chunk) in slot[1..].iter().zip(bytes.chunks(8)) {
            let mut last = [0; 8];
            last[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(last), Ordering::Relaxed);
        }
        self.position += 1;
        slot[0].store(self.position, Ordering::Release);
        if self.sleeps {
            fence(Ordering::SeqCst);
            if self.bell.load(Ordering::Relaxed) == 1 && self.bell.swap(0, Ordering::Relaxed) == 1 {
                let _ = futex::wake(self.bell, futex::Flags::empty(), 1);
            }
        }
    }

    #[inline]
    pub fn receive(&mut self, into: &mut [u8]) {
        let slot = self.slot();
        while slot[0].load(Ordering::Acquire) != self.position + 1 {
            if !self.sleeps {
                std::hint::spin_loop();
                continue;
            }
            self.bell.store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if slot[0].load(Ordering::Acquire) != self.position + 1 {
                let _ = futex::wait(self.bell, futex::Flags::empty(), 1, None);
            }
            self.bell.store(0, Ordering::Relaxed);
        }
        for (word, chunk) in slot[1..].iter().zip(into.chunks_mut(8)) {
            let len = chunk.len();
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()[..len]);
        }
        self.position += 1;
        self.words[0].store(self.position, Ordering::Release);
    }
}

/// Zeroed words and a bell that children inherit.
fn shared(words: usize) -> (&'static [AtomicU64], &'static AtomicU32) {
    let bytes = 64 + words * 8;
    let flags = MapFlags::SHARED;
    // SAFETY: a fresh mapping, never unmapped, reached by atomics only.
    unsafe {
        let base = rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
            .expect("mmap")
            .cast::<u8>();
        std::ptr::write_bytes(base, 0, bytes);
        (std::slice::from_raw_parts(base.add(64).cast(), words), &*base.cast::<AtomicU32>())
    }
}
