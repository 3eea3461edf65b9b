#!/usr/bin/env bash
# Whether the library's interface still has what it had at an earlier revision, by cargo-semver-checks.
#   semver.sh [BASE]
#
# Without BASE it is the newest tag of a release, or while there is none, where this branch left main; on main itself, the
# commit before. What has gone since a release, or since a BASE that was named, is a failure. Nothing has been promised
# before the first release, so then it is only told, in lines that begin with "changed: ".
set -euo pipefail
cd "$(dirname "$0")/.."
crates=(ledgerstone ledgerstone-core ledgerstone-feed ledgerstone-media)

is_promised=1
base=${1:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || true)}
if [ -z "$base" ]; then
  is_promised=0
  head=$(git rev-parse HEAD 2>/dev/null || true)
  for main in origin/main main; do
    base=$(git merge-base HEAD "$main" 2>/dev/null || true)
    [ -z "$base" ] || break
  done
  if [ -z "$base" ] || [ "$base" = "$head" ]; then base=$(git rev-parse --verify --quiet HEAD^ || true); fi
fi
if [ -z "$base" ]; then
  echo "skipped: there is no earlier revision here to compare the interface with"
  exit
fi

scripts/need.sh cargo-semver-checks
named=("${crates[@]/#/-p}")
code=0
said=$(cargo semver-checks check-release "${named[@]}" --release-type minor --baseline-rev "$base" 2>&1) || code=$?
echo "$said"
failures=$(grep '^--- failure ' <<<"$said" | sort | uniq -c | sed 's/^ *\([0-9]*\) --- failure \(.*\) ---$/\2 (\1)/') || true
if [ $code = 0 ]; then
  echo "the interface has what it had at $base"
elif [ $is_promised = 0 ] && [ -n "$failures" ]; then
  sed 's/^/changed: /' <<<"$failures"
else
  exit $code
fi
