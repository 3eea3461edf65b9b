//! The shell from a pipe: one line of answer a command, in order, whatever the timing.
#![allow(missing_docs)]

#[path = "common/shell.rs"]
mod shell;

use assert_cmd::Command;
use shell::{CITIES, Place, run};

/// Runs a script of `command => answer` lines; an answer that ends with `*` may go on.
fn check(code: i32, script: &str) {
    let pairs: Vec<(&str, &str)> = script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| line.split_once(" => ").unwrap_or((line, "")))
        .collect();
    let commands: String = pairs.iter().map(|(command, _)| format!("{command}\n")).collect();
    let said = run(&[], &commands);
    let wanted: Vec<&str> = pairs.iter().map(|(_, answer)| *answer).filter(|answer| !answer.is_empty()).collect();
    let is_alike = |line: &String, wanted: &&str| match wanted.strip_suffix('*') {
        Some(start) => line.starts_with(start),
        None => line == wanted,
    };
    let is_good =
        said.lines.len() == wanted.len() && said.lines.iter().zip(&wanted).all(|(line, wanted)| is_alike(line, wanted));
    assert!(is_good, "wanted {wanted:#?}\nfound {:#?}\n{}", said.lines, said.err);
    assert_eq!(said.code, code, "{}", said.err);
}

#[test]
fn each_command_is_answered_by_one_line_in_order() {
    check(
        0,
        r#"
        # a comment is not a command
        create fruit => ok
        put fruit apple red => ok
        put fruit 'two words' "a\nb" => ok
        put fruit x'00ff' u32:258 => ok
        get fruit apple => ok red
        put fruit plum 'deep blue'; => ok
        get fruit "plum"; => ok "deep blue"
        del fruit 'plum' ; => ok
        get fruit 'two words' => ok "a\nb"
        get fruit "\x00\xff" => ok "\x00\x00\x01\x02"
        get fruit pear => none
        scan fruit from a limit 1 => ok 1 apple=red
        scan fruit reverse keys => ok 3 "two words" apple "\x00\xff"
        scan fruit prefix two => ok 1 "two words"="a\nb"
        count fruit => ok 3
        tables => ok 1 fruit
        del fruit apple => ok
        del fruit apple => none
        checkpoint => ok
        verify => ok 0
        help get => ok 1 "get TABLE KEY [for-update]"
        stat => ok *
        drop fruit => ok
        tables => ok 0
        "#,
    );
}

#[test]
fn tables_are_indexed_renamed_followed_and_compacted() {
    check(
        1,
        r#"
        create people => ok
        index people by_city field:2:; => ok
        index people by_name field:1:; unique => ok
        indexes people => ok 2 by_city=field:2:; by_name="field:1:; unique"
        put people 1 Ada;Bern => ok
        put people 2 Max;Bern => ok
        put people 3 Ada;Rome => error index-key-exists: *
        lookup people by_city is Bern => ok 2 1=Ada;Bern 2=Max;Bern
        lookup people by_city is Bern reverse limit 1 => ok 1 2=Max;Bern
        lookup people by_name keys => ok 2 Ada=1 Max=2
        lookup people by_name prefix M => ok 1 2=Max;Bern
        lookup people by_name from Max => ok 1 2=Max;Bern
        lookup people by_street is Bern => error no-such-index: *
        begin a => ok
        del people 1 => ok
        lookup people by_city is Bern keys => ok 1 Bern=2
        abort => ok
        lookup people by_city is Bern keys => ok 2 Bern=1 Bern=2
        changes limit 1 => ok 1 *
        rename people folk => ok
        unindex folk by_name => ok
        put folk 3 Ada;Rome => ok
        compact => ok *
        verify => ok 0
        "#,
    );
}

