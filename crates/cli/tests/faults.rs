//! Every command on a device that does harm at one call: it ends with an exit code and a message, never with a panic or a
//! hang, and the environment holds afterwards what it held before the command or what it was to hold after it; the latter
//! if the command said that it was done.
//!
//! The commands are the debug build's, which takes a fault from `LEDGERSTONE_FAULT` (`ledgerstone_disk::FileDisk`).
//! `FAULT_STEP` is how many calls lie between two that are harmed, the first drawn by scenario: 1 harms every call,
//! as `make faults` does.
#![allow(missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What is run. `@` stands for the environment, `%` for the directory around it.
struct Scenario {
    name: &'static str,
    args: &'static [&'static str],
    /// The environment was closed, or left by a process that died.
    is_clean: bool,
    changes: Changes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Changes {
    /// No record.
    Nothing,
    /// Records, all at once.
    Records,
    /// It makes the environment.
    All,
}

const fn reads(name: &'static str, args: &'static [&'static str]) -> Scenario {
    Scenario { name, args, is_clean: true, changes: Changes::Nothing }
}

const fn writes(name: &'static str, args: &'static [&'static str]) -> Scenario {
    Scenario { name, args, is_clean: true, changes: Changes::Records }
}

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "init", args: &["init", "%/new", "--segment", "64K"], is_clean: true, changes: Changes::All },
    reads("get", &["get", "@", "t", "k0050"]),
    reads("scan", &["scan", "@", "t"]),
    reads("tables", &["tables", "@", "--count"]),
    reads("export", &["export", "@", "t", "%/out.csv"]),
    reads("stat", &["stat", "@"]),
    reads("verify", &["verify", "@"]),
    reads("checkpoint", &["checkpoint", "@"]),
    reads("config", &["config", "@"]),
    reads("compact", &["compact", "@"]),
    reads("log", &["log", "@"]),
    reads("backup", &["backup", "@", "%/backup"]),
    reads("dump", &["dump", "@", "%/out.dump"]),
    reads("prepared", &["prepared", "@", "list"]),
    reads("changes", &["changes", "@"]),
    reads("changes by name", &["changes", "@", "--name", "copy"]),
    reads("load what is there", &["load", "@", "%/t.dump"]),
    reads("index create", &["index", "create", "@", "t", "head", "bytes:0..4"]),
    reads("backup verify", &["backup", "verify", "%/kept"]),
    reads("repair", &["repair", "@", "--from", "%/kept", "--page", "5"]),
    Scenario {
        name: "get after a crash",
        args: &["get", "@", "t", "k0050"],
        is_clean: false,
        changes: Changes::Nothing,
    },
    Scenario { name: "recover", args: &["recover", "@"], is_clean: false, changes: Changes::Nothing },
    Scenario { name: "verify after a crash", args: &["verify", "@"], is_clean: false, changes: Changes::Nothing },
    writes("put", &["put", "@", "t", "k0050", "another value"]),
    writes("put a large value", &["put", "@", "t", "large", "@LARGE"]),
    writes("del", &["del", "@", "t", "k0050"]),
    writes("import", &["import", "@", "u", "%/more.csv", "--key", "id", "--one-transaction"]),
    writes("rename", &["rename", "@", "t", "v"]),
    Scenario {
        name: "put after a crash",
        args: &["put", "@", "t", "k0050", "x"],
        is_clean: false,
        changes: Changes::Records,
    },
];

/// Calls and harms, as `LEDGERSTONE_FAULT` takes them, and whether what is stored may be damaged by it.
const HARMS: &[(&str, &str, bool)] = &[
    ("read", "eio", false),
    ("read", "short", false),
    ("read", "flip=70001", false),
    ("write", "eio", false),
    ("write", "no-space", false),
    ("write", "short", false),
    ("write", "flip=90017", true),
    ("write", "misdirect=4096", true),
    ("sync", "eio", false),
    ("sync", "lie", false),
    ("open", "eio", false),
    ("name", "eio", false),
    ("allocate", "no-space", false),
    ("sync-dir", "eio", false),
];

fn program() -> PathBuf {
    assert_cmd::cargo::cargo_bin("ledgerstone")
}

struct Place(tempfile::TempDir);

