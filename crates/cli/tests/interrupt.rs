//! Ctrl-C: the first ends work in order and says how far it came, the second ends the process; in the shell it stops
//! the command and nothing else.
#![allow(missing_docs)]

use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn ledgerstone(at: &Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("ledgerstone"));
    command.current_dir(at).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn interrupt(child: &Child) {
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
}

fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_or(is_so, || what.to_owned());
}

fn until_or(mut is_so: impl FnMut() -> bool, what: impl Fn() -> String) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{}", what());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn ends(child: Child, said: &str) -> Output {
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{err}");
    assert!(err.contains(said), "{err}");
    output
}

/// An environment with a table of so many records.
fn environment(count: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    assert!(ledgerstone(dir.path()).args(["init", "env"]).status().unwrap().success());
    let mut import = ledgerstone(dir.path());
    import.args(["import", "env", "t", "-", "--format", "csv", "--key", "k", "--value", "v", "--columns", "k,v"]);
    let mut import = import.spawn().unwrap();
    let rows: String = (0..count).map(|no| format!("{no:08},{}\n", "x".repeat(90))).collect();
    import.stdin.take().unwrap().write_all(rows.as_bytes()).unwrap();
    assert!(import.wait().unwrap().success());
    dir
}

#[test]
fn an_import_says_what_stays_and_the_second_ends_it_at_once() {
    let dir = environment(0);
    // A signal may come before it is waited for, or while the environment is opened: then the next one comes later.
    let mut delay = Duration::from_millis(100);
    loop {
        let mut import = ledgerstone(dir.path());
        import.args(["import", "env", "u", "-", "--format", "csv", "--key", "k", "--value", "v", "--batch", "10"]);
        let mut import = import.spawn().unwrap();
        let mut rows = import.stdin.take().unwrap();
        rows.write_all(b"k,v\n").unwrap();
        rows.write_all((0..25).map(|no| format!("{no},v\n")).collect::<String>().as_bytes()).unwrap();
        std::thread::sleep(delay);
        interrupt(&import);
        let mut said = vec![0; 8];
        let mut err = import.stderr.take().unwrap();
        let is_heeded = err.read_exact(&mut said).is_ok();
        let _ = rows.write_all(b"x,v\ny,v\n"); // What it waits for; it may be gone by then.
        drop(rows);
        err.read_to_end(&mut said).unwrap();
        let status = import.wait().unwrap();
        let said = String::from_utf8_lossy(&said);
        if is_heeded && said.contains("interrupted after") {
            assert!(said.starts_with("stopping") && said.contains("imported"), "{said}");
            assert_eq!(status.code(), Some(130), "{said}");
            break;
        }
        assert!(delay < PATIENCE, "{said}");
        delay *= 2;
    }
    // One that waits for input that never comes.
    let mut import = ledgerstone(dir.path());
    import.args(["import", "env", "w", "-", "--format", "csv", "--key", "k", "--columns", "k"]);
    let mut import = import.spawn().unwrap();
    let _rows = import.stdin.take();
    std::thread::sleep(Duration::from_millis(300)); // Before that, the first ends it, which is as good.
    let mut child = import;
    until("the second Ctrl-C ends it", || {
        interrupt(&child);
        child.try_wait().unwrap().is_some()
    });
    let verify = ledgerstone(dir.path()).args(["verify", "env"]).output().unwrap();
    assert!(verify.status.success());
}

/// How often a command is run to be met at work, at least.
const TRY_COUNT_MIN: usize = 60;

/// Runs a command again and again, with Ctrl-C at another moment of its life each time, until it is met at work;
/// `before` makes its place ready. A run that is not met has ended in order before, was not under way yet, or was at
/// other work.
fn meet(at: &Path, args: &[&str], said: &str, mut before: impl FnMut()) -> Output {
    before();
    let began = Instant::now();
    assert!(ledgerstone(at).args(args).output().unwrap().status.success(), "{args:?}");
    let (mut life, mut moment) = (began.elapsed(), 0.0);
    let (began, mut tries, mut ended) = (Instant::now(), 0, String::new());
    while tries < TRY_COUNT_MIN || began.elapsed() < PATIENCE {
        before();
        tries += 1;
        let born = Instant::now();
        let child = ledgerstone(at).args(args).spawn().unwrap();
        moment = (moment + 0.618_034) % 1.0; // The golden ratio spreads any number of moments evenly.
        std::thread::sleep(life.mul_f64(moment));
        interrupt(&child);
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(130) if err.contains(said) => return output,
            // The machine may be busier now than before, or less busy.
            Some(0) => life = born.elapsed(),
            _ => life = life.mul_f64(1.05),
        }
        ended = format!("{} at {moment:.2} of {life:?}: {err}", output.status);
    }
    panic!("{args:?} was never met at work in {tries} tries; the last: {ended}");
}

