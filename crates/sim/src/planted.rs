//! Switching on the bugs that are planted in the engine, by name.
//!
//! They are compiled in with the feature `planted` only, and one at a time is on, for the whole process.

use ledgerstone_disk::RawBug;
pub use ledgerstone_page::planted::Bug;

/// The bug of the raw store that this one is. Only rounds on raw stores can find it.
#[must_use]
pub fn of_raw_store(bug: Bug) -> Option<RawBug> {
    match bug {
        Bug::RawTableUnsynced => Some(RawBug::TableUnsynced),
        Bug::RawSlotUnsynced => Some(RawBug::SlotUnsynced),
        Bug::RawLengthUnsynced => Some(RawBug::LengthUnsynced),
        Bug::RawNamesUnsynced => Some(RawBug::NamesUnsynced),
        _ => None,
    }
}

/// Switches one on.
///
/// # Errors
/// A name that no bug has, or a build without the feature.
pub fn plant(name: &str) -> Result<(), String> {
    let Some(bug) = Bug::ALL.iter().copied().find(|bug| bug.name() == name) else {
        let names: Vec<&str> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        return Err(format!("no planted bug is called {name}; there are {}", names.join(", ")));
    };
    switch_on(bug)
}

#[cfg(feature = "planted")]
fn switch_on(bug: Bug) -> Result<(), String> {
    ledgerstone_page::planted::set(Some(bug));
    RawBug::plant(of_raw_store(bug));
    Ok(())
}

#[cfg(not(feature = "planted"))]
fn switch_on(bug: Bug) -> Result<(), String> {
    Err(format!("{} is not in this build; build with `--features planted`", bug.name()))
}

/// In some rounds, which the seed says, some descents through trees latch their way from the start: what happens
/// otherwise only after many lost races. And some restarts gather few changes at a time, as if their memory were full,
/// each another number.
#[cfg(feature = "planted")]
pub fn take_rare_branches(seed: u64) {
    let every = [0, 0, 1, 3, 8][(seed % 5) as usize];
    ledgerstone_page::planted::set_latching(every);
    ledgerstone_page::planted::set_windows((seed / 5) as u32);
}

/// The same: nothing, in a build without the feature.
#[cfg(not(feature = "planted"))]
pub fn take_rare_branches(_seed: u64) {}

/// Whether bugs can be switched on in this build.
pub const fn is_possible() -> bool {
    cfg!(feature = "planted")
}
