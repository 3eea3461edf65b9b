//! Which atomic instructions write lines that other threads write too, and what these would cost with more processors.
//!
//! A line of memory that several processors write is handed from one to the next. Nothing else keeps them from working
//! side by side. So what an operation writes in common says how many of them there can be.

use super::sources::Source;

/// Who else writes a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    /// Every thread that writes.
    All,
    /// Those that touch the same page.
    Page,
    /// Those whose keys share a bucket.
    Key,
    /// Nobody on purpose: the thread's slot, the transaction's slot, or what only their handles reach.
    Own,
}

impl Whose {
    pub fn text(self) -> &'static str {
        match self {
            Whose::All => "all that write",
            Whose::Page => "the same page",
            Whose::Key => "the same bucket",
            Whose::Own => "nobody",
        }
    }
}

/// A line, by the functions that write it.
pub(super) struct Line {
    pub name: &'static str,
    pub whose: Whose,
    /// How often it is visited for each atomic instruction: those that follow each other at once are one visit.
    visits: f64,
    /// Crate and file, and the functions there; all of them if none is named.
    places: &'static [(&'static str, &'static [&'static str])],
}

/// Of two places that fit, the first one counts.
pub(super) const LINES: [Line; 10] = [
    Line { name: "log: `tail`", whose: Whose::All, visits: 1.0, places: &[("log/own.rs", &["reserve"])] },
    Line { name: "log: what is wanted of the flusher", whose: Whose::All, visits: 1.0, places: &[("log/", &[])] },
    Line {
        name: "counter of transaction ids",
        whose: Whose::All,
        visits: 1.0,
        places: &[("txn/table.rs", &["take_xid"])],
    },
    Line {
        name: "page entry and latch; latch of the log's sums",
        whose: Whose::Page,
        visits: 0.5,
        places: &[("buffer/", &[]), ("region/latch.rs", &[])],
    },
    Line { name: "bucket of a lock", whose: Whose::Key, visits: 0.5, places: &[("lock/bucket.rs", &[])] },
    Line {
        name: "bucket of a version",
        whose: Whose::Key,
        visits: 1.0,
        places: &[("txn/version/bucket.rs", &[]), ("txn/version/chain.rs", &[])],
    },
    Line { name: "memory for versions", whose: Whose::Own, visits: 1.0, places: &[("txn/version/", &[])] },
    Line {
        name: "intentions of the transaction",
        whose: Whose::Own,
        visits: 1.0,
        places: &[("lock/intention.rs", &[])],
    },
    Line {
        name: "slot of the transaction",
        whose: Whose::Own,
        visits: 1.0,
        places: &[("txn/table.rs", &[]), ("txn/chain.rs", &[])],
    },
    Line {
        name: "mutex of the transaction, counts of its handles",
        whose: Whose::Own,
        visits: 1.0,
        places: &[("region/", &[]), ("ledgerstone/", &[])],
    },
];

/// The line that this source writes.
pub(super) fn line_of(source: &Source) -> Option<usize> {
    let place = format!("{}/{}", source.room, source.file);
    LINES.iter().position(|line| {
        line.places.iter().any(|(file, functions)| {
            place.starts_with(file) && (functions.is_empty() || functions.contains(&source.function.as_str()))
        })
    })
}

/// What hands a line from one processor to another takes, and what an instruction takes: of the machines that the pages
/// were measured on, roughly.
pub(super) const TRANSFER_NS: f64 = 100.0;
pub(super) const INSTRUCTION_NS: f64 = 0.2;

/// What so many processors could do in a second at best, and which line keeps them from more, if one does.
pub(super) fn rate(processors: f64, instructions: f64, writes: &[f64; LINES.len()]) -> (f64, Option<usize>) {
    let visits = |no: usize| if LINES[no].whose == Whose::All { writes[no] * LINES[no].visits } else { 0.0 };
    let others = (processors - 1.0) / processors;
    let transfers: f64 = (0..LINES.len()).map(visits).sum();
    let unhindered = processors / (instructions * INSTRUCTION_NS + transfers * TRANSFER_NS * others) * 1e9;
    // One processor has a line at a time.
    let walls = (0..LINES.len()).filter(|no| visits(*no) > 0.0).map(|no| (1e9 / (visits(no) * TRANSFER_NS), no));
    match walls.min_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((wall, no)) if wall < unhindered => (wall, Some(no)),
        _ => (unhindered, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(room: &str, file: &str, function: &str) -> Source {
        Source { room: room.into(), file: file.into(), function: function.into() }
    }

    #[test]
    fn lines_are_known_by_who_writes_them() {
        let name = |room, file, function| line_of(&source(room, file, function)).map(|no| LINES[no].name);
        assert_eq!(name("log", "own.rs", "reserve"), Some("log: `tail`"));
        assert_eq!(name("txn", "table.rs", "take_xid"), Some("counter of transaction ids"));
        assert_eq!(name("txn", "table.rs", "claim_of"), Some("slot of the transaction"));
        assert_eq!(name("region", "latch.rs", "take_exclusive"), Some("page entry and latch; latch of the log's sums"));
        assert_eq!(name("region", "try_mutex.rs", "try_lock"), Some("mutex of the transaction, counts of its handles"));
        assert_eq!(name("bench", "counts/work.rs", "bank"), None);
    }

    #[test]
    fn processors_add_up_until_one_line_is_always_under_way() {
        let (instructions, mut writes) = (10_000.0, [0.0; LINES.len()]);
        assert_eq!(rate(8.0, instructions, &writes), (4_000_000.0, None), "nothing in common");
        writes[0] = 5.0; // The tail: at most 2,000,000 a second.
        writes[3] = 100.0; // Of pages that differ.
        let (one, wall) = rate(1.0, instructions, &writes);
        assert_eq!((one.round(), wall), (500_000.0, None), "one processor keeps its lines");
        let (two, wall) = rate(2.0, instructions, &writes);
        assert_eq!((two.round(), wall), (888_889.0, None));
        assert_eq!(rate(32.0, instructions, &writes), (2_000_000.0, Some(0)));
    }
}
