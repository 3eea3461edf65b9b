//! Backup, restore, repair, archive, dump, load and changes from the command line.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;

use assert_cmd::Command;

fn run(args: &[&str], at: &Path) -> Output {
    Command::cargo_bin("ledgerstone").unwrap().args(args).current_dir(at).output().unwrap()
}

fn ok(args: &[&str], at: &Path) -> String {
    let output = run(args, at);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn code(args: &[&str], at: &Path) -> i32 {
    run(args, at).status.code().unwrap()
}

#[test]
fn a_backup_is_not_taken_into_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    ok(&["init", "env", "--segment", "64K"], at);
    std::os::unix::fs::symlink("env", at.join("link")).unwrap();
    let files = || std::fs::read_dir(at.join("env")).unwrap().count();
    let count = files();
    for target in ["env/saved", "env/a/b", "./other/../env/saved", "link/saved", "env"] {
        for how in [&[][..], &["--file"], &["--incremental"]] {
            let refused = run(&[&["backup", "env", target], how].concat(), at);
            let told = String::from_utf8_lossy(&refused.stderr);
            assert!(refused.status.code() == Some(2), "{target} {how:?}: {told}");
            assert!(told.contains("is in the directory of the environment"), "{target} {how:?}: {told}");
        }
    }
    assert_eq!(files(), count);
    ok(&["backup", "env", "environment"], at); // Its name only begins as the other's.
}

#[test]
fn an_archive_is_not_made_in_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    ok(&["init", "env"], at);
    let settings = at.join("env/ledgerstone.toml");
    let refused = |args: &[&str]| {
        let output = run(args, at);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2), "{args:?}: {told}");
        assert!(told.contains("is in the directory of the environment, and would be lost with it"), "{args:?}: {told}");
    };
    for place in ["archive", ".", "../env/log/../archive"] {
        std::fs::write(&settings, format!("archive_dir = \"{place}\"\n")).unwrap();
        refused(&["put", "env", "t", "k", "v"]);
        refused(&["config", "env"]);
        refused(&["archive", "env"]);
        assert_eq!(code(&["config", "env", "--check"], at), 1);
    }
    std::fs::remove_file(&settings).unwrap();
    refused(&["archive", "env", "--archive", "env/archive", "--now"]);
    ok(&["archive", "env", "--archive", "environment", "--now"], at);
    assert!(!at.join("env/archive").exists());
}

#[test]
fn what_was_backed_up_is_restored_at_the_moment_that_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    ok(&["init", "env", "--segment", "64K"], at);
    std::fs::write(at.join("env/ledgerstone.toml"), "archive_dir = \"../archive\"\n").unwrap();
    ok(&["put", "env", "fruit", "apple", "red"], at);
    ok(&["backup", "env", "saved"], at);
    ok(&["put", "env", "fruit", "apple", "green"], at);
    let changes = ok(&["--json", "changes", "env"], at);
    let last: serde_json::Value = serde_json::from_str(changes.lines().last().unwrap()).unwrap();
    assert_eq!((last["table"].as_str(), last["key"].as_str()), (Some("fruit"), Some("apple")));
    ok(&["put", "env", "fruit", "apple", "brown"], at);
    ok(&["backup", "env", "saved", "--incremental"], at);
    ok(&["backup", "env", "one.backup", "--file"], at);
    std::fs::write(at.join("stream.backup"), run(&["backup", "env", "-"], at).stdout).unwrap();
    assert_eq!(ok(&["backup", "list", "saved"], at).lines().count(), 2);
    for place in ["saved", "one.backup", "stream.backup"] {
        assert!(ok(&["backup", "verify", place], at).contains("no problems"));
    }

    ok(&["restore", "saved", "end"], at);
    assert_eq!(ok(&["get", "end", "fruit", "apple"], at), "brown\n");
    let lsn = last["lsn"].to_string();
    ok(&["restore", "saved", "then", "--to-lsn", &lsn], at);
    assert_eq!(ok(&["get", "then", "fruit", "apple"], at), "green\n");
    let ns: u64 = last["time_ns"].as_str().unwrap().parse().unwrap();
    let time = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    ok(&["restore", "saved", "timed", "--to-time", &time], at);
    assert_eq!(ok(&["get", "timed", "fruit", "apple"], at), "green\n");
    for place in ["one.backup", "stream.backup"] {
        let target = format!("of {place}");
        ok(&["restore", place, &target], at);
        assert_eq!(ok(&["get", &target, "fruit", "apple"], at), "brown\n");
    }
    let stream = std::fs::read(at.join("stream.backup")).unwrap();
    let piped = |bytes: &[u8], target: &str| {
        let mut restore = Command::cargo_bin("ledgerstone").unwrap();
        restore.args(["restore", "-", target]).current_dir(at).write_stdin(bytes.to_vec()).output().unwrap()
    };
    assert!(piped(&stream, "piped").status.success());
    assert_eq!(ok(&["get", "piped", "fruit", "apple"], at), "brown\n");
    assert_eq!(piped(&stream[..stream.len() - 1], "cut").status.code(), Some(2), "the pipe broke");
    assert!(!at.join("cut").exists());
    let left: Vec<_> = std::fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".part")), "{left:?}");
    assert_eq!(code(&["restore", "saved", "end"], at), 2, "not empty");
    assert_eq!(code(&["restore", "saved", "early", "--to-time", "1970-01-02T00:00:00Z"], at), 2);
    assert_eq!(std::fs::read_dir(at.join("early")).unwrap().count(), 0, "a refused restore leaves nothing");

    ok(&["put", "env", "fruit", "apple", "gone"], at);
    ok(&["archive", "env", "--now"], at);
    assert!(ok(&["archive", "env", "--verify"], at).contains(".seg LSN 0"));
    ok(&["restore", "saved", "newest", "--log", "archive"], at);
    assert_eq!(ok(&["get", "newest", "fruit", "apple"], at), "gone\n");
    ok(&["archive", "env", "--remove-before", "saved"], at);

    // A flipped byte in the environment is mended; without the double-write file, which would mend it first.
    std::fs::remove_file(at.join("env/double_write")).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(at.join("env/data")).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 2 * 4096 + 500).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 2 * 4096 + 500).unwrap();
    assert_ne!(code(&["get", "env", "fruit", "apple"], at), 0);
    let found = run(&["verify", "env"], at);
    let told = String::from_utf8(found.stdout).unwrap();
    assert!(
        found.status.code() == Some(1) && told.contains("\ndata file, page 2: damaged\n1 damaged page found;"),
        "{told}"
    );
    let mended = ok(&["repair", "env", "--from", "saved", "--all", "--log", "archive"], at);
    assert!(mended.starts_with("1 page repaired") && mended.ends_with(": 2\n"), "{mended}");
    assert_eq!(ok(&["get", "env", "fruit", "apple"], at), "gone\n");
    assert!(ok(&["repair", "env", "--from", "saved", "--log", "archive"], at).contains("no damaged pages"));
    let bytes = std::fs::read(at.join("one.backup")).unwrap();
    let mut bad = bytes.clone();
    bad[9000] ^= 1;
    std::fs::write(at.join("bad.backup"), bad).unwrap();
    assert_eq!(code(&["backup", "verify", "bad.backup"], at), 1);
    std::fs::write(at.join("bad.backup"), &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(code(&["backup", "verify", "bad.backup"], at), 1);
}