impl Place {
    /// A copy of the environment of `template`.
    fn new(template: &Path) -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        copy(template, place.0.path());
        place
    }

    fn words(&self, args: &[&str]) -> Vec<String> {
        let around = self.0.path().display().to_string();
        let large = "large ".repeat(3000);
        let word = |arg: &&str| match *arg {
            "@" => format!("{around}/env"),
            "@LARGE" => large.clone(),
            other => other.replace('%', &around),
        };
        args.iter().map(word).collect()
    }

    /// Runs a command; a minute is a hang.
    fn run(&self, args: &[&str], fault: Option<&str>) -> Output {
        let mut command = Command::new(program());
        command.args(self.words(args)).current_dir(self.0.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(fault) = fault {
            command.env("LEDGERSTONE_FAULT", fault).env("LEDGERSTONE_FAULT_MET", self.met());
        }
        let mut child = command.spawn().unwrap();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let out = std::thread::spawn(move || read_all(out));
        let err = std::thread::spawn(move || read_all(err));
        let began = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if began.elapsed() > Duration::from_secs(60) => {
                    child.kill().unwrap();
                    panic!("{args:?} with {fault:?} hangs");
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
    }

    fn met(&self) -> PathBuf {
        self.0.path().join("fault-was-met")
    }

    /// All records of all tables, as text; or what kept them from being read.
    fn state(&self, env: &str) -> Result<String, String> {
        let names = self.must(&["tables", env])?;
        let mut state = String::new();
        for line in names.lines() {
            let name = line.split('\t').next().unwrap_or(line); // Indexes stand behind it.
            state += &format!("{name}: {}\n", self.must(&["export", env, name])?);
        }
        Ok(state)
    }

    fn must(&self, args: &[&str]) -> Result<String, String> {
        let output = self.run(args, None);
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

fn read_all(mut from: impl std::io::Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    bytes
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Two environments to begin with: one closed in order, one left by a process that could not go on.
fn templates() -> [Place; 2] {
    let rows = |count: usize| {
        let row = |n| format!("k{n:04},{}\n", "v".repeat(n * 7 % 300));
        format!("id,text\n{}", (0..count).map(row).collect::<String>())
    };
    let make = |breaks: bool| {
        let place = Place(tempfile::tempdir().unwrap());
        fs::write(place.0.path().join("rows.csv"), rows(200)).unwrap();
        fs::write(place.0.path().join("more.csv"), rows(90)).unwrap();
        let import = ["import", "@", "t", "%/rows.csv", "--key", "id", "--batch", "10"];
        let kept: [&[&str]; 3] =
            [&["changes", "@", "--name", "copy"], &["dump", "@", "%/t.dump"], &["backup", "@", "%/kept"]];
        for args in [&["init", "@", "--segment", "64K"][..], &import].into_iter().chain(kept) {
            let output = place.run(args, None);
            assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        }
        if breaks {
            let import = ["import", "@", "u", "%/rows.csv", "--key", "id", "--batch", "10"];
            let output = place.run(&import, Some("sync:16+:eio"));
            assert!(!output.status.success() && place.met().exists(), "the import was to fail");
            fs::remove_file(place.met()).unwrap();
        }
        place
    };
    [make(false), make(true)]
}

/// Whether this build has the command at all.
fn knows(command: &str) -> bool {
    let output = Command::new(program()).arg("help").output().unwrap();
    text(&output.stdout).lines().any(|line| line.split_whitespace().next() == Some(command))
}

/// Harms one call of a scenario; false if there is no such call.
fn harm(scenario: &Scenario, template: &Path, fault: &str, damages: bool, states: [&str; 2]) -> bool {
    let place = Place::new(template);
    let output = place.run(scenario.args, Some(fault));
    if !place.met().exists() {
        return false;
    }
    let what = format!("{} with {fault}", scenario.name);
    let (code, err) = (output.status.code(), text(&output.stderr));
    assert!(matches!(code, Some(0..=2)), "{what}: {}: {err}", output.status);
    assert!(
        code == Some(0) || !err.trim().is_empty() || !output.stdout.is_empty(),
        "{what}: code {code:?} and not a word"
    );
    let env = if scenario.changes == Changes::All { "%/new" } else { "@" };
    let done = code == Some(0) && scenario.changes != Changes::Nothing;
    if scenario.changes == Changes::All && !done {
        // What is there is no environment, or one that works.
        let again = place.run(&["init", "%/new"], None);
        assert!(damages || again.status.success() || place.state(env).is_ok(), "{what}: {}", text(&again.stderr));
        return true;
    }
    match place.state(env) {
        Ok(state) => {
            let allowed = if done { &states[1..] } else { &states[..] };
            // A write that went elsewhere leaves an old page or an old log behind, which nobody can tell after a restart.
            let is_lost = fault.contains("misdirect") || damages && fault.contains("write");
            let allowed = if is_lost { &states[..] } else { allowed };
            assert!(
                allowed.contains(&state.as_str()) || fault.contains("misdirect"),
                "{what}: code {code:?}; the records are neither those of before nor those of after: {err}"
            );
        }
        Err(why) => assert!(damages, "{what}: code {code:?}; afterwards: {why}; then: {err}"),
    }
    if !damages {
        place.must(&["verify", env]).unwrap_or_else(|why| panic!("{what}: not sound: {why}"));
    }
    true
}

/// All harms of a scenario, every `step`-th call; how many were met.
fn run(scenario: &Scenario, templates: &[Place; 2], step: usize) -> usize {
    let template = templates[usize::from(!scenario.is_clean)].0.path();
    let env = if scenario.changes == Changes::All { "%/new" } else { "@" };
    let before = if scenario.changes == Changes::All { Err(String::new()) } else { Place::new(template).state(env) };
    let place = Place::new(template);
    let output = place.run(scenario.args, None);
    assert!(output.status.success(), "{} without a fault: {}", scenario.name, text(&output.stderr));
    let after = place.state(env).unwrap();
    let before = before.unwrap_or_default();
    let mut met = 0;
    for (number, (call, harm_name, damages)) in HARMS.iter().enumerate() {
        let mut nth = 1 + (number * 5 + scenario.name.len()) % step;
        while harm(scenario, template, &format!("{call}:{nth}:{harm_name}"), *damages, [&before, &after]) {
            met += 1;
            nth += step;
        }
    }
    met
}

#[test]
fn every_command_survives_every_fault() {
    let step = std::env::var("FAULT_STEP").ok().and_then(|step| step.parse().ok()).unwrap_or(47).max(1);
    let templates = templates();
    let scenarios: Vec<&Scenario> = SCENARIOS.iter().filter(|scenario| knows(scenario.args[0])).collect();
    let (next, met) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while let Some(scenario) = scenarios.get(next.fetch_add(1, Relaxed)) {
                    met.fetch_add(run(scenario, &templates, step), Relaxed);
                }
            });
        }
    });
    let met = met.into_inner();
    println!("command faults: {} commands, {met} faults met", scenarios.len());
    assert!(met > 2 * scenarios.len(), "only {met} faults were met by {} commands", scenarios.len());
}
