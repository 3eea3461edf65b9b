//! What the programs say to input that only these here refuse. `programs.rs` has what those beside them answer alike.
#![allow(missing_docs)]

use std::process::Command;

#[test]
fn a_page_without_a_counter_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("good"), "506\n").unwrap();
    std::fs::write(dir.path().join("bad"), "1\n507\n").unwrap();
    let hits = env!("CARGO_BIN_EXE_hits");
    let counted = Command::new(hits).args(["site", "good", "bad"]).current_dir(dir.path()).output().unwrap();
    let refused = "bad: not counted: page 507 has no counter: the last is that of page 506\n";
    assert_eq!(String::from_utf8(counted.stdout).unwrap(), format!("good: 1 hits\n{refused}page 506: 1\n"));
    assert!(counted.status.success());
}

#[test]
fn the_later_of_two_measurements_of_a_second_counts() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "roof,1,5\nroof,2,7\nroof,1,6\n").unwrap();
    let ingest = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ingest")).args(args).current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    for time in 0..2 {
        assert_eq!(ingest(&["readings", "load", "file"]), "2 loaded\n", "{time}");
        assert_eq!(ingest(&["readings", "report", "roof", "0", "9"]), "roof: 2 readings, 6 to 7, mean 6.500\n");
    }
}
