//! A repair that leaves out one of its parts is found by the tests beside.

use ledgerstone_testkit::deaths::{each_part_is_missed, fails};

use super::by_hand::{
    begins_beside_a_repair, grant_beside_a_verdict, grants_beside_a_repair, word_beside_a_strong_lock,
};
use super::random::crowd;
use super::run;
use super::scripts::{SCRIPTS, Script};
use crate::planted::Part;

/// A test that a repair without this part fails.
type Case = fn(Option<Part>);

/// Each part of a repair in turn is left out, and missed.
#[test]
fn a_repair_that_forgets_a_part_is_found() {
    each_part_is_missed(Part::ALL, |part| {
        let by_script = |script: Script| {
            let dies_at = |step: &u64| {
                let died = |seed: u64| run(seed << 32 | *step, script, Some(part), *step, 0).victim;
                [0, 1].map(died).contains(&true)
            };
            fails(|| (1..).take_while(dies_at).count())
        };
        let scripts = SCRIPTS.iter().find(|(_, script)| by_script(*script)).map(|(name, _)| (*name).to_string());
        let by_hand = || {
            let cases: [(&str, Case); 4] = [
                ("a grant beside a verdict", grant_beside_a_verdict),
                ("a word beside a strong lock", word_beside_a_strong_lock),
                ("a grant beside a repair", grants_beside_a_repair),
                ("a beginning beside a repair", begins_beside_a_repair),
            ];
            cases.iter().find(|(_, case)| fails(|| case(Some(part)))).map(|(name, _)| (*name).to_string())
        };
        let by_crowd = || (0..400).find(|seed| fails(|| crowd(*seed, Some(part)))).map(|seed| format!("round {seed}"));
        scripts.or_else(by_hand).or_else(by_crowd)
    });
}
