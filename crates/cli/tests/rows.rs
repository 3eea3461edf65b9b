//! Rows that come in from files and go out to them: CSV, TSV and lines of JSON.
#![allow(missing_docs)]

mod common;

use common::Shell;

#[test]
fn rows_are_imported_and_come_out_as_they_went_in() {
    let shell = Shell::new();
    let csv = "code,name,note\n1,\"A, B\",\n2,C,\"two\nlines\"\n";
    shell.file("in.csv", csv);
    shell.says("import @ t in.csv --key code --quiet", "");
    shell.says("get @ t 1", "{\"code\":\"1\",\"name\":\"A, B\",\"note\":\"\"}\n");
    shell.says("export @ t out.csv --rows --quiet", "");
    assert_eq!(shell.text("out.csv"), csv);
    shell.says("export @ t out.tsv --rows --quiet", "");
    shell.says("import @ u out.tsv --key code,name --separator / --value note --quiet", "");
    shell.says("scan @ u", "1/A, B\t\n2/C\ttwo\\nlines\n");
    shell.says("export @ t out.jsonl --quiet", "");
    shell.says("import @ v out.jsonl --key key --value value --quiet", "");
    assert_eq!(shell.run("scan @ v").out, shell.run("scan @ t").out);
    let said =
        shell.run_with("--json import @ w - --format jsonl --key id --key-type u64", b"{\"id\":7}\n{\"id\":9}\n");
    assert!(said.out.contains("\"row_count\":2"), "{}", said.out);
    shell.says("scan @ w --key-type u64", "7\t{\"id\":7}\n9\t{\"id\":9}\n");
}

#[test]
fn columns_are_imported_as_numbers_and_found_in_their_order() {
    let shell = Shell::new();
    let rows = "id,size,name,new\na,100,9,true\nb,9,x,false\nc,10,10,\nd,,8.5,true\ne,-1.50,y,false\n";
    shell.file("in.csv", rows);
    shell.says("import @ t in.csv --key id --types size=number,new=bool --quiet", "");
    shell.says("get @ t e", "{\"id\":\"e\",\"size\":-1.50,\"name\":\"y\",\"new\":false}\n");
    shell.says("export @ t out.csv --rows --quiet", "");
    for index in ["size", "name", "new"] {
        shell.says(&format!("index create @ t {index} json:{index} --quiet"), "");
    }
    shell.says("index lookup @ t size --from 9 --keys-only", "9\tb\n10\tc\n100\ta\n");
    shell.says("index lookup @ t size --to 10 --keys-only --reverse", "9\tb\n-1.5\te\n");
    shell.says(
        "--json index lookup @ t size 10.0 --keys-only",
        "{\"key\":\"c\",\"index_key\":10,\"index_key_kind\":\"number\"}\n",
    );
    shell.says("index lookup @ t new true --keys-only", "true\ta\ntrue\td\n");
    // Texts that look like numbers are texts, in the order of texts.
    shell.says("index lookup @ t name 9 --keys-only", "\"9\"\ta\n");
    shell.says("index lookup @ t name --from 8 --to 99 --keys-only", "\"8.5\"\td\n\"9\"\ta\n");
    shell.says("index lookup @ t name --from x --keys-only", "x\tb\ny\te\n");
    shell.says(
        "--json index lookup @ t name \"9\" --keys-only",
        "{\"key\":\"a\",\"index_key\":\"9\",\"index_key_kind\":\"text\"}\n",
    );
    shell.says("index lookup @ t name --prefix 1 --keys-only", "\"10\"\tc\n");
    let said = shell.run("import @ t in.csv --key id --types name=number");
    assert!(said.code == 2 && said.err.contains("line 3: column name: \"x\" is not a number"), "{}", said.err);
    assert!(shell.run("import @ t in.csv --key id --types weight=number").err.contains("no column \"weight\""));
}

