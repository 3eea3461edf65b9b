#!/usr/bin/env bash
# Makes data/characters.csv from the Unicode Character Database as Debian packages it (data/PROVENANCE.md).
#   make-data.sh [FOLDER with UnicodeData.txt and Blocks.txt]     default: /usr/share/unicode, installed when missing
set -euo pipefail
cd "$(dirname "$0")/.."
from=${1:-/usr/share/unicode}
if [ ! -f "$from/UnicodeData.txt" ]; then
  sudo=""
  [ "$(id -u)" = 0 ] || sudo="sudo"
  $sudo apt-get install -y -qq unicode-data
fi

# One row a character: the fifteen fields of UnicodeData.txt, the code as six hexadecimal digits so that text order is
# code order, the code as a decimal number, and the name of the block from Blocks.txt. Quoted where a field has a comma.
LC_ALL=C awk '
  function number(hex,   i, n) {
    n = 0
    for (i = 1; i <= length(hex); i++) n = n * 16 + index("0123456789ABCDEF", substr(hex, i, 1)) - 1
    return n
  }
  function padded(hex) { return substr("000000" hex, length(hex) + 1) }
  function field(text) { return text ~ /[",]/ ? "\"" quoted(text) "\"" : text }
  function quoted(text) { gsub(/"/, "\"\"", text); return text }
  FNR == 1 { file++ }
  file == 1 {
    if ($0 ~ /^[0-9A-F]+\.\./) {
      split($0, half, /; */); split(half[1], ends, /\.\./)
      first[++blocks] = number(ends[1]); last[blocks] = number(ends[2]); title[blocks] = half[2]
    }
    next
  }
  FNR == 1 {
    print "code,number,name,category,combining,bidi,decomposition,decimal,digit,numeric,mirrored,old_name,comment,upper,lower,title,block"
  }
  {
    n = split($0, part, ";")
    if (n != 15) { print "line " FNR ": " n " fields" > "/dev/stderr"; exit 1 }
    code = number(part[1])
    while (at < blocks && (at == 0 || code > last[at])) at++
    row = padded(part[1]) "," code
    for (i = 2; i <= 15; i++) row = row "," field(part[i])
    print row "," field(code >= first[at] && code <= last[at] ? title[at] : "")
  }
' "$from/Blocks.txt" "$from/UnicodeData.txt" >data/characters.csv.new
mv data/characters.csv.new data/characters.csv
wc -lc data/characters.csv
