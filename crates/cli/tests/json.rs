//! Every command runs with `--json`, and what it answers is what docs/json.md says: no member that the page does not
//! name, none missing, each of its type. The page is read here, so it cannot say anything else than the program does.
//!
//! A section begins with `### ` and the commands that it is about, in backquotes; more of them may follow behind `And`.
//! Its table has a row for each member: its name, its type and what it is. `a.b` is a member of the object `a`, `a[].b`
//! one of each object in the list `a`.
#![allow(missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use clap::CommandFactory;
use ledgerstone_cli::args::Args;
use serde_json::{Map, Value};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");

/// What a page says of a member.
struct Member {
    kind: String,
    is_optional: bool,
}

type Members = BTreeMap<String, Member>;

/// The sections of the page, by command.
struct Page {
    of_command: BTreeMap<String, usize>,
    sections: Vec<Members>,
}

impl Page {
    fn read() -> Page {
        let text = std::fs::read_to_string(PAGE).unwrap();
        let mut page = Page { of_command: BTreeMap::new(), sections: Vec::new() };
        let mut is_title = false;
        for line in text.lines() {
            is_title = line.starts_with("### ") || line.starts_with("And `") || is_title && !line.is_empty();
            if line.starts_with("### ") {
                page.sections.push(Members::new());
            }
            if is_title {
                for command in line.split('`').skip(1).step_by(2) {
                    let before = page.of_command.insert(command.to_owned(), page.sections.len() - 1);
                    assert!(before.is_none(), "docs/json.md has two sections on {command}");
                }
            } else if line.starts_with("| `") {
                let cells: Vec<&str> = line.split('|').map(str::trim).collect();
                let (name, kind) = (cells[1].trim_matches('`'), cells[2]);
                let (kind, is_optional) = kind.strip_suffix(", sometimes").map_or((kind, false), |kind| (kind, true));
                let member = Member { kind: kind.to_owned(), is_optional };
                let section = page.sections.last_mut().expect("a table comes behind its heading");
                assert!(section.insert(name.to_owned(), member).is_none(), "docs/json.md names {name} twice");
            }
        }
        page
    }

    /// The section on what is run by these words.
    fn section(&self, words: &[&str]) -> usize {
        let of = |count: usize| self.of_command.get(&words[..count.min(words.len())].join(" "));
        *of(3).or_else(|| of(2)).or_else(|| of(1)).unwrap_or_else(|| panic!("docs/json.md has no section on {words:?}"))
    }
}

/// Compares an object with the members whose names begin with `prefix`, and remembers which of them it has seen.
fn check(told: &str, members: &Members, prefix: &str, object: &Map<String, Value>, seen: &mut BTreeSet<String>) {
    let own = |name: &str| name.strip_prefix(prefix).filter(|rest| !rest.contains('.')).map(str::to_owned);
    let known: BTreeMap<String, &Member> = members.iter().filter_map(|(name, m)| Some((own(name)?, m))).collect();
    for (name, value) in object {
        let plain = name.strip_suffix("_hex").filter(|plain| {
            !known.contains_key(name)
                && known.get(*plain).is_some_and(|m| matches!(m.kind.trim_end_matches(" or null"), "bytes" | "datum"))
        });
        let member = *known
            .get(plain.unwrap_or(name))
            .unwrap_or_else(|| panic!("{told}: docs/json.md does not name {prefix}{name}: {value}"));
        seen.insert(format!("{prefix}{}", plain.unwrap_or(name)));
        let kind = if plain.is_some() { "hex" } else { &member.kind };
        is_of(told, members, &format!("{prefix}{name}"), kind, value, seen);
    }
    for (name, member) in known {
        let is_there = object.contains_key(&name) || object.contains_key(&format!("{name}_hex"));
        assert!(is_there || member.is_optional, "{told}: {prefix}{name} is missing in {object:?}");
    }
}

