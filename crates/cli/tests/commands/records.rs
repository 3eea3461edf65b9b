//! Records of every type: put, read, found and deleted.

use ledgerstone::{Environment, TableDef};

use crate::common::Shell;

#[test]
fn records_are_put_read_scanned_and_deleted() {
    let shell = Shell::new();
    shell.puts("fruit", &["apple red", "apricot orange", "pear green~and~yellow"]);
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
    shell.puts("n --key-type u64", &["256 x256", "1 x1", "70000 x70000"]);
    shell.says("scan @ n --key-type u64", "1\tx1\n256\tx256\n70000\tx70000\n");
    shell.says("--json scan @ n --key-type u64 --keys-only --reverse --limit 1", "{\"key\":70000}\n");
    assert!(shell.run("get @ n -1 --key-type u64").err.contains("\"-1\" is not of type u64"));
    shell.puts("signed --key-type i64", &["-1 -2", "0 zero"]);
    shell.says("scan @ signed --from -1 --key-type i64", "-1\t-2\n0\tzero\n");
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
