# The common part of the checks that ask archives for symbols. Sourced; the caller has set -euo pipefail.
# shellcheck shell=bash
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# refuse_symbols REGEX LABEL...: builds the libraries as they ship and prints "LABEL needs SYMBOL" for each
# undefined symbol that matches. 1 when there is one, or when an archive is not found or holds nothing.
refuse_symbols() {
  local regex=$1 log bin label path archive symbols found status=0
  shift
  log=$(mktemp "${TMPDIR:-/tmp}/ddprun-symbols.XXXXXX")
  bazel_ build --config=opt --output_groups=archive "$@" 2>"$log" || { cat "$log"; rm -f "$log"; return 1; }
  rm -f "$log"
  bin=$(bazel_ info --config=opt bazel-bin 2>/dev/null)
  for label in "$@"; do
    path=${label#//}
    [[ $path == *:* ]] || path=$path:${path##*/}
    archive=$bin/${path%:*}/lib${path##*:}.a
    [[ -f $archive ]] || archive=${archive%.a}.lo # of one that is linked whole
    [[ -f $archive ]] || { echo "$label: no archive at ${archive%.lo}.a"; status=1; continue; }
    symbols=$(nm -C "$archive" 2>/dev/null | sed 's/^[0-9a-f]* *//')
    [[ -n $symbols ]] || { echo "$label: nm printed nothing of $archive"; status=1; }
    # Weak ones too ("w"): glibc's thread calls were weak until 2.34. With -O2 a call is its checked form,
    # __read_chk or __open_2, or one of a newer C, __isoc23_strtol.
    if found=$(sed -nE 's/^[Uw] //p' <<<"$symbols" | sed -E 's/@.*//; s/^__(.*)_(chk|2)$/\1/; s/^__isoc[0-9]+_//' |
      sort -u | grep -E "$regex"); then
      sed "s|^|$label needs |" <<<"$found"
      status=1
    fi
  done
  return "$status"
}