#[test]
fn dumps_load_and_named_changes_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    ok(&["init", "env"], at);
    for (key, value) in [("apple", "red"), ("pear", "green\n")] {
        ok(&["put", "env", "fruit", key, value], at);
    }
    let text = ok(&["dump", "env", "--print"], at);
    assert_eq!(
        text,
        "VERSION=3\nformat=print\ndatabase=fruit\ntype=btree\nHEADER=END\n apple\n red\n pear\n green\\0a\nDATA=END\n"
    );
    ok(&["dump", "env", "-o", "file.dump"], at);
    ok(&["init", "other"], at);
    ok(&["load", "other", "file.dump"], at);
    assert_eq!(ok(&["dump", "other", "--print"], at), text);
    std::fs::write(at.join("bad.dump"), "VERSION=3\nformat=print\ntype=btree\nHEADER=END\n k\n").unwrap();
    let output = run(&["load", "other", "bad.dump", "--table", "t"], at);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 5"));

    assert_eq!(ok(&["changes", "env", "--name", "search"], at), "", "a new name begins now");
    ok(&["put", "env", "fruit", "plum", "blue"], at);
    let told = ok(&["changes", "env", "--name", "search"], at);
    assert!(told.contains("\tfruit\tplum\t(none)\t\"blue\""), "{told}");
    assert_eq!(ok(&["changes", "env", "--name", "search"], at), "", "each once");
    ok(&["put", "env", "new", "7", "x", "--key-type", "u64"], at);
    ok(&["index", "create", "env", "new", "i", "value"], at);
    ok(&["rename", "env", "new", "newer"], at);
    let told = ok(&["changes", "env", "--name", "search"], at);
    let told: Vec<&str> = told.lines().map(|line| line.split_once('\t').unwrap().1).collect();
    let expected = [
        "new\t(created)",
        "new\t(typed)\tu64",
        "new\t7\t(none)\t\"x\"",
        "new\t(index created)\ti\tvalue",
        "new\t(renamed)\tnewer",
    ];
    assert_eq!(told, expected);
    let renamed = ok(&["--json", "changes", "env", "--table", "newer"], at);
    let renamed: serde_json::Value = serde_json::from_str(renamed.lines().last().unwrap()).unwrap();
    assert_eq!((renamed["event"].as_str(), renamed["to"].as_str()), (Some("renamed"), Some("newer")));
    assert_eq!(code(&["changes", "env", "--forget", "search"], at), 0);
    assert_eq!(code(&["changes", "env", "--forget", "search"], at), 1);
}

#[test]
fn feeds_whose_file_is_lost_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    ok(&["init", "env"], at);
    ok(&["put", "env", "fruit", "apple", "red"], at);
    ok(&["changes", "env", "--name", "search"], at);
    ok(&["put", "env", "fruit", "apple", "green"], at);
    std::fs::write(at.join("env/feeds"), "damaged").unwrap();
    let refused = run(&["get", "env", "fruit", "apple"], at);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("--forget-feeds"), "{said}");
    ok(&["recover", "env", "--forget-feeds"], at);
    assert_eq!(ok(&["get", "env", "fruit", "apple"], at), "green\n");
    assert_eq!(ok(&["changes", "env", "--name", "search"], at), "", "a forgotten name begins now");
    ok(&["put", "env", "fruit", "pear", "brown"], at);
    assert!(ok(&["changes", "env", "--name", "search"], at).contains("\tpear\t"));
    assert_eq!(code(&["recover", "nowhere", "--forget-feeds"], at), 2);
    assert_eq!(code(&["verify", "env"], at), 0);
}
