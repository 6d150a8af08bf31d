"""`trainer launch` and torchrun with the same command lines: what their workers are started with, and where their output
goes. What torchrun has and this has not is refused with a reason.

    python tests/e2e/torchrun_test.py TRAINER_BINARY [TEST...]
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TORCHRUN = ROOT / ".venv/bin/torchrun"
TRAINER = ""
TIMEOUT = 120

DUMP = """
import json, os, sys
path = os.path.join(os.environ["DUMP"], os.environ["RANK"] + ".json")
json.dump({"env": dict(os.environ), "argv": sys.argv[1:], "python": os.path.realpath(sys.executable),
           "unbuffered": sys.stdout.line_buffering or sys.stdout.write_through, "name": __name__}, open(path, "w"))
"""

# Where the two differ: ports and paths are their own; cores are shared out here, where torchrun takes one.
DIFFERENT = {"MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "OMP_NUM_THREADS", "DUMP", "_"}


class Torchrun(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="trainer_torchrun_")
        self.addCleanup(directory.cleanup)
        self.path = Path(directory.name).resolve()
        (self.path / "tmp").mkdir()
        self.script = self.path / "dump.py"
        self.script.write_text(DUMP)

    def environment(self, changes):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
        path = f"{ROOT / '.venv/bin'}:{inherited.get('PATH', '')}"
        return {**inherited, "PATH": path, "TMPDIR": str(self.path / "tmp"), "DUMP": str(self.path), **changes}

    def run_launcher(self, launcher, *arguments, code=0, **changes):
        result = subprocess.run([*map(str, launcher), *map(str, arguments)], cwd=self.path, env=self.environment(changes),
                                capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result

    def launch(self, *arguments, code=0, **changes):
        return self.run_launcher([TRAINER, "launch"], *arguments, code=code, **changes)

    def refused(self, *arguments, **changes):
        return self.launch(*arguments, code=2, **changes).stderr.strip()

    def dumps(self):
        found = {path.stem: json.loads(path.read_text()) for path in self.path.glob("[0-9]*.json")}
        for rank in found:
            (self.path / f"{rank}.json").unlink()
        return found

    def assert_same_workers(self, *arguments, **changes):
        self.launch(*arguments, **changes)
        ours = self.dumps()
        self.run_launcher([TORCHRUN], *arguments, **changes)
        theirs = self.dumps()
        self.assertEqual(sorted(ours), sorted(theirs))
        for rank in theirs:
            a, b = ours[rank], theirs[rank]
            for name in sorted((a["env"].keys() | b["env"].keys()) - DIFFERENT):
                if name.startswith("TRAINER_"):
                    continue  # between this program and its own workers
                self.assertEqual(a["env"].get(name), b["env"].get(name), name)
            self.assertTrue(a["env"]["TORCHELASTIC_ERROR_FILE"].endswith(f"/attempt_0/{rank}/error.json"))
            for key in ("argv", "python", "unbuffered", "name"):
                self.assertEqual(a[key], b[key], key)
        return ours

    def test_a_worker_is_started_as_by_torchrun(self):
        ours = self.assert_same_workers("--nproc_per_node=2", "--max-restarts", 2, "--rdzv-id", "an id", "--role=actor",
                                        self.script, "--nnodes", "3", "-h", "--", "x", "${local_rank}", NCCL_DEBUG="INFO")
        self.assertEqual(ours["1"]["argv"], ["--nnodes", "3", "-h", "--", "x", "1"])

    def test_a_worker_with_a_device_of_its_own_is_started_as_by_torchrun(self):
        ours = self.assert_same_workers("--nproc-per-node", 2, "--virtual-local-rank", self.script,
                                        CUDA_VISIBLE_DEVICES="5, 7", OMP_NUM_THREADS="3", RANK="9", WORLD_SIZE="11")
        self.assertEqual(ours["1"]["env"]["CUDA_VISIBLE_DEVICES"], "7")
        self.assertEqual(ours["1"]["env"]["OMP_NUM_THREADS"], "3")

    def test_a_module_and_a_run_path_are_started_as_by_torchrun(self):
        self.assert_same_workers("-m", "dump", "an argument", PYTHONPATH=str(self.path))
        self.launch("--run-path", self.script, "an argument")
        self.assertEqual([(d["argv"], d["name"]) for d in self.dumps().values()], [(["an argument"], "__main__")])

    def test_variables_say_what_flags_do_not(self):
        self.assert_same_workers(self.script, PET_NPROC_PER_NODE="2", PET_MAX_RESTARTS="3", PET_RDZV_ID="id",
                                 PET_ROLE="critic", PET_NNODES="1:1", PET_VIRTUAL_LOCAL_RANK="1", PET_MONITOR_INTERVAL="2")
        self.launch("--no_python", "--nproc-per-node", 1, "--standalone", "sh", "-c", "exit 7", PET_NPROC_PER_NODE="2",
                    code=7)
        result = self.launch("echo", "hello", PET_NO_PYTHON="1", PET_NPROC_PER_NODE="2", PET_RDZV_ENDPOINT="")
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0:0] hello", "[0:1] hello"])

    def test_what_is_no_python_script_runs_by_itself(self):
        program = self.path / "program"
        program.write_text("#!/bin/sh\necho program $1\n")
        program.chmod(0o755)
        self.assertEqual(self.launch("program", "x").stdout, "program x\n")
        self.assertEqual(self.launch("--", "./program", "x").stdout, "program x\n")
        self.assertEqual(self.launch("--no-python", "./program", "x").stdout, "program x\n")
        self.assertEqual(self.launch("echo", "-r", "9").stdout, "-r 9\n")
        (self.path / "script").write_text("print('script')")
        self.assertEqual(self.launch("script").stdout, "script\n")
        self.assertEqual(self.launch("script", PYTHON_EXEC="/bin/echo").stdout, "-u script\n")

    def test_streams_go_where_redirects_and_tee_say(self):
        logs = self.path / "logs"
        result = self.launch("--nproc-per-node", 3, "--log-dir", logs, "--rdzv-id", "a/run", "-r", "0:3,1:1,12:3", "-t", "0:1",
                             "--", "sh", "-c", "echo out $RANK; echo err $RANK >&2")
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0:0] out 0", "[0:2] out 2"])
        self.assertEqual(sorted(result.stderr.splitlines()), ["[0:1] err 1", "[0:2] err 2"])
        (run,) = logs.iterdir()
        self.assertRegex(run.name, r"^a_run_\w{6}$")
        self.assertEqual((run / "attempt_0/1/stdout.log").read_text(), "out 1\n")
        self.assertEqual((run / "attempt_0/0/stderr.log").read_text(), "err 0\n")
        result = self.launch("--nproc-per-node", 3, "--log-dir", logs, "--local-ranks-filter", "1,2",
                             "--duplicate-stdout-filters", "out 0,1 and,, more", "--", "sh", "-c",
                             "echo out $RANK; echo $RANK and, more; echo nothing")
        self.assertEqual(sorted(result.stdout.splitlines()),
                         sorted(f"[0:{rank}] {text}" for rank in (1, 2) for text in
                                (f"out {rank}", f"{rank} and, more", "nothing")))
        (run,) = [path for path in logs.iterdir() if path != run]
        self.assertEqual(sorted((run / "attempt_0/filtered_stdout.log").read_text().splitlines()),
                         ["[0:0] out 0", "[0:1] 1 and, more"])

    def test_logs_that_no_one_asked_for_are_kept_only_after_a_failure(self):
        self.launch("echo", "hello")
        self.assertEqual(list((self.path / "tmp").iterdir()), [])
        result = self.launch("--", "sh", "-c", "echo trouble >&2; exit 9", code=9)
        (kept,) = (self.path / "tmp").iterdir()
        self.assertTrue(result.stderr.endswith(f"log: {kept}/attempt_0/0/stderr.log\n"), result.stderr)
        self.launch("--log-dir", "/dev/null", "--", "sh", "-c", "echo > $TORCHELASTIC_ERROR_FILE")

    def test_a_log_has_a_bound_when_asked(self):
        self.launch("--log-dir", "logs", "--log-max-mb", 1, "-r", "3", "--", "sh", "-c",
                    "seq 400000; seq 1000 >&2; exit 3", code=3)
        (old,) = self.path.glob("logs/*/attempt_0/0/stdout.log.1")
        new = old.with_suffix("")
        self.assertLess(new.stat().st_size + old.stat().st_size, 2.3 * 2**20)
        self.assertTrue((old.read_text() + new.read_text()).endswith("\n399999\n400000\n"))

    def test_what_torchrun_has_and_this_has_not_is_refused_with_a_reason(self):
        self.launch("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--monitor-interval", 0.1, "--start-method",
                    "fork", "--event-log-handler", "null", "--master-addr", "127.0.0.1", "--master_port", 0, "true")
        for flags, message in (
                (["--rdzv-backend", "etcd-v2"], "--rdzv-backend: got \"etcd-v2\"; expected static or c10d: nodes meet at an "
                                                "agent of the job, no etcd-v2 server is needed or used"),
                (["--start-method", "thread"], "--start-method: got \"thread\"; expected spawn, fork or forkserver"),
                (["--event-log-handler", "console"], "--event-log-handler: got \"console\"; expected null: handlers are Python "
                                                     "code of torchrun's process"),
                (["--logs-specs", "mine"], "--logs-specs: got \"mine\"; expected default: others are Python code of torchrun's "
                                           "process"),
                (["--rdzv-conf", "last_call_timout=3"], "--rdzv-conf: last_call_timout: no such key; did you mean "
                                                         "last_call_timeout?"),
                (["--rdzv-conf", "timeout"], "--rdzv-conf: got \"timeout\"; expected key=value, several with commas between"),
                (["--rdzv-conf", "keep_alive_interval=x"], "--rdzv-conf: keep_alive_interval: got \"x\"; expected a number from "
                                                           "0 to 1000000"),
                (["--no-python", "-m"], "--no-python and --module: expected one of them; a module needs python")):
            self.assertEqual(self.refused(*flags, "true"), message)
        self.assertEqual(self.refused("true", PET_MODULE="yes"), "PET_MODULE: got \"yes\"; expected 0 or 1")
        self.assertEqual(self.refused("--nproc-per-node", "xpu", "-r", "4", "true"),
                         "--nproc-per-node: got \"xpu\"; expected auto, gpu, cpu or an integer from 1 to 1000\n"
                         "--redirects: got 4; expected 0, 1, 2 or 3 for all workers, or local_rank:number with commas "
                         "between, e.g. 0:1,1:3\n2 faults in the command line")

    def test_what_cannot_be_started_is_named(self):
        self.assertEqual(self.refused(), "launch: no program; expected trainer launch [flags] [--] PROGRAM [ARGS...]")
        self.assertEqual(self.refused("no_such.py"), "launch: no program \"no_such.py\": not a file here, nor a command on PATH")
        self.assertEqual(self.refused("./none"), "launch: no program \"./none\": not a file here")
        self.assertEqual(self.refused("--no-such-flag", "x", "program"), "trainer launch: no flag --no-such-flag")
        self.assertEqual(self.refused("--max-restarts", 1, "--nporc-per-node", 2, "true"),
                         "trainer launch: no flag --nporc-per-node; did you mean --nproc-per-node?")
        self.assertEqual(self.refused("/tmp"), "launch: \"/tmp\" is a directory; expected a program (or a directory with a "
                                               "__main__.py)")
        script = self.path / "script.sh"
        script.write_text("#!/bin/sh\n")
        self.assertEqual(self.refused("./script.sh"), "launch: \"./script.sh\" may not be executed, and is no Python script: it "
                                                      "begins with \"#!/bin/sh\"\n  hint: chmod +x ./script.sh")
        self.assertIn("got \"A\"; expected NAME=VALUE", self.refused("--env", "A", "true"))
        self.assertIn("launch.log_dir: cannot make a directory in /proc/none: ", self.refused("--log-dir", "/proc/none", "true"))
        self.assertIn("launch: no python to run the program with\n", self.refused(self.script, PATH="/none", VIRTUAL_ENV="/none"))
        self.assertEqual(self.refused("--nnodes", 2, "--rdzv-backend", "static", "--rdzv-endpoint", "head:1", "true"),
                         "launch.node_rank: not set, with 2 nodes that meet at head; expected this node's number, 0 to 1\n"
                         "  hint: --node-rank K, or NODE_RANK in the environment; with --rdzv-endpoint nodes are numbered "
                         "as they come")

    def test_every_flag_of_torchrun_is_known(self):
        options = re.findall(r"(?<=[\s,])(--?[a-z][\w-]*)", self.run_launcher([TORCHRUN], "--help").stdout)
        options = {option for option in options if not re.search(r"--local_ranks_filter=|--redirect$", option)}
        self.assertGreater(len(options), 40)
        ours = self.run_launcher([TRAINER], "launch", "--help").stdout
        known = set(re.findall(r"(?<=[\s,])(--?[a-z][\w-]*)", ours))
        self.assertEqual(sorted(options - known), [])


if __name__ == "__main__":
    TRAINER = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()