fn is_of(told: &str, members: &Members, name: &str, kind: &str, value: &Value, seen: &mut BTreeSet<String>) {
    let is_integer = |text: &str| text.parse::<i128>().is_ok();
    let is_good = match kind {
        "text" => value.is_string(),
        "hex" => value.as_str().is_some_and(|text| text.len() % 2 == 0 && text.bytes().all(|b| b.is_ascii_hexdigit())),
        "bytes" => value.is_string(),
        "datum" => value.is_string() || value.is_number() || value.is_boolean(),
        "bool" => value.is_boolean(),
        "number" => value.as_f64().is_some() || value.as_str().is_some_and(|text| text.parse::<f64>().is_ok()),
        "integer" => match value {
            Value::Number(number) => number.as_i64().is_some_and(|n| n.abs() < 1 << 53),
            Value::String(text) => is_integer(text) && text.parse::<i64>().is_ok_and(|n| n.abs() >= 1 << 53),
            _ => false,
        },
        "scalar" => !value.is_array() && !value.is_object(),
        "any" => true,
        "object" => {
            let object = value.as_object().unwrap_or_else(|| panic!("{told}: {name} is {value}"));
            check(told, members, &format!("{name}."), object, seen);
            true
        }
        _ => {
            if let Some(kind) = kind.strip_suffix(" or null") {
                if !value.is_null() {
                    is_of(told, members, name, kind, value, seen);
                }
            } else if let Some(kind) = kind.strip_prefix("list of ") {
                let items = value.as_array().unwrap_or_else(|| panic!("{told}: {name} is {value}"));
                items.iter().for_each(|item| is_of(told, members, &format!("{name}[]"), kind, item, seen));
            } else {
                panic!("docs/json.md gives {name} the type {kind:?}, which the page does not explain");
            }
            true
        }
    };
    assert!(is_good, "{told}: {name} is {value}, and not {kind}");
}