/// No line of a quoted text is a command, whatever it says and whatever is wrong with the command.
#[test]
fn a_quote_goes_on_in_the_next_line() {
    let place = Place::new();
    let text = "first line\ndrop fruit\n\n# not a comment\nlast line";
    let script = format!(
        "create fruit\nput fruit apple red\ncreate keep\nput keep note '{text}'\nget keep note\n\
         put keep two \"a\ndrop fruit\n\\\"b\" # it's\nget keep two\n\
         put keep bad \"\\q\ndrop fruit\n\"\nput 'a'b 'c\ndrop fruit\n'\nnothing 'a\ndrop fruit\n'\n"
    );
    let end = "get fruit apple\nput keep open 'a\ndrop fruit\nget keep note\n";
    let answers = [
        "ok",
        "ok",
        "ok",
        "ok",
        "ok \"first line\\ndrop fruit\\n\\n# not a comment\\nlast line\"",
        "ok",
        "ok \"a\\ndrop fruit\\n\\\"b\"",
        "error usage: \\q means nothing in double quotes; write \\\\ for a backslash",
        "error usage: put a blank after the quote that closes at letter 7",
        "error usage: there is no command \"nothing\"; help lists them",
        "ok red",
        "error usage: the quote opened at letter 15 is never closed; the 2 lines behind it were not run",
    ];
    let said = place.shell(&format!("{script}{end}"));
    assert_eq!((&said.lines[..], said.code), (&answers.map(str::to_owned)[..], 1), "{}", said.err);
    // The same from a file; what is open at its end does not reach into what reads it.
    std::fs::write(place.0.path().join("script"), script + end).unwrap();
    let said = place.shell("drop fruit\ndrop keep\n.read script\nget fruit apple\n");
    assert_eq!((&said.lines[2..14], &said.lines[14..]), (&answers.map(str::to_owned)[..], &["ok red".to_owned()][..]));
    // Bytes that are not text belong to their command, too.
    let mut command = Command::cargo_bin("ledgerstone").unwrap();
    command.current_dir(place.0.path()).args(["shell", "env"]);
    let output = command.write_stdin(&b"put keep k '\xff\ndrop fruit\n'\nget fruit apple\n"[..]).output().unwrap();
    let wanted = "error usage: the line is not UTF-8; write bytes as x'00ff'\nok red\n";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), wanted);
}

#[test]
fn it_goes_on_after_an_error_and_the_exit_code_says_that_there_was_one() {
    check(
        1,
        r#"
        create t => ok
        create t => error table-exists: *
        get strange k => error no-such-table: *
        nonsense => error usage: there is no command "nonsense"*
        put t k => error usage: VALUE is missing*
        commit => error no-such-transaction: *
        use a => error no-such-transaction: *
        wait => error nothing-to-wait-for: *
        begin auto => error usage: *
        insert t k 1 => ok
        insert t k 2 => error key-exists: *
        get t k => ok 1
        "#,
    );
}

#[test]
fn transactions_are_isolated_and_a_waiting_one_does_not_stop_the_shell() {
    check(
        0,
        "
        create t => ok
        put t k old => ok
        begin a => ok
        begin b => ok
        @a put t k new => ok
        @b get t k => waiting for a
        transactions => ok 2 a b
        @a get t k => ok new
        @a commit => ok
        wait b => ok new
        commit b => ok
        get t k => ok new
        ",
    );
}

/// Its transactions are its own, and have no name here.
#[test]
fn a_command_of_the_whole_environment_says_whom_it_waits_for() {
    check(
        0,
        "create t => ok
         begin z => ok
         put t k 1 => ok
         verify => waiting for z
         transactions => ok 2 auto z
         commit z => ok
         wait auto => ok 0
        ",
    );
}

#[test]
fn one_that_waits_through_another_waits_until_both_have_ended() {
    check(
        1,
        "
        create t => ok
        begin a => ok
        begin b => ok
        begin c => ok
        @a put t 1 a => ok
        @b put t 2 b => ok
        @b put t 1 b => waiting for a
        @c put t 2 c => waiting for b
        @b get t 2 => error busy: *
        abort b => error busy: *
        @auto get t 2 => waiting for b*
        @a abort => ok
        @b commit => error busy: *
        wait b => ok
        @b commit => ok
        wait c => ok
        @c commit => ok
        wait auto => ok c
        get t 1 => ok b
        ",
    );
}

#[test]
fn a_deadlock_ends_one_transaction_and_the_other_goes_on() {
    check(
        1,
        "
        create t => ok
        begin a => ok
        begin b => ok
        @a put t 1 a => ok
        @b put t 2 b => ok
        @a put t 2 a => waiting for b
        @b put t 1 b => error deadlock: *
        wait a => ok
        commit b => error no-such-transaction: *
        commit a => ok
        scan t => ok 2 1=a 2=a
        ",
    );
}

