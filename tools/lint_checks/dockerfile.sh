#!/usr/bin/env bash
# dockerfile.sh [FILE]: the image for the tests is made with each --with-... that tools/setup knows, and no other.
set -euo pipefail
cd "$(dirname "$0")/../.."
file=${1:-Dockerfile}
options() { grep -oE -- '--with-[a-z]+' | sort -u; }
known=$(tools/setup --help | options)
named=$(grep -v '^#' "$file" | options || true)
missing=$(comm -23 <(echo "$known") <(echo "$named") | xargs)
unknown=$(comm -13 <(echo "$known") <(echo "$named") | xargs)
[[ -n $known ]] || { echo "dockerfile: tools/setup --help names no --with-..."; exit 1; }
[[ -z $missing ]] || echo "$file:1: does not install by: tools/setup $missing"
[[ -z $unknown ]] || echo "$file:1: tools/setup does not know: $unknown"
[[ -z $missing$unknown ]]
