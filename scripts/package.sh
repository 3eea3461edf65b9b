#!/usr/bin/env bash
# Packs every crate that can be published, as it would be published, and looks into what came out: README and both
# licences, no tests, nothing large, every field that a reader of the registry sees. Nothing leaves this machine.
# With --build each package is built from what was packed, too (minutes). For cargo, a package of a registry never changes
# under one version, so what an earlier run left is removed first: what it unpacked, and what it built from that. What was
# built of other crates is kept.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/need.sh python
bytes_max=$((512 << 10))
# Apart from other builds, so that the first run after them does not build from what they have left, nor they from it.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/packed
target=$CARGO_TARGET_DIR
verify=--no-verify
[ "${1:-}" != --build ] || verify=
meta=$(cargo metadata --format-version 1 --no-deps)

rm -rf "$target/package" "$target"/debug/{.fingerprint,deps,incremental}/{,lib}ledgerstone*
rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/{cache,src}/-*/ledgerstone*
unpublished=$(python3 -c 'import json, sys; print(*("--exclude=" + p["name"] for p in json.load(sys.stdin)["packages"] if p["publish"] == []))' <<<"$meta")
# --allow-dirty: a tree that is being worked on is packed as it is.
cargo package --workspace $unpublished --quiet --allow-dirty $verify

META=$meta python3 - "$target/package" "$bytes_max" <<'PYTHON'
import json, os, re, sys, tarfile

folder, bytes_max = sys.argv[1], int(sys.argv[2])
packages = json.loads(os.environ["META"])["packages"]
published = {p["name"]: p for p in packages if p["publish"] is None}
wrong = []
for name, package in sorted(published.items()):
    for field in ["description", "license", "repository", "documentation", "readme", "rust_version", "keywords", "categories"]:
        if not package[field]:
            wrong.append(f"{name}: no {field}")
    for dependency in package["dependencies"]:
        if dependency["name"] in {p["name"] for p in packages} - set(published) and dependency["kind"] != "dev":
            wrong.append(f"{name}: needs {dependency['name']}, which is not published")
    path = os.path.join(folder, f"{name}-{package['version']}.crate")
    with tarfile.open(path) as crate:
        files = {m.name.split("/", 1)[1]: m for m in crate.getmembers()}
    for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "Cargo.toml"]:
        if file not in files or not files[file].isreg() or files[file].size < 300:
            wrong.append(f"{name}: no {file}")
    allowed = re.compile(r"src/.+|README\.md|LICENSE-(MIT|APACHE)|Cargo\.(toml(\.orig)?|lock)|\.cargo_vcs_info\.json")
    wrong += [f"{name}: holds {file}" for file in files if not allowed.fullmatch(file)]
    for dependency in package["dependencies"]:
        if dependency["kind"] != "dev" and dependency["req"] == "*":
            wrong.append(f"{name}: {dependency['name']} without a version")
    size = os.path.getsize(path)
    if size > bytes_max:
        wrong.append(f"{name}: {size} bytes packed, at most {bytes_max} are expected")
    print(f"{name}: {len(files)} files, {size >> 10} KiB")
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
PYTHON
