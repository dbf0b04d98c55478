#!/usr/bin/env bash
# The main job, end to end, on a sample conversation: `make demo`.
set -euo pipefail
cd "$(dirname "$0")/.."
mnemolog=$(command -v "${MNEMOLOG:-mnemolog}")
store=${DEMO:-.demo}

step() { printf '\n\033[1m$ mnemolog %s\033[0m\n' "$*"; "$mnemolog" "$@"; }

rm -rf "$store"
printf '\n\033[1m$ python examples/five_weeks.py %s\033[0m\n' "$store"
"$(dirname "$mnemolog")/python" examples/five_weeks.py "$store"
step import "$store" examples/sample.jsonl  # All of it is there already.
step sessions "$store"
step recall "$store" "what is her new address?" --scope acme/support --k 4
step recall "$store" "why was the database upgrade put off?" --scope acme/engineering --k 3
step status "$store"
noted=$("$mnemolog" head "$store")
step head "$store"
step rebuild "$store" all
step replay "$store" --to 12
step verify "$store" --expect-head "$noted"
printf '\nLook at it, and go back in time: %s serve %s (extra `server`)\n' "$mnemolog" "$store"
