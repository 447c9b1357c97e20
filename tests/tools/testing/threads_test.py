"""Which programs can start a thread."""

import os
import shutil
import subprocess
import tempfile
import unittest

import context  # noqa: F401

import threads
from targets import Target

LINK = """-o
bazel-out/k8/bin/a/tests.so
-Wl,--gc-sections
bazel-out/k8/bin/a/_objs/tests/x.pic.o
-Wl,--start-lib
bazel-out/k8/bin/b/_objs/b/y.pic.o
-Wl,--end-lib
bazel-out/k8/bin/c/libc.so
bazel-out/k8/bin/b/libb.a
-l:libabsl_status.a
-lstdc++
"""
THREADED = "#include <thread>\nvoid F() { std::thread([] {}).detach(); }\n"
CALLS = "#include <pthread.h>\nvoid* G(void* x) { return x; }\nint F(void) { pthread_t t; return pthread_create(&t, 0, G, 0); }\n"
SINGLE = "#include <mutex>\n#include <thread>\nvoid F() { std::mutex m; std::lock_guard l(m);\n" \
    "  std::this_thread::sleep_for(std::chrono::seconds(1)); (void)std::this_thread::get_id(); }\n"


class ThreadsTest(unittest.TestCase):
    def test_the_inputs_of_a_link_are_its_objects_archives_and_libraries(self):
        self.assertEqual(threads.inputs(LINK), (
            ["bazel-out/k8/bin/a/_objs/tests/x.pic.o", "bazel-out/k8/bin/c/libc.so"],
            ["bazel-out/k8/bin/b/_objs/b/y.pic.o", "bazel-out/k8/bin/b/libb.a"], ["-l:libabsl_status.a", "-lstdc++"]))

    def test_a_test_is_chosen_for_itself_or_for_what_it_starts(self):
        known = [Target("//a:quiet", "cc_test", programs=("//a:helper",)), Target("//a:own", "cc_test"),
                 Target("//a:starts", "cc_test", programs=("//a:helper", "//:ddprun")), Target("//a:script", "sh_test"),
                 Target("//a:runs", "sh_test", programs=("//:ddprun",))]
        labels = [target.label for target in known] + ["//tests/canary:tsan_canary_test"]
        # What is not known, as the canary, is chosen.
        self.assertEqual(threads.choose(labels, known, lambda label: label in ("//a:own", "//:ddprun")), (
            "//a:own", "//a:starts", "//a:runs", "//tests/canary:tsan_canary_test"))


@unittest.skipUnless(shutil.which("g++"), "no g++")
class PlantedTest(unittest.TestCase):
    """Programs of gcc's, with the arguments of their links beside them as Bazel leaves them."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        os.makedirs(os.path.join(self.root, "bazel-out/bin/a"))
        self.compile("main", "int main() { return 0; }\n")

    def compile(self, name, source):
        subprocess.run(("g++", "-x", "c++", "-", "-c", "-o", f"bazel-out/bin/a/{name}.o"), input=source, text=True, check=True,
                       cwd=self.root)
        return f"bazel-out/bin/a/{name}.o"

    def archive(self, name, source):
        self.compile(name, source)
        subprocess.run(("ar", "rc", f"bazel-out/bin/a/{name}.a", f"bazel-out/bin/a/{name}.o"), check=True, cwd=self.root)
        return f"bazel-out/bin/a/{name}.a"

    def can(self, *inputs):
        """Of a program that links main.o and `inputs`."""
        inputs = ("bazel-out/bin/a/main.o", *inputs)
        subprocess.run(("g++", "-fuse-ld=gold", "-o", "bazel-out/bin/a/tests", *inputs), check=True, cwd=self.root)
        with open(os.path.join(self.root, "bazel-out/bin/a/tests-2.params"), "w", encoding="utf-8") as params:
            params.write("\n".join(("-o", "bazel-out/bin/a/tests", *inputs, "-lstdc++")))
        return threads.Programs(os.path.join(self.root, "bazel-out/bin")).can("//a:tests")

    def test_a_program_that_starts_a_thread_is_found(self):
        self.assertTrue(self.can(self.compile("threaded", THREADED)))
        self.assertTrue(self.can(self.compile("calls", CALLS)))

    def test_one_that_locks_and_sleeps_is_left_out(self):
        self.assertFalse(self.can(self.compile("single", SINGLE)))

    def test_what_is_taken_in_on_demand_counts_where_it_is_needed(self):
        on_demand = ("-Wl,--start-lib", self.compile("threaded", THREADED), "-Wl,--end-lib")
        archive = self.archive("all", THREADED)
        self.assertFalse(self.can(*on_demand))
        self.assertFalse(self.can(archive))
        self.compile("main", "void F();\nint main() { F(); }\n")
        self.assertTrue(self.can(*on_demand))
        self.assertTrue(self.can(archive))

    def test_a_program_without_a_table_of_symbols_may(self):
        archive = self.archive("all", THREADED)
        self.assertFalse(self.can(archive))
        subprocess.run(("strip", "bazel-out/bin/a/tests"), check=True, cwd=self.root)
        self.assertTrue(threads.Programs(os.path.join(self.root, "bazel-out/bin")).can("//a:tests"))

    def test_a_library_that_is_not_known_may_start_threads(self):
        self.assertFalse(self.can("-lm"))
        self.assertTrue(self.can("-lutil"))
        # An archive of the system is looked into.
        self.assertFalse(self.can("-l:libutil.a"))

    def test_a_program_whose_link_is_not_known_may(self):
        self.assertTrue(threads.Programs("/no/bazel-out/bin").can("//a:tests"))
        self.assertFalse(self.can())
        os.remove(os.path.join(self.root, "bazel-out/bin/a/main.o"))
        self.assertTrue(threads.Programs(os.path.join(self.root, "bazel-out/bin")).can("//a:tests"))


if __name__ == "__main__":
    unittest.main()
