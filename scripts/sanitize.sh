#!/usr/bin/env bash
# The tests of the crates with unsafe code (disk, region) and of those that work on the region's memory (buffer, log,
# lock) under the address sanitizer, leaks included. The compiler's option is unstable, the runtime comes with every
# toolchain: RUSTC_BOOTSTRAP lets the stable one use it.
#
# The thread sanitizer is left out. It takes every access of a standard library that was built without it for a race,
# so the library has to be built again (-Zbuild-std), which needs its source (rustup component add rust-src). What it
# would look for, loom looks for in the latches, the log's buffer and the page table (make loom).
set -euo pipefail
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/sanitize" RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address"
packages=()
for crate in disk region buffer log lock; do packages+=(-p "ledgerstone-$crate"); done
cargo test --quiet --target "$host" --lib --tests --no-fail-fast "${packages[@]}"
