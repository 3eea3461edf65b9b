//! All figures, as `docs/peers.json` keeps them.
//!
//! K1. A row of a table is of one run: all its peers were measured together. Who measures a case again replaces it with
//!     every peer.
//! K2. A part says which of a section's rows are of another run than the rest.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::experiments::Run;

/// All that was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Book {
    /// By the section's name.
    pub sections: BTreeMap<String, Measured>,
}

/// One section, or some cases of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// The machine and its file system.
    pub machine: String,
    /// The revision of this repository, if it is known.
    pub revision: String,
    /// The day, `2026-11-28`, if it is known.
    #[serde(default)]
    pub day: String,
    /// The peers' versions, by name.
    pub versions: BTreeMap<String, String>,
    /// Short cases.
    pub is_quick: bool,
    /// Rounds.
    pub rounds: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Every process's figures.
    pub runs: Vec<Run>,
    /// Runs that ended with an error, with its text.
    pub failures: Vec<String>,
    /// Cases that were measured in runs of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Measured>,
}

impl Measured {
    /// The runs, and those of the parts.
    pub fn all_runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().chain(self.parts.iter().flat_map(|part| &part.runs))
    }

    /// The part that has the case, from 1; 0 is the section itself.
    pub fn part_of(&self, case: &str) -> usize {
        let has = |part: &Measured| part.cases().contains(case);
        self.parts.iter().position(has).map_or(0, |at| at + 1)
    }

    /// All cases in the order of a run that knew them all, if there was one.
    pub fn order(&self) -> &[String] {
        let runs = self.parts.iter().rev().flat_map(|part| &part.runs);
        // Ledgerstone has all cases.
        runs.map(|run| &run.order[..]).max_by_key(|order| order.len()).unwrap_or_default()
    }

    fn cases(&self) -> BTreeSet<&str> {
        self.runs.iter().flat_map(|run| &run.figures).map(|figure| figure.case.as_str()).collect()
    }

    fn without(&mut self, cases: &BTreeSet<&str>) {
        for run in &mut self.runs {
            run.figures.retain(|figure| !cases.contains(figure.case.as_str()));
        }
    }
}

impl Book {
    /// Puts cases into a section that has others, or had these (K1).
    ///
    /// # Errors
    /// There is nothing to put them into, nothing was measured, or one was short and the other was not.
    pub fn add_part(&mut self, section: &str, part: Measured) -> anyhow::Result<()> {
        let whole = self.sections.get_mut(section);
        let whole = whole.with_context(|| format!("{section:?} was never measured as a whole: do that first"))?;
        let kind = |is_quick: bool| if is_quick { "short" } else { "whole" };
        let (ours, theirs) = (kind(part.is_quick), kind(whole.is_quick));
        ensure!(ours == theirs, "a {ours} run cannot give rows to the {theirs} one of {section:?}");
        let cases = part.cases();
        ensure!(!cases.is_empty(), "no case of {section:?} was measured: none has such a name, or all failed");
        whole.without(&cases);
        for other in &mut whole.parts {
            other.without(&cases);
        }
        whole.parts.retain(|part| !part.cases().is_empty());
        whole.parts.push(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Figure;

    fn run(peer: &str, order: &[&str], cases: &[(&str, f64)]) -> Run {
        let figures = cases.iter().map(|(case, value)| Figure::plain(*case, *value, "1/s", true)).collect();
        let order = order.iter().map(|case| (*case).to_owned()).collect();
        Run { peer: peer.into(), figures, order, ..Run::default() }
    }

    fn measured(runs: Vec<Run>) -> Measured {
        Measured { rounds: 1, runs, ..Measured::default() }
    }

    fn values(measured: &Measured) -> Vec<(&str, &str, f64)> {
        let mut values = Vec::new();
        for run in measured.all_runs() {
            values.extend(run.figures.iter().map(|figure| (&*run.peer, &*figure.case, figure.value)));
        }
        values
    }

    #[test]
    fn a_row_is_of_one_run() {
        let whole = [run("ours", &[], &[("a", 1.0), ("c", 2.0)]), run("theirs", &[], &[("a", 3.0), ("c", 4.0)])];
        let mut book = Book::default();
        book.sections.insert("s".into(), measured(whole.into()));
        let part = |value| run("ours", &["a", "b", "c"], &[("b", value), ("c", value)]);
        book.add_part("s", measured(vec![part(5.0), run("theirs", &["a"], &[("b", 6.0)])])).unwrap();
        // The row of c went from the first run with both peers.
        let expected =
            [("ours", "a", 1.0), ("theirs", "a", 3.0), ("ours", "b", 5.0), ("ours", "c", 5.0), ("theirs", "b", 6.0)];
        assert_eq!(values(&book.sections["s"]), expected);
        assert_eq!(["a", "b", "c"].map(|case| book.sections["s"].part_of(case)), [0, 1, 1]);
        assert_eq!(book.sections["s"].order(), ["a", "b", "c"]);

        // Nothing is left of that part when its cases are measured again.
        book.add_part("s", measured(vec![part(7.0)])).unwrap();
        assert_eq!(book.sections["s"].parts.len(), 1);
        assert_eq!(values(&book.sections["s"])[2..], [("ours", "b", 7.0), ("ours", "c", 7.0)]);

        // As the file keeps it.
        let read: Book = serde_json::from_str(&serde_json::to_string(&book).unwrap()).unwrap();
        assert_eq!(values(&read.sections["s"]), values(&book.sections["s"]));
    }

    #[test]
    fn a_part_needs_a_whole_of_its_kind() {
        let part = || measured(vec![run("ours", &["a"], &[("a", 1.0)])]);
        let mut book = Book::default();
        assert!(book.add_part("s", part()).unwrap_err().to_string().contains("never measured as a whole"));
        book.sections.insert("s".into(), Measured { is_quick: true, ..part() });
        assert!(book.add_part("s", part()).unwrap_err().to_string().contains("a whole run cannot give rows"));
        let nothing = Measured { is_quick: true, ..measured(vec![run("ours", &["a"], &[])]) };
        assert!(book.add_part("s", nothing).unwrap_err().to_string().contains("no case"));
    }
}
