#!/usr/bin/env bash
# Counts lines of Rust that are neither blank nor comments. All is formatted by one rustfmt.toml, so they compare.
#   lines.sh FILE...
set -euo pipefail
for file in "$@"; do
  printf '%s %s\n' "$(grep -cvE '^\s*(//.*)?$' "$file")" "$file"
done
