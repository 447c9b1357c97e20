#!/usr/bin/env bash
# portable.sh PROGRAM...: what we ship may need only glibc and libgcc_s, and, built on Debian 12,
# nothing newer than glibc 2.34 (RHEL 9, Ubuntu 22.04). It knows no variable of tests (tests/gates).
set -euo pipefail
(($# > 0)) || { echo "portable: no program was given"; exit 1; }
newest=2.34
# Ubuntu 24.04's own start-up code and libm ask for its glibc: what is built there runs from there on.
if [[ -r /etc/os-release ]] && (. /etc/os-release; [[ ${ID:-} == ubuntu ]]); then newest=2.39; fi
bad=0
for program in "$@"; do
  needed=$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  [[ -n $needed ]] || { echo "portable: $program: no dynamic section read"; bad=1; }
  if extra=$(grep -vxE 'libc\.so\.6|libm\.so\.6|libgcc_s\.so\.1|ld-linux-[a-z0-9-]+\.so\.[0-9]' <<<"$needed"); then
    echo "portable: $program needs" $extra
    bad=1
  fi
  highest=$(readelf -W --dyn-syms "$program" | grep -oP 'GLIBC_\K2\.[0-9.]+' | sort -uV | tail -n 1)
  if [[ $(printf '%s\n' "$newest" "$highest" | sort -V | tail -n 1) != "$newest" ]]; then
    echo "portable: $program needs glibc $highest, newer than $newest:" \
      $(readelf -W --dyn-syms "$program" | grep -F "GLIBC_$highest" | awk '{ print $8 }' | head -n 5)
    bad=1
  fi
  if gates=$(grep -aoE 'DDPRUN_TEST_\w*' "$program" | sort -u) && [[ -n $gates ]]; then
    echo "portable: $program knows variables of tests:" $gates
    bad=1
  fi
done
exit $bad
