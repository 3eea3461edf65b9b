#!/usr/bin/env bash
# Two sites between network namespaces, with loss, repetition, reordering and delay: order and at-most-once must hold, and
# a cut must be noticed in the configured time. The bad links are the kernel's (netem); where it has none, a relay of ours is
# between the sites. Skips with a message where namespaces are not permitted.
#   port-net.sh [COUNT]
set -euo pipefail
cd "$(dirname "$0")/.."
count=${1:-20000}
one=port-net-1-$$ two=port-net-2-$$
for tool in ip tc; do
  command -v $tool >/dev/null || { echo "skipped: $tool is missing (Debian package iproute2)"; exit 0; }
done
if ! ip netns add "$one" 2>/dev/null; then
  echo "skipped: network namespaces are not permitted here"
  exit 0
fi
work=$(mktemp -d)
clean() {
  for namespace in "$one" "$two"; do
    ip netns pids "$namespace" 2>/dev/null | xargs -r kill 2>/dev/null || true
    ip netns delete "$namespace" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap clean EXIT
ip netns add "$two"
ip link add v1 netns "$one" type veth peer name v2 netns "$two"
ip -n "$one" address add 10.77.0.1/24 dev v1
ip -n "$two" address add 10.77.0.2/24 dev v2
ip -n "$two" link set lo up
ip -n "$one" link set v1 up
ip -n "$two" link set v2 up
cargo build --quiet --release -p ledgerstone-port --example sites
sites=${CARGO_TARGET_DIR:-target}/release/examples/sites
"$sites" keys "$work"

run() { # title netem...
  local title=$1 receiver sender code towards=10.77.0.2:7000 back=10.77.0.1:7000 interface=10.77.0.2 relay=
  shift
  rm -rf "$work"/ports-* "$work/cut"
  if [ "${1:-}" = relay ]; then
    # Multicasts come to the relay, which sends them on over the loopback interface.
    towards=10.77.0.2:7001 back=10.77.0.2:7002 interface=127.0.0.1
    ip netns exec "$two" "$sites" relay "$towards" "$back" 10.77.0.2:7000 "$2" >"$work/relay" 2>&1 &
    relay=$!
    until grep -q ready "$work/relay"; do sleep 0.05; done
    set --
  fi
  if [ $# -gt 0 ] && ! { ip netns exec "$one" tc qdisc replace dev v1 root netem "$@" &&
    ip netns exec "$two" tc qdisc replace dev v2 root netem "$@"; } 2>"$work/tc"; then
    echo "skipped: $title: no netem here ($(head -n 1 "$work/tc"))"
    return
  fi
  ip netns exec "$two" "$sites" receive "$work" 10.77.0.2:7000 "$back" "$interface" "$count" >"$work/received" 2>&1 &
  receiver=$!
  until grep -q ready "$work/received"; do sleep 0.05; done
  ip netns exec "$one" "$sites" send "$work" 10.77.0.1:7000 "$towards" 10.77.0.1 "$count" >"$work/sent" 2>&1 &
  sender=$!
  while ! grep -q drained "$work/sent"; do
    kill -0 $sender 2>/dev/null || { cat "$work/sent" "$work/received"; echo "FAILED: $title"; exit 1; }
    sleep 0.05
  done
  until grep -q "each once and in order" "$work/received"; do
    kill -0 $receiver 2>/dev/null || { cat "$work/received"; echo "FAILED: $title"; exit 1; }
    sleep 0.05
  done
  touch "$work/cut"
  ip -n "$two" link set v2 down
  code=0
  wait $sender || code=$?
  kill $receiver 2>/dev/null || { cat "$work/received"; code=1; }
  wait $receiver 2>/dev/null || true
  if [ -n "$relay" ]; then kill $relay; wait $relay 2>/dev/null || true; fi
  ip -n "$two" link set v2 up
  echo "$title: $(grep "each once" "$work/received"); $(grep drained "$work/sent"); $(tail -n 1 "$work/sent")"
  [ $code = 0 ] || { cat "$work/received"; echo "FAILED: $title"; exit 1; }
}

run "clean link"
run "loss 5 %" loss 5%
run "repetition 10 %" duplicate 10%
run "delay 10 ms, reordering" delay 10ms 5ms reorder 25% 50%
run "all of them" delay 5ms 3ms loss 3% duplicate 5% reorder 20% 50%
for percent in 1 5 20; do
  run "relay: $percent % lost, repeated, held back" relay $percent
done
echo "port-net: order, at-most-once and death in time held"
