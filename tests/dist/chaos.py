#!/usr/bin/env python3
"""Random faults, from a seed, in jobs of four processes under a launcher. Of every fault it is known what must be told of
it: after each, the root cause and the exit code are right, nothing hangs over the time-outs, and no process is left five
seconds later.

    tests/dist/chaos.py LAUNCHER WORKER [--seed S] [--faults N] [--only I]

LAUNCHER is trainer or torchrun (whose known faults this shows), WORKER the path of fault_worker. Fault number I of a seed
is the same whatever N: --only runs it again.
"""

import argparse
import collections
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import nodes

NPROC = 4
GRACE_S = 1
HANG_S = 2
LIMIT_S = 10  # for the launcher to end, over the time-outs that apply; a loaded machine is not at fault
LONG = 100_000_000  # steps

# What a fault is and what must be told of it. `faults`: fault_worker's; `root`: (rank, code) or None when the job ends
# well; `code`: the launcher's; `says`: patterns of its output.
Case = collections.namedtuple("Case", "faults root code steps flags says agent_signal full_disk attach",
                              defaults=(LONG, (), (), None, False, False))


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
                flags=["--hang-timeout", HANG_S], says=[rf"rank {rank}\b", "fault_worker"])


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


KINDS = [killed, segmentation_fault, exit_code, error_file, malformed_error_file, second_failure, deaf_peer, left_child,
         full_disk, stopped, agent_killed, agent_told_to_stop, restarted, restarted_once_too_little]


class Chaos:
    def __init__(self, launcher, worker, isolated):
        self.launcher, self.worker, self.isolated = launcher, worker, isolated
        self.node = nodes.Node(0, isolated=False)  # one node: no link

    def case(self, seed, index):
        rng = random.Random(f"{seed}.{index}")
        kinds = [kind for kind in KINDS if kind != full_disk or self.isolated]
        kind = kinds[index % len(kinds)]  # all of them, however few faults there are
        return kind.__name__, kind(rng, rng.randrange(NPROC), rng.randint(1, 15)), rng

    def run(self, case, rng):
        """Returns what is wrong (a list), the seconds from the fault to the launcher's end, and a report."""
        with tempfile.TemporaryDirectory(prefix="chaos_") as scratch:
            logs = Path(scratch) / "logs"
            logs.mkdir()
            if case.full_disk:
                nodes.sh("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", logs)
            own = [] if self.launcher.is_torchrun else ["--grace", GRACE_S]
            flags = [*own, *(case.flags if not self.launcher.is_torchrun or not case.attach else [])]
            job = nodes.Job(Path(scratch) / "job",
                            lambda node: self.launcher.command(*flags, nproc=NPROC, logs=logs, nodes=1), self.worker,
                            case.steps, case.faults, {"FAULT_WORKER_ATTACH": "1"} if case.attach else {})
            try:
                return self.watch(job, case, rng)
            finally:
                job.kill()
                if case.full_disk:
                    nodes.sh("umount", logs)

    def watch(self, job, case, rng):
        agent, = job.start(self.node)
        if case.agent_signal:
            job.wait_for(NPROC, "start", LIMIT_S)
            time.sleep(rng.uniform(0, 0.2))
            fault_ns = time.monotonic_ns()
            agent.signal(case.agent_signal)
        elif case.root:
            fault_ns = job.wait_for(1, "fault", LIMIT_S)[0].ns
        code = agent.wait(LIMIT_S + GRACE_S + HANG_S)
        if not case.agent_signal and not case.root:
            fault_ns = agent.began_ns
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
        if not case.root and root and case.code == 0 and "--max-restarts" not in case.flags:
            wrong.append(f"root cause {root} of a job that ended well")
        if case.code is not None and code not in (None, case.code):
            wrong.append(f"exit code {code}, expected {case.code}")
        wrong += [f"does not say {pattern!r}" for pattern in case.says if not re.search(pattern, text)]
        return wrong, seconds, job.report()


def main():
    isolated = nodes.isolate()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("launcher", type=Path)
    parser.add_argument("worker", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=len(KINDS))
    parser.add_argument("--only", type=int, help="this fault of the seed")
    args = parser.parse_args()
    chaos = Chaos(nodes.Launcher(args.launcher), args.worker, isolated)
    table = collections.defaultdict(list)
    failed = 0
    for index in [args.only] if args.only is not None else range(args.faults):
        name, case, rng = chaos.case(args.seed, index)
        try:
            wrong, seconds, report = chaos.run(case, rng)
        except TimeoutError as error:
            wrong, seconds, report = ["the fault never happened"], float("nan"), str(error)
        table[name].append((wrong, seconds))
        if wrong:
            failed += 1
            print(f"FAULT {index} {name} {' '.join(case.faults)}: {'; '.join(wrong)}\n{report}\n", flush=True)
    print(f"seed {args.seed}  launcher {args.launcher.name}  {NPROC} processes  grace {GRACE_S} s  hang {HANG_S} s")
    print(f"{'fault':28}{'runs':>6}{'wrong':>7}  to the end, s: median and most")
    for name, runs in table.items():
        seconds = [s for _, s in runs]
        print(f"{name:28}{len(runs):6}{sum(bool(wrong) for wrong, _ in runs):7}  {statistics.median(seconds):8.3f}"
              f"{max(seconds):9.3f}")
    print(f"{failed} of {sum(map(len, table.values()))} went wrong")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
