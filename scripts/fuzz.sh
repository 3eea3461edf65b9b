#!/usr/bin/env bash
# Runs each fuzz target for the given number of seconds: with libFuzzer and coverage, on the stable compiler. What was
# found is left in fuzz/artifacts/, the corpus in fuzz/corpus/, so that the next run goes on from there.
#   fuzz.sh [SECONDS [TARGET...]]
set -euo pipefail
cd "$(dirname "$0")/.."
# Absolute: a relative one is relative to the repository.
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")/fuzz
cd fuzz
seconds=${1:-60}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(records pages control rows shell config ports probe dumps log_reader backups)
# What cargo-fuzz passes, without the sanitizers that need a nightly compiler: counters for each edge, traced compares.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions=on -Coverflow-checks=on"
# Each target would go through the optimiser over the whole workspace again.
export CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_DEBUG=line-tables-only
host=$(rustc -vV | sed -n 's/^host: //p')
# A named target keeps these flags away from build scripts.
bins=()
for target in "${targets[@]}"; do bins+=(--bin "$target"); done
cargo build --quiet --release -p ledgerstone-fuzz "${bins[@]}" --features libfuzzer --target "$host" --target-dir "$target_dir"
failed=()
for target in "${targets[@]}"; do
  mkdir -p "corpus/$target" "artifacts/$target"
  echo "fuzz: $target, $seconds s"
  log=$target_dir/$target.log
  "$target_dir/$host/release/$target" "corpus/$target" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=4096 \
    -timeout=20 -print_final_stats=1 -artifact_prefix="artifacts/$target/" >"$log" 2>&1 || failed+=("$target")
  grep -E '^(stat::number_of_executed_units|==|SUMMARY)|panicked|ERROR|Test unit' "$log" || true
done
[ ${#failed[@]} = 0 ] || { echo "found something: ${failed[*]} (see fuzz/artifacts/)"; exit 1; }
