//! Reports of format 1 that were written once are read for ever.
#![allow(missing_docs)]

use ledgerstone_probe::{Report, show};

#[test]
fn a_report_of_format_1_is_read_and_shown() {
    let report = Report::read("report.json", include_bytes!("report.json")).expect("format 1");
    assert!(report.median("force/method", "write, fsync", Some(4096.0)).is_some_and(|ns| ns > 0.0));
    assert_eq!(report.machine.mount.kind, "ext4");
    let text = show::terminal(&report);
    assert!(text.contains("write, fsync") && text.contains("Verdict"), "{text}");
    assert!(show::compare(&report, &report).contains("the same"));
    assert!(show::html(&report).contains("<svg class=\"plot\""));
}