#[test]
fn a_lock_timeout_leaves_the_transaction_standing() {
    let said = run(
        &[],
        "create t\nbegin a\nput t k a\nbegin b timeout 20ms\nput t other b\nget t k\nwait\ncommit\n@a commit\nget t other\n",
    );
    // On a busy machine the time may be over before the shell has seen that it waits.
    let (get, wait) = (&said.lines[5], &said.lines[6]);
    let timed_out = |line: &str| line.starts_with("error lock-timeout: ");
    let is_seen = get == "waiting for a" && timed_out(wait);
    assert!(is_seen || timed_out(get) && wait.starts_with("error nothing-to-wait-for: "), "{:#?}", said.lines);
    assert_eq!(said.lines[7..], ["ok", "ok", "ok b"]);
    assert_eq!(said.code, 1, "{}", said.err);
}

#[test]
fn each_isolation_level_can_be_watched() {
    check(
        1,
        "
        create t => ok
        put t k old => ok
        begin s snapshot => ok
        begin c read-committed => ok
        begin u read-uncommitted read-only => ok
        @s get t k => ok old
        begin w => ok
        @w put t k new => ok
        @s get t k => ok old
        @c get t k => ok old
        @u get t k => ok new
        @u put t k mine => error read-only: *
        @w commit => ok
        @s get t k => ok old
        @c get t k => ok new
        @s put t k other => error snapshot-conflict: *
        @s abort => ok
        @c commit => ok
        @u commit => ok
        ",
    );
}

#[test]
fn prepared_transactions_keep_their_locks_until_they_are_decided() {
    check(
        1,
        "
        create t => ok
        begin a => ok
        put t k a => ok
        prepare 'order 7' => ok
        commit => error no-such-transaction: *
        in-doubt => ok 1 \"order 7\"
        begin b timeout 5min => ok
        get t k => waiting for \"order 7\"
        decide commit 'order 7' => ok
        wait b => ok a
        decide abort 'order 7' => error not-prepared: *
        in-doubt => ok 0
        commit => ok
        ",
    );
}

#[test]
fn savepoints_take_back_what_came_after_them() {
    check(
        1,
        "
        create t => ok
        begin => ok
        put t k 1 => ok
        savepoint s => ok
        put t k 2 => ok
        create u => ok
        rollback to s => ok
        get t k => ok 1
        put u k 1 => error no-such-table: *
        rollback to strange => error no-savepoint: *
        release s => ok
        rollback to s => error no-savepoint: *
        commit => ok
        get t k => ok 1
        ",
    );
}

#[test]
fn what_is_open_at_the_end_is_rolled_back_and_named() {
    let said = run(&[], "create t\nbegin a\nput t k 1\nbegin b\n@b put t k 2\n");
    assert_eq!(said.lines, ["ok", "ok", "ok", "ok", "waiting for a"]);
    assert!(
        said.code == 0 && said.err.contains("rolled back, because they were open at the end: a, b"),
        "{}",
        said.err
    );
}

