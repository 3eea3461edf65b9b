//! What is told from the log: its records, changes, and transactions in doubt.

use crate::common::Shell;

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
    shell.refuses("log @ --kind nonsense", "not a kind of record; the kinds are update");
}

#[test]
fn changes_can_be_limited() {
    let shell = Shell::new();
    shell.puts("t", &["a 1", "b 1", "c 1"]);
    shell.puts("u", &["z 1"]);
    assert_eq!(shell.run("changes @ --limit 0").out, "");
    let two = shell.run("changes @ --limit 2").out;
    assert!(two.contains("\ta\t") && two.contains("\tb\t") && !two.contains("\tc\t"), "{two}");
    let of_u = shell.run("changes @ --table u --limit 1").out;
    assert!(of_u.contains("(created)") && of_u.contains("\tz\t") && !of_u.contains("\ta\t"), "{of_u}");
    // A feed goes on behind what it has shown.
    shell.run("changes @ --name f");
    shell.puts("t", &["d 1", "e 1"]);
    let (first, second) = (shell.run("changes @ --name f --limit 1").out, shell.run("changes @ --name f").out);
    assert!(first.contains("\td\t") && !first.contains("\te\t"), "{first}");
    assert!(second.contains("\te\t") && !second.contains("\td\t"), "{second}");
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
