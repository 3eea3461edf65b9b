#!/usr/bin/env bash
# Runs one command and ends with the one line that every target ends with.
#   one.sh "what it is" command...
set -uo pipefail
what=$1
shift
start=$SECONDS
"$@"
code=$?
if [ $code = 0 ]; then
  echo "ran: $what ($((SECONDS - start)) s); nothing failed"
else
  echo "ran: $what ($((SECONDS - start)) s); FAILED with exit code $code: $*"
fi
exit $code
