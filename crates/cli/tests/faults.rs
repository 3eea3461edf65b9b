//! Every command on a device that does harm at one call. It ends with an exit code and a message, never with a panic or
//! a hang. The environment then holds what it held before the command, or what it was to hold after it. It holds the
//! latter if the command said that it was done.
//!
//! The commands are the debug build's, which takes a fault from `LEDGERSTONE_FAULT` (`ledgerstone_disk::FileDisk`).
//! `FAULT_STEP` is how many calls lie between two that are harmed, the first drawn by scenario: `make faults` sets 5,
//! and 1 harms every call.
#![allow(missing_docs)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// What is run. `@` stands for the environment, `%` for the directory around it.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    args: &'static [&'static str],
    /// What comes in by the pipe.
    typed: &'static str,
    found: Found,
    changes: Changes,
    /// Commands that must succeed afterwards, unless what is stored was damaged: what is beside the environment is
    /// whole.
    then: &'static [&'static [&'static str]],
}

/// How the environment is when the command comes.
#[derive(Clone, Copy)]
enum Found {
    /// Closed in order.
    Closed,
    /// Left by a process that could not go on.
    Broken,
    /// Closed, with a transaction in doubt.
    InDoubt,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Changes {
    /// No record.
    Nothing,
    /// Records and indexes, all at once.
    Records,
    /// It makes the environment, an empty one.
    All,
    /// It makes the environment from what there is elsewhere.
    Copy,
}

impl Scenario {
    const fn on(self, found: Found) -> Scenario {
        Scenario { found, ..self }
    }

    const fn typing(self, typed: &'static str) -> Scenario {
        Scenario { typed, ..self }
    }

