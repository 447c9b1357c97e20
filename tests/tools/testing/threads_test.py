"""Which programs can start a thread."""

import os
import shutil
import subprocess
import tempfile
import unittest

import context  # noqa: F401

import threads
from targets import Target

LONE = " U malloc@GLIBC_2.2.5\n w pthread_create@GLIBC_2.34\n U pthread_mutex_lock@GLIBC_2.2.5\n"
DYNAMIC = " 0x1 (NEEDED)  Shared library: [libm.so.6]\n 0x1 (NEEDED)  Shared library: [libc.so.6]\n"


class ThreadsTest(unittest.TestCase):
    def test_a_program_that_asks_libc_for_a_thread_can_start_one(self):
        self.assertTrue(threads.can_start(LONE + " U pthread_create@GLIBC_2.34\n", DYNAMIC))
        self.assertFalse(threads.can_start(LONE, DYNAMIC))

    def test_a_program_with_a_library_that_is_not_known_can(self):
        self.assertTrue(threads.can_start(LONE, DYNAMIC + " (NEEDED) Shared library: [libgrpc++.so.1.51]\n"))

    def test_a_test_is_chosen_for_itself_or_for_what_it_starts(self):
        known = [Target("//a:quiet", "cc_test", programs=("//a:helper",)), Target("//a:own", "cc_test"),
                 Target("//a:starts", "cc_test", programs=("//a:helper", "//:ddprun")), Target("//a:script", "sh_test"),
                 Target("//a:runs", "sh_test", programs=("//:ddprun",))]
        can = {"//a:own": True, "//:ddprun": True, "//a:quiet": False, "//a:helper": False}
        labels = [target.label for target in known] + ["//tests/canary:tsan_canary_test"]
        # What is not known, as the canary, is chosen.
        self.assertEqual(threads.choose(labels, known, lambda label: can.get(label, False)), (
            "//a:own", "//a:starts", "//a:runs", "//tests/canary:tsan_canary_test"))

    @unittest.skipUnless(shutil.which("g++"), "no g++")
    def test_a_planted_threaded_program_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, source, wanted in (
                ("threaded", "#include <thread>\nint main() { std::thread([] {}).join(); }\n", True),
                ("single", "#include <string>\n#include <mutex>\nint main() { std::mutex m; std::lock_guard l(m); }\n", False)):
                path = os.path.join(folder, name)
                subprocess.run(("g++", "-x", "c++", "-", "-o", path, "-static-libstdc++", "-pthread"), input=source, text=True, check=True)
                self.assertEqual(threads.file_can_start(path), wanted, name)
            self.assertTrue(threads.file_can_start(os.path.join(folder, "absent")))


if __name__ == "__main__":
    unittest.main()
