"""Requests to save and to stop: all ranks meet them at the same step, whenever each rank hears of it.

Workers are started by hand, as an agent would: the environment of a worker, a page of progress each, the job's store.

    python tests/dist/requests_test.py TRAINER_BINARY [TEST...]
"""

import contextlib
import mmap
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRAINER = ""
SAVE, STOP = 1, 2
PREEMPTED = 75

JOB = """
job: {{name: requests, output_dir: {output}}}
model: {{type: bert_classifier, pretrained: tests/data/tiny_bert, init: random}}
data:
  train: {{path: tests/data/pairs.tsv, text: "#1 String", text_pair: "#2 String", label: Quality}}
  max_length: 64
train: {{steps: 100000, batch_size: 2}}
optimizer: {{lr: 1.0e-3}}
logging: {{every_steps: {every_steps}}}
checkpoint: {{save_final: {save_final}}}
parallel: {{timeout_s: 60}}
hardware: {{device: cpu}}
"""


class Page:
    """lib/report/progress.h"""

    def __init__(self):
        self.fd = os.memfd_create("progress", 0)
        os.ftruncate(self.fd, 4096)
        self.memory = mmap.mmap(self.fd, 4096)
        self._put("<q", 40, -1)

    def _get(self, form, offset):
        return struct.unpack_from(form, self.memory, offset)[0]

    def _put(self, form, offset, value):
        struct.pack_into(form, self.memory, offset, value)

    def __getattr__(self, name):
        form, offset = {"attached": ("<I", 0), "phase": ("<I", 4), "step": ("<q", 8), "beat_ns": ("<q", 16),
                        "slowest_ns": ("<q", 24), "busy_ns": ("<q", 32), "saved_step": ("<q", 40),
                        "handled_id": ("<I", 48)}[name]
        return self._get(form, offset)

    def ask(self, request, number):
        self._put("<I", 64, request)
        self._put("<I", 68, number)

    def go(self, number):
        self._put("<I", 72, number)


