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
        self.assertEqual(threads.inputs(LINK), (["bazel-out/k8/bin/a/_objs/tests/x.pic.o", "bazel-out/k8/bin/b/libb.a"],
                                                ["-l:libabsl_status.a", "-lstdc++"]))

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
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = folder.name
        os.makedirs(os.path.join(cls.root, "bazel-out/bin/a"))
        for name, language, source in (("threaded", "c++", THREADED), ("calls", "c", CALLS), ("single", "c++", SINGLE)):
            subprocess.run(("gcc", "-x", language, "-", "-c", "-o", f"bazel-out/bin/a/{name}.o"), input=source, text=True,
                           check=True, cwd=cls.root)

    def can(self, name, more=""):
        """Of a program that links the object, and one that links an archive with it."""
        subprocess.run(("ar", "rc", "bazel-out/bin/a/all.a", f"bazel-out/bin/a/{name}.o"), check=True, cwd=self.root)
        for program, file in (("tests", f"{name}.o"), ("by_archive", "all.a")):
            with open(os.path.join(self.root, f"bazel-out/bin/a/{program}-2.params"), "w", encoding="utf-8") as params:
                params.write(f"-o\nbazel-out/bin/a/tests\nbazel-out/bin/a/{file}\n-lstdc++\n{more}")
        programs = threads.Programs(os.path.join(self.root, "bazel-out/bin"))
        answers = {programs.can("//a:tests"), programs.can("//a:by_archive")}
        os.remove(os.path.join(self.root, "bazel-out/bin/a/all.a"))
        self.assertEqual(len(answers), 1)
        return answers.pop()

    def test_a_program_that_starts_a_thread_is_found(self):
        self.assertTrue(self.can("threaded"))
        self.assertTrue(self.can("calls"))

    def test_one_that_locks_and_sleeps_is_left_out(self):
        self.assertFalse(self.can("single"))

    def test_a_library_that_is_not_known_may_start_threads(self):
        self.assertFalse(self.can("single", "-l:libabsl_synchronization.a\n-lhwloc\n"))
        self.assertTrue(self.can("single", "-l:libgrpc++.a\n"))

    def test_a_program_whose_link_is_not_known_may(self):
        self.assertTrue(threads.Programs("/no/bazel-out/bin").can("//a:tests"))
        self.assertTrue(self.can("single", "bazel-out/bin/a/absent.o\n"))


if __name__ == "__main__":
    unittest.main()
