#!/usr/bin/env bash
# The oldest compiler: every page names the version of Cargo.toml, and everything is checked with it. Where it is the one in
# use, the tests have done so, and clippy (incompatible_msrv) refuses what came later; else with rustup's, if it has that.
set -euo pipefail
cd "$(dirname "$0")/.."
msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

for page in README.md docs/tutorial.md docs/compatibility.md scripts/need.sh; do
  named=$(grep -ohE '(Rust|toolchain,?) \(?[0-9]+\.[0-9]+ or later' "$page" | grep -oE '[0-9]+\.[0-9]+' | sort -u)
  [ "$named" = "$msrv" ] || { echo "$page names Rust ${named:-of no version}, Cargo.toml $msrv" >&2; exit 1; }
done

used=$(rustc --version | grep -oE '[0-9]+\.[0-9]+' | head -n 1)
if [ "$used" = "$msrv" ]; then
  echo "Rust $msrv is the compiler in use"
elif rustup run "$msrv" rustc --version 2>/dev/null; then
  cargo "+$msrv" check --quiet --workspace --all-targets --target-dir "${CARGO_TARGET_DIR:-target}/msrv"
  echo "checked with Rust $msrv"
else
  echo "skipped: Rust $msrv is not installed (the compiler in use is $used), so only the pages are checked"
fi
