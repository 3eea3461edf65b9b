#!/usr/bin/env bash
# The loom models, bounded: every crate that has a file loom_*.rs, built with --cfg loom into a target folder of its own.
# LOOM_PREEMPTIONS bounds the search (2 by default; 3 takes minutes).
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS="${LOOM_PREEMPTIONS:-2}"
crates=$(find crates -name 'loom_*.rs' | cut -d/ -f2 | sort -u)
[ -n "$crates" ] || { echo "no crate has a file loom_*.rs" >&2; exit 1; }
for crate in $crates; do
  package=ledgerstone-$crate
  [ "$crate" = ledgerstone ] && package=ledgerstone
  echo "loom: $package"
  cargo test --quiet --release -p "$package" --target-dir "${CARGO_TARGET_DIR:-target}/loom" loom
done
