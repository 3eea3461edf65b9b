#!/usr/bin/env bash
# Is the advice of `ledgerstone probe` worth following? On each place it runs the probe, takes the settings that the
# probe writes, and compares them with the defaults in pairs: by TPC-B with durable commits.
#   advice.sh [PLACE...]     without a name: all of them (advice.sh list)
# A place that this system cannot make is skipped, with what the system said. Loop devices and mounts want root.
#   LEDGERSTONE=FILE   the program          DIR=DIR      where files and images are made
#   ROUNDS=20 SECONDS_OF=10                 rounds of `bench settings`, and the seconds of all of them
#   ACCOUNTS=100000                         accounts of the bank: a million do not fit into the default's cache
#   FILE=FILE                               compare these settings instead of the advised ones
#   OTHER=1                                 where the advice is the default, compare the other sync method with it
#   OUT=docs/probe.md                       put the pairs into the table of this page, over those of the same places
set -uo pipefail
cd "$(dirname "$0")/.."
program=$(realpath "${LEDGERSTONE:-${CARGO_TARGET_DIR:-target}/release/ledgerstone}")
work=$(mktemp -d "${DIR:-.}/advice-XXXXXX") || exit 2
work=$(realpath "$work")
given=${FILE:+$(realpath "$FILE")}
mounted=() loops=() mapped=

clean() {
  local at
  local no
  # What was mounted last goes first; a loop device goes once nobody uses it, and its file's mount after it.
  for ((no = ${#mounted[@]} - 1; no >= 0; no--)); do
    [[ ${mounted[no]} == *-file ]] || umount "${mounted[no]}"
  done
  [ -z "$mapped" ] || dmsetup remove "$mapped"
  for at in "${loops[@]}"; do losetup -d "$at"; done
  for at in "${mounted[@]}"; do [[ $at != *-file ]] || umount "$at"; done
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

skip() {
  echo "  skipped: $*"
  return 1
}

# Runs a command that makes a place. If it fails, the place is skipped, with the first words of its error.
try() {
  local said
  said=$("$@" 2>&1 >/dev/null) || skip "$1: $(head -1 <<<"$said")"
}

# on_loop NAME BLOCK MOUNT_OPTIONS MKFS...: a file system on a loop device with blocks of that many bytes.
on_loop() {
  local name=$1 block=$2 options=$3 device
  shift 3
  truncate -s 3G "$work/$name.img"
  device=$(losetup --show -f --sector-size "$block" --direct-io=on "$work/$name.img" 2>&1) ||
    skip "losetup --sector-size $block: $device" || return
  loops+=("$device")
  try "$@" "$device" && mkdir "$work/$name" && try mount -o "$options" "$device" "$work/$name" || return
  mounted+=("$work/$name")
  at=$work/$name
}

# slow_flush NAME MS: ext4 on a device whose flushes take so long.
slow_flush() {
  local name=$1 device
  try dmsetup version || return
  truncate -s 3G "$work/$name.img"
  device=$(losetup --show -f "$work/$name.img" 2>&1) || skip "losetup: $device" || return
  loops+=("$device")
  try dmsetup create ledgerstone-advice --table \
    "0 $(blockdev --getsz "$device") delay $device 0 0 $device 0 0 $device 0 $2" || return
  mapped=ledgerstone-advice
  try mkfs.ext4 -q "/dev/mapper/$mapped" && mkdir "$work/$name" && try mount "/dev/mapper/$mapped" "$work/$name" ||
    return
  mounted+=("$work/$name")
  at=$work/$name
}

# on_memory NAME MKFS...: a file system on a loop device whose file is in memory: its flushes do nothing.
on_memory() {
  local name=$1 device
  shift
  mkdir "$work/$name-file" && try mount -t tmpfs none "$work/$name-file" || return
  mounted+=("$work/$name-file")
  truncate -s 2G "$work/$name-file/image"
  device=$(losetup --show -f "$work/$name-file/image" 2>&1) || skip "losetup: $device" || return
  loops+=("$device")
  try "$@" "$device" && mkdir "$work/$name" && try mount "$device" "$work/$name" || return
  mounted+=("$work/$name")
  at=$work/$name
}

mount_memory() {
  mkdir "$work/$1" && try mount -t "$1" none "$work/$1" || return
  mounted+=("$work/$1")
  at=$work/$1
}

# Each system call of that name takes so many microseconds longer.
delayed() {
  command -v strace >/dev/null || skip "strace is missing" || return
  wrap=(strace -f --seccomp-bpf -qq -o /dev/null -e "trace=$1" -e "inject=$1:delay_exit=$2")
  try "${wrap[@]}" true
}

# place NAME: sets `at`, where to measure, and `wrap`, what every program is run by.
place() {
  case $1 in
    here) ;;
    loop-512) on_loop "$1" 512 rw mkfs.ext4 -q ;;
    loop-4096) on_loop "$1" 4096 rw mkfs.ext4 -q ;;
    loop-16384) on_loop "$1" 16384 rw mkfs.xfs -q -s size=16384 -b size=16384 ;;
    btrfs) on_loop "$1" 512 rw mkfs.btrfs -q ;;
    no-direct) on_loop "$1" 512 data=journal mkfs.ext4 -q ;;
    no-flush) on_loop "$1" 512 nobarrier mkfs.ext4 -q ;;
    tmpfs | ramfs) mount_memory "$1" ;;
    on-tmpfs) on_memory "$1" mkfs.ext4 -q ;;
    mapper-delay) slow_flush "$1" 5 ;;
    slow-dsync) delayed pwritev2 300 ;;
    slow-fdatasync) delayed fdatasync 300 ;;
    slow-flush) delayed pwritev2,fdatasync 5000 ;;
    one-processor) wrap=(taskset -c 0) && try "${wrap[@]}" true ;;
    *) skip "no such place" ;;
  esac
}
all="here loop-512 loop-4096 loop-16384 btrfs no-direct no-flush tmpfs on-tmpfs ramfs mapper-delay slow-dsync slow-fdatasync
slow-flush one-processor"

