//! An environment as a whole: how it is made, set, looked at, shared and recovered.

use std::path::Path;

use assert_cmd::Command;

use crate::common::Shell;

#[test]
fn an_environment_is_made_where_nothing_else_is() {
    let shell = Shell::new();
    std::fs::create_dir(shell.0.path().join("home")).unwrap();
    shell.file("home/letter", "dear");
    shell.refuses("init home", "home is not empty, it holds \"letter\"");
    assert_eq!(std::fs::read_dir(shell.0.path().join("home")).unwrap().count(), 1);
    // Settings made beforehand are not strangers, nor is what a new file system holds.
    std::fs::create_dir(shell.0.path().join("mount")).unwrap();
    std::fs::create_dir(shell.0.path().join("mount/lost+found")).unwrap();
    shell.file("mount/ledgerstone.toml", "page_bytes = \"8 KiB\"\n");
    shell.says("init mount --quiet", "");
    assert!(shell.run("init mount").err.contains("is an environment already"));
    // Names that an environment uses, too, are not ours for that.
    for (name, what) in [("data", "a file named data that is not ours"), ("log", "files that are not ours")] {
        let home = shell.0.path().join(format!("home of {name}"));
        std::fs::create_dir(&home).unwrap();
        if name == "log" {
            std::fs::create_dir(home.join(name)).unwrap();
            std::fs::write(home.join("log/monday"), "rain").unwrap();
        } else {
            std::fs::write(home.join(name), "dear diary").unwrap();
        }
        shell.refuses(&format!("init home~of~{name}"), what);
        assert_eq!(std::fs::read_dir(&home).unwrap().count(), 1, "{name}");
    }
    shell.refuses("init mount/ledgerstone.toml", "file");
}

#[test]
fn an_environment_takes_address_space_and_disk_by_what_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let program = assert_cmd::cargo::cargo_bin("ledgerstone");
    let run = |limit_kib: u64, line: &str| {
        let script = format!("ulimit -v {limit_kib}; exec {} {line}", program.display());
        Command::new("bash").args(["-c", &script]).current_dir(dir.path()).output().unwrap()
    };
    for line in ["init env", "put env fruit apple red --cache 64MiB", "get env fruit apple --cache 64MiB"] {
        let said = run(1 << 20, line);
        assert!(said.status.success(), "{line}: {}", String::from_utf8_lossy(&said.stderr));
    }
    // What cannot work says why.
    let said = run(200 << 10, "get env fruit apple --cache 4GiB");
    let error = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.code() == Some(2) && error.contains("ulimit -v"), "{error}");

    let sizes = |dir: &Path| -> u64 {
        std::fs::read_dir(dir).unwrap().map(|entry| std::fs::metadata(entry.unwrap().path()).unwrap().len()).sum()
    };
    let bytes = sizes(&dir.path().join("env")) + sizes(&dir.path().join("env/log"));
    assert!(bytes < 8 << 20, "{bytes} bytes for one record");
}

#[test]
fn the_environment_tells_about_itself() {
    let shell = Shell::new();
    shell.says("put @ t k v", "");
    assert!(shell.run("stat @").out.contains("recovery"));
    let stat = shell.run("--json stat @").out;
    assert!(stat.starts_with('{') && stat.contains("\"tables\":[\"t\"]"), "{stat}");
    assert_eq!(shell.run("checkpoint @").code, 0);
    let said = shell.run("verify @");
    assert!(said.code == 0 && said.out.contains("no problems"), "{}{}", said.out, said.err);
    let said = shell.run("compact @");
    assert!(said.code == 0 && said.out.contains("pages before"), "{}{}", said.out, said.err);
    assert!(shell.run("--json compact @").out.contains("\"was_cancelled\":false"));
    for interpreter in ["bash", "zsh", "fish"] {
        assert!(shell.run(&format!("completions {interpreter}")).out.contains(" complete --"), "{interpreter}");
    }
    assert_eq!(shell.run("man man1").code, 0);
    assert!(shell.text("man1/ledgerstone.1").contains("Exit codes"));
    assert!(shell.text("man1/ledgerstone-import.1").contains("keep\\-going"));
    assert!(shell.text("man1/ledgerstone-bench-tpcb.1").contains(".TH"));
    // A page that is there is kept, and with it all others.
    std::fs::write(shell.0.path().join("man1/ledgerstone-put.1"), "mine").unwrap();
    let refused = shell.run("man man1");
    assert!(refused.code == 2 && refused.err.contains("is there already; --force replaces it"), "{}", refused.err);
    assert_eq!(shell.text("man1/ledgerstone-put.1"), "mine");
    assert_eq!(shell.run("man man1 --force").code, 0);
    assert!(shell.text("man1/ledgerstone-put.1").contains(".TH"));
}

