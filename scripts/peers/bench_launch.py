#!/usr/bin/env python3
"""What a launcher costs: `trainer launch` and torchrun in turn, on the same tiny worker (tests/launch/fault_worker.cpp).

Measured, for every number of workers: the time from the command to the first and to the last worker's main(); from a
worker's exit to SIGTERM at its peers (each), and to the first and last main() of the next attempt; and of the launcher
when nothing happens: memory (RSS and PSS), CPU time and wake-ups (voluntary context switches) of all its processes and
threads. Times are the workers' own, of the monotonic clock.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

import compare

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/dist"))
import nodes  # noqa: E402

OURS, PEER = "trainer", "torchrun"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--idle", type=float, default=20, help="seconds, once per number of workers; 0: not measured")
    parser.add_argument("--trainer", default=ROOT / "build/release/bin/trainer", help="the executable")
    parser.add_argument("--torchrun", default=ROOT / ".venv/bin/torchrun")
    parser.add_argument("--worker", default=ROOT / "build/release/tests/fault_worker")
    parser.add_argument("--json", help="file to write the JSON to as well")
    return parser.parse_args()


def job(launcher, args, scratch, workers, steps, *flags, faults=()):
    program = [args.worker, f"{scratch}/job", steps, *faults]
    return nodes.Job(f"{scratch}/job", lambda _: launcher.command(program, *flags, nproc=workers, logs=f"{scratch}/logs"))


def start(run):
    node = nodes.Node(0, isolated=False)
    node.enter = []  # nothing before the launcher
    return run.start(node)[0]


def restart(launcher, args, scratch, workers):
    """A job whose last rank exits once all are there, and whose second attempt ends well."""
    run = job(launcher, args, scratch, workers, 10, "--max-restarts", 1, faults=[f"0:{workers - 1}:5:exit=1"])
    try:
        agent = start(run)
        code = agent.wait(120)
        if code != 0:
            raise RuntimeError(f"bench: exit code {code}\n{run.report()}")
        first, again = ([e.ns for e in run.events("start", attempt=attempt)] for attempt in (0, 1))
        fault, = (e.ns for e in run.events("fault"))
        measures = {"command to first main, s": (min(first) - agent.began_ns) / 1e9,
                    "command to last main, s": (max(first) - agent.began_ns) / 1e9,
                    "death to first main again, s": (min(again) - fault) / 1e9,
                    "death to last main again, s": (max(again) - fault) / 1e9}
        if workers > 1:
            told = [(e.ns - fault) / 1e6 for e in run.events("term", attempt=0)]
            measures |= {"death to SIGTERM, first peer, ms": min(told), "death to SIGTERM, last peer, ms": max(told)}
        return measures
    finally:
        run.kill()


def usage(pids):
    """Of processes with all their threads."""
    total = {"rss": 0, "pss": 0, "cpu": 0, "wakeups": 0, "threads": 0}
    for pid in pids:
        rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
        for line in rollup.splitlines():
            if line.startswith(("Rss:", "Pss:")):
                total[line[:3].lower()] += int(line.split()[1]) / 1024
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            total["threads"] += 1
            total["cpu"] += int((task / "schedstat").read_text().split()[0]) / 1e6
            status = (task / "status").read_text()
            total["wakeups"] += int(status.partition("voluntary_ctxt_switches:")[2].split()[0])
    return total


def idle(launcher, args, scratch, workers):
    """The launcher's processes are the job's without the workers."""
    run = job(launcher, args, scratch, workers, -1)
    try:
        start(run)
        theirs = {e.pid for e in run.wait_for(workers, "start", 60)}
        time.sleep(2)  # until the start is over
        own = nodes.processes(run.mark).keys() - theirs
        before = usage(own)
        time.sleep(args.idle)
        after = usage(own)
        return {"idle: processes": len(own), "idle: threads": after["threads"], "idle: RSS, MiB": after["rss"],
                "idle: PSS, MiB": after["pss"], "idle: CPU, ms/s": (after["cpu"] - before["cpu"]) / args.idle,
                "idle: wake-ups/s": (after["wakeups"] - before["wakeups"]) / args.idle}
    finally:
        run.kill()


def main():
    args = arguments()
    launchers = {OURS: nodes.Launcher(args.trainer), PEER: nodes.Launcher(args.torchrun)}
    about = {"bench": "launch", "repeats": args.repeats, "idle_s": args.idle, **compare.machine()}
    print("  ".join(f"{key} {value}" for key, value in about.items()))
    tables = {}
    for workers in args.workers:
        def program(measure, name):
            return lambda scratch: measure(launchers[name], args, scratch, workers)
        try:
            results = compare.in_turn({name: program(restart, name) for name in launchers}, args.repeats)
            if args.idle > 0:
                still = compare.in_turn({name: program(idle, name) for name in launchers}, 1)
                results = {name: {**results[name], **still[name]} for name in launchers}
        except (RuntimeError, TimeoutError) as error:
            sys.exit(f"bench: {error}")
        tables[workers] = compare.compare(results, OURS, PEER)
        print(f"\n{workers} worker{'s' if workers > 1 else ''}\n{compare.text(tables[workers], OURS, PEER)}", flush=True)
    output = json.dumps({**about, "workers": tables})
    print(output)
    if args.json:
        pathlib.Path(args.json).write_text(output + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
