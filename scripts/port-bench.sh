#!/usr/bin/env bash
# The experiments of docs/ports.md: results as text and numbers under target/port-bench, plots beside the page.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${CARGO_TARGET_DIR:-target}/port-bench
mkdir -p "$out"
out=$(cd "$out" && pwd)
# Aeron takes part if Java can run it.
aeron=aeron-all-1.44.1.jar
if command -v java >/dev/null && command -v mvn >/dev/null; then
  [ -e "$out/$aeron" ] || mvn -q dependency:copy -Dartifact=io.aeron:aeron-all:1.44.1 -DoutputDirectory="$out" ||
    echo "skipped: Aeron: it cannot be fetched"
  [ ! -e "$out/$aeron" ] || export AERON_JAR="$out/$aeron"
else
  echo "skipped: Aeron: Java or Maven is missing (Debian packages openjdk-17-jre-headless, maven)"
fi
bench=(cargo bench --quiet -p ledgerstone-port --bench ports --features peers --)
"${bench[@]}" --out "$out" | tee "$out/report.txt"
"${bench[@]}" --plot "$out"
cp "$out"/*.svg docs/