/// What is run, one after the other in one directory. First come the words behind `ledgerstone --json`, with `~` for a
/// blank inside of a word, then what comes in by the pipe, and the exit code.
const RUNS: &[(&str, &str, i32)] = &[
    ("init shop", "", 0),
    ("init shop", "", 2),
    ("put shop fruit apple red", "", 0),
    ("put shop fruit pear green --new", "", 0),
    ("put shop fruit pear green --new", "", 1),
    ("put shop fruit ff00 00ff --hex", "", 0),
    ("put shop many 9007199254740993 x --key-type u64", "", 0),
    ("put shop many 7 y", "", 0),
    ("put shop fruit apple ruddy", "", 0),
    ("get shop fruit apple", "", 0),
    ("get shop fruit plum", "", 1),
    ("get shop fruit ff00 --hex", "", 0),
    ("get shop nuts hazel", "", 2),
    ("del shop fruit pear", "", 0),
    ("del shop fruit pear", "", 1),
    ("scan shop fruit", "", 0),
    ("scan shop many --keys-only", "", 0),
    ("scan shop nuts", "", 2),
    ("import shop cities - --format csv --key id --types auto", "id,size\nBern,1\nRome,9007199254740993\nOslo,3\n", 0),
    ("import shop cities - --format jsonl --key id --keep-going", "{}\n", 1),
    ("index create shop cities by_size json:size", "", 0),
    ("index create shop fruit by_colour value --unique", "", 0),
    ("index list shop", "", 0),
    ("index lookup shop cities by_size", "", 0),
    ("index lookup shop fruit by_colour", "", 0),
    ("index lookup shop fruit by_colour --hex", "", 0),
    ("index lookup shop fruit by_colour blue", "", 1),
    ("index drop shop fruit by_colour", "", 0),
    ("index drop shop fruit by_colour", "", 1),
    ("tables shop --count", "", 0),
    ("tables shop", "", 0),
    ("rename shop many few", "", 0),
    ("export shop fruit out.jsonl", "", 0),
    ("export shop fruit", "", 0),
    ("dump shop fruit -o fruit.dump", "", 0),
    ("dump shop fruit", "", 0),
    ("load shop fruit.dump", "", 0),
    ("stat shop", "", 0),
    ("processes shop", "", 0),
    ("verify shop", "", 0),
    ("checkpoint shop", "", 0),
    ("recover shop", "", 0),
    ("log shop --kind commit", "", 0),
    ("log shop", "", 0),
    ("config shop", "", 0),
    ("config shop --check", "", 0),
    ("config --defaults", "", 0),
    ("backup shop saved", "", 0),
    ("put shop fruit fig purple", "", 0),
    ("backup shop saved --incremental", "", 0),
    ("backup shop one.backup --file", "", 0),
    ("backup list saved", "", 0),
    ("backup verify saved", "", 0),
    ("restore saved again", "", 0),
    ("repair shop --from saved", "", 0),
    ("repair shop --from saved --page 1", "", 0),
    ("archive shop --archive kept --now", "", 0),
    ("changes shop", "", 0),
    ("changes shop --name feed", "", 0),
    ("stat shop", "", 0),
    ("changes shop --forget feed", "", 0),
    ("changes shop --forget feed", "", 1),
    ("shell shop", "begin\nput fruit lime green\nprepare order-7\n", 0),
    ("prepared list shop", "", 0),
    ("verify shop", "", 0),
    ("prepared commit shop order-7", "", 0),
    ("prepared abort shop order-7", "", 1),
    (
        "shell shop",
        "tables\nget fruit lime\nget fruit plum\ndel fruit lime\ncount fruit\nscan fruit\nstat\nverify\nbegin a\n\
         put fruit k 1\nbegin b\nget fruit k\n@a commit\nwait b\ntransactions\nabort b\n.timer on\nindexes cities\nnonsense\n",
        1,
    ),
    (
        "shell shop",
        "lookup cities by_size\nlookup cities by_size keys\nindexes cities\nchanges\ncheckpoint\ncompact\nin-doubt\n\
         index few by_value value unique\nrename few several\nunindex several by_value\ninsert fruit melon green\n\
         begin a\nput fruit n 1\nprepare order-8\nin-doubt\ndecide commit order-8\n",
        0,
    ),
    ("compact shop", "", 0),
    ("man pages", "", 0),
    ("completions bash", "", 0),
    ("bench tpcb --small --transactions 20 --warm-up 0 --durability pipelined --check --cache 16M", "", 0),
    ("bench points --records 100 --threads 1 --seconds 0.01 --cache 4M", "", 0),
    ("bench settings settings.toml --accounts 100 --rounds 3 --seconds 0.03", "", 0),
    ("probe domains --quick", "", 0),
    ("flash crash --cuts 3", "", 0),
    ("flash tpcc --protocol scc --transactions 2 --cuts 1 --warehouses 1", "", 0),
    ("flash trace show trace", "", 0),
    ("scan", "", 2),
    ("nonsense", "", 2),
];

/// Commands that take too long for a test, or kill processes. Those of `bench` answer with the same report as `bench
/// points`.
const NOT_RUN: &[&str] = &[
    "bench scan",
    "bench cold",
    "bench snapshots",
    "bench crowd",
    "bench processes",
    "bench counts",
    "bench device",
    "bench recovery",
    "bench loser",
    "bench rollback",
    "bench scale",
    "bench memory",
    "bench gates",
    "probe compare",
    "flash demo",
    "flash bench",
    "flash trace record",
];

fn leaves(command: &clap::Command, path: &str, out: &mut Vec<String>) {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        let path = format!("{path} {}", inner.get_name()).trim().to_owned();
        if inner.get_subcommands().next().is_none() || inner.is_args_conflicts_with_subcommands_set() {
            out.push(path.clone());
        }
        leaves(inner, &path, out);
    }
}

