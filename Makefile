# What this repository can do, one target each. Every target installs what it needs when it is missing, says what it
# runs while it runs it, and ends with one line: what was run and what failed.
#
#   make demo                 the main job: import, TPC-B, SIGKILL, recovery, proof (under two minutes after the build)
#   make test                 everything CI runs, bounded
#   make crash ROUNDS=100000  simulated power failures and kills over random transactions (RAW=1: on raw stores)
#   make faults ROUNDS=30000  random transactions, and every command, on a disk that refuses, lies, or stores other bytes (RAW=1)
#   make damage ROUNDS=10000  one file damaged after a close, a kill or a power failure: told, harmless, or listed in docs/faults.md (RAW=1: a raw store's own bytes)
#   make media ROUNDS=30000   backups beside random transactions and power failures; restores and repairs compared with a model
#   make deaths ROUNDS=100000 processes that die or stop at every store to the region they share, and at random ones: repaired
#   make kills ROUNDS=1000    real processes share one environment; they are killed and stopped at random moments: the others go on
#   make histories ROUNDS=20000   serializability of concurrent random transactions, at each level
#   make soak SECONDS=600     everything at once in real files: memory, files, log, data and latencies stay bounded
#   make sanitize             tests of disk, region, buffer, log and lock under the address sanitizer
#   make loom                 models of latches, log buffer and page table, all orders
#   make fuzz SECONDS=60      each fuzz target for that long
#   make flash-crash ROUNDS=1000000   power cuts over the protocols on raw flash
#   make flash-models         every script of four steps (DEPTH=5: five) with every power cut on raw flash, and scripts at random
#   make flash-demo           a bank on a flash image, killed and audited, under each protocol; then all beside each other, with plots
#   make flash-nandsim        the MTD back end on the kernel's NAND simulator in an emulated machine; skipped where that cannot be had
#   make flash-bench          the paper's figures from TPC-C with 20 warehouses, on an eighth of its device
#   make flash-bench-full     the same on all 32 GB
#   make bench                every figure of docs/benchmarks.md, measured again
#   make counts               what operations cost, counted under callgrind: instructions, atomics, allocations, code (docs/costs.md; BESIDE=1: of LMDB and Berkeley DB too)
#   make port-kills ROUNDS=1000   processes at ports killed and stopped at random moments
#   make port-net             two sites between network namespaces with loss, repetition, reordering and delay (as root)
#   make port-bench           the experiments of docs/ports.md, measured again
#   make probe DIR=.          what this machine gives, measured on DIR's file system (under three minutes)
#   make docs                 the book of all pages and rustdoc, in target/book; every link followed
#   make beside               the example programs written with redb and SQLite: built, tested, and their lines counted
#   make peers QUICK=1        other stores beside ours, each through its own interface (docs/peers.md): 5 minutes; 40 without QUICK
#   make deny                 licences, sources and (with a network) advisories of the dependencies
#   make msrv                 the oldest compiler: what the pages name, and a check with it
#   make semver BASE=REV      whether the library's interface still has what it had at that revision, or where this branch began
#   make features             the library alone: how many crates it needs, each of its features by itself
#   make package              every crate that can be published, packed and built from what was packed (nothing is uploaded)
#   make install PREFIX=/usr/local   the command, its manual pages and completions (needs the right to write there)
#   make data                 the shipped data set, made again from its source (needs Debian's package)
#   make clean                what the targets above leave behind

SHELL := /bin/bash
.DEFAULT_GOAL := help

# Each campaign's own number of rounds, unless one is given.
KILLS := $(if $(filter command%,$(origin ROUNDS)),$(ROUNDS),1000)
PORT_ROUNDS := $(if $(filter command%,$(origin ROUNDS)),$(ROUNDS),1000)
HISTORIES := $(if $(filter command%,$(origin ROUNDS)),$(ROUNDS),2000)
ROUNDS    ?= 100000
SOAK_SECONDS := $(if $(filter command%,$(origin SECONDS)),$(SECONDS),600)
SECONDS_  := $(if $(filter command%,$(origin SECONDS)),$(SECONDS),60)
SEED      ?=
PREFIX    ?= /usr/local
DESTDIR   ?=
export CARGO_TERM_COLOR ?= never
# Where `cargo install` puts what a target installs: found there again, whatever the shell's own PATH has.
export PATH := $(PATH):$(or $(CARGO_INSTALL_ROOT),$(CARGO_HOME),$(HOME)/.cargo)/bin

# With the bugs that can be planted, and none of them planted unless it is asked for: one build for all campaigns.
SIM := cargo run --quiet --profile campaign -p ledgerstone-sim --features planted --

.PHONY: help demo test docs beside peers crash faults damage media planted histories soak sanitize loom deaths kills fuzz bench counts probe deny msrv semver features package data release install clean flash-crash flash-models flash-demo flash-nandsim flash-bench flash-bench-full port-kills port-net port-bench

help:
	@sed -n 's/^#   \(make .*\)/\1/p' Makefile

release:
	@scripts/need.sh rust
	@cargo build --release -p ledgerstone-cli

demo: release
	@scripts/demo.sh

test:
	@scripts/test.sh

crash:
	@scripts/need.sh rust
	@scripts/one.sh "crash campaign, $(ROUNDS) rounds" $(SIM) crash $(if $(RAW),--raw) --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

faults:
	@scripts/need.sh rust
	@scripts/one.sh "fault campaign, $(ROUNDS) rounds" $(SIM) faults $(if $(RAW),--raw) --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))
	@FAULT_STEP=$(if $(QUICK),61,5) scripts/one.sh "every command under faults" cargo test --quiet -p ledgerstone-cli --test faults

