//! Programs that measure: TPC-B and flash.

use crate::common::Shell;

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
    shell.refuses("flash trace show trace", "trace line 2");
    assert_eq!(shell.run("flash tpcc --protocol none").code, 2);
}
