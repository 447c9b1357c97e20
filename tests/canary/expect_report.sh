#!/usr/bin/env bash
# expect_report.sh [PROGRAM REPORT]...: each program must fail and print its report.
set -euo pipefail
(($# >= 2)) || { echo "nothing to run"; exit 1; }
while (($# >= 2)); do
  if output=$("$1" 2>&1); then echo "$1 ended well: the sanitizer found nothing"; exit 1; fi
  grep -q -- "$2" <<<"$output" || { echo "$1 printed no '$2':"; echo "$output"; exit 1; }
  shift 2
done
