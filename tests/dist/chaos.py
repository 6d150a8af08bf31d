#!/usr/bin/env python3
"""Random faults, from a seed, in jobs of four processes under a launcher. Of every fault it is known what must be told of
it: after each, the root cause and the exit code are right, nothing hangs over the time-outs, and no process is left five
seconds later.

    tests/dist/chaos.py LAUNCHER WORKER [--seed S] [--faults N] [--only I] [--kinds K...] [--races N] [--restarts N]

LAUNCHER is trainer or torchrun (whose known faults this shows), WORKER the path of fault_worker. Fault number I of a seed
is the same whatever N: --only runs it again.
"""

import argparse
import collections
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import nodes

ROOT = Path(__file__).resolve().parents[2]
NPROC = 4
GRACE_S = 1
HANG_S = 2
LIMIT_S = 10  # for the launcher to end, over the time-outs that apply; a loaded machine is not at fault
LONG = 100_000_000  # steps

# A training job, for the faults of real workers.
TRAINING = """
job: {{name: chaos, output_dir: {output}}}
model: {{type: bert_classifier, pretrained: {root}/tests/data/tiny_bert, init: random}}
data: {{train: {{path: {root}/tests/data/pairs.tsv, text: "#1 String", text_pair: "#2 String", label: Quality}}}}
train: {{epochs: null, steps: 100000, batch_size: 2}}
evaluation: {{every: never, best: null}}
logging: {{every_steps: 1, progress: none}}
"""

# What a fault is and what must be told of it. `faults`: fault_worker's; `root`: (rank, code) or None when the job ends
# well; `code`: the launcher's; None: any. `says`: patterns of its output. `worker_signal`: to that rank of a training job.
Case = collections.namedtuple("Case", "faults root code steps flags says agent_signal full_disk attach worker_signal",
                              defaults=(LONG, (), (), None, False, False, None))


def exits(rng):
    return rng.choice([1, 2, 3, 4, 5, 7, 64, 75, 127, 130, 255, rng.randint(1, 255)])


def died(rank, code, *actions, **more):
    """The rank ends with the code after the actions, all at the same step of the first attempt."""
    step = more.pop("step")
    end = f"exit={code}" if "kill" not in more else f"kill={more.pop('kill')}"
    return Case([f"0:{rank}:{step}:{action}" for action in (*actions, end)], (rank, code), code, **more)


def killed(rng, rank, step):
    number = rng.choice([signal.SIGKILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGTERM, signal.SIGINT])
    return died(rank, 128 + number, kill=int(number), step=step)


def segmentation_fault(rng, rank, step):
    return Case([f"0:{rank}:{step}:segv"], (rank, 139), 139)


def exit_code(rng, rank, step):
    return died(rank, exits(rng), step=step)


def error_file(rng, rank, step):
    return died(rank, exits(rng), "error=ValueError: batch 12 is bad", step=step, says=["ValueError: batch 12 is bad"])


def malformed_error_file(rng, rank, step):
    return died(rank, exits(rng), "half_error", step=step)


def second_failure(rng, rank, step):
    """Another rank fails for a reason of its own 20 ms after the first."""
    other = rng.choice([r for r in range(NPROC) if r != rank])
    case = died(rank, exits(rng), step=step)
    late = [f"0:{other}:{step}:{action}" for action in ("hold", f"await={rank}", "sleep=20", f"exit={exits(rng)}")]
    return case._replace(faults=case.faults + late)


def deaf_peer(rng, rank, step):
    """Another rank does not end by SIGTERM."""
    other = rng.choice([r for r in range(NPROC) if r != rank])
    case = died(rank, exits(rng), step=step)
    return case._replace(faults=[*case.faults, f"0:{other}:0:hold"])


def left_child(rng, rank, step):
    """A worker leaves a process in a session of its own."""
    return died(rank, exits(rng), "child", step=step)


def full_disk(rng, rank, step):
    """The logs' disk is full. The job goes on, and so does what is told."""
    fill = [f"0:{rng.randrange(NPROC)}:1:fill=300"]
    if rng.random() < 0.5:
        return Case(fill, None, 0, steps=step + 5, full_disk=True, says=["no longer logged"])
    case = died(rank, exits(rng), "error=ValueError: full", step=step, full_disk=True)
    return case._replace(faults=fill + case.faults)


def stopped(rng, rank, step):
    """SIGSTOP: the hang is told, with the rank's name and its stack."""
    return Case([f"0:{rank}:{step}:kill={int(signal.SIGSTOP)}"], (rank, None), None, attach=True,
                flags=["--hang-timeout-s", HANG_S], says=[rf"rank {rank}\b", "fault_worker"])


