//! The protocol of `tail.rs` under loom: an image of one word that a snapshot needs, one who moves the tail, another
//! who writes over it, and a reader. All orders.

use ledgerstone_region::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, SeqCst},
    fence,
};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::tail::{fence_before_writing, is_there, pass};

const OLD: u64 = 7;
const NEW: u64 = 8;
const POSITION: u64 = 1;

struct World {
    latch: Mutex<()>,
    floor: AtomicU64,
    tail: AtomicU64,
    word: AtomicU64,
}

impl World {
    fn new() -> Arc<World> {
        let number = AtomicU64::new;
        Arc::new(World { latch: Mutex::new(()), floor: number(0), tail: number(POSITION), word: number(OLD) })
    }

    fn move_tail(&self) {
        let _held = self.latch.lock().unwrap();
        self.floor.store(1, SeqCst);
        pass(&self.tail, POSITION + 1);
    }

    fn write_over(&self) {
        let _held = self.latch.lock().unwrap();
        if self.tail.load(Relaxed) > POSITION {
            fence_before_writing();
            self.word.store(NEW, Relaxed);
        }
    }

    fn read(&self) {
        let word = self.word.load(Relaxed);
        if is_there(&self.tail, POSITION) {
            assert_eq!(word, OLD, "what was written over it is taken for the image");
        } else {
            fence(Acquire);
            assert_eq!(self.floor.load(SeqCst), 1, "the image is gone, and the snapshot is not too old");
        }
    }
}

#[test]
fn loom_an_image_that_is_written_over_is_not_believed() {
    loom::model(|| {
        let world = World::new();
        let (mover, writer) = (Arc::clone(&world), Arc::clone(&world));
        let moving = thread::spawn(move || mover.move_tail());
        let writing = thread::spawn(move || writer.write_over());
        world.read();
        moving.join().unwrap();
        writing.join().unwrap();
    });
}
