//! Messages of errors: what failed, on what, and what to do.

use std::path::Path;

use assert_cmd::Command;

use crate::common::Shell;

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
        ("import @ t file --key k", "the name \"file\" does not tell the format of the file: say --format"),
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
fn an_error_of_the_system_is_io_to_programs_whoever_met_it() {
    let shell = Shell::new();
    shell.says("put @ fruit apple red", "");
    for line in ["--json dump @ -o no/such/dir", "--json dump @ -o /dev/full", "--json export @ fruit /dev/full"] {
        shell.refuses(line, "\"kind\":\"io\"");
    }
}

#[test]
fn a_file_in_the_place_of_a_directory_is_called_one() {
    let shell = Shell::new();
    for line in ["get /etc/passwd t k", "put /etc/passwd t k v", "tables /etc/passwd", "shell /etc/passwd"] {
        shell.refuses(line, "it is a file, not a directory");
    }
}

#[test]
fn standard_input_is_named_in_words() {
    let shell = Shell::new();
    for (line, input, expected) in [
        ("import @ t -", "", "standard input has no name that tells its format: say --format csv, tsv or jsonl"),
        ("import @ t - --format csv", "", "cannot import standard input: the file is empty"),
        ("import @ t - --format csv --key x", "a,b\n", "standard input has no column \"x\"; its columns are: a, b"),
        ("import @ t - --format csv", "a,b\n1,2\n3\n", "standard input: line 3: 1 field where the header names 2"),
        ("load @ -", "nothing\n", "cannot load standard input: line 1 of the dump"),
    ] {
        let said = shell.run_with(line, input.as_bytes());
        assert!(said.code == 2 && said.err.contains(expected), "{line}: {}", said.err);
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
fn numbers_and_bounds_that_mean_nothing_are_said_to() {
    let shell = Shell::new();
    shell.says("put @ t k v", "");
    for line in ["scan @ t --limit -1", "scan @ t --limit 1e3", "changes @ --limit x", "log @ --limit -5"] {
        shell.refuses(line, "a whole number from 0 on is wanted, like 10");
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
    assert!(said.code == 0 && said.err.contains("the dump names no database: nothing was loaded"), "{}", said.err);
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