def hung(rng, rank, step):
    """A rank never comes back from its step, and is deaf."""
    return Case([f"0:{rank}:{step}:hang"], (rank, None), None, attach=True, flags=["--hang-timeout-s", HANG_S],
                says=[rf"rank {rank}\b", "pause"])


def agent_killed(rng, rank, step):
    return Case([], None, 128 + signal.SIGKILL, agent_signal=signal.SIGKILL)


def agent_told_to_stop(rng, rank, step):
    number = rng.choice([signal.SIGTERM, signal.SIGINT])
    deaf = [f"0:{rank}:0:hold"] if rng.random() < 0.5 else []
    return Case(deaf, None, 128 + number, agent_signal=number)


def restarted(rng, rank, step):
    """Any death, and a restart that ends well."""
    case = rng.choice([killed, segmentation_fault, exit_code, malformed_error_file, left_child])(rng, rank, step)
    return case._replace(root=None, code=0, steps=step + 5, flags=["--max-restarts", 1])


def restarted_once_too_little(rng, rank, step):
    """The root cause is the last attempt's."""
    first, last = (rng.choice([killed, segmentation_fault, exit_code])(rng, r, step)
                   for r in (rank, rng.randrange(NPROC)))
    return last._replace(faults=first.faults + [re.sub("^0:", "1:", fault) for fault in last.faults],
                         flags=["--max-restarts", 1])


def training_killed(rng, rank, step):
    return Case([], (rank, 137), 137, worker_signal=signal.SIGKILL)


def training_stopped(rng, rank, step):
    return Case([], (rank, None), None, worker_signal=signal.SIGSTOP, flags=["--hang-timeout-s", HANG_S],
                says=[rf"rank {rank}\b", r"trainer\b.*\+0x|#0|libc"])


KINDS = [killed, segmentation_fault, exit_code, error_file, malformed_error_file, second_failure, deaf_peer, left_child,
         full_disk, stopped, hung, agent_killed, agent_told_to_stop, restarted, restarted_once_too_little]
TRAINING_KINDS = [training_killed, training_stopped]


