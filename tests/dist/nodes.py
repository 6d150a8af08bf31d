"""Nodes of a cluster on one host and jobs on them, for tests of launchers.

A node is a network namespace (and a host name) with an address on a bridge. All of it lies in namespaces of the test's
own, so that two tests at once know nothing of each other, and the kernel removes processes, links and mounts when the
test ends in whatever way. Where namespaces are not permitted the nodes are addresses of the loopback interface, and what
is about links is not tested: `isolate` says so.

The kernel's netem is often not built, so a slow or lossy link is made here: two TAP devices, and a thread that carries
frames between them.

Times are of the monotonic clock, in nanoseconds, as the workers' (tests/launch/fault_worker.cpp).
"""

import collections
import fcntl
import heapq
import itertools
import os
import random
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

MARK = "TRAINER_TEST_JOB"  # in the environment of all processes of a job
Event = collections.namedtuple("Event", "kind ns attempt rank world node pid")


def isolate():
    """Runs this script again in namespaces of its own. Returns whether it is there; call it first."""
    inside = "TRAINER_TEST_ISOLATED"
    if inside in os.environ:
        sh("ip", "link", "set", "lo", "up")
        return True
    flags = ["--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    for flags in (flags, ["--map-root-user", *flags]):
        try:
            probe = subprocess.run(["unshare", *flags, "ip", "link", "add", "br0", "type", "bridge"], capture_output=True,
                                   text=True)
        except FileNotFoundError as error:
            probe = subprocess.CompletedProcess(flags, 1, "", str(error))
        if probe.returncode == 0:
            os.execvpe("unshare", ["unshare", *flags, *sys.orig_argv], {**os.environ, inside: "1"})
    print(f"no namespaces here ({probe.stderr.strip()}): nodes are addresses of one loopback interface, and what needs "
          "links to cut or disks to fill is NOT tested", file=sys.stderr)
    return False


def sh(*argv):
    return subprocess.run(list(map(str, argv)), check=True, capture_output=True, text=True).stdout


def eventually(condition, seconds):
    """The condition's first true value, or its last one."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return value


class Node:
    def __init__(self, index, isolated):
        self.index = index
        self.name = f"node{index}"
        self.address = f"10.77.0.{index + 1}" if isolated else f"127.0.0.{index + 1}"
        self.address6 = f"fd77::{index + 1}" if isolated else "::1"
        self.enter = ["setpriv", "--pdeathsig", "KILL"]
        if not isolated:
            return
        script = f"hostname {self.name} && ip link set lo up && echo ready && exec sleep infinity"
        self.holder = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "ready\n"
        namespaces = f"/proc/{self.holder.pid}/ns"
        self.enter = ["nsenter", f"--net={namespaces}/net", f"--uts={namespaces}/uts", "--"]

    def run(self, *argv):
        return sh(*self.enter, *argv)

    def set_link(self, state):
        """`state`: up or down."""
        self.run("ip", "link", "set", "eth0", state)
        if state == "up":  # IPv6 addresses leave with the link
            self.run("ip", "-6", "addr", "replace", f"{self.address6}/64", "dev", "eth0", "nodad")


class SlowLink(threading.Thread):
    """Carries frames between a node's eth0 and `port`, each `delay_s` later, but for a share `loss` of them."""

    def __init__(self, node, port, delay_s, loss, seed=1):
        super().__init__(daemon=True)
        self.delay_s, self.loss, self.random = delay_s, loss, random.Random(seed)
        self.ends = [self.tap(port), self.tap(f"{port}.far")]
        sh("ip", "link", "set", f"{port}.far", "netns", node.holder.pid, "name", "eth0")
        self.start()

    @staticmethod
    def tap(name):
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        tap_without_header = 0x0002 | 0x1000  # IFF_TAP | IFF_NO_PI
        fcntl.ioctl(device, 0x400454CA, struct.pack("16sH22x", name.encode(), tap_without_header))  # TUNSETIFF
        return device

    def run(self):
        due = []  # (time, order, to, frame)
        for order in range(1 << 62):
            wait = max(0, due[0][0] - time.monotonic()) if due else None
            readable, _, _ = select.select(self.ends, [], [], wait)
            for end in readable:
                frame = os.read(end, 65536)
                if self.random.random() >= self.loss:
                    heapq.heappush(due, (time.monotonic() + self.delay_s, order, self.ends[1 - self.ends.index(end)],
                                         frame))
            while due and due[0][0] <= time.monotonic():
                _, _, end, frame = heapq.heappop(due)
                try:
                    os.write(end, frame)
                except OSError:
                    pass  # the link is down


class Cluster:
    """`slow`: by node, (delay_s, loss) of its link."""

    numbers = itertools.count()  # of clusters: the kernel takes its time to remove a closed one's links

    def __init__(self, size, isolated, slow=None):
        self.isolated = isolated
        self.number = next(Cluster.numbers)
        self.bridge = f"br{self.number}"
        self.nodes = []
        if isolated:
            sh("ip", "link", "add", self.bridge, "type", "bridge")
            sh("ip", "link", "set", self.bridge, "up")
        for index in range(size):
            node = Node(index, isolated)
            self.nodes.append(node)
            if isolated:
                self.connect(node, (slow or {}).get(index))

    def connect(self, node, slow):
        port = f"port{self.number}.{node.index}"
        if slow:
            SlowLink(node, port, *slow)
        else:
            sh("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", node.holder.pid)
        sh("ip", "link", "set", port, "master", self.bridge, "up")
        node.run("ip", "addr", "add", f"{node.address}/24", "dev", "eth0")
        node.set_link("up")

    def add_names(self, directory):
        """From now on the nodes' names have addresses. Nothing has by default, as where there is no DNS."""
        hosts = Path(directory) / "hosts"
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{node.address} {node.name}\n" for node in self.nodes))
        sh("mount", "--bind", hosts, "/etc/hosts")

    def close(self):
        if not self.isolated:
            return
        for node in self.nodes:
            node.holder.kill()
            node.holder.wait()
            node.holder.stdout.close()
        sh("ip", "link", "del", self.bridge)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def processes(mark):
    """{pid: command line} of the living processes of a job, this one's eyes not deceived by what they did to sessions and
    parents."""
    found = {}
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            if f"{MARK}={mark}\0".encode() in (directory / "environ").read_bytes():
                state = (directory / "stat").read_text().rpartition(") ")[2][0]
                if state not in "ZX":
                    found[int(directory.name)] = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            pass  # gone, or not ours
    return found


class Agent:
    """A launcher on a node."""

    def __init__(self, node, command, mark, out, env):
        self.node, self.out = node, out
        self.began_ns = time.monotonic_ns()
        with open(out, "wb") as file:
            self.process = subprocess.Popen([*node.enter, *map(str, command)], stdin=subprocess.DEVNULL, stdout=file,
                                            stderr=subprocess.STDOUT, start_new_session=True,
                                            env={**os.environ, **env, MARK: mark})

    def text(self):
        return self.out.read_text(errors="replace")

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, seconds):
        """Exit code as a shell's, or None when it does not end."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return code if code >= 0 else 128 - code


class Job:
    """A command on some nodes. `directory` is made; it holds the agents' output, and fault_worker's events."""

    def __init__(self, directory, command, env=None):
        """`command(node)`: of the node."""
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.command = command
        self.env = env or {}
        self.mark = f"{os.getpid()}.{time.monotonic_ns()}"
        self.agents = []

    def start(self, *nodes):
        started = [Agent(node, self.command(node), self.mark, self.directory / f"agent{len(self.agents) + i}.out", self.env)
                   for i, node in enumerate(nodes)]
        self.agents += started
        return started

    def events(self, kind=None, **fields):
        try:
            lines = (self.directory / "events").read_text().splitlines()
        except FileNotFoundError:
            return []
        events = [Event(words[0], *map(int, words[1:])) for words in map(str.split, lines)]
        return [event for event in events if kind in (None, event.kind) and
                all(getattr(event, name) == value for name, value in fields.items())]

    def wait_for(self, count, kind, seconds=20, **fields):
        """The first `count` such events. Raises TimeoutError."""
        events = eventually(lambda: len(found := self.events(kind, **fields)) >= count and found, seconds)
        if not events:
            raise TimeoutError(f"{len(self.events(kind, **fields))} of {count} workers had {kind} {fields} in {seconds} s"
                               f"\n{self.report()}")
        return events[:count]

    def finish(self):
        """Tells the workers that run without STEPS to end well."""
        (self.directory / "finish").touch()

    def codes(self, seconds=20):
        end = time.monotonic() + seconds
        return [agent.wait(max(0, end - time.monotonic())) for agent in self.agents]

    def orphans(self, seconds=5):
        """What is left of the job so long after its agents have ended."""
        eventually(lambda: not processes(self.mark), seconds)
        return processes(self.mark)

    def kill(self):
        while left := processes(self.mark):
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.01)
        for agent in self.agents:
            agent.process.wait()

    def report(self):
        """For the message of a failed test."""
        parts = [f"--- {agent.node.name}: {' '.join(map(str, agent.process.args))}\n{agent.text()}" for agent in self.agents]
        events = self.directory / "events"
        return "\n".join([*parts, "--- events", events.read_text() if events.exists() else ""])


class Launcher:
    """The command lines of `trainer launch` and of torchrun, and what they say at the end."""

    def __init__(self, path):
        self.path = path
        self.is_torchrun = Path(path).name == "torchrun"

    def command(self, program, *flags, nproc, nodes=1, logs):
        """`program`: its words; a Python script runs under this interpreter."""
        flags = [*flags, "--nproc-per-node", nproc, "--nnodes", nodes, "--log-dir", logs]
        is_python = str(program[0]).endswith(".py")
        if self.is_torchrun:
            return [self.path, *flags, *([] if is_python else ["--no-python"]), *program]
        return [self.path, "launch", *flags, "--", *([sys.executable] if is_python else []), *program]

    def root_cause(self, text):
        """(rank, exit code as a shell's) that the output names, or None."""
        if self.is_torchrun:
            found = re.search(r"Root Cause.*?rank +: (\d+).*?exitcode +: (-?\d+)", text, re.S)
            return found and (int(found[1]), int(found[2]) if int(found[2]) >= 0 else 128 - int(found[2]))
        found = re.findall(r"^FAILED +node \d+ rank (\d+) .*?(exit code|signal) (\d+)", text, re.M)
        return (int(found[-1][0]), int(found[-1][2]) + 128 * (found[-1][1] == "signal")) if found else None