class Workers:
    def __init__(self, directory, size, *, pages=True, every_steps=10, save_final="true"):
        self.directory = directory
        job = directory / "job.yaml"
        self.output = directory / "out"
        job.write_text(JOB.format(output=self.output, every_steps=every_steps, save_final=save_final))
        self.stack = contextlib.ExitStack()
        sock = self.stack.enter_context(socket.socket())
        sock.bind(("127.0.0.1", 0))
        sock.listen(64)
        base = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC", "TRAINER"))}
        self.store = subprocess.Popen([TRAINER, "__store"], env=dict(base, TRAINER_STORE_FD=str(sock.fileno())),
                                      pass_fds=[sock.fileno()])
        self.pages = [Page() for _ in range(size)] if pages else []
        self.processes = []
        for rank in range(size):
            env = dict(base, RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size),
                       GROUP_RANK="0", GROUP_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                       MASTER_PORT=str(sock.getsockname()[1]), TORCHELASTIC_USE_AGENT_STORE="True",
                       TORCHELASTIC_RUN_ID="test", OMP_NUM_THREADS="1", GOMP_SPINCOUNT="1000")
            fds = []
            if pages:
                fds = [self.pages[rank].fd]
                env.update(TRAINER_WORKER="1", TRAINER_PROGRESS_FD=str(fds[0]))
            with open(directory / f"{rank}.log", "w") as log:
                self.processes.append(subprocess.Popen([TRAINER, "run", str(job)], cwd=ROOT, env=env, pass_fds=fds,
                                                       stdout=log, stderr=log))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in [*self.processes, self.store]:
            process.kill()
            process.wait()
        self.stack.close()

    def wait_until(self, condition, what):
        deadline = time.monotonic() + 60
        while not condition():
            if any(process.poll() is not None for process in self.processes):
                raise AssertionError(f"a worker ended: {self.ends()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"not within 60 s: {what}")
            time.sleep(0.001)

    def ends(self):
        """Exit codes and outputs."""
        codes = [process.wait(timeout=60) for process in self.processes]
        return codes, [(self.directory / f"{rank}.log").read_text() for rank in range(len(codes))]


class Requests(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="trainer_requests_")
        self.path = Path(self.directory.name)

    def tearDown(self):
        self.directory.cleanup()

    def raise_request(self, workers, random_source, request, number):
        """As agents of several nodes would: to each rank at a moment of its own; "go" once all have it, in any order."""
        pages = random_source.sample(workers.pages, len(workers.pages))
        for page in pages:
            page.ask(request, number)
            time.sleep(random_source.choice([0, 0.001, 0.02]))
        for page in random_source.sample(pages, random_source.randint(1, len(pages))):
            page.go(number)
            time.sleep(random_source.choice([0, 0.001, 0.02]))

    def assert_saved(self, directory):
        for file in ("config.json", "model.safetensors", "vocab.txt", "optimizer.safetensors", "state.json"):
            self.assertTrue((directory / file).is_file(), directory / file)

    def test_all_ranks_stop_at_the_same_step(self):
        for seed, size in ((1, 1), (2, 2), (3, 3), (4, 4), (5, 2), (6, 3)):
            with self.subTest(seed=seed, size=size):
                directory = self.path / str(seed)
                directory.mkdir()
                source = random.Random(seed)
                with Workers(directory, size) as workers:
                    workers.wait_until(lambda: min(page.step for page in workers.pages) >= source.randint(1, 12), "steps")
                    for number in (1, 2):
                        self.raise_request(workers, source, SAVE, number)
                        workers.wait_until(lambda: all(page.handled_id == number for page in workers.pages), "save")
                        saved = {page.saved_step for page in workers.pages}
                        self.assertEqual(len(saved), 1, saved)
                    self.assert_saved(workers.output / f"checkpoints/step_{saved.pop()}")
                    self.raise_request(workers, source, STOP, 3)
                    codes, outputs = workers.ends()
                    self.assertEqual(codes, [PREEMPTED] * size, outputs)
                    stopped = {(page.step, page.saved_step, page.handled_id) for page in workers.pages}
                    self.assertEqual(len(stopped), 1, stopped)
                    step = stopped.pop()[0]
                    self.assertIn(f"preempted at step {step}: saved in {workers.output}/checkpoints/step_{step}, from where",
                                  outputs[0])
                    self.assert_saved(workers.output / f"checkpoints/step_{step}")
                    self.assertIn('"kind":"summary"', (workers.output / "metrics.jsonl").read_text())

    def test_a_stop_may_overtake_a_save(self):
        for seed, size in ((11, 2), (12, 3), (13, 3), (14, 2)):
            with self.subTest(seed=seed, size=size):
                directory = self.path / str(seed)
                directory.mkdir()
                source = random.Random(seed)
                with Workers(directory, size) as workers:
                    workers.wait_until(lambda: min(page.step for page in workers.pages) >= 3, "steps")
                    for page in workers.pages:
                        page.ask(SAVE, 1)
                    # The word for the save is still on its way to some ranks while others hear of the stop.
                    events = [(page.go, (1,)) for page in workers.pages] + [(page.ask, (STOP, 2)) for page in workers.pages]
                    source.shuffle(events)
                    for act, arguments in events:
                        act(*arguments)
                        time.sleep(source.choice([0, 0.001, 0.02]))
                    for page in source.sample(workers.pages, size):
                        page.go(2)
                        time.sleep(source.choice([0, 0.001, 0.02]))
                    codes, outputs = workers.ends()
                    self.assertEqual(codes, [PREEMPTED] * size, outputs)
                    stopped = {(page.step, page.saved_step) for page in workers.pages}
                    self.assertEqual(len(stopped), 1, stopped)

    def test_a_request_that_nobody_may_start_yet_changes_nothing(self):
        with Workers(self.path, 2) as workers:
            for page in workers.pages:
                page.ask(STOP, 1)
            workers.wait_until(lambda: min(page.step for page in workers.pages) >= 20, "steps")
            workers.pages[1].go(1)
            self.assertEqual(workers.ends()[0], [PREEMPTED] * 2)

    def test_a_stop_saves_nothing_where_the_job_saves_nothing(self):
        with Workers(self.path, 1, save_final="false") as workers:
            workers.wait_until(lambda: workers.pages[0].step > 0, "a step")
            workers.pages[0].ask(STOP, 1)
            codes, outputs = workers.ends()
            self.assertEqual(codes, [PREEMPTED])
            self.assertRegex(outputs[0], r"preempted at step \d+: nothing saved \(checkpoint.save_final is false\), exit 75")
            self.assertEqual(list(workers.output.glob("checkpoints/step_*")), [])

    def test_under_another_launcher_a_signal_to_one_rank_stops_all(self):
        with Workers(self.path, 3, pages=False, every_steps=7) as workers:
            metrics = workers.output / "metrics.jsonl"
            workers.wait_until(lambda: metrics.is_file() and metrics.stat().st_size > 0, "a log line")
            workers.processes[2].send_signal(signal.SIGUSR1)
            workers.wait_until(lambda: list(workers.output.glob("checkpoints/step_*/config.json")), "a save")
            workers.processes[1].send_signal(signal.SIGTERM)
            codes, outputs = workers.ends()
            self.assertEqual(codes, [PREEMPTED] * 3, outputs)
            step = int(re.search(r"preempted at step (\d+): saved", outputs[0])[1])
            self.assertEqual(step % 7, 0)
            self.assert_saved(workers.output / f"checkpoints/step_{step}")

    def test_an_agents_sigterm_ends_a_worker_at_once(self):
        with Workers(self.path, 1) as workers:
            workers.wait_until(lambda: workers.pages[0].step > 0, "a step")
            workers.processes[0].send_signal(signal.SIGUSR1)  # the agent's business
            step = workers.pages[0].step
            workers.wait_until(lambda: workers.pages[0].step > step, "a step")
            workers.processes[0].send_signal(signal.SIGTERM)
            self.assertEqual(workers.ends()[0], [-signal.SIGTERM])

    def test_a_worker_publishes_its_progress(self):
        with Workers(self.path, 2) as workers:
            page = workers.pages[0]
            workers.wait_until(lambda: page.step >= 30, "steps")
            self.assertEqual(page.attached, 1)
            beat = page.beat_ns
            self.assertTrue(0 < beat <= time.monotonic_ns())
            self.assertTrue(0 < page.slowest_ns < 60e9)
            self.assertTrue(0 < page.busy_ns < 120e9)
            seen = set()
            workers.wait_until(lambda: seen.add(page.phase) or {3, 4, 5} <= seen, "data, forward, backward")


if __name__ == "__main__":
    TRAINER = sys.argv.pop(1)
    unittest.main(verbosity=2)
