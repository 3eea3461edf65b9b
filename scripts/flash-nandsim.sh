#!/usr/bin/env bash
# Runs the MTD back end against the kernel's NAND simulator in an emulated machine: a stock Debian kernel under QEMU,
# whose whole system is busybox, the modules of nandsim, and examples/flash_mtd. Nothing is installed: packages are
# unpacked below target/nandsim.
#   flash-nandsim.sh [FILE]     FILE gets the recorded calls (crates/flash/tests/nandsim.calls is one)
# Skips with a message, and exit code 0, when the emulator or the packages are not to be had.
set -euo pipefail
cd "$(dirname "$0")/.."
record=${1:-}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
dir=$target/nandsim

skip() {
  echo "skipped: $1"
  exit 0
}

[ "$(uname -m)" = x86_64 ] || skip "the emulated machine is an x86-64 one"
command -v qemu-system-x86_64 >/dev/null || skip "qemu-system-x86_64 is missing (Debian: apt-get install qemu-system-x86)"
command -v apt-get >/dev/null || skip "apt-get is needed to get Debian's kernel and busybox"

mkdir -p "$dir"
if [ ! -e "$dir/unpacked" ]; then
  kernel=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -1)
  [ -n "$kernel" ] || skip "apt knows no package linux-image-amd64 (apt-get update?)"
  (cd "$dir" && apt-get download "$kernel" busybox-static >/dev/null) || skip "$kernel and busybox-static could not be downloaded"
  rm -rf "$dir/root"
  for package in "$dir"/linux-image-*.deb "$dir"/busybox-static_*.deb; do dpkg-deb -x "$package" "$dir/root"; done
  touch "$dir/unpacked"
fi
kernel=$(ls "$dir"/root/boot/vmlinuz-* | head -1)
modules=$dir/root/lib/modules/${kernel##*/vmlinuz-}

cargo build --quiet --release -p ledgerstone-flash --example flash_mtd
init=$dir/init
rm -rf "$init"
mkdir -p "$init"/{bin,dev,proc,sys,modules,lib64}
busybox=$(find "$dir/root" -path '*bin/busybox' -type f | head -1)
cp "$busybox" "$init/bin/busybox"
cp "$target/release/examples/flash_mtd" "$init/bin/"
strip "$init/bin/flash_mtd"
# The program and what it is linked with.
ldd "$target/release/examples/flash_mtd" | grep -o '/[^ ]*' | while read -r library; do
  mkdir -p "$init$(dirname "$library")"
  cp -L "$library" "$init$library"
done
# nandsim and what it depends on, in the order of loading.
load=
order() {
  local name=$1 path needs need
  path=$(find "$modules" -name "$name.ko*" | head -1)
  [ -n "$path" ] || { echo "no module $name in $modules" >&2; return 1; }
  case " $load " in *" $name "*) return ;; esac
  needs=$(strings -a "$path" | sed -n 's/^depends=//p' | tr , ' ')
  for need in $needs; do order "$(basename "$(find "$modules" -name "${need//_/[-_]}.ko*" | head -1)" | sed 's/\.ko.*//')"; done
  case " $load " in *" $name "*) return ;; esac
  load="$load $name"
  case $path in *.xz) xz -dc "$path" >"$init/modules/$name.ko" ;; *) cp "$path" "$init/modules/$name.ko" ;; esac
}
order nandsim

cat >"$init/init" <<EOF
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
for module in $load; do
  case \$module in
  # 128 MB of 128 KB blocks and pages of 2 KB + 64 B; the first 16 blocks are a device of their own.
  nandsim) /bin/busybox insmod /modules/nandsim.ko id_bytes=0x20,0xa1,0x00,0x15 parts=16 ;;
  *) /bin/busybox insmod /modules/\$module.ko ;;
  esac
done
/bin/busybox cat /proc/mtd
/bin/flash_mtd /dev/mtd0 /calls && echo THE-DEVICE-HOLDS
echo CALLS-BEGIN
/bin/busybox gzip -c /calls | /bin/busybox base64
echo CALLS-END
/bin/busybox poweroff -f
EOF
chmod +x "$init/init"
(cd "$init" && find . | "$busybox" cpio -o -H newc 2>/dev/null | gzip -1 >"$dir/initrd.gz")

timeout 300 qemu-system-x86_64 -accel tcg -m 512 -nic none -nographic -no-reboot -kernel "$kernel" -initrd "$dir/initrd.gz" \
  -append "console=ttyS0 quiet panic=-1" </dev/null | tr -d '\r' >"$dir/console"
sed '/CALLS-BEGIN/,/CALLS-END/d' "$dir/console" | grep -v '^$' | tail -20
grep -q THE-DEVICE-HOLDS "$dir/console" || { echo "the MTD back end failed on nandsim (console: $dir/console)"; exit 1; }
if [ -n "$record" ]; then
  sed -n '/CALLS-BEGIN/,/CALLS-END/p' "$dir/console" | sed '1d;$d' | base64 -d | gzip -dc >"$record"
  echo "recorded: $record ($(wc -l <"$record") calls)"
fi