#[test]
fn settings_are_shown_with_their_source_and_checked() {
    let shell = Shell::new();
    shell.file("env/ledgerstone.toml", "cache_bytes = \"1M\"\n");
    let out = shell.run("config @").out;
    let words: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(words.contains(&vec!["cache_bytes", "1", "MiB", "file"]), "{out}");
    assert!(words.contains(&vec!["page_bytes", "4", "KiB", "creation"]), "{out}");
    assert!(words.contains(&vec!["lock_timeout_ms", "10", "s", "default"]), "{out}");
    assert!(
        shell.run("--json config @").out.contains("\"name\":\"cache_bytes\",\"value\":1048576,\"source\":\"file\"")
    );
    assert_eq!(shell.run("config @ --check").code, 0);

    shell.file("env/ledgerstone.toml", "cache_bytes = \"1M\"\n\nlok_timeout_ms = 5\nreplacement = 3\n");
    let said = shell.run("config @ --check");
    assert_eq!(said.code, 1, "{}", said.err);
    let lines: Vec<&str> = said.out.lines().collect();
    assert!(lines.len() == 2, "{}", said.out);
    assert!(
        lines[0].contains("ledgerstone.toml:3: lok_timeout_ms") && lines[0].contains("lock_timeout_ms?"),
        "{}",
        said.out
    );
    let said = shell.run("tables @");
    assert!(said.code == 2 && said.err.contains("line 3") && said.err.contains("line 4"), "{}", said.err);

    shell.file("env/ledgerstone.toml", &shell.run("config --defaults").out.replace("\n#", "\n").replace("\n ", "\n# "));
    assert_eq!(shell.run("config @ --check").out, "", "the defaults, uncommented, are accepted");
}

#[test]
fn a_damaged_slot_of_the_control_file_is_named_by_the_check_of_the_settings() {
    for slot in [0, 1] {
        let shell = Shell::new();
        let path = shell.0.path().join("env/control");
        let mut control = std::fs::read(&path).unwrap();
        control[slot * 4096 + 57] ^= 1;
        std::fs::write(&path, control).unwrap();
        let said = shell.run("config @ --check");
        assert_eq!(said.code, 1, "{}{}", said.out, said.err);
        assert!(said.out.contains(&format!("env/control: slot {slot} is damaged")), "{}", said.out);
        let said = shell.run("--json config @ --check");
        assert!(said.code == 1 && said.out.contains(&format!("\"problem\":\"slot {slot} is damaged")), "{}", said.out);
        // As it says: the next recovery makes both whole.
        let said = shell.run("recover @");
        assert!((said.out + &said.err).contains(&format!("slot {slot} of the control file")));
        assert_eq!(shell.run("config @ --check").code, 0);
    }
}

