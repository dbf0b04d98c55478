#!/usr/bin/env bash
# The main job, end to end, on a sample conversation: `make demo`.
set -euo pipefail
cd "$(dirname "$0")/.."
mnemolog=${MNEMOLOG:-mnemolog}
store=${DEMO:-.demo}

step() { printf '\n\033[1m$ mnemolog %s\033[0m\n' "$*"; "$mnemolog" "$@"; }

rm -rf "$store"
step init "$store"
step import "$store" examples/sample.jsonl
step sessions "$store"
step recall "$store" "what is her new address?" --scope acme/support --k 4
step recall "$store" "why was the database upgrade put off?" --scope acme/engineering --k 3
step status "$store"
step record "$store" demo "The demo ran to this point." --start --scope acme/demo
noted=$("$mnemolog" head "$store")
step head "$store"
step rebuild "$store" all
step replay "$store" --to 12
step verify "$store" --expect-head "$noted"
