//! The counted reference under loom: one thread uses the value and gives its reference up, another changes the value
//! if it has the only one. All orders; loom notices a use and a change at a time.

use loom::cell::UnsafeCell;
use loom::thread;

use super::common::Common;

struct Value(UnsafeCell<u32>);

// SAFETY: the models do not share what is inside but as they check.
unsafe impl Sync for Value {}

impl Value {
    fn read(&self) -> u32 {
        // SAFETY: loom panics if another thread changes it meanwhile.
        self.0.with(|value| unsafe { *value })
    }

    fn change(&mut self) {
        // SAFETY: as above.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
}

#[test]
fn loom_a_value_is_changed_when_all_that_others_did_is_over() {
    loom::model(|| {
        let mut mine = Common::new(Value(UnsafeCell::new(1)));
        let theirs = mine.clone();
        let reading = thread::spawn(move || assert_eq!(theirs.read(), 1));
        if let Some(value) = mine.get_mut() {
            value.change();
        }
        reading.join().unwrap();
    });
}

#[test]
fn loom_the_last_reference_drops_the_value_when_all_that_others_did_is_over() {
    struct Dropped(Value);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.change();
        }
    }
    loom::model(|| {
        let mine = Common::new(Dropped(Value(UnsafeCell::new(1))));
        let theirs = mine.clone();
        let reading = thread::spawn(move || assert_eq!(theirs.0.read(), 1));
        assert_eq!(mine.0.read(), 1);
        drop(mine);
        reading.join().unwrap();
    });
}
