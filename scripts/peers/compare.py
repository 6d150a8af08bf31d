"""Runs of two programs in turn, and what they tell: for scripts/bench."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def add_arguments(parser):
    """What every bench of training takes."""
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--trainer", default=ROOT / "build/release/bin/trainer", help="the executable")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="passed on to trainer")
    parser.add_argument("--json", help="file to write the JSON to as well")


def trainer_command(args, config, settings, scratch):
    """A job of trainer that does nothing but train, in one process, and its records."""
    settings = {"job.output_dir": f"{scratch}/run", "evaluation.every": "never", "evaluation.best": "null",
                "checkpoint.save_final": "false", "logging.progress": "none", "launch.nproc_per_node": 1, **settings}
    command = [args.trainer, "run", ROOT / "configs" / config]
    for setting in [f"{key}={value}" for key, value in settings.items()] + args.set:
        command += ["--set", setting]
    return command, f"{scratch}/run/metrics.jsonl"


def run(command, log_path, env=None):
    """Runs to the end. Returns the time of day that it began, seconds, and the largest resident size of any of its
    processes in bytes. Raises RuntimeError with the end of its output when it fails."""
    with open(log_path, "w+") as log:
        begin = time.time()
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.time() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            log.seek(0)
            raise RuntimeError(f"{' '.join(map(str, command))}: exit code {process.returncode}\n{log.read()[-4000:]}")
    return {"begin_unix_s": begin, "seconds": seconds, "peak_memory_bytes": usage.ru_maxrss * 1024}


def read_records(path, kind):
    with open(path, encoding="utf-8") as file:
        return [record for record in map(json.loads, file) if record["kind"] == kind]


def in_turn(programs, repeats):
    """programs: {name: function of a scratch directory, returning {measure: value}}. A B A B ...
    Returns {name: {measure: [value of each run]}}."""
    results = {name: {} for name in programs}
    for _ in range(repeats):
        for name, program in programs.items():
            with tempfile.TemporaryDirectory() as scratch:
                for measure, value in program(scratch).items():
                    results[name].setdefault(measure, []).append(value)
    return results


def spread(values):
    """(largest - smallest) / median."""
    return (max(values) - min(values)) / statistics.median(values) if max(values) > min(values) else 0.0


def compare(results, ours, peer):
    """{measure: medians, their ratio, spreads, values}."""
    table = {}
    for measure in results[ours]:
        a, b = (statistics.median(results[name][measure]) for name in (ours, peer))
        table[measure] = {ours: a, peer: b, f"{ours}/{peer}": a / b, f"{ours}_spread": spread(results[ours][measure]),
                          f"{peer}_spread": spread(results[peer][measure]), f"{ours}_runs": results[ours][measure],
                          f"{peer}_runs": results[peer][measure]}
    return table


def text(table, ours, peer):
    """One line a measure, for people."""
    width = max(map(len, table))
    lines = [f"{'':{width}}  {ours:>18}  {peer:>18}  {'ratio':>7}"]
    for measure, row in table.items():
        cells = [f"{row[name]:.4g} ± {50 * row[name + '_spread']:.0f} %" for name in (ours, peer)]
        lines.append(f"{measure:{width}}  {cells[0]:>18}  {cells[1]:>18}  {row[f'{ours}/{peer}']:7.3f}")
    return "\n".join(lines)


def report(about, programs, ours, args):
    """Runs the programs (in_turn) and prints what they were and, for each but ours, how it compares: for people and as
    JSON. Ends the process when one fails."""
    try:
        results = in_turn(programs, args.repeats)
    except RuntimeError as error:
        sys.exit(f"bench: {error}")
    print("  ".join(f"{key} {value}" for key, value in about.items()))
    tables = {peer: compare(results, ours, peer) for peer in programs if peer != ours}
    for peer, table in tables.items():
        print(text(table, ours, peer))
    output = json.dumps({**about, "measures": tables})
    print(output)
    if args.json:
        pathlib.Path(args.json).write_text(output + "\n", encoding="utf-8")


def machine():
    """What the numbers are measured on. Warns when something else is running: threads that spin for each other (OpenMP's,
    in the peer) then lose far more than their share, and the ratio says nothing."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > 0.5:
        print(f"warning: the machine is not idle (load {load:.1f} on {cores} cores); the ratios can't be trusted",
              file=sys.stderr)
    return {"cpu": models[0] if models else "unknown", "cores": cores, "load_before": load,
            "date": time.strftime("%Y-%m-%d")}