#[test]
fn a_malformed_line_stops_the_import_or_is_left_out() {
    let shell = Shell::new();
    shell.file("in.csv", "id,x\n1,a\n2\n3,c\n,d\n");
    let said = shell.run("import @ t in.csv --key id --one-transaction");
    assert_eq!(said.code, 2);
    assert!(said.err.contains("in.csv: line 3: 1 field where the header names 2"), "{}", said.err);
    assert!(said.err.contains("nothing was imported"), "{}", said.err);
    assert_eq!(shell.run("scan @ t").code, 2, "a stopped import leaves no table");

    let said = shell.run("import @ t in.csv --key id --batch 1");
    assert!(said.err.contains("the first row was imported and stays"), "{}", said.err);
    shell.says("scan @ t --keys-only", "1\n");

    let said = shell.run("import @ t in.csv --key id --keep-going");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("line 3: 1 field ") && said.err.contains("line 5: nothing in column id"), "{}", said.err);
    assert!(said.err.contains("2 rows imported") && said.err.contains("2 lines left out"), "{}", said.err);
    shell.says("scan @ t --keys-only", "1\n3\n");

    let said = shell.run("import @ t in.csv --key nr");
    assert!(said.code == 2 && said.err.contains("no column \"nr\"; its columns are: id, x"), "{}", said.err);
    let long = "k".repeat(5000);
    shell.file("long.jsonl", &format!("{{\"id\":\"{long}\"}}\n{{\"id\":\"4\"}}\n"));
    let said = shell.run("import @ t long.jsonl --key id --keep-going");
    assert!(said.code == 1 && said.err.contains("line 1: key of 5000 bytes is too large"), "{}", said.err);
    shell.says("scan @ t --keys-only --from 4", "4\n");
}

#[test]
fn rows_of_empty_fields_come_back_from_tsv() {
    let shell = Shell::new();
    shell.says("put @ empty k {\"a\":\"\",\"b\":\"\"}", "");
    shell.says("export @ empty out.tsv --rows --quiet", "");
    assert_eq!(shell.text("out.tsv"), "a\tb\n\t\n");
    shell.says("put @ one k {\"a\":\"\"}", "");
    let said = shell.run("export @ one out.tsv --rows --force");
    assert!(said.code == 2 && said.err.contains("CSV can hold it"), "{}", said.err);
}

#[test]
fn rows_come_and_go_compressed_with_numbers_as_numbers() {
    let shell = Shell::new();
    shell.file("in.csv", "zip,name,open,size\n007,Bern,true,12.50\n8,Rome,no,\n");
    assert!(std::process::Command::new("gzip").arg("in.csv").current_dir(shell.0.path()).status().unwrap().success());
    shell.says("import @ t in.csv.gz --key zip --types auto,zip=text --quiet", "");
    shell.says(
        "scan @ t",
        concat!(
            "007\t{\"zip\":\"007\",\"name\":\"Bern\",\"open\":true,\"size\":12.50}\n",
            "8\t{\"zip\":\"8\",\"name\":\"Rome\",\"open\":\"no\",\"size\":\"\"}\n"
        ),
    );
    shell.says("export @ t out.csv.gz --rows --quiet", "");
    let plain = std::process::Command::new("gzip").args(["-dc", "out.csv.gz"]).current_dir(shell.0.path()).output();
    assert_eq!(
        String::from_utf8(plain.unwrap().stdout).unwrap(),
        "zip,name,open,size\n007,Bern,true,12.50\n8,Rome,no,\n"
    );
    shell.file("broken.csv.gz", "this is not compressed");
    let said = shell.run("import @ u broken.csv.gz --key zip");
    assert_eq!(said.code, 2);
    assert!(said.err.contains("gzip"), "{}", said.err);
}

#[test]
fn exported_rows_are_a_line_each_however_the_values_are_written() {
    let shell = Shell::new();
    let pretty = "{\n  \"id\" : 1.50,\r\n\t\"t\" : \"a \\\" b\\\\\" , \"list\": [ 1,\n 2 ]\n}\n";
    assert_eq!(shell.run_with("put @ t 1 -", pretty.as_bytes()).code, 0);
    shell.says("put @ t 2 {\"id\":~2}", "");
    let lines = "{\"id\":1.50,\"t\":\"a \\\" b\\\\\",\"list\":[1,2]}\n{\"id\": 2}\n";
    shell.says("export @ t --rows", lines);
    // What is exported is imported as it was.
    assert_eq!(shell.run_with("import @ u - --format jsonl --key id -q", lines.as_bytes()).code, 0);
    shell.says("export @ u --rows", lines);
}

#[test]
fn a_table_without_records_is_exported_with_its_columns() {
    let shell = Shell::new();
    assert_eq!(shell.run_with("import @ t - --format csv --key key -q", b"key,value\n").code, 0);
    shell.says("export @ t --format csv", "key,value\n");
    shell.says("export @ t --format tsv", "key\tvalue\n");
    shell.says("export @ t --format jsonl", "");
    // The values' members would be the columns, and there are none.
    shell.says("export @ t --format csv --rows", "");
    let help = shell.run("help export").out;
    assert!(help.contains("a table without records has none"), "{help}");
}