class Chaos:
    def __init__(self, launcher, worker, kinds):
        self.launcher, self.worker, self.kinds = launcher, worker, kinds
        self.node = nodes.Node(0, isolated=False)  # one node: no link
        self.table = collections.defaultdict(list)  # by kind: [(what is wrong, seconds from the fault to the end)]

    def case(self, seed, index):
        rng = random.Random(f"{seed}.{index}")
        kind = self.kinds[index % len(self.kinds)]  # all of them, however few faults there are
        return kind.__name__, kind(rng, rng.randrange(NPROC), rng.randint(1, 15)), rng

    def run(self, name, case, rng):
        with tempfile.TemporaryDirectory(prefix="chaos_") as scratch:
            scratch = Path(scratch)
            logs = scratch / "logs"
            logs.mkdir()
            if case.full_disk:
                nodes.sh("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", logs)
            job = self.job(case, scratch, logs)
            try:
                wrong, seconds = self.watch(job, case, rng)
            except TimeoutError as error:
                wrong, seconds = [f"the fault never happened: {error}"], float("nan")
            finally:
                job.kill()
                if case.full_disk:
                    nodes.sh("umount", logs)
            self.table[name].append((wrong, seconds))
            if wrong:
                print(f"WRONG {name} {' '.join(case.faults)}: {'; '.join(wrong)}\n{job.report()}\n", flush=True)

    def job(self, case, scratch, logs):
        if case.worker_signal:
            spec = scratch / "job.yaml"
            spec.write_text(TRAINING.format(root=ROOT, output=scratch / "run"))
            command = [self.launcher.path, "run", spec, "--nproc-per-node", NPROC, *case.flags]
        else:
            flags = ["--grace-s", GRACE_S, *case.flags]
            if self.launcher.is_torchrun:  # it has no grace and watches no progress
                flags = [] if case.attach else case.flags
            program = [self.worker, scratch / "job", case.steps, *case.faults]
            command = self.launcher.command(program, *flags, nproc=NPROC, logs=logs)
        return nodes.Job(scratch / "job", lambda _: command, {"FAULT_WORKER_ATTACH": "1"} if case.attach else None)

    def watch(self, job, case, rng):
        """Returns what is wrong and the seconds from the fault to the launcher's end."""
        agent, = job.start(self.node)
        if case.worker_signal:
            fault_ns = self.signal_worker(job, case, rng)
        elif case.agent_signal:
            job.wait_for(NPROC, "start", LIMIT_S)
            time.sleep(rng.uniform(0, 0.2))
            fault_ns = time.monotonic_ns()
            agent.signal(case.agent_signal)
        else:
            fault_ns = job.wait_for(1, "fault", LIMIT_S)[0].ns if case.root else agent.began_ns
        code = agent.wait(LIMIT_S + GRACE_S + HANG_S)
        seconds = (time.monotonic_ns() - fault_ns) / 1e9
        wrong = []
        if code is None:
            wrong.append("hang")
        elif left := job.orphans(5):
            wrong.append(f"orphans {left}")
        text = agent.text()
        root = self.launcher.root_cause(text)
        if case.root and (root is None or root[0] != case.root[0] or case.root[1] not in (None, root[1])):
            wrong.append(f"root cause {root}, expected {case.root}")
        if not case.root and root and "--max-restarts" not in case.flags:
            wrong.append(f"root cause {root} where no worker failed")
        if case.code is not None and code not in (None, case.code):
            wrong.append(f"exit code {code}, expected {case.code}")
        wrong += [f"does not say {pattern!r}" for pattern in case.says if not re.search(pattern, text)]
        return wrong, seconds

    def signal_worker(self, job, case, rng):
        metrics = job.directory.parent / "run/metrics.jsonl"
        if not nodes.eventually(lambda: metrics.exists() and metrics.read_text().count('"step"') > 3, 60):
            raise TimeoutError("no step in 60 s")
        time.sleep(rng.uniform(0, 0.1))
        rank = f"\0RANK={case.root[0]}\0".encode()
        pid, = (pid for pid in nodes.processes(job.mark) if rank in Path(f"/proc/{pid}/environ").read_bytes())
        fault_ns = time.monotonic_ns()
        os.kill(pid, case.worker_signal)
        return fault_ns

    def race(self):
        """Rank 1 exits 7, 20 ms later rank 0 exits 9."""
        late = ["hold", "await=1", "sleep=20", "exit=9"]
        self.run("rank 1 exits 7, rank 0 9", Case(["0:1:5:exit=7", *(f"0:0:5:{action}" for action in late)], (1, 7), 7),
                 random)

    def restarts(self, count):
        """A PyTorch job with Gloo that fails `count` times in a row and then ends well."""
        with tempfile.TemporaryDirectory(prefix="chaos_") as scratch:
            command = self.launcher.command([ROOT / "tests/dist/gloo_job.py", count], "--max-restarts", count, nproc=2,
                                            logs=Path(scratch) / "logs")
            job = nodes.Job(Path(scratch) / "job", lambda _: command)
            try:
                agent, = job.start(self.node)
                code = agent.wait(30 * (count + 1))
                seconds = (time.monotonic_ns() - agent.began_ns) / 1e9
            finally:
                job.kill()
            joined = re.findall(r"attempt (\d+) joined", agent.text())
            wrong = [] if code == 0 and sorted(set(map(int, joined))) == list(range(count + 1)) else [
                f"exit code {code}, attempts {joined}"]
            self.table[f"{count} restarts with Gloo"].append((wrong, seconds))
            if wrong:
                print(f"WRONG {count} restarts: {wrong}\n{job.report()}\n", flush=True)

    def summary(self):
        lines = [f"{'fault':28}{'runs':>6}{'wrong':>7}  from the fault to the end, s: median, most"]
        for name, runs in self.table.items():
            seconds = [s for _, s in runs]
            lines.append(f"{name:28}{len(runs):6}{sum(bool(wrong) for wrong, _ in runs):7}"
                         f"{statistics.median(seconds):10.3f}{max(seconds):9.3f}")
        return "\n".join(lines)


def main():
    isolated = nodes.isolate()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("launcher", type=Path)
    parser.add_argument("worker", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--only", type=int, help="this fault of the seed")
    parser.add_argument("--kinds", nargs="+", help="these kinds of faults")
    parser.add_argument("--races", type=int, default=50, help="runs of a first failure and one 20 ms later")
    parser.add_argument("--restarts", type=int, default=50, help="of a PyTorch job with Gloo")
    args = parser.parse_args()
    launcher = nodes.Launcher(args.launcher)
    kinds = [kind for kind in KINDS if kind != full_disk or isolated]
    kinds += [] if launcher.is_torchrun else TRAINING_KINDS
    chaos = Chaos(launcher, args.worker, kinds)
    if args.kinds:
        chaos.kinds = [kind for kind in kinds if kind.__name__ in args.kinds]
    for index in range(args.faults) if args.only is None else [args.only]:
        chaos.run(*chaos.case(args.seed, index))
    if args.only is None:
        for _ in range(args.races):
            chaos.race()
        if args.restarts:
            chaos.restarts(args.restarts)
    wrong = sum(bool(wrong) for runs in chaos.table.values() for wrong, _ in runs)
    print(f"seed {args.seed}  launcher {args.launcher.name}  {NPROC} processes  grace {GRACE_S} s  hang {HANG_S} s\n"
          f"{chaos.summary()}\n{wrong} of {sum(map(len, chaos.table.values()))} went wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
