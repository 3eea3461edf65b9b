#!/usr/bin/env bash
# The loom models, bounded: every crate that has a file loom_*.rs, built with --cfg loom into a target folder of its own.
# Then the bugs planted for them (features planted-* of such a crate): with each, some model must fail. A comment behind
# a feature names the file of the model that has to find it, so that only that one is run.
# Forgotten repairs (planted-death-*) are for scripts/deaths.sh.
# With arguments: of these crates only, as in `scripts/loom.sh log txn`.
# LOOM_PREEMPTIONS bounds the search (2 by default; 3 takes minutes).
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS="${LOOM_PREEMPTIONS:-2}"
crates=${*:-$(find crates -name 'loom_*.rs' | cut -d/ -f2 | sort -u)}
[ -n "$crates" ] || { echo "no crate has a file loom_*.rs" >&2; exit 1; }
target_dir=${CARGO_TARGET_DIR:-target}/loom
# The models themselves take seconds: what counts is how long they take to build.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_INCREMENTAL=0
models() { # cargo flags...
  cargo test --quiet --lib --target-dir "$target_dir" "$@"
}
echo "loom:" $crates
models $(printf -- '-p ledgerstone-%s ' $crates) loom
for crate in $crates; do
  for bug in $(sed -n 's/^\(planted-[a-z-]*\) *=.*/\1/p' "crates/$crate/Cargo.toml" | grep -v ^planted-death); do
    model=$(sed -n "s/^$bug *=.*# *\(loom_[a-z_]*\)$/\1/p" "crates/$crate/Cargo.toml")
    # It must build, so that a compile error is not taken for a find.
    models -p "ledgerstone-$crate" --features "$bug" --no-run
    if models -p "ledgerstone-$crate" --features "$bug" "${model:-loom}" >"$target_dir/$bug.log" 2>&1; then
      echo "loom: the planted bug $bug of $crate was not found" >&2
      exit 1
    fi
    echo "loom: planted bug $bug of $crate found"
  done
done