damage:
	@scripts/need.sh rust
	@scripts/one.sh "damage campaign, $(ROUNDS) rounds" $(SIM) damage $(if $(RAW),--raw) --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

media:
	@scripts/need.sh rust
	@scripts/one.sh "media campaign, $(ROUNDS) rounds" $(SIM) media --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

planted:
	@scripts/need.sh rust
	@scripts/one.sh "planted bugs" $(SIM) planted

flash-crash:
	@scripts/need.sh rust
	@scripts/one.sh "power cuts on raw flash, $(ROUNDS)" cargo run --quiet --release -p ledgerstone-flash --example flash_crash -- $(ROUNDS) $(SEED)

flash-models:
	@scripts/need.sh rust
	@FLASH_DEPTH=$(or $(DEPTH),4) FLASH_SCRIPTS=100000 scripts/one.sh "bounded models of the flash protocols" cargo test --quiet --release -p ledgerstone-flash --test exhaustive -- --nocapture --include-ignored

flash-demo:
	@scripts/need.sh rust
	@scripts/one.sh "flash demo: bank" cargo run --quiet --release -p ledgerstone-flash --example flash_demo
	@scripts/one.sh "flash demo: the protocols beside each other (plots in target/flash)" cargo run --quiet --release -p ledgerstone-flash --example flash_bench -- small comparison target/flash

flash-nandsim:
	@scripts/need.sh rust
	@scripts/one.sh "flash on nandsim" scripts/flash-nandsim.sh

flash-bench:
	@scripts/need.sh rust
	@scripts/one.sh "flash bench" cargo run --quiet --release -p ledgerstone-flash --example flash_bench -- medium all target/flash

flash-bench-full:
	@scripts/need.sh rust
	@scripts/one.sh "flash bench, 32 GB" cargo run --quiet --release -p ledgerstone-flash --example flash_bench -- full all target/flash

histories:
	@scripts/need.sh rust
	@scripts/one.sh "histories, $(HISTORIES) rounds" $(SIM) histories --rounds $(HISTORIES) $(if $(SEED),--seed $(SEED))

soak:
	@scripts/need.sh rust
	@scripts/one.sh "soak, $(SOAK_SECONDS) s" $(SIM) soak --seconds $(SOAK_SECONDS) $(if $(SEED),--seed $(SEED))

sanitize:
	@scripts/need.sh rust
	@scripts/one.sh "address sanitizer" scripts/sanitize.sh

loom:
	@scripts/need.sh rust
	@scripts/one.sh "loom models" scripts/loom.sh

deaths:
	@scripts/need.sh rust
	@$(if $(SEED),SEED=$(SEED)) ROUNDS=$(ROUNDS) scripts/one.sh "processes that die at every store" scripts/deaths.sh

kills:
	@scripts/need.sh rust
	@scripts/one.sh "kills of processes that share an environment, $(KILLS)" $(SIM) kills --rounds $(KILLS) $(if $(SEED),--seed $(SEED))

fuzz:
	@scripts/need.sh rust c++
	@scripts/one.sh "fuzz targets, $(SECONDS_) s each" scripts/fuzz.sh $(SECONDS_)

bench: release
	@scripts/one.sh "benchmarks (docs/benchmarks.md)" "$${CARGO_TARGET_DIR:-target}/release/ledgerstone" bench gates --out docs/benchmarks.md

counts: release
	@scripts/need.sh valgrind objdump
	@BESIDE=$(BESIDE) scripts/one.sh "counts of operations (docs/costs.md)" scripts/counts.sh

install: release
	@scripts/one.sh "install in $(DESTDIR)$(PREFIX)" scripts/install.sh "$(DESTDIR)$(PREFIX)"

port-kills:
	@scripts/need.sh rust
	@scripts/one.sh "port kills, $(PORT_ROUNDS) rounds" cargo run --quiet --release -p ledgerstone-port --example kills -- --rounds $(PORT_ROUNDS) $(if $(SEED),--seed $(SEED))

port-net:
	@scripts/need.sh rust
	@scripts/one.sh "ports between network namespaces" scripts/port-net.sh

port-bench:
	@scripts/need.sh rust
	@scripts/one.sh "experiments of docs/ports.md" scripts/port-bench.sh

probe: release
	@scripts/one.sh "probe of $(or $(DIR),.)" "$${CARGO_TARGET_DIR:-target}/release/ledgerstone" probe --force --dir "$(or $(DIR),.)" --html target/probe.html --out target/probe.json

docs:
	@scripts/need.sh rust mdbook
	@scripts/one.sh "book (target/book/index.html)" scripts/book.sh

beside:
	@scripts/need.sh rust
	@scripts/one.sh "example programs beside redb and SQLite" scripts/beside.sh

peers:
	@scripts/need.sh rust
	@QUICK=$(QUICK) SECTION=$(SECTION) PEER=$(PEER) CASE='$(CASE)' scripts/one.sh "other stores beside ours (docs/peers.md)" scripts/peers.sh

deny:
	@scripts/need.sh rust
	@scripts/one.sh "licences and advisories" scripts/deny.sh

msrv:
	@scripts/need.sh rust
	@scripts/one.sh "oldest compiler" scripts/msrv.sh

semver:
	@scripts/need.sh rust cargo-semver-checks
	@scripts/one.sh "interface of the library beside an earlier one" scripts/semver.sh $(BASE)

features:
	@scripts/need.sh rust
	@scripts/one.sh "features of the library" scripts/features.sh

package:
	@scripts/need.sh rust
	@scripts/one.sh "packages of all crates" scripts/package.sh --build

data:
	@scripts/one.sh "data/characters.csv" scripts/make-data.sh

clean:
	cargo clean
	rm -rf fuzz/corpus fuzz/artifacts
