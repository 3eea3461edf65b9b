//! Help is true: every command that is shown has examples, and every example does what it is there for.
#![allow(missing_docs)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ledgerstone_cli::help::{HELP, command};
use ledgerstone_cli::parse;

/// What the examples find: an environment `shop`, and files.
const BEFORE: &str = r#"
ledgerstone init shop
ledgerstone put shop fruit apple red
ledgerstone put shop fruit pear green
ledgerstone put shop binary ff00 00ff --hex
printf 'id,name,city,age\n1,Ada,London,36\n2,Max,Bern,41\n3,Eve,Bern,29\n' > people.csv
printf '{"id":"a","n":1}\n{"id":"b","n":2}\n' > rows.jsonl
printf 'W 1 7 0\nC 1\nR 2 9 3\n' > trace
ledgerstone import shop people people.csv --key id
ledgerstone index create shop people by_city json:city
ledgerstone backup shop saved
ledgerstone changes shop --name search > changes
ledgerstone archive shop --archive kept --now
ledgerstone dump shop -o shop.dump
ledgerstone init other
"#;

/// A transaction in doubt, where the commands are about one. It would be in the way of others.
const IN_DOUBT: &str = "printf 'begin\nput fruit fig purple\nprepare order-17\n' | ledgerstone shell shop";

/// Examples that take minutes, or want a device of their own. Their options are looked at.
const NOT_RUN: &[&str] = &[
    "ledgerstone bench tpcb --threads 4 --durability pipelined",
    "ledgerstone bench snapshots --records 100000 --seconds 10 --rounds 2",
    "ledgerstone bench crowd --threads 4,50 --seconds 1",
    "ledgerstone bench processes --seconds 1 --rounds 3",
    "ledgerstone bench counts --against docs/costs.md",
    "ledgerstone bench settings shop/ledgerstone.toml",
    "ledgerstone bench device --tmp .",
    "ledgerstone bench recovery --transactions 20000 --accounts 10000",
    "ledgerstone bench loser --changes 100000",
    "ledgerstone bench scale --cache 64M",
    "ledgerstone bench memory --records 100000 --seconds 1",
    "ledgerstone bench gates --seconds 5",
    "ledgerstone probe --quick",
    "ledgerstone probe lock force",
    "ledgerstone probe --html report.html --write-config new",
    "ledgerstone probe compare one.json other.json",
    "ledgerstone flash demo",
    "ledgerstone flash bench --figure comparison --out figures",
    "ledgerstone flash trace record new.trace",
];

fn bash(dir: &Path, script: &str) -> (bool, String) {
    let program = assert_cmd::cargo::cargo_bin!("ledgerstone");
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["-e", "-o", "pipefail", "-c", script]).current_dir(dir).env("PATH", path);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

fn shown(command: &clap::Command, path: &str, out: &mut BTreeSet<String>) {
    out.insert(path.to_owned());
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
        shown(inner, format!("{path} {}", inner.get_name()).trim(), out);
    }
}

#[test]
fn every_command_has_examples_and_names_commands_that_there_are() {
    let mut commands = BTreeSet::new();
    shown(&command(), "", &mut commands);
    let told: BTreeSet<String> = HELP.iter().map(|help| help.command.to_owned()).collect();
    assert_eq!(commands, told);
    for help in HELP {
        assert!(!help.examples.is_empty(), "{}", help.command);
        for see in help.see {
            assert!(commands.contains(*see) && *see != help.command, "{}: see {see}", help.command);
        }
        let own = |(line, _): &&(&str, &str)| {
            line.contains(&format!("ledgerstone {}", help.command.split(' ').next().unwrap()))
        };
        assert!(help.examples.iter().any(|example| own(&example)), "{}", help.command);
    }
    let examples: BTreeSet<&str> = HELP.iter().flat_map(|help| help.examples).map(|(line, _)| *line).collect();
    assert!(NOT_RUN.iter().all(|line| examples.contains(line)), "an example that is not run is not there any more");
}

#[test]
fn every_example_of_the_help_does_what_it_says() {
    let template = tempfile::tempdir().unwrap();
    let (is_good, told) = bash(template.path(), BEFORE);
    assert!(is_good, "{told}");
    for help in HELP {
        let dir = tempfile::tempdir().unwrap();
        assert!(bash(template.path(), &format!("cp -a . {}", dir.path().display())).0);
        if help.command.starts_with("prepared") {
            assert!(bash(dir.path(), IN_DOUBT).0);
        }
        for (line, _) in help.examples {
            if NOT_RUN.contains(line) {
                let parsed = parse(line.split(' '));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                continue;
            }
            let (is_good, told) = bash(dir.path(), line);
            assert!(is_good, "help {}: {line}\n{told}", help.command);
        }
    }
}

#[test]
fn help_and_manual_pages_say_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (is_good, told) = bash(
        dir.path(),
        "ledgerstone --quiet man man1; ledgerstone help index create > help; ledgerstone --help > all",
    );
    assert!(is_good, "{told}");
    let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let (help, page) = (text("help"), text("man1/ledgerstone-index-create.1"));
    for title in ["Examples", "Exit status", "Files", "See also"] {
        assert!(help.contains(&format!("{title}:\n")), "{help}");
        assert!(
            page.contains(&format!(".SH \"{}\"", title.to_uppercase()))
                || page.contains(&format!(".SH {}", title.to_uppercase()))
        );
    }
    let examples = &HELP.iter().find(|help| help.command == "index create").unwrap().examples;
    for (line, about) in *examples {
        assert!(help.contains(line) && help.contains(about), "{help}");
        assert!(page.replace("\\-", "-").replace('\\', "").contains(line), "{page}");
    }
    assert!(!text("all").contains("complete ") && !text("all").contains("demo-work"), "hidden commands");
    let mut pages: Vec<PathBuf> =
        std::fs::read_dir(dir.path().join("man1")).unwrap().map(|e| e.unwrap().path()).collect();
    pages.sort();
    assert_eq!(pages.len(), HELP.len(), "{pages:?}");
    // Raw flash is in memory.
    let without_files = ["flash", "flash-crash", "flash-tpcc"].map(|name| format!("ledgerstone-{name}.1"));
    for page in &pages {
        let (name, text) = (page.file_name().unwrap().to_str().unwrap(), std::fs::read_to_string(page).unwrap());
        let has =
            |title: &str| text.lines().any(|line| line == format!(".SH {title}") || line == format!(".SH \"{title}\""));
        for title in ["EXAMPLES", "EXIT STATUS", "SEE ALSO"] {
            assert!(has(title), "{name} has no {title}");
        }
        assert_eq!(has("FILES"), !without_files.iter().any(|other| other == name), "{name}");
    }
    let main = std::fs::read_to_string(dir.path().join("man1/ledgerstone.1")).unwrap().replace('\\', "");
    for file in ["DIR", "DIR/ledgerstone.toml", "~/.local/state/ledgerstone/history"] {
        assert!(main.contains(&format!("fB{file}fR")), "{main}");
    }
}
