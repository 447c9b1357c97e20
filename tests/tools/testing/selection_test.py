"""From a name to what it runs."""

import unittest

import context  # noqa: F401

import selection
from selection import Choice, Look, NothingFound
from targets import Target

FILES = {
    "README.md",
    "launcher/cli/BUILD", "launcher/cli/text.cc", "launcher/cli/text.h", "launcher/cli/help.cc", "launcher/new/x.cc",
    "tests/BUILD", "tests/launcher/cli/BUILD", "tests/launcher/cli/text_test.cc", "tests/launcher/cli/cli_testing.cc",
    "tests/launcher/cli/data/row.txt", "tests/tools/BUILD", "tests/tools/setup_test.sh", "tests/tools/testing/plan_test.py",
    "tools/testing/plan.py", "worker_runtime/include/ddp/group.h", "tests/worker_runtime/BUILD",
    "tests/worker_runtime/group_test.cc",
}
FOLDERS = {name.rpartition("/")[0] for name in FILES} | {"tests/launcher", "launcher"}
TARGETS = [
    Target("//tests/launcher/cli:cli_test", "cc_test", frozenset(), ("tests/launcher/cli/text_test.cc",)),
    Target("//tests/launcher/cli:manual", "cc_test", frozenset(["manual"]), ("tests/launcher/cli/text_test.cc",)),
    Target("//tests/launcher/cli:ci_test", "cc_test", frozenset(["ci"]), ("tests/launcher/cli/slow_test.cc",)),
    Target("//tests/tools:setup_test", "sh_test", frozenset(), ("tests/tools/setup_test.sh",)),
]


def look(path):
    return selection.look_for(path, FILES.__contains__, FOLDERS.__contains__)


class LookTest(unittest.TestCase):
    def test_names_lead_to_packages_and_files(self):
        cli = "tests/launcher/cli"
        for path, wanted in {
            "tests/launcher/cli/text_test.cc": Look(package=cli, file="tests/launcher/cli/text_test.cc"),
            "launcher/cli/text.cc": Look(package=cli, file="tests/launcher/cli/text_test.cc"),
            "launcher/cli/text.h": Look(package=cli, file="tests/launcher/cli/text_test.cc"),
            "launcher/cli/help.cc": Look(package=cli),
            "tests/launcher/cli/cli_testing.cc": Look(package=cli),
            "tests/launcher/cli/data/row.txt": Look(package=cli),
            "tests/launcher/cli": Look(package=cli),
            "tests/launcher/cli/": Look(package=cli),
            "launcher/cli": Look(package=cli),
            "tests/launcher": Look(pattern="//tests/launcher/..."),
            "launcher": Look(pattern="//tests/launcher/..."),
            "//tests/launcher/cli:cli_test": Look(pattern="//tests/launcher/cli:cli_test"),
            "tests/tools/setup_test.sh": Look(package="tests/tools", file="tests/tools/setup_test.sh"),
            "tests/tools/testing/plan_test.py": Look(script="tests/tools/testing/plan_test.py"),
            "tools/testing/plan.py": Look(script="tests/tools/testing/plan_test.py"),
            "worker_runtime/include/ddp/group.h": Look(package="tests/worker_runtime", file="tests/worker_runtime/group_test.cc"),
        }.items():
            with self.subTest(path):
                self.assertEqual(look(path), wanted)

    def test_a_name_that_leads_nowhere_says_what_was_looked_for(self):
        for path, text in {
            "launcher/cli/absent.cc": "there is no such file",
            "launcher/new/x.cc": "there is neither tests/launcher/new/x_test.cc nor a package tests/launcher/new",
            "README.md": "there is neither tests/README_test.cc nor a package tests",
            "launcher/new": "there is no folder tests/launcher/new",
        }.items():
            with self.subTest(path), self.assertRaisesRegex(NothingFound, text):
                look(path)

    def test_a_path_is_meant_from_where_it_is_typed(self):
        for path, called_from, wanted in (
            ("text.cc", "/work/ddprun/launcher/cli", "launcher/cli/text.cc"), ("../x", "/work/ddprun/tests", "x"),
            ("/work/ddprun/tests/a", "/", "tests/a"), ("//tests/a:b", "/tmp", "//tests/a:b")):
            self.assertEqual(selection.in_repository(path, called_from, "/work/ddprun"), wanted)
        with self.assertRaisesRegex(NothingFound, "is not in /work/ddprun"):
            selection.in_repository("x", "/tmp", "/work/ddprun")


class ChooseTest(unittest.TestCase):
    def choose(self, path):
        return selection.choose(look(path), TARGETS)

    def test_a_file_chooses_the_programs_that_hold_it_and_its_cases(self):
        file = "tests/launcher/cli/text_test.cc"
        self.assertEqual(self.choose(file), [Choice("//tests/launcher/cli:cli_test", (file,)),
                                             Choice("//tests/launcher/cli:manual", (file,))])

    def test_a_script_is_run_whole(self):
        self.assertEqual(self.choose("tests/tools/setup_test.sh"), [Choice("//tests/tools:setup_test")])

    def test_a_package_chooses_its_programs_but_manual_ones_and_those_of_ring_2(self):
        long = Target("//tests/tools:soak_test", "sh_test", frozenset(["nightly"]), ("tests/tools/soak_test.sh",))
        self.assertNotIn(Choice(long.label), selection.choose(look("tests/tools"), TARGETS + [long]))
        self.assertEqual(selection.choose(look("tests/tools"), [long]), [Choice(long.label)])
        self.assertEqual(self.choose("launcher/cli"), [Choice("//tests/launcher/cli:cli_test"), Choice("//tests/launcher/cli:ci_test")])

    def test_what_a_sanitizer_leaves_out_is_not_chosen(self):
        targets = TARGETS + [Target("//tests/launcher/cli:whole", "cc_test", frozenset(["no-asan"]), ("tests/launcher/cli/whole_test.cc",))]
        self.assertEqual(len(selection.choose(look("launcher/cli"), targets)), 3)
        self.assertEqual(len(selection.choose(look("launcher/cli"), targets, "no-asan")), 2)
        with self.assertRaisesRegex(NothingFound, "//tests/launcher/cli:whole has the tag no-asan"):
            selection.choose(Look(package="tests/launcher/cli", file="tests/launcher/cli/whole_test.cc"), targets, "no-asan")

    def test_what_no_program_holds_is_an_error_that_names_those_there_are(self):
        with self.assertRaisesRegex(NothingFound, "among its sources .*//tests/launcher/cli:cli_test"):
            selection.choose(Look(package="tests/launcher/cli", file="tests/launcher/cli/lost_test.cc"), TARGETS)
        with self.assertRaisesRegex(NothingFound, "it has no tests"):
            selection.choose(Look(package="tests/worker_runtime"), TARGETS)

    def test_whole_programs_and_files_are_two_runs(self):
        choices = [Choice("//a:x", ("a/1_test.cc",)), Choice("//b:y", ("b/2_test.cc",)), Choice("//c:z"), Choice("//a:x", ("a/0_test.cc",))]
        self.assertEqual(selection.merge(choices), [
            (["//a:x", "//b:y"], ["a/0_test.cc", "a/1_test.cc", "b/2_test.cc"]), (["//c:z"], [])])
        self.assertEqual(selection.merge(choices + [Choice("//a:x")]), [(["//b:y"], ["b/2_test.cc"]), (["//a:x", "//c:z"], [])])


if __name__ == "__main__":
    unittest.main()
