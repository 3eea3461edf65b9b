#!/usr/bin/env bash
# Licences, sources and doubles of the dependencies, by deny.toml. Advisories too, where their database can be reached or is
# there already.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/need.sh cargo-deny
cargo deny --log-level error check bans licenses sources
if cargo deny --log-level error fetch db >/dev/null 2>&1; then
  cargo deny --log-level error check advisories
else
  echo "skipped: the database of advisories cannot be reached, so advisories are not checked"
fi