# What a place is, for the page.
title_of() {
  case $1 in
    here) echo "the disk" ;;
    loop-*) echo "loop device with blocks of ${1#loop-} bytes" ;;
    btrfs) echo "btrfs" ;;
    no-direct) echo "data in the journal (ext4): no direct I/O" ;;
    no-flush) echo "ext4 that never flushes its device (\`nobarrier\`)" ;;
    tmpfs | ramfs) echo "memory ($1)" ;;
    on-tmpfs) echo "ext4 on a device in memory: flushes do nothing" ;;
    mapper-delay) echo "every flush takes 5 ms longer (device mapper)" ;;
    slow-dsync) echo "durable one-call writes take 300 us longer (\`strace\`)" ;;
    slow-fdatasync) echo "\`fdatasync\` takes 300 us longer (\`strace\`)" ;;
    slow-flush) echo "every durable write takes 5 ms longer, by both methods (\`strace\`)" ;;
    one-processor) echo "one processor" ;;
  esac
}

# row PLACE ADVISED COMPARED RESULT: into the table of the page, over the row that the place has.
row() {
  [ -n "${OUT:-}" ] || return 0
  awk -v title="$1" -v line="| $1 | $2 | $3 | $4 |" '
    $0 == "<!-- pairs: written by scripts/advice.sh, not by hand -->" { inside = 1 }
    inside && index($0, "| " title " |") == 1 { next }
    $0 == "<!-- end of pairs -->" { print line; inside = 0 }
    { print }' "$OUT" >"$work/page" && cp "$work/page" "$OUT"
}

# What a settings file sets, in one line.
settings_of() {
  grep -v '^#' "$1" | grep . | paste -sd, | sed 's/,/, /g'
}

if [ "${1:-}" = list ]; then
  echo $all
  exit 0
fi
for name in ${*:-$all}; do
  echo "$name"
  at=$work/here wrap=()
  mkdir -p "$at"
  place "$name" || continue
  rm -rf "$work/env"
  "${wrap[@]}" "$program" -q probe --quick --disk 64M --dir "$at" force --write-config "$work/env" \
    >"$work/report" ||
    { skip "the probe failed: $(tail -1 "$work/report")"; continue; }
  grep '^# the default stays' "$work/env/ledgerstone.toml" | sed 's/^# /  /'
  advised=$(settings_of "$work/env/ledgerstone.toml")
  file=${given:-$work/env/ledgerstone.toml} what="the advice"
  # Only where the probe is sure that the default is right: nothing is advised where values were noisy.
  if [ -n "${OTHER:-}" ] && [ -z "$given" ] && [ "$advised" = 'sync_method = "dsync"' ]; then
    file=$work/other.toml what='`fdatasync`'
    echo 'sync_method = "fdatasync"' >"$file"
  fi
  echo "  advised: ${advised:-nothing}; compared: $(settings_of "$file")"
  "${wrap[@]}" "$program" -q bench settings "$file" --tmp "$at" --accounts "${ACCOUNTS:-100000}" \
    --rounds "${ROUNDS:-20}" --seconds "${SECONDS_OF:-10}" >"$work/said" || { skip "the pairs failed"; continue; }
  grep -E 'instead of|is the default|of the defaults' "$work/said"
  result=$(sed -n 's/^ *of the defaults *\([0-9.]*\) % (95 %: \([0-9.]*\) to \([0-9.]*\);.*/\1 % (\2 to \3)/p' "$work/said")
  ! grep -q 'is the default' "$work/said" || what="equal settings"
  row "$(title_of "$name")" "\`${advised:-nothing}\`" "$what" "$result"
done