#[test]
fn json_answers_are_an_object_a_line() {
    let said = run(
        &["--json"],
        "create t\nput t k v\nscan t\nget t none\nnonsense\n.mode plain\n.timer on\ncount t\nquit\ncount t\n",
    );
    assert_eq!(
        said.lines[..4],
        [
            r#"{"ok":true,"done":true}"#,
            r#"{"ok":true,"key":"k","done":true}"#,
            r#"{"ok":true,"more":false,"records":[{"key":"k","value":"v"}]}"#,
            r#"{"ok":true,"key":"none","value":null}"#,
        ]
    );
    assert!(said.lines[4].starts_with(r#"{"ok":false,"message":"#) && said.lines[4].contains(r#""error":"usage""#));
    assert!(said.lines[5] == "ok" && said.lines[7].starts_with("ok 1 (") && said.lines.len() == 8, "{:?}", said.lines);
    assert_eq!(said.code, 1);
}

#[test]
fn bytes_that_are_no_text_are_answered_too() {
    let dir = tempfile::tempdir().unwrap();
    let env = dir.path().join("env");
    let ledgerstone = || Command::cargo_bin("ledgerstone").unwrap();
    ledgerstone().arg("init").arg(&env).assert().success();
    let output = ledgerstone().arg("shell").arg(&env).write_stdin(&b"\xff\xfe\ntables\n"[..]).output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(out.lines().collect::<Vec<_>>(), ["error usage: the line is not UTF-8; write bytes as x'00ff'", "ok 0"]);
    assert_eq!(output.status.code(), Some(1));
    let none = ledgerstone().arg("shell").arg(dir.path().join("nowhere")).write_stdin("tables\n").output().unwrap();
    assert_eq!((none.status.code(), none.stdout.len()), (Some(2), 0));
}

#[test]
fn records_of_another_type_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let env = ledgerstone::Environment::options().open(dir.path().join("env")).unwrap();
    const STOCK: ledgerstone::TableDef<u64, f64> = ledgerstone::TableDef::new("stock");
    const NAMES: ledgerstone::TableDef<String, String> = ledgerstone::TableDef::new("names");
    env.transact(|txn| {
        txn.open(STOCK)?.put(&1, &0.5)?;
        txn.open(NAMES)?.put(&"a".to_string(), &"b".to_string())
    })
    .unwrap();
    env.close().unwrap();
    let script = "put stock apple x'0000000000000000'\nput stock u64:2 dear\nput stock u64:2 x'0000000000002840'\n\
        insert stock u32:3 x'0000000000002840'\nput names a x'ff'\nput names x'ff' b\nput names c d\n";
    let mut shell = Command::cargo_bin("ledgerstone").unwrap();
    let output = shell.arg("shell").arg(dir.path().join("env")).write_stdin(script).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let wrong = |what: &str, name: &str| format!("error wrong-type: the {what} is not of type {name}");
    let expected = [
        wrong("key", "u64"),
        wrong("value", "f64"),
        "ok".into(),
        wrong("key", "u64"),
        wrong("value", "string"),
        wrong("key", "string"),
        "ok".into(),
    ];
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, expected) in lines.iter().zip(&expected) {
        assert!(line.starts_with(expected.as_str()), "{line}, not {expected}");
    }
}

#[test]
fn numbers_are_typed_as_the_table_says() {
    let dir = tempfile::tempdir().unwrap();
    let env = ledgerstone::Environment::options().open(dir.path().join("env")).unwrap();
    const STOCK: ledgerstone::TableDef<u64, f64> = ledgerstone::TableDef::new("stock");
    env.transact(|txn| txn.open(STOCK)?.put(&7, &0.5)).unwrap();
    env.close().unwrap();
    // Eight letters would be the bytes of a number.
    let script = "put stock abcdefgh 1\nput stock 8 abcdefgh\nput stock 8 '1.5'\nget stock 8\nget stock u64:8\n\
        get stock eight\ndel stock 7\nscan stock from 8 to 9 keys\nscan stock from eight\n";
    let mut shell = Command::cargo_bin("ledgerstone").unwrap();
    let output = shell.arg("shell").arg(dir.path().join("env")).write_stdin(script).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let value = "ok 1.5";
    let wanted = [
        r#"error wrong-type: the key is not of type u64: "abcdefgh""#,
        r#"error wrong-type: the value is not of type f64: "abcdefgh""#,
        "ok",
        value,
        value,
        r#"error wrong-type: the key is not of type u64: "eight""#,
        "ok",
        "ok 1 8",
        r#"error wrong-type: the key is not of type u64: "eight""#,
    ];
    let found: Vec<&str> = text.lines().collect();
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    assert_eq!(found, wanted);
}

