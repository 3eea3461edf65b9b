#!/usr/bin/env bash
# Makes the book in target/book: every Markdown page of the repository, with the chapters of docs/SUMMARY.md, and rustdoc
# in target/book/api. Then it follows each link of the book's pages.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
source=$target/book-source
book=target/book
rm -rf "$source" "$book"
mkdir -p "$source/src" "$book"
cp docs/book.toml "$source/"

# mdBook wants all pages below one directory, with the table of contents at its top. So the pages are copied as they lie,
# and what they link to with them.
find . -name '*.md' -not -path '*/target/*' -not -path '*/.*/*' | while read -r page; do
  mkdir -p "$source/src/$(dirname "$page")"
  cp "$page" "$source/src/$page"
  { grep -o '](\([^):#]*\)' "$page" || true; } | cut -c 3- | while read -r link; do
    file=$(realpath --relative-to . "$(dirname "$page")/$link")
    [ -f "$file" ] || continue
    mkdir -p "$source/src/$(dirname "$file")"
    cp "$file" "$source/src/$file"
  done
done
rm "$source/src/docs/SUMMARY.md"
sed -i 's,](docs/SUMMARY.md),](toc.html),' "$source/src/README.md"
sed -e 's,](\([^.]\),](docs/\1,' -e 's,](\.\./,](,' docs/SUMMARY.md >"$source/src/SUMMARY.md"

# The library's interface, and that of the crates which a structure of one's own sees.
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --workspace --lib
{
  echo "# The library's interface"
  echo
  for manifest in crates/*/Cargo.toml; do
    crate=$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)
    page=api/${crate//-/_}/index.html
    [ -f "$target/doc/${page#api/}" ] || continue
    echo "- [$crate]($page): $(sed -n 's/^description = "\(.*\)"/\1/p' "$manifest")"
  done
} >"$source/src/api.md"
printf '\n- [The interface of the library](api.md)\n' >>"$source/src/SUMMARY.md"

mdbook build "$source" --dest-dir "$PWD/$book" 2>&1 | { grep -v INFO || true; }
cp -r "$target/doc" "$book/api"

# Pages of rustdoc are rustdoc's to check (-D warnings above).
pages=0 links=0 broken=0
while read -r page; do
  pages=$((pages + 1))
  while read -r link; do
    links=$((links + 1))
    path=${link%%#*}
    if [ -n "$path" ]; then to=$(dirname "$page")/$path; else to=$page; fi
    if [ ! -e "$to" ] || { [[ $link == *'#'* ]] && ! grep -qF "id=\"${link#*#}\"" "$to"; }; then
      echo "$page: link to nothing: $link" >&2
      broken=$((broken + 1))
    fi
  done < <(sed 's/<[^>]*rel="[^"]*"[^>]*>//g' "$page" | grep -oE '(href|src)="[^"]+"' | cut -d '"' -f 2 | grep -vE '^(https?|mailto|data|javascript):|#$' | sort -u)
done < <(find "$book" -name '*.html' -not -path "$book/api/*" -not -name print.html -not -name 404.html -not -name toc.html)
echo "$book/index.html: $pages pages, $links links, $broken of them to nothing"
[ "$broken" = 0 ]
