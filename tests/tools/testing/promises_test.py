"""The table of promises and their tests."""

import unittest

import context  # noqa: F401

import promises
from promises import Row
from targets import Target

README = """# x

Not promised here.

    ./tools/demo    # a command

## Use

A paragraph
of two lines.

    ddprun ./train
    epoch 1: learned

![a picture](x.png)

| code | meaning |
|---|---|
| 0 | fine |

## Requirements and limits

It does not fly.
"""


class PromisesTest(unittest.TestCase):
    def test_commands_paragraphs_and_tables_are_promises(self):
        self.assertEqual(promises.promises(README), [
            (5, "./tools/demo # a command"), (9, "A paragraph of two lines."), (12, "ddprun ./train"),
            (17, "| code | meaning | |---|---| | 0 | fine |")])

    def test_cases_are_read_from_c_plus_plus(self):
        self.assertEqual(promises.cases('TEST_CASE("a: b") {}\nTEST_CASE(\n    "c: "\n    "d") {\nTEST_CASE("e \\"f\\"") {}'),
                         {"a: b", "c: d", 'e "f"'})

    def test_rows_have_a_page_four_fields_and_a_place(self):
        self.assertEqual(promises.parse_table("t", "# why\n[p.md]\na  b | x.cc | c: d | ci\n\n[q.md]\ne | y.sh\nf | z | | hand\n"), [
            Row("t:3", "p.md", "a b", "x.cc", "c: d", "ci"), Row("t:6", "q.md", "e", "y.sh", "", ""),
            Row("t:7", "q.md", "f", "z", "", "hand")])

    def test_a_fragment_stands_in_its_page_and_each_promise_of_the_readme_has_a_row(self):
        files = {"README.md": README, "p.md": "one\ntwo", "x.cc": 'TEST_CASE("c: d")', "y.sh": ""}
        rows = [Row("t:1", "README.md", "./tools/demo", "y.sh", "", ""), Row("t:2", "README.md", "of two", "y.sh", "", ""),
                Row("t:3", "README.md", "ddprun ./train", "y.sh", "", ""), Row("t:4", "README.md", "| 0 |", "y.sh", "", ""),
                Row("t:5", "p.md", "one two", "x.cc", "c: d", "ci")]
        self.assertEqual(list(promises.text_breaches(rows, files.get)), [])
        wrong = [*rows[:3], Row("t:6", "p.md", "three", "x.cc", "c: d", ""), Row("t:7", "p.md", "one", "x.cc", "e", ""),
                 Row("t:8", "lost.md", "one", "lost.cc", "", "later")]
        self.assertEqual(list(promises.text_breaches(wrong, files.get)), [
            "t:6: p.md promises no such thing: three", "t:7: x.cc has no case 'e'", "t:8: lost.md promises no such thing: one",
            "t:8: the ring 'later' is neither empty nor ci nor hand", "t:8: there is no test lost.cc",
            "README.md:17: no row of tests/promises.txt names a test of this promise: | code | meaning | |---|---| | 0 | fine |"])

    def test_a_row_is_in_the_ring_that_it_says(self):
        targets = [Target("//a:zero", "cc_test", frozenset(), ("a/zero_test.cc", "a/both_test.cc")),
                   Target("//a:one", "cc_test", frozenset(["ci"]), ("a/one_test.cc", "a/both_test.cc")),
                   Target("//a:two", "cc_test", frozenset(["nightly"]), ("a/two_test.cc",)),
                   Target("//a:manual", "cc_test", frozenset(["manual"]), ("a/manual_test.cc",))]
        scripts = {"zero.sh": 0, "one.sh": 1}

        def breaches(*places):
            return list(promises.ring_breaches([Row("t:1", "p.md", "x", file, "y", ring) for file, ring in places], targets, scripts))

        self.assertEqual(breaches(("a/zero_test.cc", ""), ("a/both_test.cc", ""), ("a/one_test.cc", "ci"), ("zero.sh", ""),
                                  ("one.sh", "ci"), ("a/manual_test.cc", "hand"), ("other.sh", "hand")), [])
        self.assertEqual(breaches(("a/one_test.cc", ""), ("a/zero_test.cc", "ci"), ("a/two_test.cc", "ci"), ("one.sh", "")), [
            "t:1: a/one_test.cc: it is in ring 1, but the row says ''", "t:1: a/zero_test.cc: it is in ring 0, but the row says 'ci'",
            "t:1: a/two_test.cc: it is in ring 2, but the row says 'ci'", "t:1: one.sh: it is in ring 1, but the row says ''"])
        self.assertEqual(breaches(("a/manual_test.cc", ""), ("a/lost_test.cc", "ci"), ("zero.sh", "hand")), [
            "t:1: a/manual_test.cc: no ring runs it, but the row says ''", "t:1: a/lost_test.cc: no ring runs it, but the row says 'ci'",
            "t:1: zero.sh: it is in ring 0, but the row says 'hand'"])


if __name__ == "__main__":
    unittest.main()
