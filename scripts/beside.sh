#!/usr/bin/env bash
# The example programs as they are with redb and SQLite: formatted, linted, and run by the tests of our own.
set -euo pipefail
cd "$(dirname "$0")/.."
# Absolute: a relative one is relative to the repository, and cargo runs elsewhere below.
export CARGO_TARGET_DIR
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")/beside
cd examples/beside
cargo fmt --check
cargo clippy --quiet --locked --all-targets -- -D warnings
cargo test --quiet --locked --test programs
cd ..
../scripts/lines.sh src/bin/*.rs src/increment.rs beside/src/bin/*.rs
