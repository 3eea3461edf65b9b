//! Comments end at column 120, in every crate.

use std::path::{Path, PathBuf};

const COLUMNS_MAX: usize = 120;

/// The source files of the repository.
fn sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let (mut found, mut dirs) = (Vec::new(), vec![root]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            if path.is_dir() && !path.is_symlink() && !name.starts_with('.') && name != "target" {
                dirs.push(path);
            } else if name.ends_with(".rs") {
                found.push(path);
            }
        }
    }
    found
}

/// `rustfmt` leaves comments as they are. Tables, and drawings between lines of three backquotes, may be wider.
#[test]
fn comments_end_at_column_120() {
    let (mut wide, mut count) = (Vec::new(), 0);
    for path in sources() {
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
