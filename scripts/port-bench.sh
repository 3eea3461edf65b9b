#!/usr/bin/env bash
# The experiments of docs/ports.md: results as text and numbers under target/port-bench, plots beside the page.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${CARGO_TARGET_DIR:-target}/port-bench
mkdir -p "$out"
out=$(cd "$out" && pwd)
bench=(cargo bench --quiet -p ledgerstone-port --bench ports --features peers --)
"${bench[@]}" --out "$out" | tee "$out/report.txt"
"${bench[@]}" --plot "$out"
cp "$out"/*.svg docs/