#[test]
fn answers_are_shown_as_the_tables_types_say() {
    let dir = tempfile::tempdir().unwrap();
    let env = ledgerstone::Environment::options().open(dir.path().join("env")).unwrap();
    const STOCK: ledgerstone::TableDef<u64, f64> = ledgerstone::TableDef::new("stock");
    let index = ledgerstone::IndexDef::new("by_name", ledgerstone::IndexKeys::Json("name".into()));
    env.transact(|txn| {
        txn.open(STOCK)?.put(7, 0.5)?;
        let people = txn.bytes_or_create("people")?;
        people.put(b"1", br#"{"name":"Ada"}"#)?;
        txn.create_index("people", &index)
    })
    .unwrap();
    env.close().unwrap();
    let script = "scan stock\nget stock 7\nlookup people by_name keys\n.mode json\nscan stock\nget stock 7\n\
        lookup people by_name keys\n.mode list\nscan stock\nscan stock keys\n.mode csv\nscan stock\n";
    let mut shell = Command::cargo_bin("ledgerstone").unwrap();
    let output = shell.arg("shell").arg(dir.path().join("env")).write_stdin(script).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let wanted = [
        "ok 1 7=0.5",
        "ok 0.5",
        "ok 1 Ada=1",
        r#"{"ok":true,"done":true}"#,
        r#"{"ok":true,"more":false,"records":[{"key":7,"value":0.5}]}"#,
        r#"{"ok":true,"key":7,"value":0.5}"#,
        r#"{"ok":true,"more":false,"records":[{"key":"1","index_key":"Ada","index_key_kind":"text"}]}"#,
        "ok",
        "7\t0.5",
        "7",
        "ok",
        "key,value",
        "7,0.5",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), wanted);
}

#[test]
fn the_shell_has_the_commands_of_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(file("fruit.csv"), "name,colour\napple,red\npear,green\n").unwrap();
    let script = format!(
        "create t\n\
         .import '{csv}' fruit --key name --value colour\n\
         import more '{csv}' --key name\n\
         scan fruit\n\
         export fruit --format csv\n\
         .output '{out}'\n\
         export fruit --format csv\n\
         .output\n\
         dump -o '{dump}'\n\
         drop more\n\
         load '{dump}'\n\
         count more\n\
         backup '{backups}'\n\
         backup verify '{backups}'\n\
         prepared list\n\
         config\n\
         import fruit - --key name\n\
         import fruit '{none}' --key name\n\
         export nothing\n\
         import fruit\n\
         begin\n\
         export fruit\n\
         abort\n\
         repair --from x\n\
         bench points\n\
         help export\n\
         verify\n",
        csv = file("fruit.csv"),
        out = file("out"),
        dump = file("dump"),
        backups = file("backups"),
        none = file("none.csv")
    );
    let said = run(&[], &script);
    let lines: Vec<&str> = said.lines.iter().map(String::as_str).filter(|line| !line.contains("built-in")).collect();
    let starts = [
        "ok",
        "ok",
        "ok",
        "ok 2 apple=red pear=green",
        "key,value",
        "apple,red",
        "pear,green",
        "ok",
        "ok", // .output
        "ok", // back again: what was between is in the file
        "ok", // dump
        "ok",
        "ok", // load
        "ok 2",
        "", // the backup
        "ok",
        "1 chain, ",
        "ok",
        "ok", // no transaction in doubt
    ];
    for (no, (line, start)) in lines.iter().zip(starts).enumerate() {
        assert!(line.starts_with(start), "{no}: {line} where {start} is wanted: {lines:#?}");
    }
    for wanted in [
        "error usage: the shell itself reads standard input: name a file",
        "error io: cannot read ",
        "error no-such-table: ",
        "error usage: the following required arguments were not provided",
        "error usage: transactions are open (t); end them first",
        "error usage: the following required arguments were not provided: <DIR>",
        "error usage: bench does not work on this environment: leave with quit, and type: ledgerstone bench ...",
    ] {
        assert!(lines.iter().any(|line| line.starts_with(wanted)), "{wanted}: {lines:#?}");
    }
    assert_eq!(lines.last(), Some(&"ok 0"));
    assert_eq!(std::fs::read_to_string(file("out")).unwrap(), "key,value\napple,red\npear,green\nok\n");
    assert_eq!(said.code, 1);
}

