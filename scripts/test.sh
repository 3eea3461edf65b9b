#!/usr/bin/env bash
# Everything CI runs, bounded for two cores and 30 minutes. Each step's output is in target/checks/STEP.log; a step that
# fails prints its last lines and the others still run. The counts go to target/checks/counts for .ci/run.
#
# What is left out is counted and named in the last lines: a step in SKIP, a step whose tool is missing, a step that says
# itself "skipped: ..." of a part, and tests that would use a program which cannot be installed.
#
# A step that hangs is killed at its limit, and all of them together end before TEST_LIMIT seconds (4500): the lines that
# say what hung are worth more than a run that somebody else has to kill.
#
# Bounds, by environment: CRASH_ROUNDS (10000), RAW_ROUNDS (1000), RAW_EVERY_ROUNDS (6), FAULT_ROUNDS (3000),
# RAW_FAULT_ROUNDS (200), DAMAGE_ROUNDS (100), RAW_DAMAGE_ROUNDS (10), MEDIA_ROUNDS (3000), HISTORY_ROUNDS (200),
# SHARED_HISTORY_ROUNDS (10), SOAK_SECONDS (20), PORT_KILL_ROUNDS (50), LOOM_PREEMPTIONS (2), DEATH_ROUNDS (2000),
# SKIP="loom fuzz ..." by name.
set -uo pipefail
cd "$(dirname "$0")/.."
scripts/need.sh rust fmt clippy || exit 2
exec </dev/null # Nothing here waits for somebody to type.
skipped=()
while read -r missing; do
  echo "$missing"
  [[ $missing != "without "* ]] || skipped+=("tests with ${missing#without }")
done < <(scripts/need.sh db-tools strace shells 2>&1)
skipped=("${skipped[@]%%:*}")

target=${CARGO_TARGET_DIR:-target}
logs=$target/checks
rm -rf "$logs"
mkdir -p "$logs"
passed=0
failed=0
failures=()
ran=()
began=$SECONDS

# What to read first when a step failed. A harness that goes on after a failure ends with tests that passed, so the end
# of its log would not name the test: what each failed test printed comes from inside the log.
what_failed() { # log
  local found
  found=$(awk '
    /^---- .* stdout ----$/ { left = 25 }
    /^failures:$/ { left = 0 }
    /^error(\[E[0-9]+\])?: / { if (left < 8) left = 8 }
    /^test .* FAILED$/ || /has been running for over/ { print; next }
    left > 0 { print; left-- }' "$1" | head -n 120)
  if [ -n "$found" ]; then echo "$found"; else tail -n 40 "$1"; fi
}

skip() { # name why
  echo "skip  $1: $2"
  skipped+=("$1")
}

# A test harness's lines count as its tests; a step without such lines counts as one check.
step() { # name limit-in-seconds command...
  local name=$1 limit=$2
  shift 2
  case " ${SKIP:-} " in *" $name "*) skip "$name" "named in SKIP"; return ;; esac
  local log=$logs/$name.log start=$SECONDS left=$((${TEST_LIMIT:-4500} - (SECONDS - began))) code
  [ "$limit" -le "$left" ] || limit=$((left > 1 ? left : 1))
  ran+=("$name")
  timeout --kill-after=10 "$limit" "$@" >"$log" 2>&1
  code=$?
  [ $code != 124 ] && [ $code != 137 ] || echo "killed at its limit of $limit s" >>"$log"
  local ok bad
  ok=$(awk '/^test result: / { for (i = 1; i < NF; i++) if ($(i + 1) ~ /^passed/) n += $i } END { print n + 0 }' "$log")
  bad=$(awk '/^test result: / { for (i = 1; i < NF; i++) if ($(i + 1) ~ /^failed/) n += $i } END { print n + 0 }' "$log")
  if [ $((ok + bad)) = 0 ]; then
    if [ $code = 0 ]; then ok=1; else bad=1; fi
  elif [ $code != 0 ] && [ "$bad" = 0 ]; then
    bad=1 # it did not compile, ended between two tests, or was killed
  fi
  passed=$((passed + ok))
  failed=$((failed + bad))
  if [ $code = 0 ]; then
    echo "ok    $name: $ok passed ($((SECONDS - start)) s)"
    if grep -q '^skipped: ' "$log"; then
      skipped+=("part of $name")
      sed -n 's/^skipped: /        skipped: /p' "$log"
    fi
    sed -n -e 's/^grown: /        grown: /p' -e 's/^changed: /        changed: /p' "$log"
    tail -n 1 "$log" | grep -E '^(crash|faults|damage|media|planted|histories|kills|soak|ran):?' | sed 's/^/        /' || true
  else
    failures+=("$name")
    echo "FAIL  $name: $ok passed, $bad failed, exit code $code ($((SECONDS - start)) s); from $log:"
    what_failed "$log" | cut -c -300 | sed 's/^/        /'
  fi
}

# The campaigns and the planted bugs share one build: with the feature `planted`, and no bug chosen.
sim=(cargo run --quiet --profile campaign -p ledgerstone-sim --features planted --)

