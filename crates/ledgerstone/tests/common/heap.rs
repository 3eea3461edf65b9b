//! Bytes of the heap that a process has. A test that is alone in its process names this file as a module of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of larger blocks are not counted: the engine takes those for all threads and transactions together.
const BLOCK_BYTES_MAX: usize = 256 << 10;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static TAKEN_HERE: Cell<isize> = const { Cell::new(0) };
}

/// Bytes that this thread has taken until now, less those that it has given back. What the engine's own threads do
/// meanwhile is not in it.
#[allow(dead_code)] // Not every test asks.
pub fn taken_here() -> isize {
    TAKEN_HERE.get()
}

fn note(bytes: isize) {
    let _ = TAKEN_HERE.try_with(|taken| taken.set(taken.get() + bytes)); // A thread that ends counts nothing any more.
}

/// Bytes that are taken from the system's allocator now.
#[allow(dead_code)]
pub fn taken() -> usize {
    TAKEN.load(Relaxed)
}

fn counted(layout: Layout) -> usize {
    if layout.size() <= BLOCK_BYTES_MAX { layout.size() } else { 0 }
}

struct Counted;

// SAFETY: everything is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(counted(layout), Relaxed);
        note(counted(layout) as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(counted(layout), Relaxed);
        note(-(counted(layout) as isize));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;