/// The moments between a file's making and its name are short, and of every length: also while it is made durable.
#[test]
fn no_half_file_is_left_at_any_moment() {
    let dir = environment(20_000);
    let out = dir.path().join("out");
    for command in [&["dump", "env", "-o", "out"][..], &["export", "env", "t", "out", "--format", "csv"]] {
        std::fs::remove_file(&out).ok();
        let began = Instant::now();
        assert!(ledgerstone(dir.path()).args(command).output().unwrap().status.success());
        let life = began.elapsed();
        for n in 1..=TRY_COUNT_MIN {
            std::fs::remove_file(&out).ok();
            let child = ledgerstone(dir.path()).args(command).spawn().unwrap();
            std::thread::sleep(life.mul_f64(n as f64 / TRY_COUNT_MIN as f64));
            interrupt(&child);
            let output = child.wait_with_output().unwrap();
            let left = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
            let left: Vec<_> = left.filter(|name| name != "env").collect();
            assert!(left.is_empty() || left == ["out"], "{command:?}: {left:?} after {output:?}");
        }
    }
}

#[test]
fn no_half_files_are_left() {
    let dir = environment(20_000);
    let is_part = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.starts_with("out.") && name.ends_with(".part")
    };
    let has_part = || std::fs::read_dir(dir.path()).unwrap().any(is_part);
    let out = dir.path().join("out");
    for command in [&["dump", "env", "-o", "out"][..], &["export", "env", "t", "out", "--format", "csv"]] {
        meet(dir.path(), command, "interrupted after", || drop(std::fs::remove_file(&out)));
        assert!(!has_part() && !out.exists(), "{command:?}");
    }
    let backup = ["backup", "env", "out", "--file", "--rate", "100K"];
    let child = ledgerstone(dir.path()).args(backup).spawn().unwrap();
    until("the file is begun", has_part);
    interrupt(&child);
    ends(child, "interrupted after");
    assert!(!has_part() && !out.exists());
    let child = ledgerstone(dir.path()).args(["backup", "env", "backups", "--rate", "100K"]).spawn().unwrap();
    until("the backup is begun", || std::fs::read_dir(dir.path().join("backups")).is_ok_and(|files| files.count() > 0));
    interrupt(&child);
    ends(child, "nothing of this backup was kept");
    let left: Vec<_> = std::fs::read_dir(dir.path().join("backups")).unwrap().collect();
    let is_backup = |name: &str| name.contains("full") || name.contains("part") || name.contains("log");
    let names = left.into_iter().map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| is_backup(name)).collect::<Vec<_>>(), Vec::<String>::new());
    // Nobody reads: the scan stops in the middle of its output, and what is there comes out whole.
    let mut child = ledgerstone(dir.path()).args(["scan", "env", "t"]).spawn().unwrap();
    let mut first = [0; 8];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    interrupt(&child);
    let mut word = [0; 8];
    child.stderr.as_mut().unwrap().read_exact(&mut word).unwrap();
    assert_eq!(&word, b"stopping"); // The rest of the pipe is read only now.
    let output = ends(child, "interrupted after");
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(lines.ends_with('\n') && lines.lines().count() < 20_000);
}

/// What the line editor begins a prompt with.
const PROMPT: &str = "\x1b[?2004h";

/// The shell at a terminal that `script` makes.
struct Terminal {
    child: Child,
    seen: std::sync::Arc<std::sync::Mutex<String>>,
    reader: std::thread::JoinHandle<()>,
}

