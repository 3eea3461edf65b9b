#!/usr/bin/env bash
# Ledgerstone beside other stores, each through its own interface; writes docs/peers.md and its plots.
#   peers.sh         measures: all sections, or those in SECTION, with the peers in PEER; short with QUICK=1
#                    CASE='sync, 100 branches, *;*, 4 threads': only these cases of SECTION, its other rows stay
#   peers.sh check   builds it and proves that each peer does what it is asked for; skipped without the peers' packages
set -euo pipefail
cd "$(dirname "$0")/.."
# Absolute: a relative one is relative to the repository, and cargo runs elsewhere below.
export CARGO_TARGET_DIR
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")/peers

if [ "${1:-}" = check ]; then
  if ! scripts/need.sh peers >&2; then
    echo "skipped: the other stores' packages cannot be had, so nothing was measured beside them"
    exit 0
  fi
  cd peers
  cargo fmt --check
  # Lints and tests share one build.
  cargo clippy --quiet --locked --all-targets -- -D warnings
  exec cargo test --quiet --locked -- --nocapture
fi

scripts/need.sh peers
# The relational row goes without its server where that cannot be had.
scripts/need.sh postgres
cargo build --quiet --release --locked --manifest-path peers/Cargo.toml
# On the device of the target directory.
mkdir -p "$CARGO_TARGET_DIR/runs"
options=(${QUICK:+--quick} ${ROUNDS:+--rounds "$ROUNDS"} ${SECTION:+--section "$SECTION"} ${PEER:+--peer "$PEER"}
  ${CASE:+--case "$CASE"})
"$CARGO_TARGET_DIR/release/ledgerstone-peers" run "${options[@]}" --tmp "$CARGO_TARGET_DIR/runs" \
  --json docs/peers.json --out docs/peers.md
