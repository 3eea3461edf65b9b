//! The commands as people type them: what they print, and the exit codes (0 done, 1 not found or a check failed, 2
//! error).
#![allow(missing_docs)]

mod common;

use std::path::Path;

use assert_cmd::Command;
use common::Shell;
use ledgerstone::{Environment, TableDef};

#[test]
fn records_are_put_read_scanned_and_deleted() {
    let shell = Shell::new();
    for (key, value) in [("apple", "red"), ("apricot", "orange"), ("pear", "green~and~yellow")] {
        shell.says(&format!("put @ fruit {key} {value}"), "");
    }
    shell.says("get @ fruit pear", "green and yellow\n");
    shell.says("--json get @ fruit apple", "{\"key\":\"apple\",\"value\":\"red\"}\n");
    shell.says("scan @ fruit", "apple\tred\napricot\torange\npear\tgreen and yellow\n");
    shell.says("scan @ fruit --prefix ap --keys-only", "apple\napricot\n");
    shell.says("scan @ fruit --from apricot --to pear", "apricot\torange\n");
    shell.says("scan @ fruit --reverse --limit 1", "pear\tgreen and yellow\n");
    shell.says("--json scan @ fruit --keys-only --limit 1", "{\"key\":\"apple\"}\n");
    shell.says("tables @", "fruit\n");
    shell.says("tables @ --count", "fruit\t3\n");
    shell.says("del @ fruit apple", "");
    assert_eq!(shell.run("get @ fruit apple").code, 1);
    assert_eq!(shell.run("del @ fruit apple").code, 1);
    assert_eq!(shell.run("put @ fruit pear x --new").code, 1);
    shell.says("get @ fruit pear", "green and yellow\n");
}

/// As with `ledgerstone dump DIR | head -1`.
#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let shell = Shell::new();
    shell.says("put @ fruit apple red", "");
    let dir = shell.0.path().join("env").display().to_string();
    for line in ["dump @", "--json tables @", "export @ fruit -", "scan @ fruit", "changes @", "log @", "stat @"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ledgerstone"));
        command.args(line.split(' ').map(|word| if word == "@" { &dir } else { word })).stdout(writer);
        let output = command.output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{line}");
    }
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    for word in ["help", "--help", "--version"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ledgerstone"));
        let output = command.arg(word).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{word}: {said}");
        assert!(said.contains("cannot write to standard output: No space left on device"), "{word}: {said}");
    }
}

/// With characters that turn the direction, `nettxt.exe` could look like `netexe.txt`.
#[test]
fn characters_that_turn_the_direction_are_escaped_as_control_characters_are() {
    let shell = Shell::new();
    shell.says("put @ fruit a\u{202e}b c\u{2066}d", "");
    shell.says("scan @ fruit", "a\\xe2\\x80\\xaeb\tc\\xe2\\x81\\xa6d\n");
    shell.says("--json scan @ fruit", "{\"key\":\"a\\u202eb\",\"value\":\"c\\u2066d\"}\n");
    assert!(shell.run("get @ a\u{202e}b c").err.contains("no table named \"a\\xe2\\x80\\xaeb\""));
    // Other letters that begin with the same byte are shown.
    shell.says("put @ sums euro 5\u{20ac}", "");
    shell.says("get @ sums euro", "5\u{20ac}\n");
}

#[test]
fn an_error_of_the_system_is_io_to_programs_whoever_met_it() {
    let shell = Shell::new();
    shell.says("put @ fruit apple red", "");
    for line in ["--json dump @ -o no/such/dir", "--json dump @ -o /dev/full", "--json export @ fruit /dev/full"] {
        let said = shell.run(line);
        assert_eq!(said.code, 2, "{line}: {}", said.err);
        assert!(said.err.contains("\"kind\":\"io\""), "{line}: {}", said.err);
    }
}

#[test]
fn any_bytes_can_be_a_key_and_a_value() {
    let shell = Shell::new();
    shell.says("put @ t 00ff c3a4 --hex", "");
    shell.says("get @ t 00ff --hex", "c3a4\n");
    shell.says("scan @ t", "\\x00\\xff\tä\n");
    shell.says("--json scan @ t", "{\"key_hex\":\"00ff\",\"value\":\"ä\"}\n");
    let binary = b"line\nzero\0high\xff";
    assert_eq!(shell.run_with("put @ t key -", binary).code, 0);
    shell.says("get @ t key", "line\\nzero\\x00high\\xff\n");
}

#[test]
fn numbers_sort_as_numbers() {
    let shell = Shell::new();
    for number in ["256", "1", "70000"] {
        shell.says(&format!("put @ n {number} x{number} --key-type u64"), "");
    }
    shell.says("scan @ n --key-type u64", "1\tx1\n256\tx256\n70000\tx70000\n");
    shell.says("--json scan @ n --key-type u64 --keys-only --reverse --limit 1", "{\"key\":70000}\n");
    assert!(shell.run("get @ n -1 --key-type u64").err.contains("\"-1\" is not of type u64"));
    shell.says("put @ signed -1 -2 --key-type i64", "");
    shell.says("put @ signed 0 zero --key-type i64", "");
    shell.says("scan @ signed --from -1 --key-type i64", "-1\t-2\n0\tzero\n");
}

