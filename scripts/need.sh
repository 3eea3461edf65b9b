#!/usr/bin/env bash
# Installs what a target needs and the machine lacks; silent when nothing is missing.
#   need.sh rust [fmt] [clippy] [python] [c++] [cargo-deny] [cargo-semver-checks] [mdbook] [db-tools] [strace] [shells]
#           [valgrind] [objdump] [counting] [peers] [postgres]
set -euo pipefail

apt_install() {
  echo "installing Debian package(s): $*" >&2
  local sudo=""
  [ "$(id -u)" = 0 ] || sudo="sudo"
  command -v apt-get >/dev/null || { echo "please install: $*" >&2; exit 2; }
  $sudo apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq "$@" >&2
}

component() {
  command -v "$2" >/dev/null && "$2" --version >/dev/null 2>&1 && return
  command -v rustup >/dev/null || { echo "this needs $2: install the Rust component $1" >&2; exit 2; }
  echo "installing Rust component: $1" >&2
  rustup component add "$1" >&2
}

for what in "$@"; do
  case $what in
    rust)
      command -v cargo >/dev/null || { echo "a Rust toolchain (1.95 or later) is needed: install rustup first" >&2; exit 2; }
      command -v cc >/dev/null || apt_install gcc libc6-dev ;;
    fmt) component rustfmt cargo-fmt ;;
    clippy) component clippy cargo-clippy ;;
    python) command -v python3 >/dev/null || apt_install python3 ;;
    c++) command -v c++ >/dev/null || apt_install g++ ;;
    # Berkeley DB's tools, with which a test makes dumps; it has golden files where they cannot be had.
    db-tools) command -v db5.3_load >/dev/null || timeout 120 "$0" db-tools-now >&2 || echo "without Berkeley DB's tools: golden files are read" >&2 ;;
    db-tools-now) apt_install db5.3-util ;;
    # With which tests see whether a sync reaches the system; without it they prove nothing, and say so.
    strace) command -v strace >/dev/null || timeout 120 "$0" strace-now >&2 || echo "without strace: what is called durable is not watched" >&2 ;;
    strace-now) apt_install strace ;;
    # Whose completions a test tries; it goes without those that cannot be had.
    shells) command -v zsh >/dev/null && command -v fish >/dev/null || timeout 120 "$0" shells-now >&2 || echo "without zsh and fish: only bash tries its completions" >&2 ;;
    shells-now) apt_install zsh fish ;;
    valgrind) command -v valgrind >/dev/null || apt_install valgrind ;;
    objdump) command -v objdump >/dev/null || apt_install binutils ;;
    # Both of them, for CI, which goes without counts where they cannot be had.
    counting) command -v valgrind >/dev/null && command -v objdump >/dev/null || timeout 240 "$0" valgrind objdump >&2 || echo "without valgrind: instructions are not counted" >&2 ;;
    # The libraries that `make peers` measures beside ours, with their headers.
    peers)
      missing=()
      for pair in lmdb.h=liblmdb-dev db.h=libdb5.3-dev rocksdb/c.h=librocksdb-dev wiredtiger.h=libwiredtiger-dev \
        sqlite3.h=libsqlite3-dev; do
        [ -e "/usr/include/${pair%=*}" ] || missing+=("${pair#*=}")
      done
      [ ${#missing[@]} = 0 ] || timeout 300 "$0" packages "${missing[@]}" ;;
    postgres)
      ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || timeout 300 "$0" packages postgresql >&2 ||
        echo "without PostgreSQL: its row is left out" >&2 ;;
    packages) shift; apt_install "$@"; exit ;;
    cargo-deny) command -v cargo-deny >/dev/null || { echo "installing cargo-deny (some minutes)" >&2; cargo install --quiet --locked cargo-deny; } ;;
    cargo-semver-checks) command -v cargo-semver-checks >/dev/null || { echo "installing cargo-semver-checks (some minutes)" >&2; cargo install --quiet --locked cargo-semver-checks; } ;;
    mdbook) command -v mdbook >/dev/null || { echo "installing mdbook (some minutes)" >&2; cargo install --quiet --locked mdbook --no-default-features --features search; } ;;
    *) echo "need.sh: unknown need $what" >&2; exit 2 ;;
  esac
done