impl Terminal {
    fn start(at: &Path) -> Terminal {
        let program = assert_cmd::cargo::cargo_bin!("ledgerstone").display().to_string();
        let mut command = Command::new("script");
        // In the place of the system's shell: one that stays (dash does) hears Ctrl-C, too, and dies of it at the end.
        command.args(["-qefc", &format!("exec '{program}' shell env"), "/dev/null"]).current_dir(at);
        command.env("SHELL", "/bin/sh").env("XDG_STATE_HOME", at.join("state")).env("TERM", "xterm");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let seen = std::sync::Arc::<std::sync::Mutex<String>>::default();
        let (mut out, all) = (child.stdout.take().unwrap(), std::sync::Arc::clone(&seen));
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut piece) {
                all.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..count]));
            }
        });
        let terminal = Terminal { child, seen, reader };
        terminal.sees(PROMPT);
        terminal
    }

    fn types(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    /// A line, typed at a prompt where nothing else is under way; what is typed before the next prompt could be lost.
    fn runs(&mut self, line: &str) {
        let prompts = |shell: &Terminal| shell.seen.lock().unwrap().matches(PROMPT).count();
        let before = prompts(self);
        self.types(&format!("{line}\n"));
        let what = || format!("no prompt after {line}: {}", self.seen.lock().unwrap());
        until_or(|| prompts(self) > before, what);
    }

    /// Waits until everything typed before has been answered: until something typed now is.
    fn settles(&mut self) {
        let began = Instant::now();
        for no in 0.. {
            self.types(&format!(".mode settled{no}\n"));
            let answer = format!("\"settled{no}\" is not understood");
            let typed = Instant::now();
            // It may be lost between two prompts: then it is typed again.
            while typed.elapsed() < Duration::from_secs(2 + no) {
                let seen = self.seen.lock().unwrap().clone();
                if seen.rfind(&answer).is_some_and(|at| seen[at..].contains(PROMPT)) {
                    return;
                }
                assert!(began.elapsed() < 2 * PATIENCE, "{seen}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Types the last line, and waits for the end. `script` would type something of its own if its input ended first.
    fn ends(mut self, line: &str) {
        self.types(&format!("{line}\n"));
        let mut status = None;
        let is_over = || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        };
        until_or(is_over, || format!("it goes on after {line}: {}", self.seen.lock().unwrap()));
        let status = status.unwrap();
        self.reader.join().unwrap();
        assert!(status.success(), "{status} after {line}: {}", self.seen.lock().unwrap());
    }

    fn sees(&self, text: &str) {
        let said = || self.seen.lock().unwrap().clone();
        until_or(|| said().contains(text), || format!("no {text:?} in {}", said()));
    }
}

#[test]
fn in_the_shell_it_stops_the_command_and_the_transaction_stays() {
    let dir = environment(60_000);
    let mut shell = Terminal::start(dir.path());
    shell.runs("begin");
    shell.sees("t> ");
    shell.runs("put t changed here");
    shell.runs("get t changed");
    shell.sees("here\r\n");
    // It can come before the command has begun, or after it: then it is nothing.
    let began = Instant::now();
    while !shell.seen.lock().unwrap().contains("interrupted") {
        assert!(began.elapsed() < PATIENCE, "{}", shell.seen.lock().unwrap());
        shell.types("count t\n");
        std::thread::sleep(Duration::from_millis(10));
        shell.types("\x03");
        shell.settles();
    }
    shell.runs("del t changed");
    shell.runs("commit");
    assert!(!shell.seen.lock().unwrap().contains("no-such-transaction"), "the transaction has stayed");
    // The history is there although the shell is killed.
    let history = dir.path().join("state/ledgerstone/history");
    until("the history is kept", || std::fs::read_to_string(&history).is_ok_and(|text| text.contains("del t changed")));
    shell.child.kill().unwrap();
    shell.child.wait().unwrap();
}

#[test]
fn a_command_that_looks_at_nothing_is_stopped_and_the_shell_stays() {
    let dir = environment(0);
    let mut shell = Terminal::start(dir.path());
    // The commands read settings that never come, until somebody writes them.
    let settings = dir.path().join("env/ledgerstone.toml");
    assert!(Command::new("mkfifo").arg(&settings).status().unwrap().success());
    let count = |shell: &Terminal, text: &str| shell.seen.lock().unwrap().matches(text).count();
    for command in ["config", "archive"] {
        let (prompts, stops) = (count(&shell, PROMPT), count(&shell, "stopping"));
        shell.types(&format!("{command}\n"));
        let mut pipe = None;
        until("the command reads", || {
            let to = std::fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&settings);
            pipe = to.ok(); // Refused until somebody reads.
            pipe.is_some()
        });
        shell.types("\x03");
        until("Ctrl-C is heard", || count(&shell, "stopping") > stops);
        drop(pipe);
        until("the shell goes on", || count(&shell, PROMPT) > prompts);
    }
    shell.settles();
    shell.ends("quit");
}

#[test]
fn a_late_answer_comes_with_what_its_command_has_printed() {
    let dir = environment(0);
    let mut shell = Terminal::start(dir.path());
    for line in ["put t k early", "begin a", "put t k late", "begin b", "scan t --hex", "@a commit"] {
        shell.runs(line);
    }
    shell.sees("6b\t6c617465");
    shell.ends("quit");
}

#[test]
fn a_script_of_the_shell_ends_with_the_command() {
    let dir = environment(60_000);
    let mut shell = ledgerstone(dir.path()).args(["shell", "env"]).spawn().unwrap();
    let mut input = shell.stdin.take().unwrap();
    let script = "begin\n".to_owned() + &"count t\n".repeat(2000);
    input.write_all(script.as_bytes()).unwrap();
    let mut first = [0; 3];
    shell.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"ok\n");
    interrupt(&shell);
    drop(input);
    // Between two commands it ends at once, and the next opening recovers.
    let output = shell.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&output.stdout).lines().count() < 2000);
}

