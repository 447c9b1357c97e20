#!/usr/bin/env bash
# The key of the build's cache: a new compiler or -dev package changes it, and no other package does.
set -euo pipefail
source tools/lib.sh

status=0
machine=$(package_list)
inputs=$(compile_inputs "${packages[@]}" <<<"$machine")
for name in g++ 'g++-[0-9]*' 'gcc-[0-9]*' 'cpp-[0-9]*' binutils protobuf-compiler protobuf-compiler-grpc libabsl-dev \
  libgrpc++-dev libgrpc-dev libprotobuf-dev libssl-dev 'libstdc++-[0-9]*-dev' 'libgcc-[0-9]*-dev' libc6-dev linux-libc-dev; do
  grep -qE "^${name//+/\\+}=[0-9]" <<<"$inputs" || { printf '%s is not in the key, which has:\n%s\n' "$name" "$inputs"; status=1; }
done
if others=$(grep -vE '^[^=]*-dev=|^(g\+\+|gcc|cpp|lld)[-0-9a-z]*=|^mold=|^(binutils|protobuf-compiler)[^=]*=' <<<"$inputs"); then
  printf 'the key has more than compilers and -dev packages: %s\n' "$others"
  status=1
fi

# A machine of few packages, as dpkg-query tells of it.
few=$(printf 'installed\t%s\t%s\n' g++ $'4:12.2\tcpp (= 4:12.2), g++-x86-64-linux-gnu, g++-12 (>= 12.2.0-1~), make:any | cmake' \
  g++-x86-64-linux-gnu $'12.2\t' g++-12 $'12.2.0\tgcc-12-base (= 12.2.0), libstdc++-12-dev (= 12.2.0), libc6 (>= 2.36)' cpp $'4:12.2\t' \
  gcc-12-base $'12.2.0\t' libstdc++-12-dev $'12.2.0\tlibc6-dev (>= 2.23)|libc-dev' libc6-dev $'2.36-9\tlibc6 (= 2.36-9)' \
  libc6 $'2.36-9\t' make $'4.3\t' libabsl-dev $'20220623.1\tlibgtest-dev:any' libgtest-dev $'1.12\tpython3' \
  procps $'4.0.2\tlibproc2-0' iproute2 $'6.1\t' python3 $'3.11\t' clang-format $'14\t' elfutils $'0.188\tlibdw-dev' \
  libdw-dev $'0.188\t' binutils $'2.40\tbinutils-x86-64-linux-gnu (= 2.40)' binutils-x86-64-linux-gnu $'2.40\t' clang-14 $'14.0.6\t' bazel-bootstrap $'4.2.3\tg++')
package_list() { cat <<<"$few"; }
key=$(system_hash)

# changes yes|no NAME...: whether the key is another when the package, as a line of the list, is.
changes() {
  local wanted=$1 name now answer
  shift
  for name in "$@"; do
    now=$(package_list() { awk -F '\t' -v OFS='\t' -v name="$name" '$2 == name { $3 = $3 "+b1" } { print }' <<<"$few"; }; system_hash)
    answer=no
    [[ $now == "$key" ]] || answer=yes
    [[ $answer == "$wanted" ]] || { echo "a new version of $name: wanted another key: $wanted, got: $answer"; status=1; }
  done
}
changes yes g++ g++-12 g++-x86-64-linux-gnu cpp binutils binutils-x86-64-linux-gnu libstdc++-12-dev libc6-dev libabsl-dev libgtest-dev
changes no procps iproute2 python3 clang-format elfutils libdw-dev libc6 make gcc-12-base bazel-bootstrap clang-14
# A package that is not wanted, one that has gone, and the order of the list.
[[ $(few+=$'\ninstalled\tlibother-dev\t1\t'; system_hash) == "$key" ]] || { echo "an unneeded -dev package changes the key"; status=1; }
[[ $(few=$(tac <<<"$few"); system_hash) == "$key" ]] || { echo "the order of the list changes the key"; status=1; }
[[ $(few=${few/installed$'\t'libabsl-dev/config-files$'\t'libabsl-dev}; system_hash) != "$key" ]] ||
  { echo "a removed package is taken for an installed one"; status=1; }
# What clang compiles is kept by its version as well.
[[ $(system_hash clang-14) != "$key" ]] || { echo "clang's version is not in its key"; status=1; }
exit "$status"