#[test]
fn the_types_of_a_table_need_not_be_said_again() {
    const STOCK: TableDef<u64, f64> = TableDef::new("stock");
    const PAIRS: TableDef<(u64, u64), String> = TableDef::new("pairs");
    let shell = Shell::new();
    let env = Environment::options().open(shell.0.path().join("env")).unwrap();
    env.transact(|txn| {
        txn.open(STOCK)?.put(&256, &0.5)?;
        txn.open(STOCK)?.put(&7, &12.0)?;
        txn.open(PAIRS)?.put(&(1, 2), &"x".to_string())
    })
    .unwrap();
    env.close().unwrap();
    shell.says("scan @ stock", "7\t12\n256\t0.5\n");
    shell.says("put @ stock 9 -1.25", "");
    shell.says("get @ stock 9", "-1.25\n");
    shell.says("--json scan @ stock --from 8 --to 10", "{\"key\":9,\"value\":-1.25}\n");
    shell.says("del @ stock 9 --key-type u64", "");
    shell.says("get @ stock 0000000000000007 --hex", "0000000000002840\n");
    // Nothing of another type goes in.
    assert!(shell.run("put @ stock 9 dear").err.contains("\"dear\" is not of type f64"));
    assert!(shell.run("put @ stock nine 1").err.contains("\"nine\" is not of type u64"));
    assert!(shell.run("put @ stock 9 1 --key-type i64").err.contains("has keys of type u64"));
    assert!(shell.run("put @ pairs 9 1").err.contains("(u64, u64)"));
    assert!(shell.run_with("import @ stock - --format jsonl --key id", b"{\"id\":1}\n").err.contains("--value"));
    shell.says("export @ stock out.csv --quiet", "");
    assert_eq!(shell.text("out.csv"), "key,value\n7,12\n256,0.5\n");
    shell.says("import @ stock out.csv --key key --value value --quiet", "");
    shell.says("scan @ stock", "7\t12\n256\t0.5\n");
    shell.says("tables @", "pairs\tkeys: (u64, u64), values: string\nstock\tkeys: u64, values: f64\n");
    // A table that is made with a type of keys has it from then on, through a dump, too.
    shell.says("put @ n -5 x --key-type i64", "");
    shell.says("dump @ n -o n.dump --quiet", "");
    shell.says("rename @ n old --quiet", "");
    shell.says("load @ n.dump --quiet", "");
    shell.says("put @ n 3 y", "");
    shell.says("scan @ n", "-5\tx\n3\ty\n");
}

#[test]
fn indexes_find_rows_by_their_columns() {
    let shell = Shell::new();
    shell.file("people.csv", "id,name,city\n1,Ada,London\n2,Max,Bern\n3,Eve,Bern\n");
    assert_eq!(shell.run("import @ people people.csv --key id --sorted").code, 0);
    shell.says("index create @ people by_city json:city", "");
    shell.says("index create @ people by_name json:name --unique", "");
    shell.says("index list @", "people\tby_city\tjson:city\npeople\tby_name\tjson:name\tunique\n");
    shell.says("tables @ --count", "people\t3\tindexes: by_city, by_name\n");
    shell.says("index lookup @ people by_city Bern --keys-only", "Bern\t2\nBern\t3\n");
    shell.says("index lookup @ people by_city --from C --reverse --keys-only", "London\t1\n");
    let max = r#"{"id":"2","name":"Max","city":"Bern"}"#;
    shell.says("index lookup @ people by_name Max", &format!("Max\t2\t{max}\n"));
    shell.says(
        "--json index lookup @ people by_name --prefix A --keys-only",
        "{\"key\":\"1\",\"index_key\":\"Ada\",\"index_key_kind\":\"text\"}\n",
    );
    assert_eq!(shell.run("index lookup @ people by_name Nobody").code, 1);

    // A row that the unique index refuses is one row's matter.
    shell.file("more.csv", "id,name,city\n4,Ada,Rome\n5,Una,Rome\n");
    let said = shell.run("import @ people more.csv --key id --keep-going");
    assert!(said.code == 1 && said.err.contains("line 2") && said.err.contains("by_name"), "{}", said.err);
    shell.says("index lookup @ people by_city Rome --keys-only", "Rome\t5\n");
    shell.file("unsorted.csv", "id,name,city\n9,Tim,Oslo\n8,Tom,Oslo\n");
    let said = shell.run("import @ people unsorted.csv --key id --sorted");
    assert!(said.code == 2 && said.err.contains("sort") && said.err.contains("nothing was imported"), "{}", said.err);
    for word in ["line 3", "\"8\"", "\"9\""] {
        assert!(said.err.contains(word), "{}", said.err);
    }
    shell.file("lower.csv", "id,name,city\n4,Lea,Oslo\n");
    let said = shell.run("import @ people lower.csv --key id --sorted");
    for word in ["line 2", "\"4\"", "\"5\"", "\"people\"", "appends"] {
        assert!(said.code == 2 && said.err.contains(word), "{}", said.err);
    }

    assert_eq!(shell.run("rename @ people folk").code, 0);
    assert_eq!(shell.run("index lookup @ folk by_city Oslo").code, 1);
    assert_eq!(shell.run("index drop @ folk by_city").code, 0);
    assert_eq!(shell.run("index drop @ folk by_city").code, 1);
    assert_eq!(shell.run("index create @ folk odd somewhere").code, 2);
    assert_eq!(shell.run("verify @").code, 0);
}

