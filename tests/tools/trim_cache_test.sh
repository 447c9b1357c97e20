#!/usr/bin/env bash
# The build's disk cache is held to its size: what was used last stays, whatever files are called.
set -euo pipefail
source tools/lib.sh

cache_dir=$TEST_TMPDIR/cache
mkdir -p "$cache_dir/a folder"
status=0

# left BYTES NAME...: after a trim to so many bytes these files are left.
left() {
  local limit=$1 found wanted
  shift
  rm -f "$cache_dir/.trimmed"
  trim_cache "$limit"
  found=$(find "$cache_dir" -type f -name 'entry*' -printf '%f\n' | sort | xargs)
  wanted=$*
  [[ $found == "$wanted" ]] || { echo "a trim to $limit bytes: wanted '$wanted', got '$found'"; status=1; }
}

# More names than fit into one command line would, were they one word.
for i in {1..3}; do
  head -c 100 /dev/zero >"$cache_dir/a folder/entry$i"
  touch -d "$i hours ago" "$cache_dir/a folder/entry$i"
done
for ((i = 0; i < 2000; ++i)); do
  echo >"$cache_dir/old-$i-$(printf '%0100d' "$i")"
done
touch -d "9 hours ago" "$cache_dir"/old-*
left 20000 entry1 entry2 entry3
left 250 entry1 entry2
[[ -z $(find "$cache_dir" -name 'old-*' -print -quit) ]] || { echo "old entries are left"; status=1; }
touch -d "40 days ago" "$cache_dir/a folder/entry2"
left 250 entry1
# Once a day.
trim_cache 0
[[ -e "$cache_dir/a folder/entry1" ]] || { echo "it is trimmed twice a day"; status=1; }
exit "$status"
