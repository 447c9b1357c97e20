"""Which ring runs what."""

import unittest

import context  # noqa: F401

import parts
import plan
import report
from targets import Target, ring_of

UNIT = Target("//tests/a:unit", "cc_test")
CI = Target("//tests/a:ci", "cc_test", frozenset(["ci"]))
NIGHTLY = Target("//tests/a:nightly", "cc_test", frozenset(["nightly"]))
BOTH = Target("//tests/a:both", "cc_test", frozenset(["ci", "nightly"]))
MANUAL = Target("//tests/a:manual", "cc_test", frozenset(["manual", "ci"]))
PLAIN = Target("//tests/a:plain", "cc_test", frozenset(["plain"]))
NO_ASAN = Target("//tests/a:no_asan", "cc_test", frozenset(["no-asan"]))
NO_TSAN = Target("//tests/a:no_tsan", "cc_test", frozenset(["no-tsan"]))
WHOLE = Target("//tests/e2e:whole", "cc_test", frozenset(["external"]))
BENEATH = Target("//tests/e2e/more:whole", "cc_test", frozenset(["external"]))
LIKE_E2E = Target("//tests/e2e_like:unit", "cc_test")
ALL = [UNIT, CI, NIGHTLY, BOTH, MANUAL, PLAIN, NO_ASAN, NO_TSAN, WHOLE, BENEATH, LIKE_E2E]
FUZZ = [f"fuzz{i}" for i in range(35)]


def labels(*targets):
    return tuple(target.label for target in targets)


def lot(number, rest=0):
    """A commit whose hash falls into this lot."""
    return f"{10 * rest + number:x}"


class PlanTest(unittest.TestCase):
    def test_the_lowest_ring_of_a_target_is_that_of_its_tags(self):
        self.assertEqual([ring_of(target) for target in (UNIT, CI, NIGHTLY, BOTH, MANUAL)], [0, 1, 2, 2, None])

    def test_a_ring_runs_those_below_it_too(self):
        self.assertEqual(plan.plain(ALL, 0), labels(UNIT, PLAIN, NO_ASAN, NO_TSAN, WHOLE, BENEATH, LIKE_E2E))
        self.assertEqual(set(plan.plain(ALL, 1)) - set(plan.plain(ALL, 0)), set(labels(CI)))
        self.assertEqual(set(plan.plain(ALL, 2)) - set(plan.plain(ALL, 1)), set(labels(NIGHTLY, BOTH)))

    def test_the_sanitizers_see_all_units_in_ring_1(self):
        self.assertEqual(plan.sanitized("asan", ALL, 1), labels(UNIT, CI, NO_TSAN, LIKE_E2E))
        self.assertEqual(plan.sanitized("tsan", ALL, 1), labels(UNIT, CI, NO_ASAN, LIKE_E2E))

    def test_the_sanitizers_see_everything_in_ring_2(self):
        self.assertEqual(set(plan.sanitized("asan", ALL, 2)), set(plan.plain(ALL, 2)) - set(labels(NO_ASAN)))
        self.assertEqual(set(plan.sanitized("tsan", ALL, 2)), set(plan.plain(ALL, 2)) - set(labels(NO_TSAN)))

    def test_ring_0_installs_no_part_and_has_no_sanitizer(self):
        names = [stage.name for stage in plan.opening(0) + plan.main_part(0, ALL)]
        self.assertEqual(names[:5], ["setup", "style", "tools/testing", "build", "plain"])
        self.assertFalse([name for name in names if name.startswith("setup of") or name in ("asan", "tsan")])

    def test_style_and_setup_alone_end_the_run(self):
        for ring in range(3):
            stages = plan.opening(ring) + plan.main_part(ring, ALL)
            self.assertEqual([stage.name for stage in stages if getattr(stage, "ends_run", False)], ["setup", "style"])

    def test_rings_1_and_2_set_up_every_part_behind_the_style(self):
        for ring in (1, 2):
            names = [stage.name for stage in plan.opening(ring)]
            self.assertEqual(names[3:], [f"setup of {part.name}" for part in parts.PARTS])

    def test_a_higher_ring_leaves_no_check_out(self):
        names = [[stage.name for stage in plan.main_part(ring, ALL)] for ring in range(3)]
        self.assertLess(set(names[0]), set(names[1]))
        self.assertLess(set(names[1]), set(names[2]))

    def test_the_canaries_are_in_both_sanitizers_runs(self):
        for ring in (1, 2):
            runs = {stage.name: stage for stage in plan.main_part(ring, ALL)}
            for name, canary in plan.CANARIES.items():
                self.assertIn(canary, runs[name].labels)

    def test_only_ring_1_chooses_by_threads(self):
        for ring in (1, 2):
            runs = {stage.name: stage for stage in plan.main_part(ring, ALL)}
            self.assertEqual((runs["asan"].threads_only, runs["tsan"].threads_only), (False, ring == 1))

    def test_only_ring_1_cuts_the_sanitizers_at_a_limit_of_time_and_nothing_else(self):
        for ring in (1, 2):
            cut = [stage.name for stage in plan.main_part(ring, ALL) if getattr(stage, "may_be_cut", False)]
            self.assertEqual(cut, ["asan", "tsan"] if ring == 1 else [])

    def test_what_has_no_sandbox_must_say_that_its_result_is_never_reused(self):
        def breaches(*tags):
            return plan.reuse_breaches([Target("//a:t", "sh_test", frozenset(tags))])
        self.assertEqual(len(breaches("no-sandbox")), 1)
        self.assertEqual(len(breaches("exclusive", "ci")), 1)
        self.assertEqual(len(plan.reuse_breaches([Target("//a:t", "cc_test", finds_python=True)])), 1)
        self.assertFalse(breaches("no-sandbox", "external") + breaches("ci") + breaches("manual", "no-sandbox"))

    def test_ring_2_takes_nothing_from_the_cache(self):
        for ring in range(3):
            runs = {stage.name: stage for stage in plan.main_part(ring, ALL)}
            for name in ("plain", "asan", "tsan") if ring else ("plain",):
                self.assertEqual("--nocache_test_results" in runs[name].test_flags, ring == 2)


