//! A model of a pin and of who gives up what it pins, under loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p ledgerstone-log --release --lib loom_giving_up`.

use ledgerstone_region::atomic::AtomicU64;
use ledgerstone_region::atomic::Ordering::SeqCst;
use loom::sync::Arc;
use loom::thread;

use crate::giving_up::GivingUp;

const SEGMENT: u64 = 16;

#[derive(Default)]
struct World {
    oldest: AtomicU64,
    state: AtomicU64,
    /// The lowest pin, + 1; 0: there is none.
    lows: [AtomicU64; 2],
}

impl World {
    fn giving_up(&self) -> GivingUp<'_> {
        GivingUp { oldest: &self.oldest, state: &self.state }
    }

    fn low(&self) -> u64 {
        self.lows
            .iter()
            .map(|low| low.load(SeqCst))
            .filter(|low| *low != 0)
            .map(|low| low - 1)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Whether the pin was granted. If not, it is taken back.
    fn pin(&self, no: usize, lsn: u64) -> bool {
        self.lows[no].store(lsn + 1, SeqCst);
        let is_granted = self.giving_up().begins(lsn) <= lsn;
        if !is_granted {
            self.lows[no].store(0, SeqCst);
        }
        is_granted
    }

    fn give_up(&self, to: u64) -> bool {
        self.giving_up().give_up_below(to, || self.low())
    }
}

/// U1 and U2: what a pin was granted for is not given up.
#[test]
fn loom_a_pin_that_was_granted_holds() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let pins = [0, 1].map(|no| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.pin(no, 8 * no as u64))
        });
        let is_given_up = world.give_up(SEGMENT);
        let granted = pins.map(|pin| pin.join().unwrap());
        assert!(!is_given_up || granted == [false, false], "{granted:?}");
        assert_eq!(world.oldest.load(SeqCst), if is_given_up { SEGMENT } else { 0 });
        assert!(is_given_up || granted == [true, true], "nobody is refused what stays");
        // Once nobody pins it, it goes.
        world.lows.iter().for_each(|low| low.store(0, SeqCst));
        assert!(is_given_up || world.give_up(SEGMENT));
    });
}
