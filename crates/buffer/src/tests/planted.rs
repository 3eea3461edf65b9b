//! The tests are awake: each planted bug is caught. Alone in its build, since a bug is on for the whole process.

use super::crash::crash_at_every_write;
use ledgerstone_page::planted::{self, Bug};

#[test]
fn planted_bugs_are_caught() {
    for bug in [Bug::WriteAheadOff, Bug::RecLsnLate] {
        planted::set(Some(bug));
        let outcome = std::panic::catch_unwind(crash_at_every_write);
        planted::set(None);
        assert!(outcome.is_err(), "nobody noticed {}", bug.name());
    }
    crash_at_every_write();
}
