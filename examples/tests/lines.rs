//! The counts of lines in `README.md` are true.

use std::path::Path;
use std::process::Command;

/// Lines of a program without comments and blank ones, as `scripts/lines.sh` counts.
fn lines(file: &str) -> u64 {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let counted = Command::new(dir.join("../scripts/lines.sh")).arg(file).current_dir(dir).output().unwrap();
    let printed = String::from_utf8(counted.stdout).unwrap();
    let count = printed.split(' ').next().unwrap();
    count.parse().unwrap_or_else(|_| panic!("{file}: {}", String::from_utf8_lossy(&counted.stderr)))
}

/// Each row whose first cell links to a program has its lines, and those of the program beside it.
#[test]
fn the_counts_of_lines_are_true() {
    let mut count = 0;
    for row in include_str!("../README.md").lines().filter(|line| line.starts_with("| [")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let file = cells[1].split(['(', ')']).nth(1).unwrap();
        assert_eq!(cells[3], lines(file).to_string(), "{file}");
        if cells[4] != "-" {
            let (beside, with) = cells[4].split_once(' ').unwrap();
            let file = with.split(['(', ')']).nth(1).unwrap();
            assert_eq!(beside, lines(file).to_string(), "{file}");
        }
        count += 1;
    }
    assert_eq!(count, 6, "rows");
}