class TenthTest(unittest.TestCase):
    def tenth(self, commit):
        return plan.tenth(commit, ALL, FUZZ, 4)

    def test_the_same_commit_has_the_same_tenth(self):
        for number in range(10):
            self.assertEqual(self.tenth(lot(number, 77)), self.tenth(lot(number, 77)))

    def test_every_lot_has_stages_that_share_the_limit(self):
        for number in range(10):
            what, stages = self.tenth(lot(number))
            self.assertTrue(what)
            self.assertTrue(stages)
            self.assertTrue(all(stage.is_of_tenth for stage in stages), what)

    def test_each_stage_of_ring_2_is_in_a_lot_but_slurm_which_takes_longer(self):
        seen = {stage.name for number in range(10) for rest in (0, 1) for stage in self.tenth(lot(number, rest))[1]}
        own = {stage.name for stage in plan.main_part(2, ALL)} - {stage.name for stage in plan.main_part(1, ALL)}
        self.assertEqual(own - seen, {"slurm"})

    def test_a_real_hash_is_a_commit(self):
        self.assertTrue(self.tenth("9eacf68b5e5b0e0e9c33b6bba4d5c10c72ad6ea7")[1])

    def test_the_lots_hold_all_fuzz_targets_within_the_limit(self):
        seen = []
        for number in (0, 1):
            words = self.tenth(lot(number))[1][0].words
            names = words[5:]
            seen += names
            self.assertLessEqual(len(names) / 4 * int(words[2]), plan.TENTH_S * 0.6)
        self.assertEqual(sorted(seen), sorted(FUZZ))

    def test_the_lots_hold_all_nightly_tests(self):
        seen = [label for number in (6, 7) for label in self.tenth(lot(number))[1][0].labels]
        self.assertEqual(sorted(seen), sorted(labels(NIGHTLY, BOTH)))

    def test_a_lot_without_a_test_has_no_stage(self):
        for number in (6, 7, 8, 9):
            self.assertEqual(plan.tenth(lot(number), [UNIT], FUZZ, 4)[1], [])

    def test_the_slices_hold_all_whole_programs_of_each_sanitizer(self):
        for number, name in ((8, "asan"), (9, "tsan")):
            seen = [label for rest in range(4) for stage in self.tenth(lot(number, rest))[1] for label in stage.labels]
            wanted = set(plan.sanitized(name, ALL, 2)) - set(plan.sanitized(name, ALL, 1))
            self.assertEqual(sorted(seen), sorted(wanted))
            self.assertIn(WHOLE.label, seen)

    def test_the_slices_hold_the_build_without_the_precompiled_header(self):
        seen = {self.tenth(lot(5, rest))[1][0].words[-1] for rest in range(4)}
        self.assertEqual(len(seen), 4)

    def test_other_commits_have_other_seeds(self):
        self.assertNotEqual(self.tenth(lot(2, 1)), self.tenth(lot(2, 2)))


class DescribeTest(unittest.TestCase):
    def test_the_plan_names_stages_programs_and_tags(self):
        text = list(report.describe(plan.opening(1) + plan.main_part(1, ALL), ALL))
        self.assertIn("style: tools/lint --only=fast", text)
        self.assertIn("setup of torch: tools/setup --with-torch", text)
        self.assertIn("  //tests/a:ci [ci]", text)
        self.assertTrue([line for line in text if line.startswith("tsan: ") and "can start a thread" in line])


if __name__ == "__main__":
    unittest.main()
