//! Comments end at column 120, in every crate.

mod common;

const COLUMNS_MAX: usize = 120;

/// `rustfmt` leaves comments as they are. Tables, and drawings between lines of three backquotes, may be wider.
#[test]
fn comments_end_at_column_120() {
    let (mut wide, mut count) = (Vec::new(), 0);
    for path in common::files(".rs") {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut is_drawing = false;
        for (no, line) in text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else {
                is_drawing = false;
                continue;
            };
            count += 1;
            let comment = comment.trim_start_matches(['/', '!']).trim_start();
            is_drawing ^= comment.starts_with("```");
            if line.chars().count() > COLUMNS_MAX && !is_drawing && !comment.starts_with('|') {
                wide.push(format!("{}:{}", path.display(), no + 1));
            }
        }
    }
    assert!(count > 10_000, "{count} lines of comments");
    assert!(wide.is_empty(), "above {COLUMNS_MAX} columns: {wide:#?}");
}