#[test]
fn what_only_reads_says_how_far_it_came() {
    let dir = environment(60_000);
    let at = dir.path();
    let run = |args: &[&str]| assert!(ledgerstone(at).args(args).output().unwrap().status.success(), "{args:?}");
    meet(at, &["verify", "env"], "interrupted after ", || {});
    meet(at, &["tables", "env", "--count"], "records of table t", || {});
    run(&["backup", "env", "backups"]);
    meet(at, &["backup", "verify", "backups"], "no problem found so far", || {});
    run(&["archive", "env", "--archive", "archive", "--now"]);
    meet(at, &["archive", "env", "--archive", "archive", "--verify"], "interrupted (verify) after ", || {});
    run(&["verify", "env"]);
}

#[test]
fn an_index_is_made_whole_or_not_at_all() {
    let dir = environment(60_000);
    let at = dir.path();
    let drop_it = || drop(ledgerstone(at).args(["index", "drop", "env", "t", "by_value"]).output().unwrap());
    meet(at, &["index", "create", "env", "t", "by_value", "value"], "no index was made", drop_it);
    let list = ledgerstone(at).args(["index", "list", "env"]).output().unwrap();
    assert_eq!((list.status.code(), list.stdout.len()), (Some(0), 0));
    assert!(ledgerstone(at).args(["verify", "env"]).output().unwrap().status.success());
}

#[test]
fn a_restore_leaves_a_place_to_restore_into() {
    let dir = environment(60_000);
    let at = dir.path();
    assert!(ledgerstone(at).args(["backup", "env", "backups"]).output().unwrap().status.success());
    let again = at.join("again");
    let restore = ["restore", "backups", "again"];
    for time in 0..5 {
        meet(at, &restore, "interrupted (", || drop(std::fs::remove_dir_all(&again)));
        let files = |dir: &Path| {
            std::fs::read_dir(dir).into_iter().flatten().filter(|e| e.as_ref().unwrap().path().is_file()).count()
        };
        assert_eq!((files(&again), files(&again.join("log"))), (0, 0), "{time}");
    }
    assert!(ledgerstone(at).args(restore).output().unwrap().status.success(), "the same command, again");
    assert!(ledgerstone(at).args(["verify", "again"]).output().unwrap().status.success());
}

/// A copy of an environment as a killed process leaves it, with that much to recover.
fn killed(at: &Path, rows: usize) {
    let mut import = ledgerstone(at);
    import.args(["import", "env", "u", "-", "--format", "csv", "--key", "k", "--value", "v", "--columns", "k,v"]);
    let mut import = import.spawn().unwrap();
    let mut input = import.stdin.take().unwrap();
    let rows: String = (0..rows).map(|no| format!("{no:08},{}\n", "x".repeat(90))).collect();
    input.write_all(rows.as_bytes()).unwrap(); // All but what the pipe and the reader hold has been taken in.
    import.kill().unwrap();
    import.wait().unwrap();
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to.join("log")).unwrap();
    for sub in ["", "log"] {
        for entry in std::fs::read_dir(from.join(sub)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                std::fs::copy(&path, to.join(sub).join(path.file_name().unwrap())).unwrap();
            }
        }
    }
}

