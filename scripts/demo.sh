#!/usr/bin/env bash
# The main job, from nothing to a proof: make an environment, import the shipped data, ask it something, run TPC-B with
# several threads, kill the process hard in the middle, reopen, and prove that the books agree, that no acknowledged
# commit is missing and that the imported table is still what it was. Twice: with Sync commits, then with Pipelined.
#
#   demo.sh [--build]     DEMO_SECONDS (8) before each kill, DEMO_THREADS (4), DEMO_ACCOUNTS (100000),
#                         DEMO_DIR (target/demo): made afresh and left behind to be looked at
set -euo pipefail
exec 2>&1 # Notes and data in the order in which they were said.
cd "$(dirname "$0")/.."
[ "${1:-}" != --build ] || cargo build --quiet --release -p ledgerstone-cli
seconds=${DEMO_SECONDS:-8}
threads=${DEMO_THREADS:-4}
accounts=${DEMO_ACCOUNTS:-100000}
target=${CARGO_TARGET_DIR:-target}
dir=${DEMO_DIR:-$target/demo}
ledgerstone=$target/release/ledgerstone
began=$SECONDS

victim=
trap '[ -z "$victim" ] || kill -9 "$victim" 2>/dev/null || true; trap - EXIT; fail "ended early"' INT TERM
fail() { echo "ran: demo; FAILED: $*"; exit 1; }
say() { printf '\n== %s\n' "$*"; }
run() { echo "\$ ledgerstone $*"; "$ledgerstone" "$@" || fail "ledgerstone $1 ended with exit code $?"; }
# A figure out of a report in JSON; the reports are ours, so that this needs no tool.
figure() { grep -o "\"$1\":[^,}]*" "$2" | head -n 1 | cut -d: -f2; }

rm -rf "$dir"
mkdir -p "$dir"
env=$dir/env

say "the shipped data set: the Unicode Character Database (data/PROVENANCE.md)"
(cd data && sha256sum --quiet -c SHA256SUMS) || fail "data/ is not what was shipped"
wc -lc data/characters.csv

say "make an environment and import it"
run init "$env"
run import "$env" characters data/characters.csv --key code

say "ask it something"
run get "$env" characters 01F980
run scan "$env" characters --prefix 01F98 --keys-only --limit 5
run scan "$env" characters --reverse --limit 1
run tables "$env" --count

say "a bank of $accounts accounts beside it"
run bench tpcb --keep "$env" --accounts "$accounts" --seconds 0 >/dev/null

rows=()
# Runs TPC-B, kills it, reopens, checks. $1: durability
kill_and_prove() {
  local acks=$dir/acknowledged.$1 report=$dir/report.$1
  say "TPC-B, $threads threads, $1 commits, SIGKILL after $seconds s"
  "$ledgerstone" --quiet bench tpcb --keep "$env" --threads "$threads" --seconds 3600 --durability "$1" --warm-up 0 \
    --checkpoint-log 64M --seed "$RANDOM" --ack-file "$acks" >"$dir/victim.$1" 2>&1 &
  victim=$!
  local waited=0
  until [ -s "$acks.0" ]; do
    kill -0 "$victim" 2>/dev/null || { cat "$dir/victim.$1"; fail "TPC-B did not start"; }
    sleep 0.1
    waited=$((waited + 1))
    [ $waited -lt 600 ] || fail "TPC-B acknowledged nothing in a minute"
  done
  sleep "$seconds"
  kill -0 "$victim" 2>/dev/null || { cat "$dir/victim.$1"; fail "TPC-B ended by itself"; }
  kill -9 "$victim"
  wait "$victim" 2>/dev/null || true
  victim=
  echo "killed; $(cat "$acks".* | wc -c | awk '{ print $1 / 8 }') commits had been acknowledged as durable"

  say "reopen, recover, prove"
  echo "\$ ledgerstone bench tpcb --keep $env --verify-acks $acks --check"
  local code=0
  "$ledgerstone" --json bench tpcb --keep "$env" --verify-acks "$acks" --check >"$report" || code=$?
  [ -s "$report" ] || fail "the environment did not open again after SIGKILL"
  local phases
  phases=$(grep -o '"phases_ms":\[[^]]*\]' "$report" | sed 's/.*\[//; s/\]//')
  awk -v phases="$phases" -v total="$(figure total_ms "$report")" -v records="$(figure record_count "$report")" \
    -v repeated="$(figure redo_applied_count "$report")" -v losers="$(figure loser_count "$report")" 'BEGIN {
      split(phases, ms, ",")
      printf "recovery in %.1f ms: torn pages %.1f, analysis %.1f, redo %.1f, undo %.1f, checkpoint %.1f\n",
        total, ms[1], ms[2], ms[3], ms[4], ms[5]
      printf "%d log records read, %d page updates repeated, %d transactions rolled back\n", records, repeated, losers
    }'
  local missing wrong
  missing=$(figure missing_count "$report")
  wrong=$(($(figure wrong_balance_count "$report") + $(figure wrong_record_count "$report")))
  echo "acknowledged $(figure acknowledged_count "$report"), missing $missing; history $(figure history_count "$report"), wrong balances or records $wrong"
  rows+=("$1|$(figure acknowledged_count "$report")|$missing|$(figure history_count "$report")|$wrong|$(figure total_ms "$report" | cut -d. -f1) ms")
  [ "$code" = 0 ] && [ "$missing" = 0 ] && [ "$wrong" = 0 ] || { cat "$report"; fail "the proof failed after $1"; }
}
kill_and_prove sync
kill_and_prove pipelined

say "the imported table is what it was, and every page is sound"
run export "$env" characters "$dir/characters.csv" --rows
cmp "$dir/characters.csv" data/characters.csv || fail "the exported table differs from the imported file"
run verify "$env"

say "in short"
{
  echo "commits|acknowledged|missing|in the history|wrong balances|recovery"
  printf '%s\n' "${rows[@]}"
} | awk -F'|' '{ printf "  %-10s %14s %8s %15s %15s %12s\n", $1, $2, $3, $4, $5, $6 }'
echo
echo "ran: demo (import, queries, TPC-B, two SIGKILLs, recovery, proofs; $((SECONDS - began)) s); nothing failed"
