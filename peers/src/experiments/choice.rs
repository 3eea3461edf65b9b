//! Which cases of a section are measured: all of them, or those whose names match a pattern.

use std::cell::RefCell;

/// The cases that are asked for, and the names of all that could have been.
#[derive(Debug, Default)]
pub struct Choice {
    patterns: Vec<String>,
    seen: RefCell<Vec<String>>,
}

impl Choice {
    /// Those that match one of the patterns; all of them if there is no pattern.
    pub fn new(patterns: Vec<String>) -> Choice {
        Choice { patterns, seen: RefCell::default() }
    }

    /// True if the case is to be measured. Its name is kept in any case.
    pub fn takes(&self, case: &str) -> bool {
        let mut seen = self.seen.borrow_mut();
        if !seen.iter().any(|name| name == case) {
            seen.push(case.to_owned());
        }
        self.patterns.is_empty() || self.patterns.iter().any(|pattern| matches(pattern, case))
    }

    /// The names of all cases in their order, if some were left out; otherwise the figures have them.
    pub fn into_order(self) -> Vec<String> {
        if self.patterns.is_empty() { Vec::new() } else { self.seen.into_inner() }
    }
}

/// The whole text, where `*` in the pattern stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(head) else { return false };
    let mut tails = text.char_indices().map(|(at, _)| &text[at..]).chain([""]);
    tails.any(|tail| matches(rest, tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, is_match) in [
            ("sync, 1 thread", "sync, 1 thread", true),
            ("sync, 1 thread", "sync, 1 threads", false),
            ("sync, *", "sync, 1 thread", true),
            ("sync, *", "without sync, 1 thread", false),
            ("*, 4 threads", "sync, 4 threads", true),
            ("*, 4 threads", "sync, 64 threads", false),
            ("*, * threads", "sync, 10 branches, 4 threads", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), is_match, "{pattern:?} and {text:?}");
        }
    }

    #[test]
    fn what_is_left_out_keeps_its_place() {
        let choice = Choice::new(vec!["b".into(), "d".into()]);
        let taken: Vec<_> = ["a", "b", "c", "b"].into_iter().filter(|case| choice.takes(case)).collect();
        assert_eq!(taken, ["b", "b"]);
        assert_eq!(choice.into_order(), ["a", "b", "c"]);
        let all = Choice::default();
        assert!(all.takes("a"));
        assert!(all.into_order().is_empty());
    }
}
