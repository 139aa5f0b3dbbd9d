#!/usr/bin/env python3
"""That a decision outside of the tolerances fails, and one within passes. test/cli/recorded-decisions.test runs it."""
import pathlib
import tempfile
import unittest

import decisions
import records

PIPELINE = (records.TEXTS / "gpt-39b.txt").read_text()  # step 165.386 s, memory 3.15645e+10 B, gap 0.0139
CPU = (records.TEXTS / "mlp-cpu.txt").read_text()       # with presets


def differences(text, *changes):
    changed = text
    for before, after in changes:
        assert before in changed, before
        changed = changed.replace(before, after)
    return list(decisions.differences(decisions.of_answer(text), decisions.of_answer(changed)))


class Comparison(unittest.TestCase):
    def test_the_same_and_what_is_within_tolerance_pass(self):
        self.assertEqual(differences(PIPELINE), [])
        self.assertEqual(differences(PIPELINE, ("step 165.386", "step 165.9"), ("memory 3.15645e+10", "memory 3.18e+10"),
                                     ("gap 0.0139", "gap 0.0186")), [])
        self.assertEqual(differences(PIPELINE, ("gap 0.0139", "gap 0")), [])

    def test_a_price_out_of_tolerance_fails_both_ways(self):
        self.assertEqual(differences(PIPELINE, ("step 165.386", "step 166.3")),
                         ["step: recorded 165.386 s, now 166.3 s (+0.55 %, tolerance 0.5 %)"])
        self.assertEqual(differences(PIPELINE, ("step 165.386", "step 164.4")),
                         ["step: recorded 165.386 s, now 164.4 s (-0.60 %, tolerance 0.5 %)"])
        self.assertEqual(differences(PIPELINE, ("memory 3.15645e+10", "memory 3.193e+10")),
                         ["memory: recorded 3.15645e+10 B, now 3.193e+10 B (+1.16 %, tolerance 1 %)"])

    def test_a_larger_gap_fails(self):
        self.assertEqual(differences(PIPELINE, ("gap 0.0139", "gap 0.0191")),
                         ["gap: recorded 0.0139, now 0.0191 (tolerance 0.005 more)"])

    def test_every_part_of_a_choice_counts(self):
        for change in (("mesh pp=8,dp=2", "mesh pp=8,dp=1"), ("zero 2 over dp", "zero 1 over dp"),
                       ("batch over dp", "batch over -"), ("microbatches 384", "microbatches 192"),
                       ("recompute none", "recompute full"), ("schedule 1f1b", "schedule zb-h1"),
                       ("gathers again", "gathers once more"), (" 6 blocks,", " 5 blocks,")):
            self.assertRegex(differences(PIPELINE, change)[0], "^choice: recorded .*\n +now ", change)

    def test_a_preset_counts(self):
        self.assertEqual(differences(CPU, ('"ddp": 0.000106736 s', '"ddp": 0.000107736 s')),
                         ["ddp: step: recorded 0.000106736 s, now 0.000107736 s (+0.94 %, tolerance 0.5 %)"])
        self.assertEqual(len(differences(CPU, ('"ddp": 0.000106736 s, 127232 B, mesh', '"ddp": refused'))), 2)
        self.assertRegex(differences(CPU, ('"ddp"', '"ddq"'))[0], "^others: recorded twice the memory, ddp, .*\n +now .*ddq")

    def test_an_answer_is_read_or_refused(self):
        refused = decisions.of_answer(
            "cleave: error: no plan fits: the leanest split found (dp=1,tp=2) needs 64.0 GiB on a device, of 16.0 GiB\n"
            "  4 devices: pp=2,dp=1,tp=2 fits with 14.9 GiB, 1329 s a step\nexit status 3\n")
        self.assertEqual(refused.price.memory, 64 * 2**30)
        self.assertEqual(refused.others["4 devices"].step, 1329)
        with self.assertRaisesRegex(ValueError, "no decision and no reason"):
            decisions.of_answer("cleave: error: cannot read\nexit status 1\n")
        with self.assertRaisesRegex(ValueError, "unknown choice"):
            decisions.of_answer(PIPELINE.replace("recompute none", "compute none"))

    def test_the_file_is_read_as_it_was_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "decisions.txt"
            path.write_text("".join(decisions.of_answer(text).text(name) for name, text in (("a", PIPELINE), ("b", CPU))))
            self.assertEqual(decisions.read(path), {"a": decisions.of_answer(PIPELINE), "b": decisions.of_answer(CPU)})

    def test_every_record_is_recorded(self):
        self.assertEqual(sorted(decisions.read(records.DECISIONS)), sorted(records.RECORDS))
        self.assertEqual(sorted(path.stem for path in records.TEXTS.glob("*")), sorted(records.WHOLE))


if __name__ == "__main__":
    unittest.main()
