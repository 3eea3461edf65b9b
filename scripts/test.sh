#!/usr/bin/env bash
# Everything CI runs, bounded for two cores and 20 minutes. Each step's output is in target/checks/STEP.log; a step that
# fails prints its last lines and the others still run. The counts go to target/checks/counts for .ci/run.
#
# Bounds, by environment: CRASH_ROUNDS (10000), FAULT_ROUNDS (3000), HISTORY_ROUNDS (200), PORT_KILL_ROUNDS (50), LOOM_PREEMPTIONS (2), SKIP="loom fuzz ..." by name.
set -uo pipefail
cd "$(dirname "$0")/.."
scripts/need.sh rust fmt clippy || exit 2

target=${CARGO_TARGET_DIR:-target}
logs=$target/checks
rm -rf "$logs"
mkdir -p "$logs"
passed=0
failed=0
failures=()
began=$SECONDS

# A test harness's lines count as its tests; a step without such lines counts as one check.
step() { # name command...
  local name=$1
  shift
  case " ${SKIP:-} " in *" $name "*) echo "skip  $name"; return ;; esac
  local log=$logs/$name.log start=$SECONDS code
  "$@" >"$log" 2>&1
  code=$?
  local ok bad
  ok=$(awk '/^test result: / { for (i = 1; i < NF; i++) if ($(i + 1) ~ /^passed/) n += $i } END { print n + 0 }' "$log")
  bad=$(awk '/^test result: / { for (i = 1; i < NF; i++) if ($(i + 1) ~ /^failed/) n += $i } END { print n + 0 }' "$log")
  if [ $((ok + bad)) = 0 ]; then
    if [ $code = 0 ]; then ok=1; else bad=1; fi
  elif [ $code != 0 ] && [ "$bad" = 0 ]; then
    bad=1 # it did not compile, or ended between two tests
  fi
  passed=$((passed + ok))
  failed=$((failed + bad))
  if [ $code = 0 ]; then
    echo "ok    $name: $ok passed ($((SECONDS - start)) s)"
    tail -n 1 "$log" | grep -E '^(crash|faults|planted|histories|ran):?' | sed 's/^/        /' || true
  else
    failures+=("$name")
    echo "FAIL  $name: $ok passed, $bad failed, exit code $code ($((SECONDS - start)) s); end of $log:"
    tail -n 40 "$log" | sed 's/^/        /'
  fi
}

docs() { RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps; }
sim() { cargo run --quiet --release -p ledgerstone-sim -- "$@"; }
planted() { cargo run --quiet --release -p ledgerstone-sim --features planted -- planted; }

step format cargo fmt --all --check
step clippy cargo clippy --quiet --workspace --all-targets -- -D warnings
step docs docs
step tests cargo test --workspace --no-fail-fast
step loom scripts/loom.sh
step crash sim crash --rounds "${CRASH_ROUNDS:-10000}"
step faults sim faults --rounds "${FAULT_ROUNDS:-3000}"
step media sim media --rounds "${MEDIA_ROUNDS:-3000}"
step planted planted
step flash cargo run --quiet --release -p ledgerstone-flash --example flash_crash -- 5000
step histories sim histories --rounds "${HISTORY_ROUNDS:-200}"
step port-kills cargo run --quiet --release -p ledgerstone-port --example kills -- --rounds "${PORT_KILL_ROUNDS:-50}"
step fuzz cargo test --manifest-path fuzz/Cargo.toml --release --target-dir "$target/fuzz"
step probe cargo run --quiet --release -p ledgerstone-cli -- probe --quick --dir "$target" --out "$logs/probe.json" --html "$logs/probe.html"
step demo env DEMO_SECONDS=5 scripts/demo.sh --build

echo "$passed passed, $failed failed" >"$logs/counts"
what="format, clippy, docs, tests, loom, crash, faults, planted, flash, histories, fuzz, probe, demo"
if [ ${#failures[@]} = 0 ]; then
  echo "ran: $what ($((SECONDS - began)) s); $passed passed, nothing failed"
else
  echo "ran: $what ($((SECONDS - began)) s); $passed passed, $failed failed: ${failures[*]}"
  exit 1
fi