#[test]
fn index_keys_are_typed_as_on_the_command_line() {
    let place = Place::new();
    std::fs::write(place.0.path().join("cities.csv"), CITIES).unwrap();
    let said = place.shell(
        "import cities cities.csv --types auto\nindex cities by_size json:size\nlookup cities by_size is 30 keys\n\
         lookup cities by_size from 2 to 31 keys\nlookup cities by_size from 2 to 31 reverse limit 1 keys\n\
         lookup cities by_size is x keys\nlookup cities by_size prefix x keys\nlookup cities by_size is x'78' keys\n",
    );
    let wanted = [
        "ok",
        "ok",
        "ok 1 30=Rome",
        "ok 2 4=Oslo 30=Rome",
        "ok 1 30=Rome",
        "ok 1 x=Parma",
        "ok 1 x=Parma",
        "ok 1 x=Parma",
    ];
    assert_eq!(said.lines, wanted, "{}", said.err);
    // The same from the command line.
    let outside =
        place.run(&["index", "lookup", "env", "cities", "by_size", "--from", "2", "--to", "31", "--keys-only"], "");
    assert_eq!(outside.lines, ["4\tOslo", "30\tRome"]);
    let numbers = place.shell("put n 1 a --key-type u64\nscan n prefix 1\nscan n from 0 to 2\n");
    assert_eq!(numbers.lines[..2], ["ok", "error wrong-type: numbers have no beginnings: say from which to which"]);
    assert_eq!(numbers.lines[2..], ["ok 1 1=a"]);
}

