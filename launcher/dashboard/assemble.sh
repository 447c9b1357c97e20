#!/usr/bin/env bash
# assemble.sh PAGE: prints the page with its "@include FILE" lines replaced by those files, from its folder,
# without indentation and lines that are comments: a fifth of what the program carries and sends.
set -euo pipefail
folder=$(dirname "$1")
while IFS= read -r line; do
  if [[ $line == "@include "* ]]; then
    sed -E '/^ *\/\/ /d; s/^ +//; /^$/d' "$folder/${line#@include }"
  else
    printf '%s\n' "$line"
  fi
done <"$1"
