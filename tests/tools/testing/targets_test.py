"""What the query's answer tells of programs."""

import unittest

import context  # noqa: F401

import targets
from targets import Target

ANSWER = """<?xml version="1.1" encoding="UTF-8" standalone="no"?>
<query version="2">
  <rule class="cc_test" name="//tests/a:a_test">
    <list name="tags"><string value="external"/><string value="ci"/></list>
    <list name="srcs"><label value="//tests/a:one_test.cc"/></list>
    <rule-input name="//tests/a:one_test.cc"/><rule-input name="//tests/a:cases"/><rule-input name="//:ddprun"/>
  </rule>
  <rule class="cc_library" name="//tests/a:cases">
    <list name="srcs"><label value="//tests/a:two_test.cc"/></list>
    <rule-input name="//launcher:core"/><rule-input name="//tests/a:files"/>
  </rule>
  <rule class="filegroup" name="//tests/a:files"><rule-input name="//tests/b:helper"/></rule>
  <rule class="cc_binary" name="//tests/b:helper"><list name="srcs"><label value="//tests/b:helper.cc"/></list></rule>
  <rule class="cc_library" name="//tests/support:torch_python"/>
  <rule class="cc_library" name="//launcher:core"><list name="srcs"><label value="//launcher:core.cc"/></list></rule>
  <rule class="cc_binary" name="//:ddprun"><rule-input name="//launcher:core"/></rule>
  <rule class="cc_binary" name="//tests/fuzz:hello"><list name="tags"><string value="fuzz"/></list></rule>
  <rule class="sh_test" name="//tests/a:script"><list name="srcs"><label value="//tests/a:script.sh"/></list>
    <rule-input name="//tests/a:program"/><rule-input name="//tests/support:torch_python"/></rule>
  <rule class="cc_binary" name="//tests/a:program"><list name="srcs"><label value="//tests/a:program_test.cc"/></list></rule>
</query>"""


class TargetsTest(unittest.TestCase):
    def test_tests_are_known_with_their_files_and_the_programs_that_they_start(self):
        self.assertEqual(targets.parse(ANSWER), [
            Target("//tests/a:a_test", "cc_test", frozenset(["ci", "external"]),
                   ("tests/a/one_test.cc", "tests/a/two_test.cc"), ("//:ddprun", "//tests/b:helper")),
            Target("//tests/a:script", "sh_test", frozenset(),
                   ("tests/a/program_test.cc", "tests/a/script.sh"), ("//tests/a:program",), True),
        ])
        self.assertEqual(targets.fuzz_names(ANSWER), ["hello"])

    def test_labels_are_paths(self):
        self.assertEqual([targets.path_of(label) for label in ("//:ddprun", "//a/b:c", "//a/b", "//a:b/c.h")],
                         ["ddprun", "a/b/c", "a/b/b", "a/b/c.h"])


if __name__ == "__main__":
    unittest.main()
