//! The completion scripts in the shells that they are for. bash is always there; zsh and fish are tried where they are
//! (`scripts/need.sh shells`).
#![allow(missing_docs)]

use std::path::Path;
use std::process::{Command, Stdio};

fn run(shell: &str, script: &str, dir: &Path) -> Option<String> {
    let program = assert_cmd::cargo::cargo_bin!("ledgerstone");
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(shell);
    command.args(["-c", script]).current_dir(dir).env("PATH", path).env("HOME", dir);
    match command.stdin(Stdio::null()).output() {
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{shell}: {script}\n{error}");
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(_) => {
            eprintln!("{shell} is not there, and was not tried");
            None
        }
    }
}

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let lines = "set -e\nledgerstone init shop\nledgerstone put shop fruit apple red\nledgerstone put shop frozen a b\n\
                 ledgerstone put shop 'two words' k v\nledgerstone index create shop fruit by_colour value\nmkdir sub\n\
                 touch shopping.csv\n";
    run("bash", lines, dir.path()).unwrap();
    dir
}

/// What bash would offer for the line: the function is called as bash calls it.
fn offered(dir: &Path, line: &str) -> Vec<String> {
    let script = r#"
        compopt() { :; }
        source <(ledgerstone completions bash)
        COMP_LINE=$LINE; COMP_POINT=${#LINE}
        cur=${LINE##*[ =:]}
        _ledgerstone ledgerstone "$cur" ""
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let quoted = format!("LINE={}\n{script}", shell_quote(line));
    let mut found: Vec<String> = run("bash", &quoted, dir).unwrap().lines().map(str::to_owned).collect();
    found.retain(|text| !text.is_empty());
    found.sort();
    found
}

fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[test]
fn bash_offers_commands_options_tables_and_files() {
    let place = place();
    let offered = |line: &str| offered(place.path(), line);
    assert_eq!(offered("ledgerstone comp"), ["compact", "completions"]);
    assert_eq!(offered("ledgerstone scan shop f"), ["frozen", "fruit"]);
    assert_eq!(offered("ledgerstone scan shop tw"), ["two\\ words"]);
    assert_eq!(offered("ledgerstone index lookup shop fruit "), ["by_colour"]);
    assert_eq!(offered("ledgerstone index lookup ~/shop fruit b"), ["by_colour"]);
    assert_eq!(offered("ledgerstone prepared "), ["abort", "commit", "list"]);
    assert_eq!(offered("ledgerstone prepared list s"), ["shop", "sub"]);
    assert_eq!(offered("ledgerstone dump shop frozen f"), ["frozen", "fruit"]);
    assert_eq!(offered("ledgerstone changes shop --table fr"), ["frozen", "fruit"]);
    assert_eq!(offered("ledgerstone export shop fruit x --format=c"), ["csv"]);
    assert_eq!(offered("ledgerstone import shop fruit sh"), ["shop", "shopping.csv"]);
    assert_eq!(offered("ledgerstone scan s"), ["shop", "sub"]);
    assert!(offered("ledgerstone scan nowhere ").is_empty());
    assert!(offered("ledgerstone scan --").contains(&"--reverse".to_owned()));
}

#[test]
fn completion_neither_recovers_nor_waits() {
    let place = place();
    let dir = place.path().join("shop");
    // Another process has it open to write: no tables, and no trouble.
    let env = ledgerstone::Environment::options().create(false).open(&dir).unwrap();
    env.transact(|txn| txn.bytes("fruit")?.put(b"k", b"v")).unwrap();
    assert!(offered(place.path(), "ledgerstone scan shop ").is_empty());
    let copy = place.path().join("copy");
    std::fs::create_dir_all(copy.join("log")).unwrap();
    let files = |dir: &Path| -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = ["", "log"]
            .iter()
            .flat_map(|below| std::fs::read_dir(dir.join(below)).unwrap().map(|entry| entry.unwrap().path()))
            .filter(|path| path.is_file())
            .map(|path| (path.strip_prefix(dir).unwrap().display().to_string(), std::fs::read(path).unwrap()))
            .collect();
        files.sort();
        files
    };
    for (name, bytes) in files(&dir) {
        std::fs::write(copy.join(name), bytes).unwrap();
    }
    env.close().unwrap();
    // A crash left it: nothing is recovered.
    let before = files(&copy);
    assert!(offered(place.path(), "ledgerstone scan copy ").is_empty());
    assert!(before == files(&copy), "completion has changed the environment");
    assert_eq!(offered(place.path(), "ledgerstone scan shop fru"), ["fruit"]);
}

#[test]
fn zsh_and_fish_offer_the_same() {
    let place = place();
    let fish = "ledgerstone completions fish | source; complete -C 'ledgerstone scan shop f'";
    if let Some(found) = run("fish", fish, place.path()) {
        assert_eq!(found, "frozen\ttable\nfruit\ttable\n");
    }
    let zsh = r#"
        compdef() { :; }
        _describe() { print -l -- "${(@P)2}"; }
        source <(ledgerstone completions zsh)
        words=(ledgerstone scan shop f); CURRENT=4
        _ledgerstone
    "#;
    if let Some(found) = run("zsh", zsh, place.path()) {
        assert_eq!(found, "frozen:table\nfruit:table\n");
    }
}