#[test]
fn every_command_answers_as_the_page_says() {
    let page = Page::read();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("settings.toml"), "commit_group_min = 2\n").unwrap();
    std::fs::write(dir.path().join("trace"), "W 1 7 0\nC 1\nR 2 9 3\n").unwrap();
    let mut seen = vec![BTreeSet::new(); page.sections.len()];
    for (line, input, code) in RUNS {
        let (out, err) = run(dir.path(), line, input, *code);
        let errors = page.section(&["errors"]);
        for line in err.lines() {
            let told = format!("standard error of {line}");
            check(&told, &page.sections[errors], "", &object(&told, line), &mut seen[errors]);
        }
        let words: Vec<&str> = line.split(' ').collect();
        if *code == 2 {
            assert_eq!(out, "", "{line}");
            continue;
        }
        let is_data = matches!(*line, "dump shop fruit" | "completions bash");
        if is_data {
            continue;
        }
        let section = page.section(&words);
        if words[0] == "shell" {
            assert_eq!(out.lines().count(), input.lines().count(), "{line}: an answer each");
        }
        for (no, answer) in out.lines().enumerate() {
            let (mut answer, shell) = (object(line, answer), &page.sections[section]);
            // The shell answers with members of its own, and with those of the command line's command.
            if words[0] == "shell"
                && let Some(same) = input.lines().nth(no).and_then(same_outside)
            {
                let told = format!("{line}: {}", input.lines().nth(no).unwrap_or_default());
                let section = page.section(&same.split(' ').collect::<Vec<_>>());
                let is_own =
                    |name: &String| shell.contains_key(name) && !matches!(name.as_str(), "done" | "key" | "value");
                let (own, mut rest): (Map<_, _>, Map<_, _>) = answer.into_iter().partition(|(name, _)| is_own(name));
                let records = own.get("records").cloned();
                if own["ok"] == true && !own.contains_key("waiting") {
                    for record in records.iter().flat_map(|records| records.as_array().unwrap()) {
                        check(&told, &page.sections[section], "", record.as_object().unwrap(), &mut seen[section]);
                    }
                    if records.is_none() {
                        check(&told, &page.sections[section], "", &rest, &mut seen[section]);
                    }
                    rest.clear();
                }
                answer = own.into_iter().chain(rest).collect();
            }
            check(line, shell, "", &answer, &mut seen[section]);
        }
    }
    damaged_environments(&page, dir.path(), &mut seen);

    let mut commands = Vec::new();
    leaves(&Args::command(), "", &mut commands);
    for command in &commands {
        let words: Vec<&str> = command.split(' ').collect();
        let section = page.section(&words);
        let is_run = RUNS
            .iter()
            .any(|(line, _, code)| *code != 2 && page.section(&line.split(' ').collect::<Vec<_>>()) == section);
        assert!(is_run || NOT_RUN.contains(&command.as_str()), "{command} is not run here");
    }
    for command in page.of_command.keys().filter(|command| *command != "errors") {
        assert!(commands.contains(command), "docs/json.md has a section on {command}, which is not a command");
    }
    let unseen: Vec<&String> = page
        .of_command
        .iter()
        .filter(|(command, section)| !NOT_RUN.contains(&command.as_str()) && **section < seen.len())
        .flat_map(|(_, section)| page.sections[*section].keys().filter(|name| !seen[*section].contains(*name)))
        .filter(|name| !is_rare(name))
        .collect();
    assert!(unseen.is_empty(), "docs/json.md names members that no command here has answered: {unseen:?}");
}

/// The command of the command line that a command of the shell answers as.
fn same_outside(line: &str) -> Option<&'static str> {
    let command = line.split(' ').find(|word| !word.starts_with('@'))?;
    Some(match command {
        "indexes" => "index list",
        "index" => "index create",
        "unindex" => "index drop",
        "lookup" => "index lookup",
        "insert" => "put",
        "in-doubt" => "prepared list shop",
        "decide" => "prepared commit shop",
        same => {
            *["tables", "rename", "put", "get", "del", "scan", "stat", "changes", "checkpoint", "compact", "verify"]
                .iter()
                .find(|known| **known == same)?
        }
    })
}

