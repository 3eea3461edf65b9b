//! The frame of the campaigns of deaths: simulated processes die at a step, beside others that go on.
//!
//! A campaign says what its processes do, and what has to be when all is over. What all campaigns share is here: the
//! threads of a round (`round.rs`), the rounds that a campaign runs (`campaign.rs`), and what somebody asks for by the
//! environment (`asked.rs`). The frame knows the region only, so the crates below an engine use it as well.

mod asked;
mod campaign;
mod round;
#[cfg(test)]
mod tests;

pub use asked::{asked_seed, named, seeds};
pub use campaign::{Which, at_each_step, at_random, each_part_is_missed, fails, in_repairs};
pub use round::{
    Cast, Deaths, KNOWN_NS, Outcome, REPAIRERS, VICTIM, WORKERS, died, go_on_repairing, lived, outlived, round, tried,
};