# What later steps run is built beside the first ones, on what these leave of the processors. A build that fails is told
# by the step that needs it, which builds again.
ahead() {
  local idle=(nice -n 19)
  ! command -v chrt >/dev/null || idle=(chrt --idle 0)
  "${idle[@]}" cargo build --quiet --profile campaign -p ledgerstone-sim --features planted
  "${idle[@]}" cargo build --quiet --release -p ledgerstone-cli
}
case " ${SKIP:-} " in *" tests "*) ;; *) ahead >"$logs/ahead.log" 2>&1 & esac

step format 60 cargo fmt --all --check
step clippy 900 cargo clippy --quiet --workspace --all-targets -- -D warnings
step docs 300 env RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps
step msrv 600 scripts/msrv.sh
# To install cargo-deny, cargo-semver-checks or mdbook takes minutes, longer than what they check: `make deny`,
# `make semver` and `make docs` do it.
if command -v cargo-deny >/dev/null; then step deny 300 scripts/deny.sh; else skip deny "make deny installs cargo-deny"; fi
# Tells what has gone from the interface, and fails for it only once there is a release.
if command -v cargo-semver-checks >/dev/null; then step semver 600 scripts/semver.sh; else skip semver "make semver installs cargo-semver-checks"; fi
step package 120 scripts/package.sh
step features 600 scripts/features.sh
step tests 1800 cargo test --workspace --no-fail-fast
# Built by now, with the tests; cargo, asked for one package alone, would build what it needs again with fewer features.
step examples 600 cargo build --quiet --workspace --examples
# Half a minute: the example programs with redb and SQLite.
step beside 300 scripts/beside.sh
# That the other stores of `make peers` still do what they are asked for; its figures are not measured here.
step peers 600 scripts/peers.sh check
if command -v mdbook >/dev/null; then step book 300 scripts/book.sh; else skip book "make docs installs mdbook"; fi
step flash 300 "$target/debug/examples/flash_crash" 5000
step port-kills 300 "$target/debug/examples/kills" --rounds "${PORT_KILL_ROUNDS:-50}"
step loom 1200 scripts/loom.sh
step deaths 1200 env ROUNDS="${DEATH_ROUNDS:-2000}" scripts/deaths.sh
step crash 900 "${sim[@]}" crash --rounds "${CRASH_ROUNDS:-10000}"
step crash-raw 300 "${sim[@]}" crash --raw --rounds "${RAW_ROUNDS:-1000}"
step every-write-raw 120 "${sim[@]}" crash --raw --every-write --rounds "${RAW_EVERY_ROUNDS:-6}"
step faults 300 "${sim[@]}" faults --rounds "${FAULT_ROUNDS:-3000}"
step faults-raw 120 "${sim[@]}" faults --raw --rounds "${RAW_FAULT_ROUNDS:-200}"
step damage 300 "${sim[@]}" damage --rounds "${DAMAGE_ROUNDS:-100}"
step damage-raw 120 "${sim[@]}" damage --raw --rounds "${RAW_DAMAGE_ROUNDS:-10}"
step media 300 "${sim[@]}" media --rounds "${MEDIA_ROUNDS:-3000}"
step planted 600 "${sim[@]}" planted
step histories 300 "${sim[@]}" histories --rounds "${HISTORY_ROUNDS:-200}" --shared-rounds "${SHARED_HISTORY_ROUNDS:-10}"
step kills 300 "${sim[@]}" kills --rounds "${KILL_ROUNDS:-50}" --private-mib 256
step soak 240 "${sim[@]}" soak --seconds "${SOAK_SECONDS:-20}"
step probe 600 cargo run --quiet --release -p ledgerstone-cli -- probe --quick --force --dir "$target" --out "$logs/probe.json" --html "$logs/probe.html"
# Tells what has grown by more than 3 % since docs/costs.md was written, and does not fail for it.
scripts/need.sh counting
if command -v valgrind >/dev/null && command -v objdump >/dev/null; then step counts 600 cargo run --quiet --release -p ledgerstone-cli -- bench counts --against docs/costs.md --tmp "$target"; else skip counts "valgrind and objdump are missing"; fi
step demo 300 env DEMO_SECONDS=5 scripts/demo.sh --build

counts="$passed passed, $failed failed"
left_out=
if [ ${#skipped[@]} != 0 ]; then
  counts+=", ${#skipped[@]} skipped"
  left_out=$(IFS=,; echo "; ${#skipped[@]} skipped: ${skipped[*]}")
fi
echo "$counts" >"$logs/counts"
what=$(IFS=,; echo "${ran[*]}")
if [ ${#failures[@]} = 0 ]; then
  echo "ran: ${what//,/, } ($((SECONDS - began)) s); $passed passed, nothing failed${left_out//,/, }"
else
  echo "ran: ${what//,/, } ($((SECONDS - began)) s); $passed passed, $failed failed: ${failures[*]}${left_out//,/, }"
  exit 1
fi
