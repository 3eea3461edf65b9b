#!/usr/bin/env bash
# Puts the built command, without its symbols, its manual pages and its completions under a prefix.
#   install.sh PREFIX
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=$1
built=${CARGO_TARGET_DIR:-target}/release/ledgerstone
share=$prefix/share
install -s -D -m 755 "$built" "$prefix/bin/ledgerstone"
mkdir -p "$share/man/man1" "$share/bash-completion/completions" "$share/zsh/site-functions" "$share/fish/vendor_completions.d"
"$built" --quiet man "$share/man/man1" --force
"$built" completions bash >"$share/bash-completion/completions/ledgerstone"
"$built" completions zsh >"$share/zsh/site-functions/_ledgerstone"
"$built" completions fish >"$share/fish/vendor_completions.d/ledgerstone.fish"
echo "$prefix/bin/ledgerstone, manual pages and completions for bash, zsh and fish"
