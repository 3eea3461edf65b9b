#!/usr/bin/env bash
# What operations cost, counted under callgrind; writes docs/costs.md. With BESIDE=1 LMDB and Berkeley DB are counted
# too, and docs/costs-beside.json is written; without it, the page has their figures from there.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
options=(--against docs/costs.md --out docs/costs.md --beside docs/costs-beside.json)
if [ -n "${BESIDE:-}" ]; then
  scripts/need.sh peers
  # Absolute: a relative one is relative to the repository.
  CARGO_TARGET_DIR=$(realpath -m "$target")/peers cargo build --quiet --release --locked --manifest-path peers/Cargo.toml
  options+=(--driver "$target/peers/release/ledgerstone-peers")
fi
exec "$target/release/ledgerstone" bench counts "${options[@]}"
