"""`trainer launch` in torchrun's place: programs of the public style (peers/) run unchanged under both. Under trainer
one of their ranks fails at the first attempt, and the restart comes to the same result.

    python tests/e2e/launch_test.py TRAINER_BINARY [TEST...]
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "tests/e2e/peers"
PYTHON = ROOT / ".venv/bin/python"
TRAINER = ""
TIMEOUT = 300  # three starts of Python with torch, on a machine that does other things too

PR_SET_CHILD_SUBREAPER = 36


def children():
    return Path("/proc/thread-self/children").read_text().split()


class Launch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # What a launcher leaves behind becomes a child of this process.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="trainer_launch_")
        self.addCleanup(self.directory.cleanup)
        self.path = Path(self.directory.name)

    def run_peer(self, name, launcher, *arguments):
        """The program under the launcher; what it printed and its exit code. None of its processes is left."""
        result = subprocess.run([*map(str, launcher), str(PEERS / f"{name}.py"), f"--snapshot={self.path}/snapshot.pt",
                                 f"--result={self.path}/result.json", *map(str, arguments)],
                                cwd=self.path, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True,
                                text=True, timeout=TIMEOUT)
        deadline = time.monotonic() + 5
        while left := children():
            for child in left:
                os.waitpid(int(child), os.WNOHANG)
            self.assertLess(time.monotonic(), deadline, f"left behind: {left}")
            time.sleep(0.02)
        return result

    def result(self):
        """Of the last run, whose files are gone with it: the next starts anew."""
        result = json.loads((self.path / "result.json").read_text())
        for file in ("result.json", "snapshot.pt"):
            (self.path / file).unlink(missing_ok=True)
        return result

    def torchrun(self):
        return [ROOT / ".venv/bin/torchrun", "--standalone", "--nproc-per-node=2"]

    def launch(self, *flags):
        return [TRAINER, "launch", "--nproc-per-node=2", f"--log-dir={self.path}/logs", *flags, PYTHON]

    def check_restart(self, name, message):
        reference = self.run_peer(name, self.torchrun())
        self.assertEqual(reference.returncode, 0, reference.stderr)
        expected = self.result()
        restarted = self.run_peer(name, self.launch("--max-restarts=2"), "--fail-at-epoch=1")
        output = restarted.stdout + restarted.stderr
        self.assertEqual(restarted.returncode, 0, output)
        self.assertEqual(self.result(), expected)
        self.assertIn(message, output)
        self.assertEqual(len(list((self.path / "logs").glob("*/attempt_*"))), 2)

    def test_plain_ddp_goes_on_from_its_snapshot(self):
        self.check_restart("ddp", "RuntimeError: injected at epoch 1")

    def test_workers_of_data_loaders_do_not_outlive_their_rank(self):
        self.check_restart("loader", "exit code 23")

    def test_an_error_that_record_wrote_is_the_reports(self):
        self.check_restart("recorded", "ValueError: no value of epoch 1 is right")
        error_file = self.path / "error.json"
        failed = self.run_peer("recorded", ["env", f"TORCHELASTIC_ERROR_FILE={error_file}", *self.launch()],
                               "--fail-at-epoch=3")
        self.assertEqual(failed.returncode, 1, failed.stdout + failed.stderr)
        report = failed.stderr[failed.stderr.rindex("FAILED"):]
        self.assertRegex(report, r"FAILED  node 0 rank 1 \(pid \d+\).*exit code 1")
        self.assertIn("ValueError: no value of epoch 3 is right", report)
        message = json.loads(error_file.read_text())["message"]
        self.assertEqual((message["message"], message["errorCode"]), ("ValueError: no value of epoch 3 is right", 1))
        self.assertIn("in main", message["extraInfo"]["py_callstack"])


if __name__ == "__main__":
    TRAINER = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
