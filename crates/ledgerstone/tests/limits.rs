//! The pages of limits and of formats (`docs/limits.md`, `docs/compatibility.md`) say the numbers that the code has.

use std::path::Path;

use ledgerstone::config::Setting;
use ledgerstone::{Environment, Error};
use ledgerstone_page::{PAGE_BYTES_MAX, PAGE_BYTES_MIN};
use ledgerstone_structures::VALUE_BYTES_MAX;
use ledgerstone_structures::btree::node::{key_bytes_max, value_bytes_max};

const PAGE: &str = include_str!("../../../docs/limits.md");
const FORMATS: &str = include_str!("../../../docs/compatibility.md");

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

/// Those that are public; golden tests beside the others hold their bytes.
#[test]
fn formats() {
    let formats = [
        ("`control`", ledgerstone_log::control::CONTROL_FORMAT),
        ("`data`, the head of every page", ledgerstone_page::header::FORMAT_NOW.into()),
        ("backups", ledgerstone_recovery::backup::BACKUP_FORMAT),
    ];
    for (file, format) in formats {
        let row = format!("| {file} | {format} |");
        assert!(FORMATS.contains(&row), "docs/compatibility.md has no row {row:?}");
    }
}

/// What stands as `NAME` in `FILE` in the last column is there.
#[test]
fn constants_are_where_the_page_says() {
    let mut count = 0;
    for line in PAGE.lines().filter(|line| line.starts_with('|')) {
        let Some((before, after)) = line.split_once("` in `") else { continue };
        let (name, file) = (before.rsplit('`').next().unwrap(), after.split('`').next().unwrap());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(source.contains(name), "there is no {name} in {file}");
        count += 1;
    }
    assert!(count >= 10, "{count} constants");
}

#[test]
fn a_data_file_that_may_not_grow_names_the_setting() {
    let dir = tempfile::tempdir().unwrap();
    let env = Environment::options().page_count_max(1024).cache_bytes(1 << 20).open(dir.path()).unwrap();
    let put = |key: u8| env.transact(|txn| txn.bytes_or_create("t")?.put(&[key], &vec![7; 1 << 20]));
    let error = (0..8).find_map(|key| put(key).err()).expect("8 MiB do not fit into 1,024 pages");
    assert!(matches!(&error, Error::Setting { name, .. } if name == "page_count_max"), "{error:?}");
    env.transact(|txn| txn.bytes("t")?.put(b"small", b"1")).unwrap();
    env.close().unwrap();
}
