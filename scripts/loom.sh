#!/usr/bin/env bash
# The loom models, bounded: every crate that has a file loom_*.rs, built with --cfg loom into a target folder of its own.
# Then the bugs planted for them (features planted-* of such a crate): with each, some model must fail.
# LOOM_PREEMPTIONS bounds the search (2 by default; 3 takes minutes).
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS="${LOOM_PREEMPTIONS:-2}"
crates=$(find crates -name 'loom_*.rs' | cut -d/ -f2 | sort -u)
[ -n "$crates" ] || { echo "no crate has a file loom_*.rs" >&2; exit 1; }
target_dir=${CARGO_TARGET_DIR:-target}/loom
models() { # crate [cargo flags]
  local package=ledgerstone-$1
  shift
  cargo test --quiet --release --lib -p "$package" --target-dir "$target_dir" "$@" loom
}
for crate in $crates; do
  echo "loom: $crate"
  models "$crate"
done
for crate in $crates; do
  for bug in $(sed -n 's/^\(planted-[a-z-]*\) *=.*/\1/p' "crates/$crate/Cargo.toml"); do
    # It must build, so that a compile error is not taken for a find.
    models "$crate" --features "$bug" --no-run
    if models "$crate" --features "$bug" >"$target_dir/$bug.log" 2>&1; then
      echo "loom: the planted bug $bug of $crate was not found" >&2
      exit 1
    fi
    echo "loom: planted bug $bug of $crate found"
  done
done
