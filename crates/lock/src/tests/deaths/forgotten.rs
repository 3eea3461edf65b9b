//! A repair that leaves out one of its parts is found by the tests beside.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::at_every_step;
use super::by_hand::{
    begins_beside_a_repair, grant_beside_a_verdict, grants_beside_a_repair, word_beside_a_strong_lock,
};
use super::random::round;
use super::scripts::{SCRIPTS, Script};
use crate::planted::Part;

/// A test that a repair without this part fails.
type Case = fn(Option<Part>);

/// Each part of a repair in turn is left out, and missed. `PART` says which, if not all.
#[test]
fn a_repair_that_forgets_a_part_is_found() {
    let mut unfound = Vec::new();
    for &part in Part::ALL {
        if std::env::var("PART").is_ok_and(|name| name != format!("{part:?}")) {
            continue;
        }
        let is_missed = |f: &dyn Fn()| catch_unwind(AssertUnwindSafe(f)).is_err();
        let by_hand = || {
            let cases: [(&str, Case); 4] = [
                ("a grant beside a verdict", grant_beside_a_verdict),
                ("a word beside a strong lock", word_beside_a_strong_lock),
                ("a grant beside a repair", grants_beside_a_repair),
                ("a beginning beside a repair", begins_beside_a_repair),
            ];
            cases.iter().find(|(_, case)| is_missed(&|| case(Some(part)))).map(|(name, _)| (*name).to_string())
        };
        let by_script = || {
            let is_found = |script: Script| is_missed(&|| _ = at_every_step(script, Some(part), 0..2));
            SCRIPTS.iter().find(|(_, script)| is_found(*script)).map(|(name, _)| (*name).to_string())
        };
        let by_round = || {
            let is_found = |seed: &u64| is_missed(&|| _ = round(*seed, Some(part)));
            (0..400).find(is_found).map(|seed| format!("round {seed}"))
        };
        match by_script().or_else(by_hand).or_else(by_round) {
            Some(by) => println!("forgotten {part:?}: found by {by}"),
            None => unfound.push(part),
        }
    }
    assert!(unfound.is_empty(), "forgotten, and not missed: {unfound:?}");
}
