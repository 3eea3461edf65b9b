//! Compiles the peers that are written in C, against the libraries that Debian's packages install.

fn main() {
    println!("cargo:rerun-if-changed=src/c");
    let header = std::fs::read_to_string("/usr/include/rocksdb/version.h").unwrap_or_default();
    let number = |name: &str| {
        let line = header.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
        line.unwrap_or("?").trim().to_owned()
    };
    let version = ["ROCKSDB_MAJOR", "ROCKSDB_MINOR", "ROCKSDB_PATCH"].map(number).join(".");
    cc::Build::new()
        .files(["error", "lmdb", "bdb", "rocksdb", "wiredtiger", "sqlite"].map(|name| format!("src/c/{name}.c")))
        .define("PEER_ROCKSDB_VERSION", format!("\"RocksDB {version}\"").as_str())
        .opt_level(2)
        .warnings(true)
        .warnings_into_errors(true)
        .compile("peers");
    // Of the crates that are peers.
    println!("cargo:rerun-if-changed=Cargo.lock");
    let lock = std::fs::read_to_string("Cargo.lock").unwrap_or_default();
    for name in ["fjall", "redb"] {
        let package = lock.split("[[package]]").find(|package| package.contains(&format!("\nname = \"{name}\"\n")));
        let version = package.and_then(|package| package.split('"').nth(3)).unwrap_or("?");
        println!("cargo:rustc-env={}_VERSION={version}", name.to_uppercase());
    }
    for library in ["lmdb", "db-5.3", "rocksdb", "wiredtiger", "sqlite3"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}
