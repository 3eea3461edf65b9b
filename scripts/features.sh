#!/usr/bin/env bash
# The library stays small to build. Each feature of the library, of the crates that stand on an environment, of `disk`
# and of `dump` builds alone, and so does each crate with none and with all of its features. A program outside of this
# workspace, built as it comes and with no features, is told what it was built without (small/main.rs). The only feature
# of `port` that a program can see is for `make port-bench`, which builds it.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/need.sh python
crates_max=11

tree=$(cargo tree --locked -p ledgerstone -e normal,build --prefix none --format '{p}' | sed 's/ (\*)$//' | sort -u)
external=$(grep -v '^ledgerstone' <<<"$tree")
count=$(wc -l <<<"$external")
echo "$count crates from elsewhere: $(cut -d' ' -f1 <<<"$external" | paste -sd' ')"
if [ "$count" -gt "$crates_max" ]; then
  echo "error: with default features, at most $crates_max are allowed; put what is new behind a feature" >&2
  exit 1
fi

metadata=$(cargo metadata --format-version 1 --no-deps --locked)
# Every package that has features which a program can ask for.
while read -r package; do
  check() {
    echo "$package: ${*:-as it comes}"
    RUSTFLAGS="${RUSTFLAGS:-} -D warnings" cargo check --quiet --locked -p "$package" --lib --target-dir "${CARGO_TARGET_DIR:-target}/features" "$@"
  }
  features=$(PACKAGE=$package python3 -c '
import json, os, sys
package = next(p for p in json.load(sys.stdin)["packages"] if p["name"] == os.environ["PACKAGE"])
print(*(f for f in package["features"] if f != "default"))' <<<"$metadata")
  check --no-default-features
  for feature in $features; do
    check --no-default-features --features "$feature"
  done
  check --all-features
done <<LIST
ledgerstone
ledgerstone-core
ledgerstone-feed
ledgerstone-media
ledgerstone-disk
ledgerstone-dump
LIST

small=${CARGO_TARGET_DIR:-$PWD/target}/features/small
rm -rf "$small"
mkdir -p "$small/data"
cp Cargo.lock "$small"
cat >"$small/Cargo.toml" <<TOML
[package]
name = "small"
edition = "2024"

[features]
default = ["as-it-comes"]
as-it-comes = ["ledgerstone/default"]
json = ["ledgerstone/json"]

[dependencies]
ledgerstone = { path = "$PWD/crates/ledgerstone", default-features = false }

[[bin]]
name = "small"
path = "$PWD/scripts/small/main.rs"

[workspace]
TOML
small() {
  cargo run --quiet --manifest-path "$small/Cargo.toml" --target-dir "$small/.." "$@" -- "$small/data" $step
}
step=
small --features json
small
rm -rf "$small/data"
mkdir "$small/data"
small --features json
small --no-default-features
rm "$small/data/ledgerstone.toml"
step=read
small
echo "without features: told what is missing, and the log is kept for feeds"
