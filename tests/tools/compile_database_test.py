#!/usr/bin/env python3
"""Bazel's compile actions become a database that clang understands."""

import json
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "tools")
import compile_database  # noqa: E402

FOLDERS = {"bazel-out": "/cache/x/execroot/ddprun/bazel-out", "external": "/cache/x/external"}


def action(source, *more):
    return {"arguments": ["/usr/bin/gcc", *more, "-c", source, "-o", "bazel-out/k8-opt/bin/x.o"]}


class CompileDatabaseTest(unittest.TestCase):
    def test_paths_below_the_output_and_other_repositories_are_full_and_others_stay(self):
        command = ["gcc", "-iquote", ".", "-iquote", "bazel-out/k8-opt/bin", "-Ibazel-out/k8-opt/bin/a", "-isystem", "external/grpc",
                   "-isystemexternal/zlib", "-iquote", "external", "-Iworker_runtime/include", "-Dname=bazel-out/x", "-Iexternals"]
        out, other = FOLDERS["bazel-out"], FOLDERS["external"]
        self.assertEqual(compile_database.arguments(command, FOLDERS)[2:], [
            "-iquote", ".", "-iquote", out + "/k8-opt/bin", f"-I{out}/k8-opt/bin/a", "-isystem", other + "/grpc",
            f"-isystem{other}/zlib", "-iquote", other, "-Iworker_runtime/include", "-Dname=bazel-out/x", "-Iexternals"])

    def test_what_gcc_alone_understands_is_dropped_and_the_rest_is_kept_in_order(self):
        command = ["gcc", "-std=c++20", "-MD", "-MF", "bazel-out/x.d", "-frandom-seed=bazel-out/x.o", "-include",
                   "tools/bazel/precompiled.h", "-include", "bazel-out/k8-opt/bin/a/pch.h", "-fpch-deps",
                   "-Winvalid-pch", "-Werror=invalid-pch", "-Werror", "-fpch-preprocess",
                   "-fno-canonical-system-headers", "--param=ggc-min-heapsize=1", "-include", "external/a/compat.h", "-Wall", "-O2"]
        self.assertEqual(compile_database.arguments(command, FOLDERS), [
            "gcc", "-Wno-unknown-warning-option", "-std=c++20", "-include", FOLDERS["external"] + "/a/compat.h", "-Wall", "-O2"])

    def test_each_source_has_the_first_command_that_compiles_it_and_planted_copies_have_none(self):
        actions = [action("b.cc", "-O2"), action("b.cc", "-O3"), action("a.cc"), action("bazel-out/k8-opt/bin/proto/p.pb.cc"),
                   action("bazel-out/k8-opt/bin/tests/faults/disarmed/a.cc"), action("a.h", "-fsyntax-only"),
                   {"arguments": ["gcc", "-shared"]}, {}]
        entries = compile_database.database(actions, "/src", FOLDERS)
        self.assertEqual([entry["file"] for entry in entries], ["a.cc", "b.cc", FOLDERS["bazel-out"] + "/k8-opt/bin/proto/p.pb.cc"])
        self.assertEqual({entry["directory"] for entry in entries}, {"/src"})
        self.assertIn("-O2", entries[1]["arguments"])
        self.assertEqual(entries[2]["arguments"][entries[2]["arguments"].index("-c") + 1], entries[2]["file"])

    def test_the_program_prints_what_it_reads_and_fails_on_nothing(self):
        run = [sys.executable, "tools/compile_database.py", "/src", *FOLDERS.values()]
        printed = subprocess.run(run, input=json.dumps({"actions": [action("a.cc")]}), capture_output=True, text=True, check=True).stdout
        self.assertEqual([entry["file"] for entry in json.loads(printed)], ["a.cc"])
        nothing = subprocess.run(run, input="{}", capture_output=True, text=True)
        self.assertEqual((nothing.returncode, nothing.stdout), (1, ""))
        self.assertIn("no command compiles anything", nothing.stderr)


if __name__ == "__main__":
    unittest.main()
