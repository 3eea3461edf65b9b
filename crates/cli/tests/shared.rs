//! Commands beside a program that shares its environment.

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use ledgerstone::{Environment, Sharing};

fn run(args: &[&str], at: &Path) -> Output {
    Command::cargo_bin("ledgerstone").unwrap().args(args).current_dir(at).output().unwrap()
}

fn ok(args: &[&str], at: &Path) -> String {
    let output = run(args, at);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn commands_work_beside_a_program_that_shares_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let env = Environment::options()
        .sharing(Sharing::Shared)
        .region_dir(at)
        .cache_bytes(1 << 20)
        .log_buffer_bytes(256 << 10)
        .lock_count_max(4096)
        .version_store_bytes(1 << 20)
        .open(at.join("env"))
        .unwrap();
    env.transact(|txn| txn.bytes_or_create("fruit")?.put(b"apple", b"red")).unwrap();
    assert_eq!(ok(&["get", "env", "fruit", "apple"], at), "red\n");
    ok(&["put", "env", "fruit", "pear", "green"], at);
    assert_eq!(env.transact(|txn| txn.bytes("fruit")?.get(b"pear")).unwrap().as_deref(), Some(&b"green"[..]));
    assert_eq!(ok(&["scan", "env", "fruit"], at).lines().count(), 2);
    assert_eq!(ok(&["tables", "env", "--count"], at), "fruit\t2\n");
    // What was dropped and made anew here, the program finds there.
    let shell = Command::cargo_bin("ledgerstone")
        .unwrap()
        .args(["shell", "env"])
        .current_dir(at)
        .write_stdin("drop fruit\ncreate colours\nput colours red apple\n")
        .output()
        .unwrap();
    assert!(shell.status.success(), "{}", String::from_utf8_lossy(&shell.stderr));
    assert_eq!(env.table_names().unwrap(), ["colours"]);
    let processes = ok(&["processes", "env", "--json"], at);
    let processes: Vec<serde_json::Value> = processes.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(processes.len(), 2, "{processes:?}");
    assert_eq!((&processes[0]["pid"], &processes[0]["leads"]), (&std::process::id().into(), &true.into()));
    assert_eq!(processes[1]["is_this"], true);
    assert!(ok(&["processes", "env"], at).contains("leads"));
    assert!(ok(&["stat", "env"], at).contains("sharing"));
    ok(&["verify", "env"], at);
    ok(&["checkpoint", "env"], at);
    ok(&["backup", "env", "saved"], at);
    env.transact(|txn| txn.bytes("colours")?.put(b"green", b"pear")).unwrap();
    ok(&["backup", "env", "saved", "--incremental"], at);
    let refused = run(&["restore", "saved", "env"], at);
    assert_ne!(refused.status.code(), Some(0));
    assert_eq!(env.transact(|txn| txn.bytes("colours")?.get(b"green")).unwrap().as_deref(), Some(&b"pear"[..]));
    env.close().unwrap();
    ok(&["restore", "saved", "again"], at);
    assert_eq!(ok(&["get", "again", "colours", "green"], at), "pear\n");
    assert_eq!(ok(&["get", "env", "colours", "green"], at), "pear\n");
}
