//! What the environment asks for, and the command that asks for a round that has failed.
//!
//! | variable | what it asks for |
//! | --- | --- |
//! | `ROUNDS` | so many rounds of each campaign at random |
//! | `SEED` | that round of it alone |
//! | `EVERY` | each step, where some are tried otherwise |
//! | `WORK`, `STEP`, `REPAIR_STEP` | one kind of work; a death before that step of it; of the repair after it |
//! | `PART` | one part of a repair that is left out |

use std::fmt::{Debug, Display};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What a variable says. None if it is not set, or empty.
fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

pub(super) fn number(name: &str) -> Option<u64> {
    text(name).map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

pub(super) fn is_asked(name: &str) -> bool {
    text(name).is_some()
}

/// The seed that is asked for, or 0.
///
/// # Panics
/// `SEED` is not a number.
#[must_use]
pub fn asked_seed() -> u64 {
    number("SEED").unwrap_or(0)
}

/// The seeds of a campaign at random, which has so many rounds if nobody asks for others.
///
/// # Panics
/// `SEED` or `ROUNDS` is not a number.
#[must_use]
pub fn seeds(rounds: u64) -> Range<u64> {
    match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ROUNDS").unwrap_or(rounds),
    }
}

/// All of these, or the one that the variable names.
#[must_use]
pub fn named<T: Copy + Debug>(variable: &str, all: &[T]) -> Vec<T> {
    let name = text(variable);
    let is_meant = |one: &T| name.as_ref().is_none_or(|name| format!("{one:?}").trim_matches('"') == name);
    let named: Vec<T> = all.iter().copied().filter(is_meant).collect();
    if named.is_empty() {
        eprintln!("{variable} is none of {all:?}");
    }
    named
}

/// Runs a round. If it fails, prints the command that runs it alone.
pub(super) fn or_tell<T>(asks: &[(&str, &dyn Display)], round: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(round)).unwrap_or_else(|panic| {
        eprintln!("again: {}", command(asks));
        resume_unwind(panic)
    })
}

fn command(asks: &[(&str, &dyn Display)]) -> String {
    let dir = std::env::current_dir().map_or_else(|_| ".".into(), |dir| dir.display().to_string());
    let program = std::env::args().next().unwrap_or_default();
    let seed = text("SEED").filter(|_| asks.iter().all(|(name, _)| *name != "SEED"));
    let seed = seed.map(|seed| format!("SEED={seed} ")).unwrap_or_default();
    let asks: String = asks.iter().map(|(name, value)| format!("{name}='{value}' ")).collect();
    // The harness names the threads of its tests by them, if it has more than one.
    let test = match std::thread::current().name() {
        None | Some("main") => std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        Some(name) => format!("--exact {name}"),
    };
    format!("cd {dir} && {seed}{asks}{program} {test}")
}
