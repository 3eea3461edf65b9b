//! The page of limits (`docs/limits.md`) says the numbers that the code has.

use ledgerstone::config::Setting;
use ledgerstone_page::{PAGE_BYTES_MAX, PAGE_BYTES_MIN};
use ledgerstone_structures::VALUE_BYTES_MAX;
use ledgerstone_structures::btree::node::{key_bytes_max, value_bytes_max};

const PAGE: &str = include_str!("../../../docs/limits.md");

/// The cells behind the first one, of the row that begins with `name`.
fn row(name: &str) -> Vec<&'static str> {
    let mut rows = PAGE.lines().filter_map(|line| line.strip_prefix(&format!("| {name} |")));
    let cells = rows.next().unwrap_or_else(|| panic!("docs/limits.md has no row {name:?}"));
    assert_eq!(rows.next(), None, "docs/limits.md has two rows {name:?}");
    cells.split('|').map(str::trim).collect()
}

/// A count of bytes with the largest unit that leaves it whole.
fn bytes(count: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(each, _)| count >= *each && count.is_multiple_of(*each)) {
        Some((each, unit)) => format!("{} {unit}", count / each),
        None => format!("{count} bytes"),
    }
}

#[test]
fn records_by_page_size() {
    let mut page_bytes = PAGE_BYTES_MIN;
    while page_bytes <= PAGE_BYTES_MAX {
        let key_max = key_bytes_max(page_bytes);
        let entry_max = value_bytes_max(page_bytes, key_max);
        let expected = [key_max, value_bytes_max(page_bytes, 16), entry_max].map(|count| count.to_string());
        assert_eq!(row(&bytes(page_bytes as u64))[..3], expected, "{page_bytes}");
        page_bytes *= 2;
    }
    assert!(!PAGE.contains(&format!("| {} |", bytes(page_bytes as u64))), "there are no pages of {page_bytes} bytes");
}

#[test]
fn constants() {
    assert_eq!(row("value")[0], bytes(VALUE_BYTES_MAX as u64));
    assert_eq!(row("log record")[0], bytes(ledgerstone_log::RECORD_BYTES_MAX as u64));
    assert_eq!(row("positions in the log (LSNs)")[0], bytes(ledgerstone_log::LSN_LIMIT.0));
    assert_eq!(row("id of a prepared transaction")[0], format!("1 to {} bytes", ledgerstone_txn::GLOBAL_ID_BYTES_MAX));
    assert_eq!(
        row("locks that a prepared transaction keeps by name")[0],
        ledgerstone_txn::PREPARED_LOCKS_MAX.to_string()
    );
}

/// The second table has a row for each setting that bounds something, as `Setting` declares it.
#[test]
fn settings() {
    let begin = PAGE.find("## Limits that you can set").expect("the section");
    let named =
        PAGE[begin..].lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name);
    let mut count = 0;
    for name in named {
        let setting = Setting::all().iter().find(|setting| setting.name == name);
        let setting = setting.unwrap_or_else(|| panic!("docs/limits.md names the setting {name}, which there is not"));
        let expected = [setting.show(&setting.default_value()), setting.allowed()];
        assert_eq!(row(&format!("`{name}`"))[1..3], expected, "{name}");
        count += 1;
    }
    for setting in Setting::all().iter().filter(|setting| setting.name.ends_with("_max")) {
        row(&format!("`{}`", setting.name));
    }
    assert!(count >= 10, "{count} settings");
}
