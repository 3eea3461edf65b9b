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
    assert!(steps.len() > 20 && ["deny", "semver", "book"].iter().all(|of| steps.contains(of)), "{steps:?}");

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

/// The tool itself takes minutes to install: here is one that always finds the same thing gone.
#[test]
fn what_has_gone_from_the_interface_fails_once_there_is_a_release() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("repository");
    fs::create_dir_all(place.join("scripts")).unwrap();
    for script in ["semver.sh", "need.sh"] {
        fs::copy(root.join("scripts").join(script), place.join("scripts").join(script)).unwrap();
    }
    let tool = dir.path().join("cargo-semver-checks");
    fs::write(&tool, "#!/bin/sh\necho \"$@\"\necho '--- failure method_missing: a method ---'\nexit 1\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", dir.path().display(), env::var("PATH").unwrap());
    let git = |line: &str| {
        let mut git = Command::new("git");
        git.current_dir(&place).args(["-c", "user.name=x", "-c", "user.email=x@x"]).args(line.split(' '));
        git.output().is_ok_and(|output| output.status.success())
    };
    let semver = |args: &[&str]| {
        let mut script = Command::new(place.join("scripts/semver.sh"));
        let run = script.args(args).env("PATH", &path).env_remove("GIT_DIR").output().unwrap();
        (run.status.code().unwrap(), String::from_utf8(run.stdout).unwrap())
    };
    let has_base = |said: &str, base: &str| assert!(said.contains(&format!("--baseline-rev {base}")), "{said}");

    if !git("init --quiet --initial-branch main") {
        eprintln!("git is not there, and this was not tried");
        return;
    }
    assert!(git("commit --quiet --allow-empty -m first"));
    let (code, said) = semver(&[]);
    assert!(code == 0 && said.starts_with("skipped: there is no earlier revision"), "{said}");
    assert!(git("tag first") && git("commit --quiet --allow-empty -m second"));
    let (code, said) = semver(&[]);
    assert!(code == 0 && said.ends_with("changed: method_missing: a method (1)\n"), "{said}");
    let first = fs::read_to_string(place.join(".git/refs/tags/first")).unwrap();
    has_base(&said, first.trim());
    let (code, said) = semver(&["first"]);
    assert_eq!(code, 1, "{said}");
    has_base(&said, "first");
    assert!(git("tag v0.1.0"));
    let (code, said) = semver(&[]);
    assert_eq!(code, 1, "{said}");
    has_base(&said, "v0.1.0");
}
