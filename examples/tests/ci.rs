//! `scripts/test.sh` counts what it leaves out, and names it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// The names of the steps, as the script has them.
fn steps(script: &str) -> Vec<&str> {
    script
        .lines()
        .filter_map(|line| line.strip_prefix("step ").or_else(|| Some(line.split_once("; then step ")?.1)))
        .filter_map(|call| call.split(' ').next())
        .collect()
}

#[test]
fn what_a_run_of_all_checks_leaves_out_is_counted_and_named() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let script = root.join("scripts/test.sh");
    let text = fs::read_to_string(&script).unwrap();
    let steps = steps(&text);
    assert!(steps.len() > 20 && steps.contains(&"deny") && steps.contains(&"book"), "{steps:?}");

    // Programs that it would install if they were missing: that is not what this is about.
    let dir = tempfile::tempdir().unwrap();
    for program in ["strace", "zsh", "fish", "db5.3_load", "valgrind", "objdump"] {
        let path = dir.path().join(program);
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", dir.path().display(), env::var("PATH").unwrap());
    let run = Command::new(&script)
        .env("PATH", path)
        .env("CARGO_TARGET_DIR", dir.path())
        .env("SKIP", steps.join(" "))
        .output()
        .unwrap();
    let printed = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{printed}");
    let last = printed.lines().last().unwrap();
    assert!(last.ends_with(&format!("; {} skipped: {}", steps.len(), steps.join(", "))), "{last}");
    let counts = fs::read_to_string(dir.path().join("checks/counts")).unwrap();
    assert_eq!(counts, format!("0 passed, 0 failed, {} skipped\n", steps.len()));
}
