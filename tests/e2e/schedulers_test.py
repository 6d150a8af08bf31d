"""`trainer run` under other launchers, which are really run: torchrun, Slurm, Open MPI's mpirun; and the files of
configs/launch, those of Kubernetes and SkyPilot as far as they say what to run with which variables. Whoever starts two
ranks of one job, its losses are those of the agent's own two, to the bit.

    python tests/e2e/schedulers_test.py TRAINER_BINARY [TEST...]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import yaml

from slurm_cluster import SlurmCluster, free_ports

ROOT = Path(__file__).resolve().parents[2]
TRAINER = ""
TORCHRUN = ROOT / ".venv/bin/torchrun"

# One thread a rank: the order of sums within a rank then depends on no launcher.
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}


def losses(output):
    records = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if record["kind"] == "step"]


class Schedulers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="trainer_sched_")
        cls.path = Path(cls.directory.name)
        cls.addClassCleanup(cls.directory.cleanup)
        cls.cluster = cls.enterClassContext(SlurmCluster())
        cls.run_command(TRAINER, *cls.job("own"), "--nproc-per-node=2")
        cls.expected = losses(cls.path / "own")
        assert len(cls.expected) == 4, cls.expected

    @classmethod
    def job(cls, name, command="run"):
        """The smoke job of a few steps, as arguments."""
        sets = {"job.output_dir": cls.path / name, "train.epochs": "null", "train.steps": 4, "logging.every_steps": 1,
                "train.require_loss_decrease": "false", "hardware.device": "cpu"}
        return [command, ROOT / "configs/smoke.yaml",
                *(argument for key, value in sets.items() for argument in ("--set", f"{key}={value}"))]

    @classmethod
    def run_command(cls, *command, env={}, timeout=120, code=0):
        result = subprocess.run([str(part) for part in command], cwd=ROOT, env={**ENV, **cls.cluster.env, **env},
                                capture_output=True, text=True, timeout=timeout)
        if result.returncode != code:
            raise AssertionError(f"{command}: exit code {result.returncode}\n{result.stdout}\n{result.stderr}\n"
                                 f"{cls.cluster.logs()}")
        return result

    def assert_same_losses(self, name):
        self.assertEqual(losses(self.path / name), self.expected)

    def test_torchrun(self):
        self.run_command(TORCHRUN, "--standalone", "--nproc-per-node=2", "--no-python", TRAINER, *self.job("torchrun"))
        self.assert_same_losses("torchrun")

    def test_srun_with_two_tasks_on_one_node(self):
        self.run_command("srun", "--nodes=1", "--ntasks=2", TRAINER, *self.job("srun"))
        self.assert_same_losses("srun")

    def test_srun_with_one_task_on_each_of_two_nodes(self):
        self.run_command("srun", "--nodes=2", "--ntasks=2", TRAINER, *self.job("srun_nodes"))
        self.assert_same_losses("srun_nodes")

    def test_a_shell_in_a_slurm_allocation_is_no_worker(self):
        self.run_command("srun", "--nodes=1", "--ntasks=1", TRAINER, *self.job("shell"), "--nproc-per-node=2")
        self.assert_same_losses("shell")

    def test_mpirun(self):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        self.run_command("mpirun", *root, "--oversubscribe", "-n", "2", TRAINER, *self.job("mpirun"))
        self.assert_same_losses("mpirun")

    def submit(self, name, *options, arguments=None, **env):
        """configs/launch/slurm.sbatch with that job; the output that it has written when the job has ended."""
        output = self.path / f"{name}.out"
        env = {**ENV, "TRAINER": TRAINER, **env}
        job_id = self.cluster.output("sbatch", "--parsable", f"--output={output}", f"--chdir={ROOT}", *options,
                                     ROOT / "configs/launch/slurm.sbatch", *(arguments or self.job(name)[1:]), env=env)
        return job_id, output

    def test_sbatch_starts_an_agent_on_each_of_two_nodes(self):
        job_id, output = self.submit("sbatch_nodes")
        job = self.cluster.wait_for_job(job_id)
        self.assertEqual((job["JobState"], job["ExitCode"]), ("COMPLETED", "0:0"), output.read_text())
        self.assert_same_losses("sbatch_nodes")

    def test_sbatch_on_one_node(self):
        arguments = [*self.job("sbatch")[1:], "--nproc-per-node=2"]
        job_id, output = self.submit("sbatch", "--nodes=1", arguments=arguments)
        self.assertEqual(self.cluster.wait_for_job(job_id)["JobState"], "COMPLETED", output.read_text())
        self.assert_same_losses("sbatch")

    def stand_in(self, script):
        """A program to run in trainer's place."""
        path = self.path / "stand_in"
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
        return str(path)

    def test_sbatch_requeues_a_job_that_stopped_after_a_checkpoint_and_only_that(self):
        # The first time it waits for the signal that --signal and scancel send, then exits as trainer does.
        program = self.stand_in(f"""
            if [ "$SLURM_RESTART_COUNT" ]; then echo again >>{self.path}/again.$SLURM_NODEID; exit 0; fi
            trap 'kill $!; exit 75' TERM
            touch {self.path}/running.$SLURM_NODEID
            sleep 60 & wait""")
        job_id, output = self.submit("requeued", arguments=["job.yaml"], TRAINER=program)
        deadline = time.monotonic() + 60
        while not all((self.path / f"running.{node}").exists() for node in (0, 1)):
            self.assertLess(time.monotonic(), deadline, output.read_text() if output.exists() else self.cluster.logs())
            time.sleep(0.05)
        self.cluster.output("scancel", "--signal=TERM", job_id)
        self.cluster.wait_for_job(job_id, states=("PENDING",))
        # Not in two minutes, but in another second than that of its end, whose credentials Slurm has revoked.
        self.cluster.output("scontrol", "update", f"JobId={job_id}", "StartTime=now+3")
        job = self.cluster.wait_for_job(job_id)
        self.assertEqual((job["JobState"], job["Restarts"]), ("COMPLETED", "1"), self.cluster.logs())
        for node in (0, 1):
            self.assertEqual((self.path / f"again.{node}").read_text(), "again\n")

        job_id, output = self.submit("failed", arguments=["job.yaml"], TRAINER=self.stand_in("exit 3"))
        job = self.cluster.wait_for_job(job_id)
        ended = (job["JobState"], job["ExitCode"], job["Restarts"])
        self.assertEqual(ended, ("FAILED", "3:0", "0"), output.read_text())

    def run_nodes(self, commands, env):
        """The commands of the nodes of one job, together."""
        nodes = [subprocess.Popen([str(part) for part in command], cwd=ROOT, env={**ENV, **variables},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                 for command, variables in zip(commands, env)]
        for node in nodes:
            output, _ = node.communicate(timeout=120)
            self.assertEqual(node.returncode, 0, output)

    def test_the_kubernetes_job_gives_each_pod_what_an_agent_needs(self):
        service, job = yaml.safe_load_all((ROOT / "configs/launch/kubernetes.yaml").read_text())
        container = job["spec"]["template"]["spec"]["containers"][0]
        # The job's name there is job.yaml; what differs here is where it is, and that node 0 has no name.
        program, command, _, *flags = container["command"]
        self.assertEqual((program, command, flags), ("trainer", "run", ["--resume", "auto"]))
        env = {variable["name"]: variable["value"] for variable in container["env"]}
        env |= {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(free_ports(1)[0])}
        env = [{**env, "JOB_COMPLETION_INDEX": str(index)} for index in range(job["spec"]["completions"])]
        self.run_nodes([[TRAINER, *self.job("kubernetes"), *flags]] * 2, env)
        self.assert_same_losses("kubernetes")

    def test_the_skypilot_task_gives_each_node_what_an_agent_needs(self):
        task = yaml.safe_load((ROOT / "configs/launch/skypilot.yaml").read_text())
        self.assertEqual(task["run"], "build/release/bin/trainer run configs/bert_mrpc.yaml --resume auto")
        env = {"SKYPILOT_NUM_NODES": str(task["num_nodes"]), "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.2",
               "MASTER_PORT": str(free_ports(1)[0])}
        env = [{**env, "SKYPILOT_NODE_RANK": str(rank)} for rank in range(task["num_nodes"])]
        self.run_nodes([[TRAINER, *self.job("skypilot"), "--resume", "auto"]] * 2, env)
        self.assert_same_losses("skypilot")

    def test_a_failing_rank_of_srun_ends_the_step_with_its_exit_code(self):
        bad = self.path / "bad.tsv"
        rows = (ROOT / "tests/data/pairs.tsv").read_text().splitlines()
        bad.write_text("\n".join(rows[:5] + ["1\tonly three\tcolumns"]) + "\n")
        result = self.run_command("srun", "--nodes=1", "--ntasks=2", TRAINER, *self.job("failing"), "--set",
                                  f"data.train.path={bad}", code=3)
        self.assertIn(f"{bad}:6: 3 columns, expected 5", result.stderr)


if __name__ == "__main__":
    TRAINER = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
