#!/usr/bin/env bash
# Licences, sources and doubles of the dependencies, by deny.toml. Advisories too, where their database can be reached or is
# there already. With --if-possible a missing cargo-deny that cannot be installed is said, and no failure.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! timeout "${DENY_INSTALL_LIMIT:-900}" scripts/need.sh cargo-deny; then
  echo "cargo-deny cannot be installed: the dependencies are not checked" >&2
  [ "${1:-}" = --if-possible ] && exit 0
  exit 2
fi
cargo deny --log-level error check bans licenses sources
if cargo deny --log-level error fetch db >/dev/null 2>&1; then
  cargo deny --log-level error check advisories
else
  echo "the database of advisories cannot be reached: advisories are not checked" >&2
fi
