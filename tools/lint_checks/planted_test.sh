#!/usr/bin/env bash
# Every check, fed with a breach, must find it; fed with good input, it must not.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

here=tools/lint_checks
scratch=$(mktemp -d "${TMPDIR:-/tmp}/ddprun-planted.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
status=0 count=0

# finds TEXT COMMAND...: the command fails and says TEXT.
finds() {
  local text=$1 output
  shift
  count=$((count + 1))
  if output=$("$@" 2>&1); then
    echo "planted: not found ($text): $*"
    status=1
  elif ! grep -qF -- "$text" <<<"$output"; then
    printf 'planted: failed without saying "%s": %s\n%s\n' "$text" "$*" "$output"
    status=1
  fi
}
# accepts COMMAND...: the command finds nothing.
accepts() {
  local output
  count=$((count + 1))
  output=$("$@" 2>&1) || { printf 'planted: found a breach where none is: %s\n%s\n' "$*" "$output"; status=1; }
}

# warns TEXT COMMAND...: the command says TEXT, and does not fail for it.
warns() {
  local text=$1 output
  shift
  count=$((count + 1))
  if ! output=$("$@" 2>&1) || ! grep -qF -- "$text" <<<"$output"; then
    printf 'planted: did not end well after "%s": %s\n%s\n' "$text" "$*" "$output"
    status=1
  fi
}

# body NAME LINES: a C++ function of that many lines.
body() { echo "int $1(int x) {"; for ((i = 2; i < $2; i++)); do echo "  x += $i;"; done; echo "}"; }

cat >"$scratch/good.h" <<'END'
#ifndef DDPRUN_GOOD_H_
#define DDPRUN_GOOD_H_
#endif  // DDPRUN_GOOD_H_
END
{ echo 'namespace a {'; body Fits 70; echo 'struct S {'; for i in {1..90}; do echo "  int m$i = '{';"; done; echo '};'; echo '}'; } >"$scratch/good.cc"
body TooLong 71 >"$scratch/long_function.cc"
{ echo 'struct S {'; echo '  S() : a{1}, b(2) {'; for i in {1..70}; do echo "    a += $i;  // }"; done; echo '  }'; echo '};'; } >"$scratch/long_constructor.cc"
{ echo 'TEST_CASE("a {") {'; for i in {1..70}; do echo "  CHECK($i);"; done; echo '}'; } >"$scratch/long_case.cc"
# list BEFORE-THE-BRACE LINES: rows of a table.
list() { echo "$1{"; for ((i = 0; i < $2; i++)); do echo "    {\"row\", $i},"; done; echo '  };'; }
{ echo 'const Rows& All() {'; list '  static const Rows rows = ' 100; list '  return ' 100; echo '}'; } >"$scratch/long_table.cc"
{ echo 'Rows All() {'; list '  return ' 5; for i in {1..67}; do echo '  Add();'; done; echo '}'; } >"$scratch/short_table.cc"
{ echo 'Hooks All() {'; echo '  return {'; echo '      .ask = [this](int x) {'; for i in {1..70}; do echo '        Ask();'; done; echo '      }};'; echo '}'; } \
  >"$scratch/code_in_list.cc"
for i in {1..400}; do echo "int v$i;"; done >"$scratch/full_file.cc"
{ cat "$scratch/full_file.cc"; echo 'int v;'; } >"$scratch/long_file.cc"
{ cat "$scratch/full_file.cc" "$scratch/full_file.cc"; } >"$scratch/longest_file.cc"
{ cat "$scratch/longest_file.cc"; echo 'int v;'; } >"$scratch/too_long_file.cc"
{ cat "$scratch/full_file.cc"; list 'const Row kRows[] = ' 1000; } >"$scratch/table_file.cc"
{ cat "$scratch/too_long_file.cc"; list 'const Row kRows[] = ' 1000; } >"$scratch/long_file_with_table.cc"
for i in {1..801}; do echo ":"; done >"$scratch/too_long.sh"
mkdir "$scratch/tests"
cp "$scratch/too_long_file.cc" "$scratch/too_long.sh" "$scratch/tests"
echo '#pragma once' >"$scratch/no_guard.h"
printf '#!/usr/bin/env bash\nif true; then\n' >"$scratch/broken.sh"
printf '#!/usr/bin/env bash\nif true; then :; fi\n' >"$scratch/fine.sh"
printf 'int  main( ){return 0;}\n' >"$scratch/unformatted.cc"

in_scratch() { (cd "$scratch" && "$repo/$here/style.py" "$@"); }
accepts $here/style.py "$scratch"/good.* "$scratch/full_file.cc" "$scratch/fine.sh"
accepts in_scratch long_case.cc long_table.cc tests/too_long_file.cc tests/too_long.sh
warns "long_file.cc:1: warning: file of 401 lines" in_scratch long_file.cc
warns "longest_file.cc:1: warning: file of 800 lines" in_scratch longest_file.cc
warns "table_file.cc:1: warning: file of 402 lines" in_scratch table_file.cc
finds "function of 71 lines" $here/style.py "$scratch/long_function.cc"
finds "function of 72 lines" $here/style.py "$scratch/long_constructor.cc"
finds "function of 71 lines" $here/style.py "$scratch/short_table.cc"
finds "function of 74 lines" $here/style.py "$scratch/code_in_list.cc"
finds "file of 801 lines" $here/style.py "$scratch/too_long_file.cc"
finds "file of 803 lines" $here/style.py "$scratch/long_file_with_table.cc"
finds "file of 801 lines" $here/style.py "$scratch/too_long.sh"
finds "no header guard" $here/style.py "$scratch/no_guard.h"
finds "bash -n" $here/style.py "$scratch/broken.sh"
finds "no file was given" $here/style.py

cat >"$scratch/patient_test.cc" <<'END'
#include <thread>
auto a = milliseconds(1000), b = 0ms;
  sleep_for(milliseconds(5));
  // lower bound: it stays
  Wait(300ms,

       400ms);
  Wait(20ms);  // no limit: the fault
  CHECK(passed >= milliseconds(300));
  CHECK(age == 300ms && passed / milliseconds(1) > 2);
// no limit: figures, of which
// there are two
TEST_CASE("pure") {
  Wait(300ms);

  Wait(400ms);
}
END
printf 'auto virtual_time = milliseconds(300);\n' >"$scratch/virtual_test.cc"
accepts $here/short_limits.py "$scratch/patient_test.cc" "$scratch/virtual_test.cc"
for breach in 'milliseconds(300)' '300ms' 'microseconds(5)' 'milliseconds kShort{5}' 'keep_alive_interval=0.5' \
    'hang_timeout=.25'; do
  printf '#include <thread>\nstd::thread t; Wait("%s");\n' "$breach" >"$scratch/hasty_test.cc"
  finds "$breach on a real clock" $here/short_limits.py "$scratch/hasty_test.cc"
done
for breach in 'CHECK(passed < 300ms);' 'CHECK(!(passed > 300ms));' 'if (passed > 300ms) break;' \
    'Wait(20ms);  // no limit: the fault\nWait(300ms);' '{\n  // no limit: the fault\n  Wait(20ms);\n}\nWait(300ms);' \
    '// no limit: the fault\nWait(20ms);\nWait(300ms);'; do
  printf "std::thread t;\n$breach\n" >"$scratch/hasty_test.cc"
  finds ": 300ms on a real clock" $here/short_limits.py "$scratch/hasty_test.cc"
done
finds "no file was given" $here/short_limits.py
if $here/format.sh "$scratch/unformatted.cc" 2>&1 | grep -q 'not checked'; then
  echo "planted: format: not checked here"
else
  finds "clang-format would change it" $here/format.sh "$scratch/unformatted.cc"
fi

mkdir -p "$scratch/launcher/agent"
printf '// What a is. [pure]\n#ifndef A\n' >"$scratch/launcher/a.h"
printf '/* The library for C: groups,\n * and more. Not this.\n */\n#ifndef A\n' >"$scratch/launcher/agent/b.h"
printf '#ifndef A\n// What c is.\n' >"$scratch/launcher/c.h"
printf '// [pure]\n//\n// What d is.\n' >"$scratch/launcher/d.h"
printf '// Copyright\n' >"$scratch/launcher/e.h"
codemap() { (cd "$scratch" && "$repo/$here/codemap.py" "$@" <<<"$headers"); }
headers=$'launcher/agent/b.h\nlauncher/a.h\nlauncher/x.cc\ntests/x.h'
accepts codemap
warns "  a.h: What a is. [pure]" codemap --print
warns "  b.h: The library for C: groups, and more." codemap --print launcher/agent
finds_no_folder() { ! codemap --print launcher/agen; }
accepts finds_no_folder
headers=launcher/d.h
accepts codemap
for name in c e; do
  headers=launcher/$name.h
  finds "launcher/$name.h:1: no comment on the first line" codemap
done
headers=README.md
finds "no header was given" codemap

tree=$scratch/tree
mkdir -p "$tree"/{launcher,tests/gates}
gates() { (cd "$tree" && find . -type f -printf '%P\n' | "$OLDPWD/$here/gates.py"); }
finds "no gate of tests/gates/gates.h" gates
printf '//   kGate  tests/a_test.cc\ninline constexpr char kGate[] = "DDPRUN_TEST_GATE";\n' >"$tree/tests/gates/gates.h"
echo 'Run({{kGate, "1"}});' >"$tree/tests/a_test.cc"
echo 'getenv("DDPRUN_TOKEN")' >"$tree/launcher/a.cc"
accepts gates
echo 'Run({{"DDPRUN_TEST_GATE", "1"}});' >"$tree/tests/b_test.cc"
finds "tests/b_test.cc uses kGate: tests/gates/gates.h does not list it" gates
echo 'Run({});' | tee "$tree/tests/a_test.cc" >"$tree/tests/b_test.cc"
finds "tests/a_test.cc does not use kGate: tests/gates/gates.h lists it" gates
echo 'getenv("DDPRUN_TEST_OTHER")' >"$tree/launcher/a.cc"
finds "launcher/a.cc: the product names DDPRUN_TEST_OTHER" gates

variables() { (cd "$tree" && find . -type f -printf '%P\n' | "$OLDPWD/$here/variables.py"); }
finds "no row in launcher/cli/variable_table.cc" variables
mkdir -p "$tree"/{launcher/cli,rendezvous}
printf '    {"%s", kDdprun, "", ""},\n' DDPRUN_TOKEN SLURM_JOB_ID >"$tree/launcher/cli/variable_table.cc"
echo '"DDPRUN_TOKEN", "SLURM_JOB_ID=", "no DDPRUN_VARIABLE", "NOT_FOUND", "PATH"' >"$tree/launcher/a.cc"
accepts variables
echo '"NCCL_ALGO"' >"$tree/rendezvous/b.cc"
finds "rendezvous/b.cc: launcher/cli/variable_table.cc has no row for NCCL_ALGO" variables
echo 'getenv("HOME")' >"$tree/rendezvous/b.cc"
finds "rendezvous/b.cc: launcher/cli/variable_table.cc has no row for HOME" variables
echo '"DDPRUN_TOKEN"' | tee "$tree/launcher/a.cc" >"$tree/rendezvous/b.cc"
finds "launcher/cli/variable_table.cc: nothing reads or sets SLURM_JOB_ID" variables
sed 's/ --with-etcd//' Dockerfile >"$scratch/Dockerfile"
finds "does not install by: tools/setup --with-etcd" $here/dockerfile.sh "$scratch/Dockerfile"
sed 's/ --with-etcd/& --with-gold/' Dockerfile >"$scratch/Dockerfile"
finds "tools/setup does not know: --with-gold" $here/dockerfile.sh "$scratch/Dockerfile"

build_graph >"$scratch/graph.xml"
$here/graph.py pure-files "$scratch/graph.xml" >"$scratch/pure_files"
pure_includes() { $here/pure_includes.sh "$scratch/pure_files" "$@"; }
printf '#include <vector>\n#include "rendezvous/base/time.h"\n' >"$scratch/pure.cc"
accepts pure_includes "$scratch/pure.cc"
for include in '<mutex>' '<thread>' '<unistd.h>' '<grpcpp/grpcpp.h>' '<spdlog/spdlog.h>' \
  '<boost/asio.hpp>' '"rendezvous/base/steady_clock.h"' '"absl/time/clock.h"'; do
  echo "#include $include" >"$scratch/impure.cc"
  finds "not allowed in pure code" pure_includes "$scratch/impure.cc"
done
finds "no pure file was found" $here/pure_includes.sh /dev/null
grep -vxF rendezvous/core/text.h "$scratch/pure_files" >"$scratch/fewer_files"
finds "rendezvous/core/text.h: says [pure]" $here/pure_includes.sh "$scratch/fewer_files"

printf '#include <unordered_map>\nstd::unordered_map<int, std::map<int, int>> parked_;\nint F() { return parked_.at(1)[2]; }\n' >"$scratch/hash.cc"
accepts pure_includes "$scratch/hash.cc"
echo 'void G() { for (const auto& [key, value] : parked_) Use(key, value); }' >>"$scratch/hash.cc"
finds "walks a hash container" pure_includes "$scratch/hash.cc"

planted=//tools/lint_checks/planted
# finds_each CHECK BREACH...: the check, run once, names each of these targets.
finds_each() {
  local script=$1 breach
  shift
  "$script" $planted:clean "${@/#/$planted:}" >"$scratch/said" 2>&1 && { echo "planted: $script found nothing in $*"; status=1; }
  for breach in "$@"; do finds "$planted:$breach needs" said; done
  if grep -F "$planted:clean needs" "$scratch/said"; then status=1; fi
}
said() { cat "$scratch/said"; return 1; }
accepts $here/pure_symbols.sh $planted:clean
finds_each $here/pure_symbols.sh clock thread lock random file print socket spdlog checked_call
accepts $here/executor_symbols.sh $planted:clean $planted:clock
finds_each $here/executor_symbols.sh thread file made_folder checked_call
finds "no target was given" $here/pure_symbols.sh
accepts $here/layers.py "$scratch/graph.xml" $planted:clean $planted:clean
finds "pure code reaches code that is not" $here/layers.py "$scratch/graph.xml" $planted:reaches_grpc
finds "the library reaches the launcher or gRPC" $here/layers.py "$scratch/graph.xml" $planted:clean $planted:reaches_grpc
finds "the library reaches the launcher or gRPC" $here/layers.py "$scratch/graph.xml" $planted:clean $planted:reaches_launcher

# with_edge FROM TO: judges the build's graph, to which a rule of the tests and one dependency are added.
with_edge() {
  sed "s|<query[^>]*>|&<rule class=\"cc_library\" name=\"//tests/support:support\"/>|
    s|<rule [^>]*name=\"$1\">|&<rule-input name=\"$2\"/>|" "$scratch/graph.xml" >"$scratch/planted.xml"
  $here/layers.py "$scratch/planted.xml"
}
accepts with_edge //rendezvous/core:rendezvous_machine //rendezvous/base:ids
finds "pure code reaches code that is not: //launcher/cli:completion //rendezvous/net:channel" with_edge //launcher/cli:completion //rendezvous/net:channel
finds "the lowest layer reaches one above" with_edge //rendezvous/base:mailbox //rendezvous/core:rendezvous_machine
finds "the rendezvous reaches the launcher or the library" with_edge //rendezvous/server:coordinator //launcher/agent:agent
accepts with_edge //rendezvous/server:coordinator //worker_runtime:env_contract
finds "the process code reaches more than the lowest layer" with_edge //process:exit_status //rendezvous/core:rendezvous_machine
finds "the store reaches gRPC" with_edge //rendezvous/store:store_server @grpc//:grpc
finds "an example or the bench reaches more than the library" with_edge //examples/train:train //launcher/agent:agent
finds "a product depends on tests" with_edge //launcher/agent:agent //tests/support:support
sed 's|//bench[:/]|//lab:|g' "$scratch/graph.xml" >"$scratch/renamed.xml"
finds "names no target" $here/layers.py "$scratch/renamed.xml"

# A program of the distribution: it needs libraries that ours must not.
finds "libstdc++.so.6" $here/portable.sh "$(command -v protoc)"
finds "no program was given" $here/portable.sh
for gate in none DDPRUN_TEST_FILE_GATE; do
  echo "#include <stdio.h>
int main(void) { return puts(\"$gate\"); }" | gcc -x c - -o "$scratch/$gate"
done
accepts $here/portable.sh "$scratch/none"
finds "knows variables of tests: DDPRUN_TEST_FILE_GATE" $here/portable.sh "$scratch/DDPRUN_TEST_FILE_GATE"

# A function that no header declares, and an object that is for programs alone.
echo 'int ddp_version(void) { return 0; } int stray(void) { return 1; }' >"$scratch/shared.c"
echo 'extern int far; int* Near() { return &far; }' >"$scratch/fixed.cc"
gcc -shared -fPIC "$scratch/shared.c" -o "$scratch/shared.so"
g++ -fno-pic -c "$scratch/fixed.cc" -o "$scratch/fixed.o" && ar rc "$scratch/fixed.a" "$scratch/fixed.o"
finds "stray (shown, not declared)" $here/libraries.sh "$scratch/shared.so" "$scratch/fixed.a"
finds "ddp_barrier (declared, not shown)" $here/libraries.sh "$scratch/shared.so" "$scratch/fixed.a"
finds "goes into no shared library" $here/libraries.sh "$scratch/shared.so" "$scratch/fixed.a"
finds "usage" $here/libraries.sh

# Rows without a promise, a test or a case, and a README without rows.
printf 'TEST_CASE("one: runs") {}\n' >"$scratch/one_test.cc"
promises=tools/testing/promises.py
row() { printf '[CONTRIBUTING.md]\n%s | %s | %s\n' "$@"; }
accepts $promises
finds "CONTRIBUTING.md promises no such thing: It flies." $promises <(row "It flies." "$scratch/one_test.cc" "one: runs")
finds "has no case 'one: ends'" $promises <(row "Ring 0" "$scratch/one_test.cc" "one: ends")
finds "there is no test $scratch/two_test.cc" $promises <(row "Ring 0" "$scratch/two_test.cc" "")
finds "no row of tests/promises.txt names a test of this promise: ./tools/demo" $promises <(row "Ring 0" "$scratch/one_test.cc" "one: runs")
# A page of 201 lines, a line of 101 columns, a sentence of 31 words, a word that has a plainer one,
# and all where nobody reads sentences; the last two also in the comments of a header.
words() { for ((i = 0; i < $1; i++)); do echo -n "word "; done; }
{ echo "# Title"; echo; words 30 | sed 's/ $/./' | fold -s -w 100; echo; echo '```text'; words 40; echo; echo '```'; echo; echo "    $(words 40)"; echo; echo "| $(words 21) |"; echo; echo "[word $(words 28)](a.md)"; } >"$scratch/short.md"
{ echo "# Title"; echo; words 20; echo w; } >"$scratch/wide.md"
{ echo "# Title"; echo; words 31 | sed 's/ $/./'; } >"$scratch/long.md"
{ echo "# Title"; echo; echo "| a | The table begins anew. |"; } >"$scratch/banned.md"
{ echo "// $(words 29)word."; echo "//"; echo "//   $(words 40)"; echo "int a;  // $(words 20)"; echo "int b;  // $(words 20)"; } >"$scratch/short.h"
{ echo "/* $(words 15)"; echo " * $(words 15)word. */"; } >"$scratch/long.h"
{ echo "// - One."; echo "// - Null, where a host is gone."; } >"$scratch/banned.h"
mkdir "$scratch/docs"
printf '\n%.0s' {1..200} >"$scratch/docs/page.md"
printf '\n%.0s' {1..201} >"$scratch/docs/high.md"
accepts $here/prose.py "$scratch/short.md" "$scratch/short.h" "$scratch/docs/page.md"
finds "high.md: 201 lines, at most 200" $here/prose.py "$scratch/docs/high.md"
finds "31 words, at most 30" $here/prose.py "$scratch/long.md"
finds "wide.md:3: 101 columns, at most 100" $here/prose.py "$scratch/wide.md"
finds "'anew' (again)" $here/prose.py "$scratch/banned.md"
finds "long.h:1: 31 words, at most 30" $here/prose.py "$scratch/long.h"
finds "banned.h:2: ', where a' (if, when)" $here/prose.py "$scratch/banned.h"
# Also messages: literals that stand side by side are one, and neither comments nor raw ones count.
{ echo "#include \"$(words 31)\""; echo "// \"$(words 31)\""; echo "f('\"', R\"($(words 31))\");"; echo "f(\"$(words 20)\", \"$(words 20)\");"; } >"$scratch/short.cc"
{ echo; echo "f(\"$(words 20)\""; echo "  \"$(words 11)\");"; } >"$scratch/long.cc"
echo 'f("start the job anew");' >"$scratch/banned.cc"
accepts $here/prose.py "$scratch/short.cc"
finds "long.cc:2: 31 words, at most 30" $here/prose.py "$scratch/long.cc"
finds "banned.cc:1: 'anew' (again)" $here/prose.py "$scratch/banned.cc"

# A link to a file and to a heading that are not there, one in code, and one that is good.
printf '# One\n\n## Good news\n\n[a](two.md) [b](#good-news) `[c](none.md)`\n' >"$scratch/one.md"
printf '# Two\n\n[a](one.md#good-news)\n' >"$scratch/two.md"
printf '# Three\n\n[a](none.md) [b](one.md#bad-news)\n' >"$scratch/three.md"
accepts $here/links.py "$scratch/one.md" "$scratch/two.md"
finds "none.md: there is no such file" $here/links.py "$scratch/three.md"
finds "one.md#bad-news: there is no such heading" $here/links.py "$scratch/three.md"
echo "planted: $count probes"
exit $status
