"""configs/launch/ssh.sh: it tells each node its place, and ends all nodes together.

    python tests/e2e/ssh_test.py TRAINER_BINARY [TEST...]
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from slurm_cluster import free_ports

ROOT = Path(__file__).resolve().parents[2]
TRAINER = ""


class Ssh(unittest.TestCase):
    """A program is in ssh's place that hands the command to a shell as sshd does: standard input, output and error are
    connected, and the end of ssh sends no signal."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="trainer_ssh_")
        self.addCleanup(self.directory.cleanup)
        self.path = Path(self.directory.name)
        self.program("ssh", 'echo "$1" >>"$0.hosts"; exec setsid sh -c "$2"')

    def program(self, name, script):
        path = self.path / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
        return str(path)

    def start(self, hosts, *command, cwd=None, **env):
        script = subprocess.Popen([ROOT / "configs/launch/ssh.sh", hosts, *map(str, command)], cwd=cwd or self.path,
                                  env={**os.environ, "SSH": str(self.path / "ssh"), **env}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (script.kill(), script.communicate()))
        return script

    def wait_for(self, condition):
        deadline = time.monotonic() + 30
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def test_every_node_is_told_its_place_and_arguments_arrive_as_they_are(self):
        tell = self.program("tell", """
            echo "$(printf '%s|' $PET_NNODES $PET_NODE_RANK $PET_MASTER_ADDR $PET_MASTER_PORT "$PWD" "$@")" """)
        script = self.start("me@alpha beta", tell, "it's", 'a "b" $c', "", "*", MASTER_PORT="4000")
        output, errors = script.communicate(timeout=30)
        self.assertEqual((script.returncode, errors), (0, ""))
        rest = f"alpha|4000|{self.path}|it's|a \"b\" $c||*|"
        self.assertEqual(sorted(output.splitlines()), [f"2|0|{rest}", f"2|1|{rest}"])
        self.assertEqual(sorted((self.path / "ssh.hosts").read_text().split()), ["beta", "me@alpha"])

    def test_a_node_that_fails_ends_the_others_and_its_code_is_the_scripts(self):
        node = self.program("node", """
            if [ $PET_NODE_RANK = 1 ]; then until [ -e started.0 ] && [ -e started.2 ]; do sleep 0.05; done; exit 7; fi
            trap 'kill $!; touch stopped.$PET_NODE_RANK; exit 1' TERM
            touch started.$PET_NODE_RANK
            sleep 60 & wait""")
        script = self.start("a b c", node)
        script.communicate(timeout=30)
        self.assertEqual(script.returncode, 7)
        self.assertTrue(all((self.path / f"stopped.{rank}").exists() for rank in (0, 2)))

    def check_end(self, end, code):
        node = self.program("node", """
            trap 'kill $!; touch stopped.$PET_NODE_RANK; exit 75' TERM
            touch started.$PET_NODE_RANK
            sleep 60 & wait""")
        script = self.start("a b", node)
        self.wait_for(lambda: all((self.path / f"started.{rank}").exists() for rank in (0, 1)))
        script.send_signal(end)
        script.communicate(timeout=30)
        self.assertEqual(script.returncode, code)
        self.wait_for(lambda: all((self.path / f"stopped.{rank}").exists() for rank in (0, 1)))

    def test_ctrl_c_stops_every_agent_as_sigterm_does(self):
        self.check_end(signal.SIGINT, 75)

    def test_agents_do_not_outlive_a_script_that_was_killed(self):
        self.check_end(signal.SIGKILL, -signal.SIGKILL)

    def test_a_job_on_two_hosts(self):
        script = self.start("127.0.0.1 127.0.0.2", TRAINER, "run", "configs/smoke.yaml", "--set",
                            f"job.output_dir={self.path}/output", "--set", "hardware.device=cpu", cwd=ROOT,
                            MASTER_PORT=str(free_ports(1)[0]))
        output, errors = script.communicate(timeout=120)
        self.assertEqual(script.returncode, 0, output + errors)
        self.assertIn('nnodes: 2', (self.path / 'output/job.yaml').read_text().replace('"', ''))


if __name__ == "__main__":
    TRAINER = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
