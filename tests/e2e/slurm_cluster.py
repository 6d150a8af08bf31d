"""A Slurm cluster of two nodes on this host, for tests: Debian's munged, slurmctld and slurmd, run by whoever runs the
test, without systemd, cgroups or anything outside one directory. The nodes are named 127.0.0.1 and 127.0.0.2, names
that every Linux host resolves to itself."""

import ctypes
import json
import os
import pwd
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={path}/munge.socket
CredType=cred/munge
StateSaveLocation={path}/state
SlurmdSpoolDir={path}/spool_%n
SlurmctldPidFile={path}/slurmctld.pid
SlurmdPidFile={path}/slurmd_%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
KillWait=5
MessageTimeout=60
GresTypes=gpu
NodeName=127.0.0.[1-2] NodeHostname={host} NodeAddr=127.0.0.[1-2] Port={ports[1]},{ports[2]} CPUs=64 Gres=gpu:8
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def keep(commands):
    """Runs the commands until standard input ends, then kills all that they have started, whoever's child it is."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)  # slurmstepd leaves its slurmd, and a job's processes may leave theirs
    for command in commands:
        subprocess.Popen(command, stdin=subprocess.DEVNULL,
                         preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # reaped by the kernel; Slurm waits for zombies as for processes
    sys.stdin.read()
    while children := Path("/proc/thread-self/children").read_text().split():
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        time.sleep(0.01)


class SlurmCluster:
    """As a context manager: the cluster is up inside, and no process of it or of its jobs is left after, nor when the
    process that uses it is killed."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="trainer_slurm_")
        self.path = Path(self.directory.name)
        self.env = {**os.environ, "SLURM_CONF": str(self.path / "slurm.conf")}
        self.keeper = None

    def __enter__(self):
        try:
            self._configure()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.keeper:
            self.keeper.communicate(timeout=30)
        self.directory.cleanup()

    def run(self, *command, timeout=120, **options):
        """One of Slurm's commands. Its result; raises TimeoutExpired."""
        return subprocess.run([str(part) for part in command], env={**self.env, **options.pop("env", {})},
                              capture_output=True, text=True, timeout=timeout, **options)

    def output(self, *command, **options):
        result = self.run(*command, **options)
        if result.returncode != 0:
            raise RuntimeError(f"{command}: {result.stderr}\n{self.logs()}")
        return result.stdout.strip()

    def job(self, job_id):
        """The job's fields as scontrol tells them."""
        shown = self.output("scontrol", "--oneliner", "show", "job", job_id)
        return dict(field.split("=", 1) for field in shown.split() if "=" in field)

    def wait_for_job(self, job_id, states=("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"), timeout=120):
        deadline = time.monotonic() + timeout
        while (job := self.job(job_id))["JobState"] not in states:
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {job_id} is {job['JobState']} ({job['Reason']}) after {timeout} s\n"
                                   f"{self.logs()}")
            time.sleep(0.1)
        return job

    def logs(self):
        return "\n".join(f"--- {log.name}\n{log.read_text()[-6000:]}" for log in sorted(self.path.glob("*.log")))

    def _configure(self):
        self.path.chmod(0o755)  # munged's clients must reach its socket
        (self.path / "state").mkdir()
        key = self.path / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        (self.path / "slurm.conf").write_text(CONFIG.format(
            host=socket.gethostname().split(".")[0], ports=free_ports(3), user=pwd.getpwuid(os.geteuid()).pw_name,
            path=self.path))
        for gpu in range(8):  # to be asked for, there are no devices
            (self.path / f"gpu{gpu}").touch()
        (self.path / "gres.conf").write_text(f"Name=gpu File={self.path}/gpu[0-7]\n")

    def _start(self):
        munge = {name: f"--{name}-file={self.path}/munge{'.' if name == 'key' else 'd.'}{name}"
                 for name in ("key", "pid", "log", "seed")}
        commands = [["munged", "--foreground", f"--socket={self.path}/munge.socket", *munge.values()],
                    ["slurmctld", "-D"], ["slurmd", "-D", "-N", "127.0.0.1"], ["slurmd", "-D", "-N", "127.0.0.2"]]
        # The daemons try again until munged is there.
        env = {**self.env, "PATH": f"{self.env.get('PATH', '')}:/usr/sbin:/sbin"}
        with open(self.path / "daemons.log", "ab") as log:
            self.keeper = subprocess.Popen([sys.executable, __file__, json.dumps(commands)], env=env,
                                           stdin=subprocess.PIPE, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while self.run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() != "2":
            if time.monotonic() > deadline:
                raise TimeoutError(f"no two idle nodes after 60 s\n{self.logs()}")
            time.sleep(0.05)


if __name__ == "__main__":
    keep(json.loads(sys.argv[1]))