    const fn then(self, then: &'static [&'static [&'static str]]) -> Scenario {
        Scenario { then, ..self }
    }

    fn env(&self) -> &'static str {
        if matches!(self.changes, Changes::All | Changes::Copy) { "%/new" } else { "@" }
    }
}

const fn scenario(name: &'static str, args: &'static [&'static str], changes: Changes) -> Scenario {
    Scenario { name, args, typed: "", found: Found::Closed, changes, then: &[] }
}

const fn reads(name: &'static str, args: &'static [&'static str]) -> Scenario {
    scenario(name, args, Changes::Nothing)
}

const fn writes(name: &'static str, args: &'static [&'static str]) -> Scenario {
    scenario(name, args, Changes::Records)
}

const fn makes(name: &'static str, args: &'static [&'static str]) -> Scenario {
    scenario(name, args, Changes::Copy)
}

const ARCHIVE_VERIFY: &[&str] = &["archive", "@", "--archive", "%/archive", "--verify"];

const SCENARIOS: &[Scenario] = &[
    scenario("init", &["init", "%/new", "--segment", "64K"], Changes::All),
    reads("get", &["get", "@", "t", "k0050"]),
    reads("scan", &["scan", "@", "t"]),
    reads("tables", &["tables", "@", "--count"]),
    reads("export", &["export", "@", "t", "%/out.csv"]),
    reads("stat", &["stat", "@"]),
    reads("processes", &["processes", "@"]),
    reads("complete", &["complete", "--", "scan", "@", ""]),
    reads("verify", &["verify", "@"]),
    reads("checkpoint", &["checkpoint", "@"]),
    reads("config", &["config", "@"]),
    reads("compact", &["compact", "@"]),
    reads("log", &["log", "@"]),
    reads("backup", &["backup", "@", "%/backup"]),
    reads("backup of the log", &["backup", "@", "%/kept", "--incremental"]).then(&[&["backup", "verify", "%/kept"]]),
    reads("backup list", &["backup", "list", "%/kept"]),
    reads("backup verify", &["backup", "verify", "%/kept"]),
    makes("restore", &["restore", "%/kept", "%/new"]),
    makes("restore with the archive", &["restore", "%/kept", "%/new", "--log", "%/archive"]),
    reads("repair", &["repair", "@", "--from", "%/kept", "--page", "5"]),
    reads("archive", &["archive", "@", "--archive", "%/archive"]),
    reads("archive now", &["archive", "@", "--archive", "%/archive", "--now"]).then(&[ARCHIVE_VERIFY]),
    reads("archive verify", ARCHIVE_VERIFY),
    reads("archive remove", &["archive", "@", "--archive", "%/archive", "--remove-before", "%/kept"])
        .then(&[ARCHIVE_VERIFY]),
    reads("dump", &["dump", "@", "-o", "%/out.dump", "--force"]),
    reads("changes", &["changes", "@"]),
    reads("changes by name", &["changes", "@", "--name", "copy"]),
    reads("load what is there", &["load", "@", "%/t.dump"]),
    reads("index list", &["index", "list", "@"]),
    reads("index lookup", &["index", "lookup", "@", "t", "start", "{\"id\":\"k0050"]),
    reads("prepared list", &["prepared", "list", "@"]).on(Found::InDoubt),
    reads("get beside one in doubt", &["get", "@", "t", "k0100"]).on(Found::InDoubt),
    reads("get after a crash", &["get", "@", "t", "k0050"]).on(Found::Broken),
    reads("recover", &["recover", "@"]).on(Found::Broken),
    reads("verify after a crash", &["verify", "@"]).on(Found::Broken),
    writes("put", &["put", "@", "t", "k0050", "another value"]),
    writes("put a large value", &["put", "@", "t", "large", "@LARGE"]),
    writes("del", &["del", "@", "t", "k0050"]),
    writes("import", &["import", "@", "u", "%/more.csv", "--key", "id", "--one-transaction"]),
    writes("rename", &["rename", "@", "t", "v"]),
    writes("index create", &["index", "create", "@", "t", "head", "bytes:0..4"]),
    writes("index drop", &["index", "drop", "@", "t", "start"]),
    // One change: the shell goes on after an error, and would commit what was left of two.
    writes("shell", &["shell", "@"]).typing("begin a\nput t k0050 typed\nget t k0051\ncommit a\nscan t limit 5\n"),
    writes("prepared commit", &["prepared", "commit", "@", "two-phase"]).on(Found::InDoubt),
    writes("prepared abort", &["prepared", "abort", "@", "two-phase"]).on(Found::InDoubt),
    writes("put after a crash", &["put", "@", "t", "k0050", "x"]).on(Found::Broken),
];

/// Commands that touch no environment of anybody's: they write texts, or measure in a directory of their own.
const OTHERS: &[&str] = &["bench", "probe", "flash", "completions", "man", "help"];

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

    /// Runs a command; a minute of looking is a hang. Not of the clock, which goes on while a machine is suspended.
    fn run(&self, args: &[&str], typed: &'static str, fault: Option<&str>) -> Output {
        let mut command = Command::new(program());
        command.args(self.words(args)).current_dir(self.0.path());
        command.stdin(if typed.is_empty() { Stdio::null() } else { Stdio::piped() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(fault) = fault {
            command.env("LEDGERSTONE_FAULT", fault).env("LEDGERSTONE_FAULT_MET", self.met());
        }
        let mut child = command.spawn().unwrap();
        if let Some(mut pipe) = child.stdin.take() {
            let _ = pipe.write_all(typed.as_bytes()); // It may have ended before it has read it.
        }
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let out = std::thread::spawn(move || read_all(out));
        let err = std::thread::spawn(move || read_all(err));
        let mut looks = 0;
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if looks == 60_000 => {
                    child.kill().unwrap();
                    panic!("{args:?} with {fault:?} hangs");
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
            looks += 1;
        };
        Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
    }

    fn met(&self) -> PathBuf {
        self.0.path().join("fault-was-met")
    }

    /// All records of all tables, their indexes, and what is in doubt, as text; or what kept them from being read.
    fn state(&self, env: &str, found: Found) -> Result<String, String> {
        let mut state = self.must(&["dump", env])?;
        if let Found::InDoubt = found {
            let in_doubt = self.must(&["prepared", "list", env])?;
            state.extend(in_doubt.lines().filter_map(|line| line.split('\t').next()));
        }
        Ok(state)
    }

    fn must(&self, args: &[&str]) -> Result<String, String> {
        let output = self.run(args, "", None);
        let said = text(&output.stdout);
        if output.status.success() { Ok(said) } else { Err(text(&output.stderr) + &said) }
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

/// The environments to begin with, in the order of [`Found`].
fn templates() -> [Place; 3] {
    let rows = |count: usize| {
        let row = |n| format!("k{n:04},{}\n", "v".repeat(n * 7 % 300));
        format!("id,text\n{}", (0..count).map(row).collect::<String>())
    };
    let place = Place(tempfile::tempdir().unwrap());
    fs::write(place.0.path().join("rows.csv"), rows(200)).unwrap();
    fs::write(place.0.path().join("more.csv"), rows(90)).unwrap();
    let steps: [&[&str]; 8] = [
        &["init", "@", "--segment", "64K"],
        &["import", "@", "t", "%/rows.csv", "--key", "id", "--batch", "10"],
        &["index", "create", "@", "t", "start", "bytes:0..12"],
        &["changes", "@", "--name", "copy"],
        &["backup", "@", "%/kept"],
        &["put", "@", "t", "k0007", "later than the backup"],
        &["dump", "@", "-o", "%/t.dump", "--force"],
        &["archive", "@", "--archive", "%/archive", "--now"],
    ];
    for args in steps {
        place.must(args).unwrap_or_else(|why| panic!("{args:?}: {why}"));
    }
    let broken = Place::new(place.0.path());
    let import = ["import", "@", "u", "%/rows.csv", "--key", "id", "--batch", "10"];
    let output = broken.run(&import, "", Some("sync:16+:eio"));
    assert!(!output.status.success() && broken.met().exists(), "the import was to fail");
    fs::remove_file(broken.met()).unwrap();
    let in_doubt = Place::new(place.0.path());
    let typed = "begin a\nput t k0050 new\ndel t k0060\nput t k9000 more\nprepare two-phase\n";
    let output = in_doubt.run(&["shell", "@"], typed, None);
    assert!(output.status.success(), "{}", text(&output.stdout));
    [place, broken, in_doubt]
}

/// The commands that the program says it has.
fn commands() -> Vec<String> {
    let output = Command::new(program()).arg("help").output().unwrap();
    let help = text(&output.stdout);
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    list.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Harms one call of a scenario; false if there is no such call.
fn harm(scenario: &Scenario, template: &Path, fault: &str, damages: bool, states: [&str; 2]) -> bool {
    let place = Place::new(template);
    let output = place.run(scenario.args, scenario.typed, Some(fault));
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
    let env = scenario.env();
    let done = code == Some(0) && scenario.changes != Changes::Nothing;
    let found = place.state(env, scenario.found);
    match (scenario.changes, &found) {
        // What is there is no environment, or one that works.
        (Changes::All, _) if !done => {
            let again = place.run(&["init", "%/new"], "", None);
            assert!(damages || again.status.success() || found.is_ok(), "{what}: again: {}", text(&again.stderr));
            return true;
        }
        // It is not an environment, or it is all of it; and made again, in an empty place, it is.
        (Changes::Copy, Err(_)) if !done => {
            fs::remove_dir_all(place.0.path().join("new")).unwrap_or_default();
            place.must(scenario.args).unwrap_or_else(|why| panic!("{what}, again: {why}"));
            assert!(
                place.state(env, scenario.found).as_deref() == Ok(states[1]),
                "{what}: another state when made again"
            );
            return true;
        }
        (_, Ok(state)) => {
            let allowed = if done { &states[1..] } else { &states[..] };
            // A write that went elsewhere leaves an old page or an old log behind, which nobody can tell after a
            // restart.
            let is_lost = fault.contains("misdirect") || damages && fault.contains("write");
            let allowed = if is_lost { &states[..] } else { allowed };
            assert!(
                allowed.contains(&state.as_str()) || fault.contains("misdirect"),
                "{what}: code {code:?}; the records are neither those of before nor those of after: {err}"
            );
        }
        (_, Err(why)) => assert!(damages, "{what}: code {code:?}; afterwards: {why}; then: {err}"),
    }
    if !damages {
        for args in [&["verify", env][..]].iter().chain(scenario.then) {
            place.must(args).unwrap_or_else(|why| panic!("{what}: then {args:?}: {why}"));
        }
    }
    true
}

/// All harms of a scenario, every `step`-th call; how many were met.
fn run(scenario: &Scenario, templates: &[Place; 3], step: usize) -> usize {
    let template = templates[scenario.found as usize].0.path();
    let env = scenario.env();
    let before = if env == "@" { Place::new(template).state(env, scenario.found).unwrap() } else { "nothing".into() };
    let place = Place::new(template);
    let output = place.run(scenario.args, scenario.typed, None);
    let said = || text(&output.stderr) + &text(&output.stdout);
    assert!(output.status.success(), "{} without a fault: {}", scenario.name, said());
    let after = place.state(env, scenario.found).unwrap();
    let changes = scenario.changes != Changes::Nothing;
    // It has few calls, and what each of them leaves behind when it fails must not be in the way of the next try.
    let step = if scenario.changes == Changes::All { 1 } else { step };
    assert_eq!(before != after, changes, "{} without a fault: {}", scenario.name, said());
    let mut met = 0;
    let mut beyond = ("", 0); // A call, and a number of it that was not reached.
    for (number, (call, harm_name, damages)) in HARMS.iter().enumerate() {
        let mut nth = 1 + (number * 5 + scenario.name.len()) % step;
        while beyond.0 != *call || nth < beyond.1 {
            if !harm(scenario, template, &format!("{call}:{nth}:{harm_name}"), *damages, [&before, &after]) {
                beyond = (call, nth);
                break;
            }
            met += 1;
            nth += step;
        }
    }
    met
}

#[test]
fn every_command_survives_every_fault() {
    let step = std::env::var("FAULT_STEP").ok().and_then(|step| step.parse().ok()).unwrap_or(61).max(1);
    for command in commands() {
        let is_run = SCENARIOS.iter().any(|scenario| scenario.args[0] == command);
        assert!(is_run || OTHERS.contains(&command.as_str()), "no scenario runs {command:?}");
    }
    let templates = templates();
    let (next, met) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while let Some(scenario) = SCENARIOS.get(next.fetch_add(1, Relaxed)) {
                    let here = run(scenario, &templates, step);
                    println!("{}: {here} faults met", scenario.name);
                    met.fetch_add(here, Relaxed);
                }
            });
        }
    });
    let (met, count) = (met.into_inner(), SCENARIOS.len());
    println!("command faults: {count} commands, {met} faults met");
    assert!(met > 2 * count, "only {met} faults were met by {count} commands");
}