#[test]
fn errors_name_the_thing_and_say_what_to_do() {
    let shell = Shell::new();
    let check = |line: &str, words: &[&str]| {
        let said = shell.run(line);
        assert_eq!(said.code, 2, "{line}");
        assert!(words.iter().all(|word| said.err.contains(word)), "{line}: {}", said.err);
    };
    check("get nowhere t k", &["nowhere", "ledgerstone init DIR"]);
    check("get @ strange k", &["strange", "ledgerstone tables DIR"]);
    check("init @", &["an environment already"]);
    check("put @ t 0g x --hex", &["the key", r#""g" at position 2"#]);
    check("import @ t nothing.csv --key a", &["cannot read nothing.csv"]);
    check("import @ t file --key a", &["cannot read file"]);
    check("nonsense", &["nonsense"]);
    check("bench tpcb --verify-acks x", &["--keep"]);
    assert!(!Path::new("nowhere").exists());
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
fn tpcb_runs_checks_and_says_so_as_json() {
    let shell = Shell::new();
    let said = shell.run(
        "--json bench tpcb --small --transactions 50 --warm-up 0 --durability pipelined --check --tmp . --cache 16M",
    );
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(
        said.out.contains("\"transaction_count\":50") && said.out.contains("\"wrong_balance_count\":0"),
        "{}",
        said.out
    );
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
fn transactions_in_doubt_are_listed_and_decided() {
    let shell = Shell::new();
    shell.says("put @ fruit apple red", "");
    shell.says("prepared list @", "");
    let dir = shell.0.path().join("env");
    let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(&dir).unwrap();
    for (id, key) in [(&b"order 7"[..], &b"apple"[..]), (b"order 8", b"pear"), (&[0xff, 1], b"plum")] {
        let txn = env.begin().unwrap();
        txn.bytes("fruit").unwrap().put(key, b"blue").unwrap();
        let _ = txn.prepare(id).unwrap();
    }
    env.close().unwrap();
    let listed = shell.run("prepared list @");
    let first: Vec<&str> = listed.out.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!((listed.code, first), (0, vec!["order 7", "order 8", "\\xff\\x01"]));
    let json = shell.run("--json prepared list @").out;
    assert!(json.starts_with("{\"global_id\":\"order 7\"") && json.contains("\"global_id_hex\":\"ff01\""), "{json}");
    let header = "VERSION=3\nformat=print\ndatabase=fruit\ntype=btree\nHEADER=END\n";
    shell.says("dump @ --print", &format!("{header} apple\n red\nDATA=END\n"));
    shell.says("prepared commit @ order~7", "");
    shell.says("prepared abort @ order~8", "");
    shell.says("prepared abort @ ff01 --hex", "");
    shell.says("scan @ fruit", "apple\tblue\n");
    let again = shell.run("prepared commit @ order~7");
    assert_eq!((again.code, again.err.as_str()), (1, "no transaction is in doubt as \"order 7\"\n"));
    assert_eq!(shell.run("prepared abort @ 0g --hex").code, 2);
}

#[test]
fn the_log_is_printed_and_filtered_without_opening_the_environment() {
    let shell = Shell::new();
    shell.says("put @ t k v", "");
    shell.says("put @ u k v", "");
    let all = shell.run("log @").out;
    assert!(all.contains("Commit") && all.contains("Checkpoint"), "{all}");
    let commits = shell.run("--json log @ --kind commit").out;
    let lsns: Vec<u64> = commits
        .lines()
        .map(|line| {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(record["kind"], "commit");
            record["lsn"].as_u64().unwrap()
        })
        .collect();
    assert!(lsns.len() >= 2 && lsns.is_sorted(), "{commits}");
    let newest = shell.run("--json log @ --kind commit --reverse --limit 1").out;
    assert!(newest.contains(&format!("\"lsn\":{}", lsns[lsns.len() - 1])), "{newest}");
    let between = shell.run(&format!("--json log @ --kind commit --from {} --to {}", lsns[0], lsns[1])).out;
    assert_eq!(between.lines().count(), 1, "{between}");
    let of_table = shell.run("--json log @ --table t").out;
    assert!(!of_table.is_empty() && of_table.lines().count() < shell.run("log @").out.lines().count());
    let said = shell.run("log @ --kind nonsense");
    assert!(said.code == 2 && said.err.contains("not a kind of record; the kinds are update"), "{}", said.err);
}

#[test]
fn several_processes_may_read_at_once_and_none_writes_meanwhile() {
    let shell = Shell::new();
    shell.says("put @ t k v", "");
    let reader = ledgerstone::Environment::options().read_only(true).open(shell.0.path().join("env")).unwrap();
    shell.says("get @ t k", "v\n");
    shell.says("scan @ t", "k\tv\n");
    let said = shell.run("put @ t k w");
    assert!(said.code == 2 && said.err.contains("is open already"), "{}", said.err);
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

#[test]
fn flash_runs_tpcc_through_power_cuts_and_reads_traces() {
    let shell = Shell::new();
    let said = shell.run("flash tpcc --protocol scc --transactions 20 --cuts 1 --warehouses 1");
    assert!(said.code == 0 && said.out.starts_with("SCC: ") && said.out.contains("checked 3 times"), "{}", said.out);
    let said = shell.run("flash crash --cuts 30");
    assert!(said.code == 0 && said.out.contains("nothing lost"), "{}{}", said.out, said.err);
    let trace = shell.0.path().join("trace");
    std::fs::write(&trace, "W 1 7 0\nC 1\nR 2 9 3\n").unwrap();
    let said = shell.run("flash trace show trace");
    assert_eq!(said.out, "2 transactions (1 without an end), 3 operations, highest page 9\n", "{}", said.err);
    std::fs::write(&trace, "W 1 7 0\nX 1\n").unwrap();
    let said = shell.run("flash trace show trace");
    assert!(said.code == 2 && said.err.contains("trace line 2"), "{}", said.err);
    assert_eq!(shell.run("flash tpcc --protocol none").code, 2);
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
fn numbers_keep_all_their_digits() {
    let shell = Shell::new();
    let (large, fine) = ("123456789012345678901234567890", "0.12345678901234567890123");
    shell.file("in.jsonl", &format!("{{\"id\":{large},\"fine\":{fine},\"e\":1e400}}\n"));
    shell.says("import @ t in.jsonl --key id --key-type u128 --quiet", "");
    shell.says("scan @ t --keys-only", &format!("{large}\n"));
    shell.says("--json scan @ t --keys-only", &format!("{{\"key\":\"{large}\"}}\n"));
    shell.says("export @ t out.csv --rows --quiet", "");
    assert_eq!(shell.text("out.csv"), format!("id,fine,e\n{large},{fine},1e+400\n"));
    for (member, number) in [("id", "1.2345678901234567890123456789e+29"), ("fine", fine)] {
        shell.says(&format!("index create @ t {member} json:{member} --quiet"), "");
        let kind = "\"index_key_kind\":\"number\"";
        let line = format!("{{\"key\":\"{large}\",\"index_key\":\"{number}\",{kind}}}\n");
        shell.says(&format!("--json index lookup @ t {member} --keys-only"), &line);
    }
    let key = "9007199254740993";
    shell.file("keys.jsonl", &format!("{{\"id\":{key}}}\n{{\"id\":18446744073709551617}}\n"));
    shell.says("import @ u keys.jsonl --key id --quiet", "");
    shell.says("scan @ u --keys-only", &format!("18446744073709551617\n{key}\n"));
}

#[test]
fn a_value_from_standard_input_is_of_the_tables_type() {
    const STOCK: TableDef<u64, f64> = TableDef::new("stock");
    const NAMES: TableDef<u64, String> = TableDef::new("names");
    let shell = Shell::new();
    let env = Environment::options().open(shell.0.path().join("env")).unwrap();
    env.transact(|txn| {
        txn.open(STOCK)?.put(&1, &0.5)?;
        txn.open(NAMES)?.put(&1, &"one".to_string())
    })
    .unwrap();
    env.close().unwrap();
    assert_eq!(shell.run_with("put @ stock 2 -", b"1.25\n").code, 0);
    shell.says("scan @ stock", "1\t0.5\n2\t1.25\n");
    let said = shell.run_with("put @ stock 3 -", b"dear\n");
    assert!(said.code == 2 && said.err.contains("is not of type f64"), "{}", said.err);
    let said = shell.run_with("put @ names 2 -", b"\xff");
    assert!(said.code == 2 && said.err.contains("not text"), "{}", said.err);
    assert_eq!(shell.run_with("put @ names 2 -", b"two\n").code, 0);
    shell.says("get @ names 2", "two\\n\n");
}

#[test]
fn tables_may_be_called_as_parts_of_a_dump_are() {
    let shell = Shell::new();
    for name in ["ledgerstone.types", "ledgerstone.indexes", "plain"] {
        shell.says(&format!("put @ {name} key value"), "");
    }
    shell.says("put @ typed -5 x --key-type i64", "");
    shell.says("dump @ -o all.dump --quiet", "");
    assert_eq!(shell.run("init other").code, 0);
    assert_eq!(shell.run("load other all.dump --quiet").code, 0);
    assert_eq!(shell.run("scan other ledgerstone.types").out, "key\tvalue\n");
    assert_eq!(shell.run("scan other ledgerstone.indexes").out, "key\tvalue\n");
    assert_eq!(shell.run("scan other typed").out, "-5\tx\n");
}

#[test]
fn a_dump_goes_where_it_is_told_and_replaces_nothing_by_itself() {
    let shell = Shell::new();
    shell.says("put @ fruit apple red", "");
    shell.says("put @ nuts hazel brown", "");
    // A name is a table's, as for scan.
    let said = shell.run("dump @ fruit --print");
    assert!(said.out.contains("apple") && !said.out.contains("hazel"), "{}", said.out);
    assert!(shell.run("dump @ fruit nuts --print").out.contains("hazel"));
    let said = shell.run("dump @ fruits");
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    assert!(said.err.contains("no table named \"fruits\""), "{}", said.err);
    assert!(!shell.0.path().join("fruits").exists());
    shell.says("dump @ fruit -o f.dump", "");
    let first = shell.text("f.dump");
    shell.says("put @ fruit pear green", "");
    let said = shell.run("dump @ fruit -o f.dump");
    assert_eq!(said.code, 2);
    assert!(said.err.contains("f.dump is there already; --force replaces it"), "{}", said.err);
    assert_eq!(shell.text("f.dump"), first);
    shell.says("dump @ fruit --output f.dump --force", "");
    assert_ne!(shell.text("f.dump"), first);
    let has_part = || {
        let mut names = std::fs::read_dir(shell.0.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.any(|name| name.to_string_lossy().ends_with(".part"))
    };
    assert!(!has_part());
    // What failed leaves nothing.
    assert_eq!(shell.run("dump @ fruits -o g.dump").code, 2);
    assert!(!shell.0.path().join("g.dump").exists() && !has_part());
}

#[test]
fn an_export_replaces_nothing_by_itself() {
    let shell = Shell::new();
    shell.says("put @ fruit apple red", "");
    for name in ["f.csv", "f.jsonl.gz"] {
        shell.says(&format!("export @ fruit {name} --quiet"), "");
        let first = std::fs::read(shell.0.path().join(name)).unwrap();
        shell.says("put @ fruit pear green", "");
        let said = shell.run(&format!("export @ fruit {name}"));
        assert_eq!(said.code, 2);
        assert!(said.err.contains(&format!("{name} is there already; --force replaces it")), "{}", said.err);
        assert_eq!(std::fs::read(shell.0.path().join(name)).unwrap(), first);
        shell.says(&format!("export @ fruit {name} --force --quiet"), "");
        assert_ne!(std::fs::read(shell.0.path().join(name)).unwrap(), first);
        shell.says("del @ fruit pear", "");
    }
}

#[test]
fn an_environment_is_made_where_nothing_else_is() {
    let shell = Shell::new();
    std::fs::create_dir(shell.0.path().join("home")).unwrap();
    shell.file("home/letter", "dear");
    let said = shell.run("init home");
    assert_eq!(said.code, 2);
    assert!(said.err.contains("home is not empty, it holds \"letter\""), "{}", said.err);
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
        let said = shell.run(&format!("init home~of~{name}"));
        assert!(said.code == 2 && said.err.contains(what), "{}", said.err);
        assert_eq!(std::fs::read_dir(&home).unwrap().count(), 1, "{name}");
    }
    let said = shell.run("init mount/ledgerstone.toml");
    assert_eq!(said.code, 2);
    assert!(said.err.contains("file"), "{}", said.err);
}

#[test]
fn a_file_in_the_place_of_a_directory_is_called_one() {
    let shell = Shell::new();
    for line in ["get /etc/passwd t k", "put /etc/passwd t k v", "tables /etc/passwd", "shell /etc/passwd"] {
        let said = shell.run(line);
        assert_eq!(said.code, 2);
        assert!(said.err.contains("it is a file, not a directory"), "{line}: {}", said.err);
    }
}

#[test]
fn a_full_device_is_named() {
    let shell = Shell::new();
    shell.says("put @ t k v", "");
    for line in ["scan @ t", "--json scan @ t", "get @ t k", "dump @", "export @ t", "backup @ -"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("ledgerstone"));
        let dir = shell.0.path().join("env").display().to_string();
        command.args(line.split(' ').map(|word| if word == "@" { dir.as_str() } else { word }));
        let output = command.stdout(full).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {err}");
        assert!(err.contains("standard output") && err.to_lowercase().contains("no space left"), "{line}: {err}");
    }
    let said = shell.run("export @ t /dev/full --format csv");
    assert!(said.err.contains("cannot write /dev/full: ") && said.code == 2, "{}", said.err);
}

/// What hides or fakes the screen: an escape, a carriage return, a bell, and the one-character form of an escape.
const EVIL: &str = "a\x1b[2J\rb\x07\u{9b}31m";
const SHOWN: &str = "a\\x1b[2J\\rb\\x07\\xc2\\x9b31m";

#[test]
fn no_escape_of_a_name_a_key_or_an_argument_reaches_the_terminal() {
    let shell = Shell::new();
    shell.says(&format!("put @ {EVIL} {EVIL} {EVIL}"), "");
    shell.says(&format!("index create @ {EVIL} {EVIL} value --quiet"), "");
    let lines = [
        "tables @",
        "scan @ %",
        "get @ % %",
        "get @ % no%",
        "get @ no% k",
        "del @ % no%",
        "put @ % % v --new",
        "stat @",
        "verify @",
        "index list @",
        "index lookup @ % %",
        "index lookup @ % % no%",
        "index drop @ % no%",
        "changes @",
        "import @ % no%",
        "import @ % no% --key %",
        "export @ % no%/out",
        "rename @ % %2",
        "rename @ %2 %",
        "dump @ no%",
        "put no% t k v",
        "%",
        "get @ t --%",
        "scan @ t --limit %",
        "config no%",
        "restore no% %",
        "backup list no%",
        "compact @",
        "log @",
        "prepared commit @ %",
        "load @ no%",
        "archive @ --archive no%",
        "init @",
        "export @ % -",
    ];
    for line in lines {
        let said = shell.run(&line.replace('%', EVIL));
        for text in [&said.out, &said.err] {
            let is_bad = |c: char| c.is_control() && c != '\n' && c != '\t';
            assert!(!text.contains(is_bad), "{line}: {text:?}");
            assert!(!text.contains(r"\u{"), "{line}: an escape in another spelling: {text:?}");
        }
    }
    let said = shell.run("get @ e\x1b[31m k");
    assert!(said.code == 2 && said.err.contains(r"e\x1b[31m"), "{}", said.err);
    shell.says(&format!("get @ {EVIL} {EVIL}"), &format!("{SHOWN}\n"));
    shell.says(&format!("get @ {EVIL} {EVIL} --raw"), EVIL);
    assert!(shell.run(&format!("get @ {EVIL} x{EVIL}")).err.contains(SHOWN));
    assert!(shell.run(EVIL).err.contains(&format!("'{SHOWN}'")), "{}", shell.run(EVIL).err);
    for answer in ["tables", "scan %", "get % %", "get no% k", "% x", "drop %"] {
        let word = format!("\"{SHOWN}\"");
        let said = shell.run_with("shell @", answer.replace('%', &word).as_bytes());
        assert!(!said.out.contains('\x1b') && !said.out.contains('\r'), "{answer}: {:?}", said.out);
    }
}

#[test]
fn keys_that_are_no_text_are_led_to_hexadecimal_digits() {
    use std::os::unix::ffi::OsStrExt;
    let shell = Shell::new();
    shell.says("put @ t ff00 76 --hex", "");
    let mut command = Command::cargo_bin("ledgerstone").unwrap();
    command.current_dir(shell.0.path()).args(["get", "env", "t"]).arg(std::ffi::OsStr::from_bytes(b"\xff"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--hex"));
    let said = shell.run("scan @ t");
    assert_eq!(said.out, "\\xff\\x00\tv\n");
    assert!(said.err.contains("--hex"), "{}", said.err);
    assert!(!shell.run("scan @ t --hex").err.contains("--hex"));
}

#[test]
fn changes_can_be_limited() {
    let shell = Shell::new();
    for key in ["a", "b", "c"] {
        shell.says(&format!("put @ t {key} 1"), "");
    }
    shell.says("put @ u z 1", "");
    assert_eq!(shell.run("changes @ --limit 0").out, "");
    let two = shell.run("changes @ --limit 2").out;
    assert!(two.contains("\ta\t") && two.contains("\tb\t") && !two.contains("\tc\t"), "{two}");
    let of_u = shell.run("changes @ --table u --limit 1").out;
    assert!(of_u.contains("(created)") && of_u.contains("\tz\t") && !of_u.contains("\ta\t"), "{of_u}");
    // A feed goes on behind what it has shown.
    shell.run("changes @ --name f");
    for key in ["d", "e"] {
        shell.says(&format!("put @ t {key} 1"), "");
    }
    let (first, second) = (shell.run("changes @ --name f --limit 1").out, shell.run("changes @ --name f").out);
    assert!(first.contains("\td\t") && !first.contains("\te\t"), "{first}");
    assert!(second.contains("\te\t") && !second.contains("\td\t"), "{second}");
}

#[test]
fn errors_say_what_failed_on_what_and_what_to_do() {
    let shell = Shell::new();
    shell.says("put @ t a 1", "");
    shell.file("bad.csv", "k,v\n1,2\n");
    shell.file("x.csv.gz", "hello\n");
    shell.file("file", "");
    shell.file("bad.dump", "nothing\n");
    std::fs::create_dir(shell.0.path().join("folder")).unwrap();
    shell.says("backup @ one.backup --file", "");
    for (line, said) in [
        ("init /proc/x", "ledgerstone: cannot make an environment in /proc/x: "),
        ("put @ t a b --hex", "1 hexadecimal digits do not make whole bytes: an even number is needed"),
        ("get @ t a --key-type u8", "the key: \"a\" is not of type u8"),
        ("index create @ t i nonsense", "\"nonsense\" does not say what to index by: write value, bytes:FROM..TO"),
        ("index lookup @ t i", "list the indexes with: ledgerstone index list DIR TABLE"),
        ("import @ t none.csv --key k", "cannot read none.csv: No such file or directory\n"),
        ("import @ t folder --key k", "cannot read folder: it is a directory"),
        (
            "import @ t x.csv.gz --key k",
            "cannot import x.csv.gz: it cannot be read after line 0: unexpected end of file\n",
        ),
        ("import @ t bad.csv --key k --delimiter ab", "--delimiter takes one byte, not \"ab\""),
        ("export @ t /nowhere/x.csv", "cannot write /nowhere/x.csv: No such file or directory\n"),
        (
            "export @ t a.csv --rows",
            "record 1: the value is not a JSON object, so it has no columns; export it without --rows\n",
        ),
        ("export @ t /dev/full", "cannot write /dev/full: No space left on device\n"),
        ("dump @ -o /dev/full", "cannot write /dev/full: No space left on device\n"),
        ("backup @ /dev/full --file", "cannot write /dev/full: No space left on device\n"),
        ("load @ bad.dump", "cannot load bad.dump: line 1 of the dump"),
        ("backup @ file", "file is a file: name a directory, or say --file"),
        ("backup @ one.backup --file", "one.backup is there already; a backup does not replace a file"),
        ("backup verify nowhere", "nowhere: no such file or directory"),
        ("restore nowhere x", "nowhere: no such file or directory"),
        ("restore one.backup x --log nowhere", "nowhere: no such file or directory"),
        (
            "restore one.backup x --to-time yesterday",
            "\"yesterday\" is not a time: write 2026-11-21T12:00:00Z, or seconds",
        ),
        ("repair nowhere --from one.backup", "nowhere: no such file or directory"),
        ("archive @ --archive nowhere", "nowhere: no such file or directory"),
        ("log nowhere", "nowhere: no such directory"),
        ("changes @ --forget me", "no feed is named me"),
        ("man file", "cannot write manual pages into file: "),
    ] {
        let found = shell.run(line);
        assert!(found.code != 0 && found.err.contains(said), "{line}: {} {}", found.code, found.err);
        assert!(!found.err.contains("os error") && !found.err.contains("read-only"), "{line}: {}", found.err);
    }
    let restored = shell.run("restore one.backup x");
    assert_eq!(restored.code, 0, "what failed left nothing: {}", restored.err);
}

#[test]
fn a_page_that_the_file_never_had_is_not_repaired() {
    let shell = Shell::new();
    shell.says("put @ t a 1", "");
    shell.says("backup @ one.backup --file", "");
    let bytes = || std::fs::metadata(shell.0.path().join("env/data")).unwrap().len();
    let before = bytes();
    let said = shell.run("repair @ --from one.backup --page 9999");
    assert_eq!((said.code, bytes()), (0, before), "{}{}", said.out, said.err);
    assert!(said.out.starts_with("no damaged pages"), "{}", said.out);
}

#[test]
fn different_values_look_different_wherever_they_are_shown() {
    let shell = Shell::new();
    shell.says("put @ t text \\xff", "");
    shell.says("put @ t lines -", ""); // Nothing comes in: an empty value.
    assert_eq!(shell.run_with("put @ t lines -", b"one\ntwo\n").code, 0);
    shell.says("put @ t 62797465 ff --hex", "");
    shell.says("get @ t text", "\\\\xff\n");
    shell.says("get @ t byte", "\\xff\n");
    shell.says("get @ t lines", "one\\ntwo\\n\n");
    shell.says("get @ t lines --raw", "one\ntwo\n");
    shell.says("scan @ t", "byte\t\\xff\nlines\tone\\ntwo\\n\ntext\t\\\\xff\n");
}

#[test]
fn no_command_takes_a_file_away_before_it_has_another() {
    let shell = Shell::new();
    for line in ["flash trace record kept", "probe domains --quick --out kept", "probe domains --quick --html kept"] {
        shell.file("kept", "mine");
        let said = shell.run(line);
        assert!(
            said.code == 2 && said.err.contains("kept is there already; --force replaces it"),
            "{line}: {}",
            said.err
        );
        assert_eq!(shell.text("kept"), "mine", "{line}");
    }
    assert_eq!(shell.run("probe domains --quick --out kept --force --quiet").code, 0);
    assert!(shell.text("kept").starts_with('{'));
    let left = std::fs::read_dir(shell.0.path()).unwrap().filter(|e| e.as_ref().unwrap().file_name() != "env").count();
    assert_eq!(left, 1, "and nothing beside it");
}

#[test]
fn numbers_and_bounds_that_mean_nothing_are_said_to() {
    let shell = Shell::new();
    shell.says("put @ t k v", "");
    for line in ["scan @ t --limit -1", "scan @ t --limit 1e3", "changes @ --limit x", "log @ --limit -5"] {
        let said = shell.run(line);
        assert!(
            said.code == 2 && said.err.contains("a whole number from 0 on is wanted, like 10"),
            "{line}: {}",
            said.err
        );
    }
    for line in ["changes @ --from x", "log @ --from -1"] {
        assert!(shell.run(line).err.contains("a whole number from 0 on"), "{line}");
    }
    for experiment in
        ["points --seconds nan", "scan --seconds 1", "gates --seconds 0", "device --seconds -1", "crowd --seconds inf"]
    {
        let said = shell.run(&format!("bench {experiment}"));
        assert!(said.code == 2 && !said.err.contains("panicked"), "{experiment}: {}", said.err);
        assert!(experiment.starts_with("scan") || said.err.contains("like 10 or 0.5"), "{experiment}: {}", said.err);
    }
    assert!(shell.run("bench gates --out nowhere/x").err.contains("cannot write nowhere/x"));
    assert!(shell.run("config env/data").err.contains("is a file, not a directory"));
    assert!(!shell.run("flash trace show env").err.contains("Is a directory: Is a directory"));
    let said = shell.run("changes @ --table nope");
    assert!(said.code == 0 && said.err.contains("no change of a table named nope"), "{}", said.err);
    let said = shell.run("load @ /dev/null");
    assert!(said.code == 0 && said.err.contains("there is no database in it: nothing was loaded"), "{}", said.err);
    shell.says("index create @ t i json:/a", "");
    let stat = shell.run("stat @").out;
    assert!(stat.contains(" t i json:/a false") && !stat.contains('{') && !stat.contains("null"), "{stat}");
    // Text and JSON have the same names; sizes are readable, unless bytes are asked for.
    let found: serde_json::Value = serde_json::from_str(&shell.run("--json stat @").out).unwrap();
    let mut names: Vec<String> = Vec::new();
    for (name, value) in found["stat"].as_object().unwrap() {
        match value.as_object() {
            Some(members) => names.extend(members.keys().map(|member| format!("{name}.{member}"))),
            None => names.push(name.clone()),
        }
    }
    assert!(names.iter().any(|name| name == "settings.cache_bytes"), "{names:?}");
    let value = |text: &str, name: &str| {
        let mut lines = text.lines().map(|line| line.trim().split_once(' ').unwrap_or((line.trim(), "")));
        lines.find(|(of, _)| *of == name).map(|(_, value)| value.trim().to_owned())
    };
    for name in &names {
        let shown = value(&stat, name).unwrap_or_else(|| panic!("{name} is missing in {stat}"));
        let is_size = name.contains("_bytes") && shown.parse::<f64>().is_ok();
        assert!(!is_size, "{name} is shown as {shown}, without a unit");
    }
    assert_eq!(value(&stat, "settings.feed_log_bytes_max").as_deref(), Some("1 GiB"));
    let exact = shell.run("stat @ --bytes").out;
    assert_eq!(value(&exact, "settings.feed_log_bytes_max").as_deref(), Some("1073741824"));
    let said = shell.run("scan @ t --from z --to a");
    assert!(said.code == 0 && said.err.contains("--from is not below --to"), "{}", said.err);
}

#[test]
fn no_file_of_an_environment_is_written_over() {
    let shell = Shell::new();
    shell.says("put @ t k v", "");
    for line in ["export @ t env/data", "dump @ -o env/control --force", "export @ t ./env/log/0000000000000000.seg"] {
        let said = shell.run(line);
        assert!(said.code == 2 && said.err.contains("it is a file of an environment"), "{line}: {}", said.err);
    }
    let said = shell.run_with("shell @", b".output env/data\ntables\n");
    assert!(said.out.starts_with("error usage: cannot write env/data: it is a file of an environment"), "{}", said.out);
    shell.says("get @ t k", "v\n");
    for force in ["", " --force"] {
        shell.says(&format!("export @ t env/other.jsonl -q{force}"), ""); // It is not the environment's.
    }
    let said = shell.run_with("import @ t - --format csv --delimiter \"", b"a,b\n");
    assert!(said.code == 2 && said.err.contains("has a meaning of its own in CSV"), "{}", said.err);
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
