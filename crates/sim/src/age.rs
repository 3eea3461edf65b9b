//! Environments that were opened very often.

use ledgerstone_disk::SimDisk;
use ledgerstone_log::ControlFile;

/// As if the environment had been opened thousands of times since, each time killed before it wrote anything: in every
/// fourth case. What was written before is of an incarnation far back then, and is to be found all the same.
pub(crate) fn age(disk: &SimDisk, seed: u64) {
    let openings = [500, 5_000, 20_000, 70_000][(seed >> 4) as usize % 4];
    if seed.is_multiple_of(4)
        && let Ok(control) = ControlFile::open(disk)
        && control.state().incarnation_max < 1 << 20
    {
        // If the power fails, the openings were fewer.
        let _ = control.change(|state| state.incarnation_max += openings);
    }
}
