//! Habits from SQLite's shell that work in this one: dot commands, modes, files that are read and written.
#![allow(missing_docs)]

#[path = "common/shell.rs"]
mod shell;

use shell::{CITIES, Place, run};

#[test]
fn what_sqlite_s_shell_has_works_here() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(file("script"), "put t b 2;\nget t b\nget t\n").unwrap();
    std::fs::write(file("again"), format!(".read '{}'\n", file("again"))).unwrap();
    let script = format!(
        ".tables\ncreate t;\nput t a 1 ;\nput t c 'x;'\nget t c\n.read '{}'\n.output '{}'\nscan t;\n.output\n.tables;\n\
         .read '{}'\n.read '{}'\n.quit\nput t z 9\n",
        file("script"),
        file("out"),
        file("none"),
        file("again")
    );
    let said = run(&[], &script);
    let expected =
        ["ok 0", "ok", "ok", "ok", "ok \"x;\"", "ok", "ok 2", "error usage: KEY is missing", "ok", "ok", "ok 1 t"];
    for (line, expected) in said.lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line} where {expected} is wanted: {:#?}", said.lines);
    }
    let none = format!("error usage: cannot read {}: No such file or directory", file("none"));
    assert_eq!(said.lines[11], none);
    assert!(said.lines[12].contains("too many files"), "{:#?}", said.lines);
    assert_eq!((said.lines.len(), said.code), (13, 1));
    assert_eq!(std::fs::read_to_string(file("out")).unwrap(), "ok 3 a=1 b=2 c=\"x;\"\n");
}

#[test]
fn habits_from_sqlite_s_shell_are_understood() {
    let place = Place::new();
    std::fs::write(place.0.path().join("cities"), CITIES).unwrap();
    let said = place.shell(
        ".output out\ntables\n.output stdout\ntables\n.import --csv --skip 1 cities cities\n.import -csv cities more\n\
         scan cities keys\ncount more\n.import --skip 2 cities less --csv\n.import --csv --skip 1 cities less --columns a,b\n\
         index cities i field:1:; unique\n.output 'stdout'\ntables\n",
    );
    let names = "error usage: the first line names the columns, and every other is a row: leave --skip out, or say \
                 --skip 1 without --columns";
    let wanted = ["ok", "ok", "ok 0", "ok", "ok", "ok 4 Bern Oslo Parma Rome", "ok 4", names, names];
    assert_eq!(said.lines[..wanted.len()], wanted.map(str::to_owned), "{}", said.err);
    assert_eq!(said.lines[wanted.len()..], ["ok", "ok"], "{}", said.err);
    let file = |name: &str| std::fs::read_to_string(place.0.path().join(name)).unwrap();
    assert_eq!((file("out"), file("stdout")), ("ok 0\n".into(), "ok 2 cities more\n".into()));
}