#[test]
fn a_recovery_is_gone_on_with_by_the_next_command() {
    let dir = environment(0);
    let at = dir.path();
    killed(at, 300_000);
    let copied = || copy(&at.join("env"), &at.join("copy"));
    for command in [&["recover", "copy"][..], &["get", "copy", "u", "00000001"]] {
        meet(at, command, "the next command recovers", copied);
        let get = ledgerstone(at).args(["get", "copy", "u", "00000001"]).output().unwrap();
        assert!(get.status.success(), "{}", String::from_utf8_lossy(&get.stderr));
    }
    assert!(ledgerstone(at).args(["verify", "copy"]).output().unwrap().status.success());
}

/// What a killed process had changed in one transaction may be rolled back behind the opening. Commands wait for that,
/// and are as before; a program goes on with its other tables.
#[test]
fn what_is_rolled_back_behind_the_opening_is_done_when_a_command_looks() {
    let dir = environment(40_000);
    let at = dir.path();
    std::fs::write(at.join("env/ledgerstone.toml"), "restart_undo_bytes = 0\nlog_buffer_bytes = \"1MiB\"\n").unwrap();
    let mut import = ledgerstone(at);
    import.args(["import", "env", "t", "-", "--format", "csv", "--key", "k", "--value", "v", "--columns", "k,v"]);
    let mut import = import.args(["--batch", "100000"]).spawn().unwrap();
    let rows: String = (0..60_000).map(|no| format!("{no:08},{}\n", "y".repeat(90))).collect();
    let mut input = import.stdin.take().unwrap();
    input.write_all(rows.as_bytes()).unwrap(); // It waits for more: nothing is committed.
    import.kill().unwrap();
    import.wait().unwrap();
    for command in [["get", "copy", "t", "00000001"], ["get", "copy", "t", "00039999"]] {
        copy(&at.join("env"), &at.join("copy"));
        let get = ledgerstone(at).args(command).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&get.stdout).trim_end(), "x".repeat(90), "{command:?}");
    }
    copy(&at.join("env"), &at.join("copy"));
    let env = ledgerstone::Environment::options().open(at.join("copy")).unwrap();
    assert_eq!(env.recovery_report().put_off_count, 1);
    env.transact(|txn| txn.bytes_or_create("beside")?.put(b"k", b"v")).unwrap();
    drop(env); // Perhaps in the middle of it.
    let scan = ledgerstone(at).args(["scan", "copy", "t"]).output().unwrap();
    assert_eq!(scan.stdout.iter().filter(|byte| **byte == b'\n').count(), 40_000);
    assert!(ledgerstone(at).args(["verify", "copy"]).output().unwrap().status.success());
}

#[test]
fn a_repair_that_is_stopped_has_changed_nothing() {
    let dir = environment(60_000);
    let at = dir.path();
    assert!(ledgerstone(at).args(["backup", "env", "backups"]).output().unwrap().status.success());
    let data = at.join("env/data");
    let mut bytes = std::fs::read(&data).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 100].fill(0xAA);
    std::fs::write(&data, &bytes).unwrap();
    let repair = ["repair", "env", "--from", "backups"];
    meet(at, &repair, "nothing was repaired or changed", || std::fs::write(&data, &bytes).unwrap());
    assert_eq!(std::fs::read(&data).unwrap(), bytes);
    let repaired = ledgerstone(at).args(repair).output().unwrap();
    assert!(repaired.status.success() && String::from_utf8_lossy(&repaired.stdout).starts_with("1 page repaired"));
}

#[test]
fn a_benchmark_takes_its_directory_away() {
    let dir = tempfile::tempdir().unwrap();
    let names =
        || -> Vec<_> { std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect() };
    let recovery = ["bench", "recovery", "--transactions", "100000000", "--accounts", "1000", "--tmp", "."];
    for args in [&["bench", "points", "--records", "100000000", "--tmp", "."][..], &recovery] {
        let child = ledgerstone(dir.path()).args(args).spawn().unwrap();
        let is_at_work = || names().first().is_some_and(|name| dir.path().join(name).join("data").exists());
        until("the benchmark is under way", is_at_work);
        interrupt(&child);
        ends(child, "there is no report, and temporary directories were removed");
        assert!(names().is_empty(), "{:?}", names());
    }
}
