//! What instructions are for, by where in the source they come from.

use super::sources::Source;

/// What an operation spends instructions on, in the order of the table's columns.
pub(super) const TOPICS: [&str; 11] = [
    "transactions",
    "handles of tables",
    "search in the tree",
    "scans",
    "change of pages",
    "locks",
    "record of the log",
    "what snapshots may want",
    "page cache and latches",
    WORDS,
    "C library",
];

/// What the C library does: it copies, compares and gives memory.
pub(super) const C_LIBRARY: usize = TOPICS.len() - 1;

/// What is for others where it lies within them.
const WORDS: &str = "words and checksums";

/// Crate and file begin so, and what is done there. Of two that fit, the first one counts.
const PLACES: [(&str, &str); 34] = [
    ("ledgerstone/environment/lock", "locks"),
    ("ledgerstone/environment/", "transactions"),
    ("ledgerstone/transaction/", "transactions"),
    ("ledgerstone/inner/tables", "handles of tables"),
    ("ledgerstone/inner/", "transactions"),
    ("ledgerstone/", "handles of tables"),
    ("txn/version/", "what snapshots may want"),
    ("txn/locks", "locks"),
    ("txn/wait", "locks"),
    ("txn/chain", "record of the log"),
    ("txn/", "transactions"),
    ("lock/", "locks"),
    ("log/", "record of the log"),
    ("op/page_mut", "change of pages"),
    ("op/", "record of the log"),
    ("structures/btree/search", "search in the tree"),
    ("structures/btree/node", "search in the tree"),
    ("structures/btree/tree", "search in the tree"),
    ("structures/btree/first", "search in the tree"),
    ("structures/btree/last_key", "scans"),
    ("structures/btree/page_locks", "locks"),
    ("structures/btree/history", "what snapshots may want"),
    ("structures/btree/scan", "scans"),
    ("structures/btree/snapshot", "search in the tree"),
    ("structures/btree/fetch", "scans"),
    ("structures/btree/ahead", "scans"),
    ("structures/btree/bytes", WORDS),
    ("structures/", "change of pages"),
    ("space/", "change of pages"),
    ("buffer/", "page cache and latches"),
    ("region/latch", "page cache and latches"),
    ("region/", WORDS),
    ("page/checksum", WORDS),
    ("page/header", WORDS),
];

/// The topic of an instruction, by the functions around it from the inside out. What the compiler has put into another
/// function is for what that one does, if it reads words or is of a crate that has no topic of its own.
pub(super) fn topic_of(around: &[Source]) -> Option<usize> {
    let mut named = around.iter().filter_map(|source| {
        let place = format!("{}/{}", source.room, source.file);
        PLACES.iter().find(|(begin, _)| place.starts_with(begin)).map(|(_, name)| *name)
    });
    let first = named.next()?;
    let name = if first == WORDS { named.find(|name| *name != WORDS).unwrap_or(first) } else { first };
    TOPICS.iter().position(|topic| *topic == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(around: &[(&str, &str)]) -> Option<&'static str> {
        let source = |(room, file): &(&str, &str)| Source {
            room: (*room).into(),
            file: (*file).into(),
            function: "some".into(),
        };
        topic_of(&around.iter().map(source).collect::<Vec<_>>()).map(|no| TOPICS[no])
    }

    #[test]
    fn words_are_for_who_reads_them() {
        assert_eq!(topic(&[("region", "words.rs"), ("structures", "btree/search.rs")]), Some("search in the tree"));
        assert_eq!(topic(&[("region", "words.rs")]), Some("words and checksums"));
        let cache = Some("page cache and latches");
        assert_eq!(topic(&[("region", "latch.rs"), ("structures", "btree/edit.rs")]), cache);
        assert_eq!(topic(&[("region", "words.rs"), ("page", "header.rs"), ("buffer", "guard.rs")]), cache);
        assert_eq!(topic(&[("page", "ids.rs"), ("buffer", "guard.rs")]), cache);
        assert_eq!(topic(&[("structures", "btree/entry.rs")]), Some("change of pages"));
        assert_eq!(topic(&[("bench", "counts/work.rs")]), None);
        assert_eq!(topic(&[]), None);
    }

    #[test]
    fn every_place_has_a_column_and_a_file() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for (begin, name) in PLACES {
            assert!(TOPICS.contains(&name), "{begin}: {name}");
            let (room, file) = begin.split_once('/').unwrap();
            let (dir, stem) = file.rsplit_once('/').unwrap_or(("", file));
            let dir = crates.join(room).join("src").join(dir);
            let names = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
            assert!(names.into_iter().any(|name| name.to_string_lossy().starts_with(stem)), "no file for {begin}");
        }
    }
}
