#!/usr/bin/env bash
# Processes that die at a store to the region (feature deaths): the tests named deaths of each crate that mends after them,
# with the parts of a repair that are left out in turn. With arguments: of these crates only.
# ROUNDS (2000): of each random campaign. What else can be asked for is in crates/testkit/src/deaths/asked.rs: SEED, EVERY,
# WORK, STEP, REPAIR_STEP, PART. A round that fails says how to run it alone.
# A simulation hands a baton from thread to thread, which costs a tenth where all of them stay on one processor: so each test
# is kept on one, and as many run at a time as there are processors.
set -euo pipefail
cd "$(dirname "$0")/.."
export ROUNDS="${ROUNDS:-2000}"
crates=${*:-$(grep -l '^deaths *=' crates/*/Cargo.toml | cut -d/ -f2)}
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
target="$(realpath -m "${CARGO_TARGET_DIR:-target}")/deaths"
began=$SECONDS
tests=$(mktemp)
trap 'rm -f "$tests"' EXIT
for crate in $crates; do
  package=(-p "ledgerstone-$crate" --lib --tests)
  # Its other tests are many, and of no deaths.
  if [ "$crate" = ledgerstone ]; then package=(-p ledgerstone --test deaths); fi
  built=$(cargo test --quiet --target-dir "$target" "${package[@]}" --features deaths --no-run --message-format=json)
  for binary in $(grep -o '"executable":"[^"]*"' <<<"$built" | cut -d'"' -f4); do
    # A target of that name has no others.
    case $binary in */deaths-*) named= ;; *) named=deaths ;; esac
    "$binary" $named --list --format=terse | sed -n "s|^\(.*\): test\$|$crate $binary \1|p" >>"$tests"
  done
done
count=$(wc -l <"$tests")
[ "$count" -gt 0 ]
one='cd "crates/$1"
began=$SECONDS
if ! out=$(taskset -c "$PROCESSOR" "$2" --exact "$3" --nocapture 2>&1); then echo "$out"; echo "failed: $1 $3"; exit 1; fi
grep -v "^running\|^test \|^$" <<<"$out"
echo "$1 $3: $((SECONDS - began)) s"'
failed=none
xargs -P "$(nproc)" -L 1 --process-slot-var=PROCESSOR bash -c "$one" one <"$tests" || failed=some
echo "ran: $count tests of deaths of" $crates "($ROUNDS random rounds each, $((SECONDS - began)) s); failed: $failed"
[ "$failed" = none ]