/// Members that take more than a small environment to show.
fn is_rare(name: &str) -> bool {
    const RARE: &[&str] = &[
        "old_bytes",
        "old_offset",
        "old_part",
        "new_bytes",
        "new_offset",
        "new_part",
        "to",
        "value_type",
        "advice[].",
        "services[].",
        "claims[].",
        "experiments[].",
        "machine.device.",
        "acks.",
        "device.",
        "left_out[].",
        "restored.left_out[].",
        "log_pins[].bytes_max",
        "stat.snapshots[].",
        "stat.keeper_troubles[].",
        "undo_next",
        "skipped[].",
        "differences",
    ];
    RARE.iter().any(|rare| name == *rare || (rare.ends_with('.') && name.starts_with(rare)))
}

fn object(told: &str, line: &str) -> Map<String, Value> {
    match serde_json::from_str(line) {
        Ok(Value::Object(object)) => object,
        other => panic!("{told}: {line:?} is not an object: {other:?}"),
    }
}

fn run(dir: &Path, line: &str, input: &str, code: i32) -> (String, String) {
    let words = line.split(' ').map(|word| word.replace('~', " "));
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("ledgerstone"));
    command.current_dir(dir).arg("--json").args(words);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let input = input.to_owned();
    let feeding = std::thread::spawn(move || {
        let _ = std::io::Write::write_all(&mut pipe, input.as_bytes()); // It may have ended before it has read it.
    });
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "{line}: {out}{err}");
    (out, err)
}

/// What only damage shows.
fn damaged_environments(page: &Page, dir: &Path, seen: &mut [BTreeSet<String>]) {
    let mut run_and_check = |line: &str, code: i32| {
        let (out, _) = run(dir, line, "", code);
        let section = page.section(&line.split(' ').collect::<Vec<_>>());
        assert!(!out.is_empty(), "{line} answers nothing");
        out.lines().for_each(|l| check(line, &page.sections[section], "", &object(line, l), &mut seen[section]));
    };
    let harm = |file: &str, at: usize| {
        let path = dir.join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at] ^= 0xff;
        std::fs::write(&path, bytes).unwrap();
    };
    std::fs::write(dir.join("shop/ledgerstone.toml"), "cache_bites = 3\n").unwrap();
    run_and_check("config shop --check", 1);
    std::fs::remove_file(dir.join("shop/ledgerstone.toml")).unwrap();
    for page in 1..4 {
        harm("shop/data", page * 4096 + 100);
    }
    run_and_check("verify shop", 1);
    harm("one.backup", 5000);
    run_and_check("backup verify one.backup", 1);
    harm("kept/log/0000000000000000.seg", 3000);
    run_and_check("archive shop --archive kept --verify", 1);
}

#[test]
fn numbers_lose_no_digit_on_their_way_through_json_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let run = |line: &str, input: &str| run(dir.path(), line, input, 0).0;
    let rows =
        "{\"id\":9007199254740993,\"n\":123456789012345678901234567890}\n{\"id\":2,\"n\":0.12345678901234567890123}\n";
    run("init env", "");
    run("import env t - --format jsonl --key id --key-type u64 --quiet", rows);
    let scanned = run("scan env t", "");
    assert!(scanned.contains("{\"key\":2,") && scanned.contains("{\"key\":\"9007199254740993\","), "{scanned}");
    assert_eq!(run("get env t 9007199254740993", "").lines().next(), scanned.lines().nth(1));
    // What is scanned or exported is imported as it was.
    run("import env u - --format jsonl --key key --key-type u64 --value value --quiet", &scanned);
    assert_eq!(run("scan env u", ""), scanned);
    let exported = run("export env t", "");
    run("import env v - --format jsonl --key key --key-type u64 --value value --quiet", &exported);
    assert_eq!(run("scan env v", ""), scanned);
    let sorted = rows.lines().rev().map(|row| row.to_owned() + "\n").collect::<String>();
    assert_eq!(run("export env t --rows", ""), sorted);
    run("dump env t -o t.dump", "");
    run("rename env t w", "");
    run("load env t.dump", "");
    assert_eq!(run("scan env t", ""), scanned);
    // An index key tells whether it is a number, however it is written.
    run("index create env t n json:n", "");
    let found = run("index lookup env t n --keys-only", "");
    assert_eq!(
        found,
        concat!(
            "{\"key\":2,\"index_key\":\"0.12345678901234567890123\",\"index_key_kind\":\"number\"}\n",
            "{\"key\":\"9007199254740993\",\"index_key\":\"1.2345678901234567890123456789e+29\",",
            "\"index_key_kind\":\"number\"}\n"
        )
    );
    let key = serde_json::from_str::<Value>(found.lines().nth(1).unwrap()).unwrap()["index_key"].clone();
    let again = run(&format!("index lookup env t n {} --keys-only", key.as_str().unwrap()), "");
    assert_eq!(again.lines().next(), found.lines().nth(1));
}