#[test]
fn json_in_the_shell_has_the_members_of_the_command_line() {
    let place = Place::new();
    place.shell("create t\nput t a 1\nindex t i value\nput t b 2\n");
    let parse = |line: &String| serde_json::from_str::<serde_json::Value>(line).unwrap();
    for (inside, outside) in [
        ("changes", &["changes", "env"][..]),
        ("indexes t", &["index", "list", "env", "t"]),
        ("tables", &["tables", "env"]),
        ("scan t", &["scan", "env", "t"]),
        ("lookup t i", &["index", "lookup", "env", "t", "i"]),
        ("in-doubt", &["prepared", "list", "env"]),
    ] {
        let told = parse(&place.run(&["shell", "env", "--json"], inside).lines[0]);
        let lines: Vec<_> = place.run(&[outside, &["--json"]].concat(), "").lines.iter().map(parse).collect();
        assert_eq!(told["records"].as_array().unwrap(), &lines, "{inside}");
    }
    for (inside, outside) in [
        ("verify", &["verify", "env"][..]),
        ("get t a", &["get", "env", "t", "a"]),
        ("get t c", &["get", "env", "t", "c"]),
        ("put t c 1", &["put", "env", "t", "c", "1"]),
        ("del t z", &["del", "env", "t", "z"]),
    ] {
        let mut told = parse(&place.run(&["shell", "env", "--json"], inside).lines[0]);
        assert_eq!(told.as_object_mut().unwrap().remove("ok"), Some(true.into()), "{inside}");
        assert_eq!(told, parse(&place.run(&[outside, &["--json"]].concat(), "").lines[0]), "{inside}");
    }
    let done = place.run(&["shell", "env", "--json"], "del t c\ndel t c\ncheckpoint\nstat\n").lines;
    assert_eq!(done[..2], [r#"{"ok":true,"key":"c","done":true}"#, r#"{"ok":true,"key":"c","done":false}"#]);
    assert!(parse(&done[2])["checkpoint_lsn"].is_u64() && parse(&done[3])["recovery"].is_object(), "{done:?}");
}

#[test]
fn options_of_the_command_line_work_in_the_transaction_too() {
    let place = Place::new();
    let script = "create t
put t a 1
begin w
put t b 2
scan t --hex
tables --count
put t a 3 --new
get t 61 --hex
put n 7 x --key-type u64
get n 7
index create t i value --unique
index lookup t i 2
index list
del t b --key-type text
index drop t i
abort
scan t --keys-only
get n 7
changes --table t --limit 1
changes --name feed --limit 1
changes --forget feed
@x scan t --hex
scan t --hexx
put t '--c' --d
put t q '--d'
put t '--hex' '-v'
get t '--hex' --key-type text
scan t --prefix '--h'
scan t --prefix '--h' --reverse
get t '--none' --hex
";
    let said = place.shell(script);
    let wanted = [
        "ok",
        "ok",
        "ok",
        "ok",
        "61\t31",
        "62\t32",
        "ok",
        "t\t2",
        "ok",
        "error not-all",
        "31",
        "ok",
        "ok",
        "ok x",
        "ok",
        "2\tb\t2",
        "ok",
        "t\ti\tvalue\tunique",
        "ok",
        "ok",
        "ok",
        "ok",
        "a",
        "ok",
        "error no-such-table",
        "",
    ];
    for (no, (line, wanted)) in said.lines.iter().zip(wanted).enumerate() {
        assert!(line.starts_with(wanted), "{no}: {line} where {wanted} is wanted: {:#?}\n{}", said.lines, said.err);
    }
    for wanted in [
        "error no-such-transaction",
        "error usage: unexpected argument '--hexx' found",
        "error usage: unexpected argument '--d' found",
    ] {
        assert!(said.lines.iter().any(|line| line.starts_with(wanted)), "{wanted}: {:#?}", said.lines);
    }
    let last = &said.lines[said.lines.len() - 9..];
    let quoted = ["ok", "ok", "-v", "ok", "--hex\t-v", "ok", "--hex\t-v", "ok"];
    assert_eq!(last[..8], quoted, "a quoted word is not an option: {:#?}", said.lines);
    assert!(last[8].contains("even number") || last[8].contains("hex"), "{}", last[8]);
    assert!(!said.lines.iter().any(|line| line.contains("Usage") || line.contains("\\n")), "{:#?}", said.lines);
}

#[test]
fn a_command_with_options_waits_for_one_in_doubt_as_others_do() {
    let said =
        run(&[], "create t\nbegin\nput t k v\nprepare p\nscan t --hex\ndecide commit p\nwait auto\nscan t --hex\n");
    let wanted = ["ok", "ok", "ok", "ok", "waiting for p", "ok", "6b\t76", "ok", "6b\t76", "ok"];
    assert_eq!(said.lines, wanted, "{}", said.err);
}

#[test]
fn environments_elsewhere_are_made_and_mended_from_the_shell() {
    let place = Place::new();
    let said = place.shell(
        "create t\nput t k v\nbackup saved\ninit other\nrestore saved again\nrecover again\nrepair again --from saved\n\
         restore saved env\nrecover ./env\nrepair env --from saved\ninit env\nshell env\nhelp recover\nopen again\nget t k\n",
    );
    for wanted in [
        "error usage: env is the environment that is open here: name a new directory to restore into",
        "error usage: ./env is open here, and was recovered when it was opened",
        "error usage: env is open here: leave with quit, and type: ledgerstone repair env ...",
        "error usage: env is an environment already, the one that is open here",
        "error usage: shell does not work on this environment: leave with quit, and type: ledgerstone shell ...",
    ] {
        assert!(said.lines.iter().any(|line| line == wanted), "{wanted}: {:#?}\n{}", said.lines, said.err);
    }
    // The copy is another life of the environment: it is repaired from backups of its own.
    assert!(said.lines.iter().any(|line| line.starts_with("error corrupt: ") && line.contains("another life")));
    assert_eq!(said.lines.iter().filter(|line| line.starts_with("error")).count(), 6, "{:#?}", said.lines);
    assert_eq!(said.lines.last().map(String::as_str), Some("ok v"), "{:#?}", said.lines);
    assert!(place.0.path().join("other/control").exists());
}

#[test]
fn odd_lines_are_answered_and_the_shell_goes_on() {
    check(
        1,
        r#"
        CREATE t => ok
        Put t k v => ok
        SCAN t FROM a LIMIT 5 => ok 1 k=v
        .read . => error usage: cannot read .: it is a directory
        begin read-committed snapshot => error usage: the level is given twice
        begin a timeout 1s timeout 2s => error usage: timeout is given twice
        scan t from a from b => error usage: from is given twice
        scan t limit 1 limit 2 => error usage: limit is given twice
        lookup t i prefix a prefix b => error usage: prefix is given twice
        savepoint s => error no-such-transaction: a savepoint is a point of a transaction*
        release s => error no-such-transaction: *
        put t "\q" v => error usage: \q means nothing in double quotes; write \\ for a backslash
        exit now => error usage: "now" is not understood; write: quit
        get t k => ok v
        "#,
    );
    let place = Place::new();
    let said = place.shell("open env\nopen ./env\ntables\n.output ''\nput t k v --new\nget t k --raw\nload nope\n");
    let open = |dir: &str| format!("error usage: {dir} is the environment that is open here");
    let no_file = "error usage: cannot write \"\": it is not the name of a file".to_owned();
    let missing = "error io: cannot read nope: No such file or directory".to_owned();
    let wanted = [open("env"), open("./env"), "ok 0".into(), no_file, "ok".into(), "v".into(), "ok".into(), missing];
    assert_eq!(said.lines, wanted);
}