#[test]
fn a_log_that_nears_the_end_of_its_lsns_is_warned_of() {
    use ledgerstone_log::{ControlSlot, LSN_END, segment_name};
    let shell = Shell::new();
    for command in ["stat @", "verify @"] {
        assert!(!shell.run(command).err.contains("LSNs"), "{command}");
    }
    // The same environment, closed as if it had used up most of them.
    let dir = shell.0.path().join("env");
    let control = std::fs::read(dir.join("control")).unwrap();
    let ControlSlot::Valid { state, .. } = ControlSlot::decode(&control) else { panic!("no control file") };
    let segment_bytes = state.segment_bytes;
    let near = LSN_END.0 / 100 * 92 / segment_bytes * segment_bytes;
    let mut state = state.of_a_copy();
    (state.scan_lsn.0, state.checkpoint_lsn.0, state.scan_incarnation) = (near, 0, state.incarnation_max);
    std::fs::write(dir.join("control"), [state.encode(2), state.encode(1)].concat()).unwrap();
    for segment in std::fs::read_dir(dir.join("log")).unwrap() {
        std::fs::remove_file(segment.unwrap().path()).unwrap();
    }
    let segment = std::fs::File::create(dir.join("log").join(segment_name(near))).unwrap();
    segment.set_len(segment_bytes).unwrap();
    assert_eq!(shell.run("recover @").code, 0);
    for command in ["stat @", "verify @"] {
        let said = shell.run(command);
        assert!(
            said.err.contains("the log has used 91 % of its LSNs") || said.err.contains("used 92 %"),
            "{}",
            said.err
        );
        assert_eq!(said.code, 0, "{command}: {}", said.err);
    }
}

#[test]
fn several_processes_may_read_at_once_and_none_writes_meanwhile() {
    let shell = Shell::new();
    shell.says("put @ t k v", "");
    let reader = ledgerstone::Environment::options().read_only(true).open(shell.0.path().join("env")).unwrap();
    shell.says("get @ t k", "v\n");
    shell.says("scan @ t", "k\tv\n");
    shell.refuses("put @ t k w", "is open already");
    reader.close().unwrap();
    shell.says("put @ t k w", "");
    shell.says("get @ t k", "w\n");
}

#[test]
fn recovery_reports_what_it_did() {
    let shell = Shell::new();
    let out = shell.run("recover @").out;
    assert!(out.contains("nothing to recover"), "{out}");
    // What a crash leaves: the control file of before says that the environment is open.
    let dir = shell.0.path().join("env");
    let env = ledgerstone::Environment::options().open(&dir).unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", b"v")).unwrap();
    let copy = shell.0.path().join("copy");
    std::fs::create_dir_all(copy.join("log")).unwrap();
    for file in ["control", "data", "double_write", "lock"] {
        std::fs::copy(dir.join(file), copy.join(file)).unwrap();
    }
    for segment in std::fs::read_dir(dir.join("log")).unwrap() {
        let segment = segment.unwrap();
        std::fs::copy(segment.path(), copy.join("log").join(segment.file_name())).unwrap();
    }
    env.close().unwrap();
    let said = shell.run("recover copy");
    assert!(
        said.code == 0 && said.out.contains("commits found") && said.out.contains("redo"),
        "{}{}",
        said.out,
        said.err
    );
    assert!(shell.run("--json recover copy").out.contains("\"was_clean\":true"));
    shell.says("get copy t k", "v\n");
}

/// Each kill finds the environment as it was before the step, and what comes later finds it whole: the program looks
/// itself.
#[test]
fn an_environment_is_killed_in_the_middle_of_everything_and_opened_again() {
    let shell = Shell::new();
    let said = shell.run("bench scale --records 2000 --changes 3000 --tables 20 --value 3M --cache 4M --tmp . --json");
    assert_eq!(said.code, 0, "{}", said.err);
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let figures = report["figures"].as_array().unwrap();
    let count = |end: &str| figures.iter().filter(|f| f["name"].as_str().unwrap().ends_with(end)).count();
    // After each kill an opening; one is refused, and one is killed itself.
    assert_eq!((count(": killed at (%)"), count(": undo (s)"), count(": refused (s)")), (18, 16, 1), "{}", said.out);
}