#[test]
fn an_argument_that_is_not_text_is_led_to_hexadecimal_digits() {
    use std::os::unix::ffi::OsStrExt;
    for json in [&[][..], &["--json"]] {
        let mut command = assert_cmd::Command::cargo_bin("ledgerstone").unwrap();
        let key = std::ffi::OsStr::from_bytes(b"\xff");
        let output = command.args(["get", "shop", "stock"]).arg(key).args(json).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("an argument is not UTF-8") && said.contains("say --hex"), "{said}");
        assert_eq!(serde_json::from_str::<Value>(&said).is_ok(), !json.is_empty(), "{said}");
    }
}

#[test]
fn a_missing_command_is_an_object_and_names_no_hidden_one() {
    let said = |words: &[&str]| {
        let output = assert_cmd::Command::cargo_bin("ledgerstone").unwrap().args(words).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{words:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        for hidden in ["complete,", "complete'", "demo-work"] {
            assert!(!said.contains(hidden), "{words:?}: {said}");
        }
        said
    };
    for words in [&["--json"][..], &["--json", "index"], &["bench", "--json"], &["--json", "flash", "trace"]] {
        let told: Value = serde_json::from_str(&said(words)).unwrap();
        assert_eq!(told["kind"], "usage", "{words:?}: {told}");
        assert!(told["error"].as_str().unwrap().lines().count() <= 2, "{words:?}: {told}");
    }
    let index: Value = serde_json::from_str(&said(&["--json", "index"])).unwrap();
    assert_eq!(index["error"], "ledgerstone index wants a command: create, drop, list, lookup");
    assert!(said(&["-q"]).contains("[subcommands: init, put"));
    assert!(said(&["complet"]).contains("'completions'"));
    said(&["flash", "-q"]);
    said(&["flash", "demo-wor"]);
}

#[test]
fn changes_are_told_as_records_are() {
    let dir = tempfile::tempdir().unwrap();
    let run = |line: &str| run(dir.path(), line, "", 0).0;
    run("init env");
    run("put env numbers 7 seven --key-type u64");
    run("put env fruit ff00 00ff --hex");
    run("del env fruit ff00 --hex");
    let changes: Vec<Value> = run("changes env").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of =
        |table: &str| changes.iter().filter(|c| c["table"] == table && c.get("event").is_none()).collect::<Vec<_>>();
    let numbers = of("numbers");
    assert_eq!((&numbers[0]["key"], &numbers[0]["new"]), (&Value::from(7), &Value::from("seven")));
    assert!(numbers[0]["old"].is_null());
    let fruit = of("fruit");
    assert_eq!((&fruit[0]["key_hex"], &fruit[0]["new_hex"]), (&Value::from("ff00"), &Value::from("00ff")));
    // The log does not say what was deleted.
    assert!(fruit[1]["new"].is_null() && fruit[1].get("old").is_none(), "{}", fruit[1]);
}
