//! What reaches the reader, the terminal or a full device.

use std::fs::File;

use crate::common::Shell;

fn full_device() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// As with `ledgerstone dump DIR | head -1`.
#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let shell = Shell::new();
    shell.says("put @ fruit apple red", "");
    for line in ["dump @", "--json tables @", "export @ fruit -", "scan @ fruit", "changes @", "log @", "stat @"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let said = shell.run_into(line, writer);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{line}");
    }
}

#[test]
fn a_full_device_is_named() {
    let shell = Shell::new();
    shell.says("put @ t k v", "");
    for line in ["scan @ t", "--json scan @ t", "get @ t k", "dump @", "export @ t", "backup @ -"] {
        let said = shell.run_into(line, full_device());
        assert_eq!(said.code, 2, "{line}: {}", said.err);
        assert!(said.err.contains("standard output"), "{line}: {}", said.err);
        assert!(said.err.to_lowercase().contains("no space left"), "{line}: {}", said.err);
    }
    let said = shell.run("export @ t /dev/full --format csv");
    assert!(said.err.contains("cannot write /dev/full: ") && said.code == 2, "{}", said.err);
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    let shell = Shell::new();
    for word in ["help", "--help", "--version"] {
        let said = shell.run_into(word, full_device());
        assert_eq!(said.code, 2, "{word}: {}", said.err);
        let is_told = said.err.contains("cannot write to standard output: No space left on device");
        assert!(is_told, "{word}: {}", said.err);
    }
}

#[test]
fn different_values_look_different_wherever_they_are_shown() {
    let shell = Shell::new();
    shell.says("put @ t text \\xff", "");
    shell.says("put @ t lines -", ""); // Nothing comes in: an empty value.
    assert_eq!(shell.run_with("put @ t lines -", b"one\ntwo\n").code, 0);
    shell.says("put @ t 62797465 ff --hex", "");
    for (key, shown) in [("text", "\\\\xff"), ("byte", "\\xff"), ("lines", "one\\ntwo\\n"), ("lines --raw", "one\ntwo")]
    {
        shell.says(&format!("get @ t {key}"), &format!("{shown}\n"));
    }
    shell.says("scan @ t", "byte\t\\xff\nlines\tone\\ntwo\\n\ntext\t\\\\xff\n");
}

/// With characters that turn the direction, `nettxt.exe` could look like `netexe.txt`.
#[test]
fn characters_that_turn_the_direction_are_escaped_as_control_characters_are() {
    let shell = Shell::new();
    // Other letters that begin with the same byte are shown.
    shell.puts("fruit", &["a\u{202e}b c\u{2066}d", "euro 5\u{20ac}"]);
    shell.says("scan @ fruit", "a\\xe2\\x80\\xaeb\tc\\xe2\\x81\\xa6d\neuro\t5\u{20ac}\n");
    shell.says("--json scan @ fruit --limit 1", "{\"key\":\"a\\u202eb\",\"value\":\"c\\u2066d\"}\n");
    shell.refuses("get @ a\u{202e}b c", "no table named \"a\\xe2\\x80\\xaeb\"");
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
    shell.refuses("get @ e\x1b[31m k", r"e\x1b[31m");
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
