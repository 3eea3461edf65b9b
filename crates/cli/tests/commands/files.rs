//! Files that commands write and read. What is there already stays, unless `--force` is said.

use crate::common::Shell;

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
    shell.refuses("dump @ fruit -o f.dump", "f.dump is there already; --force replaces it");
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
        shell.refuses(&format!("export @ fruit {name}"), &format!("{name} is there already; --force replaces it"));
        assert_eq!(std::fs::read(shell.0.path().join(name)).unwrap(), first);
        shell.says(&format!("export @ fruit {name} --force --quiet"), "");
        assert_ne!(std::fs::read(shell.0.path().join(name)).unwrap(), first);
        shell.says("del @ fruit pear", "");
    }
}

#[test]
fn no_command_takes_a_file_away_before_it_has_another() {
    let shell = Shell::new();
    for line in ["flash trace record kept", "probe domains --quick --out kept", "probe domains --quick --html kept"] {
        shell.file("kept", "mine");
        shell.refuses(line, "kept is there already; --force replaces it");
        assert_eq!(shell.text("kept"), "mine", "{line}");
    }
    assert_eq!(shell.run("probe domains --quick --out kept --force --quiet").code, 0);
    assert!(shell.text("kept").starts_with('{'));
    let left = std::fs::read_dir(shell.0.path()).unwrap().filter(|e| e.as_ref().unwrap().file_name() != "env").count();
    assert_eq!(left, 1, "and nothing beside it");
}

#[test]
fn no_file_of_an_environment_is_written_over() {
    let shell = Shell::new();
    shell.says("put @ t k v", "");
    for line in ["export @ t env/data", "dump @ -o env/control --force", "export @ t ./env/log/0000000000000000.seg"] {
        shell.refuses(line, "it is a file of an environment");
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