#[test]
fn the_list_of_commands_fits_a_terminal() {
    let place = Place::new();
    let said = place.shell(".mode table\nhelp\nhelp begin\n");
    for line in &said.lines {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let has = |text: &str| assert!(said.lines.iter().any(|line| line.contains(text)), "{text}: {:#?}", said.lines);
    has(" del TABLE KEY                  Delete a key.");
    has(" lookup TABLE INDEX [is KEY] [from KEY] [to KEY] [prefix KEY] [reverse] [limit");
    has("     N] [keys]");
    has(" init ...                       Make a new environment.");
}

/// They are answered one by one, as if each had a line of its own.
#[test]
fn a_line_may_have_several_commands() {
    let place = Place::new();
    std::fs::write(place.0.path().join("more"), "put t f 6; get t f; nonsense; get t f;\n").unwrap();
    let said = place.shell(
        "create t; begin; put t a 1; commit\nget t a --raw; get t none; put; count t ;\nput t b '1; 2\n3'; get t b; count\n\
         @x begin x; begin y; @x put t c 1; @y put t c 2; commit x; wait y; abort y; count t\n.read more; count t\n\
         put t q 1; get t 'open\n",
    );
    let wanted = [
        &["ok"; 4][..],
        &["1", "ok", "none", "error usage: TABLE is missing; write: put TABLE KEY VALUE", "ok 1"],
        &["ok", "ok \"1; 2\\n3\"", "error usage: TABLE is missing; write: count TABLE"],
        &["ok", "ok", "ok", "waiting for x", "ok", "ok", "ok", "ok 3"],
        &["ok", "ok 6", "error usage: there is no command \"nonsense\"; help lists them", "ok 6", "ok 4"],
        &["ok", "error usage: the quote opened at letter 8 is never closed"],
    ];
    assert_eq!(said.lines, wanted.concat(), "{}", said.err);
}

/// A change is a line in which every part ends where one sees it: the same in the shell as outside.
#[test]
fn quotes_in_values_are_escaped_where_changes_show_them() {
    let place = Place::new();
    let said = place.shell("create t\nput t 'two words' 'a\nb\tc\"d\\'\nput t k '(none)'\n.mode list\nchanges\n");
    let after = |line: &String| line.split_once('\t').map(|(_, change)| change.to_owned());
    let shown: Vec<_> = said.lines.iter().filter_map(after).collect();
    let value = r#""a\nb\tc\"d\\""#;
    let wanted =
        ["t (created)".to_owned(), format!("t \"two words\" (none) {value}"), "t k (none) \"(none)\"".to_owned()];
    assert_eq!(shown, wanted, "{:#?}", said.lines);
    let outside: Vec<_> = place.run(&["changes", "env"], "").lines.iter().filter_map(after).collect();
    let wanted =
        ["t\t(created)".to_owned(), format!("t\ttwo words\t(none)\t{value}"), "t\tk\t(none)\t\"(none)\"".to_owned()];
    assert_eq!(outside, wanted);
}

/// What a table has comes into the file, all of it, and can be imported again.
#[test]
fn csv_in_a_file_is_what_the_table_has() {
    let place = Place::new();
    let mut script = "create t\nput t p 'C:\\new'\nput t q 'a\nb \"c\", d'\nput t r \"\\x1b\\r\"\nbegin\n".to_owned();
    script.extend((0..1500).map(|no| format!("put t u{no:04} {no}\n")));
    script += "commit\n.mode csv\n.output t.csv\nscan t\n.output\nscan t\n.mode list\n.output t.list\nscan t keys\n\
        changes\n.output\n.mode plain\nimport u t.csv --key key --value value\ncount u\nget u p\nget u q\nget u r\n\
        create raw\nput raw k x'ff'\n.mode csv\n.output raw.csv\nscan raw\n";
    let said = place.shell(&script);
    let file = |name: &str| std::fs::read_to_string(place.0.path().join(name)).unwrap();
    let csv = file("t.csv");
    assert!(csv.starts_with("key,value\np,C:\\new\nq,\"a\nb \"\"c\"\", d\"\nr,\"\x1b\r\"\nu0000,0\n"), "{csv:?}");
    assert!(csv.ends_with("u1499,1499\n"));
    let keys = 1503;
    assert_eq!(file("t.list").lines().filter(|line| !line.contains('\t')).count(), keys);
    let changes = 1 + keys;
    assert_eq!(file("t.list").lines().count(), keys + changes);
    // The same to a program: `scan` there is neither cut nor escaped.
    let out = said.lines.join("\n");
    assert!(out.contains(csv.trim_end()), "{out}");
    let last = &said.lines[said.lines.len() - 9..];
    let wanted =
        ["ok", "ok 1503", "ok \"C:\\\\new\"", "ok \"a\\nb \\\"c\\\", d\"", "ok \"\\x1b\\r\"", "ok", "ok", "ok", "ok"];
    assert_eq!(last, wanted.map(str::to_owned), "{}", said.err);
    let raw = file("raw.csv");
    assert!(raw.starts_with("error not-text: the value of key k is not text"), "{raw}");
    assert_eq!(said.code, 1);
}

#[test]
fn an_import_without_a_key_takes_the_first_column_and_says_so() {
    let place = Place::new();
    std::fs::write(place.0.path().join("cities.csv"), CITIES).unwrap();
    std::fs::write(place.0.path().join("rows.jsonl"), "{\"a\":1}\n").unwrap();
    let said = place.shell(".import cities.csv cities\nscan cities keys\nimport u rows.jsonl\n");
    assert_eq!(said.lines[..2], ["ok", "ok 4 Bern Oslo Parma Rome"], "{}", said.err);
    assert!(said.err.contains("the key is column \"name\", the first one; --key names another"), "{}", said.err);
    assert!(said.lines[2].contains("say which member is the key, with --key"), "{:#?}", said.lines);
}

#[test]
fn output_is_whole_or_not_there() {
    let place = Place::new();
    let out = place.0.path().join("out");
    std::fs::write(&out, "before").unwrap();
    let mut shell = std::process::Command::new(assert_cmd::cargo::cargo_bin!("ledgerstone"));
    shell.args(["shell", "env"]).current_dir(place.0.path());
    let mut shell = shell.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(shell.stdin.as_mut().unwrap(), b".output out\ntables\n.mode json\n").unwrap();
    let mut ok = [0; 3];
    std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut ok).unwrap();
    shell.kill().unwrap();
    shell.wait().unwrap();
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "before");
    let said = place.shell(".output out\ntables\nexport nothing\nquit\n");
    assert_eq!((&said.lines[..], said.code), (&["ok".to_owned()][..], 1));
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.starts_with("ok 0\nerror no-such-table: "), "{text}");
}
