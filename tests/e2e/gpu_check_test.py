"""scripts/gpu_check where no GPU is: skipped, or rehearsed on the CPU; faults of single checks, with a fake nsys.

    python tests/e2e/gpu_check_test.py TRAINER_BINARY [TEST...]
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

NSYS = """#!/bin/sh
case "$1" in
profile) while [ "$1" != --output ]; do shift; done; shift 2; exec "$@" ;;
stats)
  echo "Processing..."
  printf 'Time (%%),Total Time (ns),Instances,Name\\n75.5,100,4,"gemm<a, b>"\\n24.5,30,2,add\\n' ;;
esac
"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="gpu_check_test_")
        self.addCleanup(self.directory.cleanup)
        self.path = Path(self.directory.name)

    def run_check(self, *arguments, code=0, nsys=None):
        environment = dict(os.environ, CUDA_VISIBLE_DEVICES="")
        if nsys is not None:
            (self.path / "nsys").write_text(nsys)
            (self.path / "nsys").chmod(0o755)
            environment["PATH"] = f"{self.path}:{environment['PATH']}"
        report = self.path / "report.json"
        result = subprocess.run([sys.executable, ROOT / "scripts/gpu_check", "--report", report, *arguments],
                                capture_output=True, text=True, timeout=600, env=environment)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        report = json.loads(report.read_text())
        self.assertEqual(report["ok"], code == 0)
        return report, {check["name"]: check for check in report.get("checks", [])}, result.stdout

    def rehearse(self, only, *arguments, **options):
        return self.run_check("--device", "cpu", "--quick", "--only", only, *arguments, **options)

    def test_without_a_gpu_it_is_skipped(self):
        report, checks, output = self.run_check()
        self.assertEqual(report["skipped"], "no GPU on this machine")
        self.assertFalse(checks)
        self.assertIn("skipped: no GPU on this machine\n", output)
        self.assertRegex(report["libtorch"], r"^2\.11\.")

    def test_the_rehearsal_passes_every_check(self):
        report, checks, output = self.rehearse("")
        self.assertEqual(list(checks), [
            "gpu_test", "smoke", *(f"{model} {check}" for model in ("bert_classifier", "gpt") for check in (
                "cpu, batch of 1", "fp32 x1", "bf16 x1", "fp16 x1", "cpu, batch of 2", "fp32 x2", "bf16 x2", "fp16 x2",
                "profile", "killed rank x2"))])
        self.assertIn("gpu_check: passed", output)
        # The same program on the same device: equal to the bit.
        self.assertEqual(checks["bert_classifier fp32 x1"]["numbers"]["loss_error"], 0)
        self.assertEqual(checks["bert_classifier fp32 x1"]["numbers"]["grad_norm_error"], 0)
        self.assertGreater(checks["bert_classifier bf16 x1"]["numbers"]["grad_norm_error"], 0)
        for workers in (1, 2):
            for precision in ("fp32", "bf16", "fp16"):
                numbers = checks[f"bert_classifier {precision} x{workers}"]["numbers"]
                self.assertGreater(numbers["tokens_per_s"], 0)
                self.assertGreater(numbers["memory_gib"], 0)
        self.assertGreater(checks["bert_classifier killed rank x2"]["numbers"]["seconds_to_end"], 0)

    def test_a_profile_is_of_nsys_where_that_is(self):
        _, checks, _ = self.rehearse("profile", nsys=NSYS)
        numbers = checks["bert_classifier profile"]["numbers"]
        self.assertEqual(numbers["kernels"], [{"name": "gemm<a, b>", "time_pct": 75.5, "calls": 4},
                                              {"name": "add", "time_pct": 24.5, "calls": 2}])

    def test_a_failed_check_stops_no_other_and_is_said(self):
        _, checks, output = self.rehearse("bert.*(profile|killed)", nsys="#!/bin/sh\necho no licence\nexit 3\n", code=1)
        self.assertIn("exit code 3, expected 0\nno licence", checks["bert_classifier profile"]["error"])
        self.assertTrue(checks["bert_classifier killed rank x2"]["ok"])
        self.assertIn("gpu_check: FAILED: bert_classifier profile;", output)

    def test_a_check_that_hangs_is_ended_and_those_without_time_fail(self):
        _, checks, _ = self.rehearse("bert.*(profile|killed)", "--budget-s", "3", nsys="#!/bin/sh\nsleep 1000 &\nwait\n", code=1)
        self.assertRegex(checks["bert_classifier profile"]["error"], "^not done after [23] s")
        self.assertEqual(checks["bert_classifier killed rank x2"]["error"], "no time was left for it")


if __name__ == "__main__":
    del sys.argv[1]  # it finds the program of the release build by itself
    unittest.main(verbosity=2)
