#!/usr/bin/env bash
# summary_test.sh: tools/test_summary.py counts what a run of Bazel really executed.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d "${TMPDIR:-/tmp}/ddprun-summary.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

configured() { printf '{"id":{"targetConfigured":{"label":"%s"}},"configured":{"targetKind":"%s rule","testSize":"SMALL"}}\n' "$1" "$2"; }
# result LABEL STATUS LOG-TEXT [EXTRA]
result() {
  local log=$scratch/${1//[\/:]/_}.log
  printf '%b' "$3" >"$log"
  printf '{"id":{"testResult":{"label":"%s","run":1}},"testResult":{"status":"%s"%s,"testActionOutput":[{"name":"test.log","uri":"file://%s"}]}}\n' \
    "$1" "$2" "${4:-}" "$log"
}
line() { printf '[doctest] test cases: %3d | %3d passed | %d failed | 0 skipped\\n' "$1" "$2" "$3"; }
# expect WANTED-STATUS WANTED-COUNTS: on the events on stdin.
expect() {
  local status=0 counts
  cat >"$scratch/events.json"
  python3 tools/test_summary.py run "$scratch/events.json" "$scratch/counts" >"$scratch/out" || status=$?
  counts=$(cat "$scratch/counts")
  if [[ "$status $counts" != "$1 $2" ]]; then
    echo "wanted status and counts '$1 $2', got '$status $counts':"
    cat "$scratch/out"
    exit 1
  fi
}

{ configured //a:t cc_test; configured //a:u cc_test; configured //a:s sh_test
  result //a:t PASSED "$(line 7 7 0)"; result //a:u PASSED "SKIPPED: no namespaces\n$(line 3 3 0)"; result //a:s PASSED ok; } | expect 0 "9 0 1"
{ configured //a:t cc_test; result //a:t FAILED "$(line 7 5 2)"; } | expect 1 "5 2 0"
# A crash after the summary, a crash before it, a time-out, a program without cases.
{ configured //a:t cc_test; result //a:t FAILED "$(line 7 7 0)"; } | expect 1 "7 1 0"
{ configured //a:t cc_test; result //a:t FAILED "Segmentation fault"; } | expect 1 "0 1 0"
{ configured //a:t cc_test; result //a:t TIMEOUT ""; } | expect 1 "0 1 0"
{ configured //a:t cc_test; result //a:t PASSED "no summary"; } | expect 1 "0 1 0"
{ configured //a:t cc_test; result //a:t PASSED "$(line 0 0 0)"; } | expect 1 "0 0 0"
# A script that fails is no case, but the run failed.
{ configured //a:t cc_test; configured //a:s sh_test; result //a:t PASSED "$(line 1 1 0)"; result //a:s FAILED no; } | expect 1 "1 0 0"
# Not built, taken from a cache, nothing at all.
{ configured //a:t cc_test; configured //a:u cc_test; result //a:t PASSED "$(line 1 1 0)"; } | expect 1 "1 1 0"
{ configured //a:t cc_test; result //a:t PASSED "$(line 4 4 0)" ',"cachedLocally":true'; } | expect 1 "4 1 0"
expect 1 "0 0 0" </dev/null
if [[ ${1:-} == --breach ]]; then
  # This script itself must notice a wrong count.
  { configured //a:t cc_test; } | expect 0 "0 0 0"
fi
