"""The job's store (`trainer __store`), with PyTorch's own clients.

    python tests/dist/store_test.py TRAINER_BINARY [TEST...]
"""

import contextlib
import multiprocessing
import os
import socket
import subprocess
import sys
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist

TRAINER = ""
LONG = timedelta(seconds=60)


def listening(host="127.0.0.1"):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.bind((host, 0))
    sock.listen(128)
    return sock


@contextlib.contextmanager
def serving(sock):
    env = dict(os.environ, TRAINER_STORE_FD=str(sock.fileno()))
    with subprocess.Popen([TRAINER, "__store"], env=env, pass_fds=[sock.fileno()]) as process:
        try:
            yield process
            assert process.poll() is None, f"the store ended with {process.returncode}"
        finally:
            process.kill()


def client(sock, host="127.0.0.1", **options):
    return dist.TCPStore(host, sock.getsockname()[1], is_master=False, timeout=LONG, **options)


def sum_of_ranks(rank, size, port, results):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                      TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
    dist.init_process_group("gloo", init_method="env://", timeout=LONG)
    value = torch.tensor(float(rank + 1))
    dist.all_reduce(value)
    results.put(value.item())
    dist.destroy_process_group()


class Store(unittest.TestCase):
    def test_serves_every_operation_of_a_python_client(self):
        with listening() as sock, serving(sock):
            store, other = client(sock), client(sock)
            store.set("key", "value")
            self.assertEqual(other.get("key"), b"value")
            self.assertEqual(store.add("count", 2) + other.add("count", 3), 2 + 5)
            self.assertEqual(other.compare_set("once", "", "first"), b"first")
            self.assertEqual(store.compare_set("once", "", "second"), b"first")
            store.multi_set(["a", "b"], ["1", "2"])
            self.assertEqual(other.multi_get(["a", "b"]), [b"1", b"2"])
            store.append("a", "3")
            self.assertEqual(other.get("a"), b"13")
            store.queue_push("queue", "item")
            self.assertEqual(other.queue_pop("queue"), b"item")
            self.assertTrue(store.check(["a"]))
            self.assertTrue(store.delete_key("a"))
            self.assertFalse(other.check(["a"]))

    def test_clients_that_came_before_it_wait(self):
        with listening() as sock:
            context = multiprocessing.get_context("fork")
            results = context.Queue()
            ranks = [context.Process(target=sum_of_ranks, args=(r, 3, sock.getsockname()[1], results)) for r in range(3)]
            for rank in ranks:
                rank.start()
            with serving(sock):
                self.assertEqual([results.get(timeout=60) for _ in ranks], [6.0] * 3)
                for rank in ranks:
                    rank.join()
                    self.assertEqual(rank.exitcode, 0)

    def test_serves_clients_of_the_older_protocol(self):
        with listening() as sock, serving(sock):
            client(sock, use_libuv=False).set("key", "value")
            self.assertEqual(client(sock).get("key"), b"value")

    def test_a_socket_of_all_interfaces_or_of_ipv6_will_do(self):
        for bound, reached in (("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("::1", "::1")):
            if bound == "::1" and not os.path.exists("/proc/net/if_inet6"):
                continue
            with self.subTest(bound), listening(bound) as sock, serving(sock):
                store = client(sock, reached)
                store.set("key", "value")
                self.assertEqual(store.get("key"), b"value")

    def test_a_descriptor_that_is_no_listening_socket_is_an_error(self):
        def run(fd):
            result = subprocess.run([TRAINER, "__store"], env=dict(os.environ, TRAINER_STORE_FD=str(fd)), timeout=60,
                                    capture_output=True, text=True, pass_fds=[fd] if isinstance(fd, int) else [])
            return result.returncode, result.stderr.strip()

        self.assertEqual(run(""), (2, 'TRAINER_STORE_FD: got ""; expected the number of a descriptor that listens'))
        self.assertEqual(run("1x")[0], 2)
        self.assertEqual(run("99"), (4, "TRAINER_STORE_FD: descriptor 99: Bad file descriptor; expected a listening "
                                        "socket"))
        with open(os.devnull) as file:
            self.assertIn("Socket operation on non-socket", run(file.fileno())[1])
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.assertEqual(run(sock.fileno()), (4, f"TRAINER_STORE_FD: descriptor {sock.fileno()} is no TCP socket "
                                                     "that listens"))


if __name__ == "__main__":
    TRAINER = sys.argv.pop(1)
    unittest.main(verbosity=2)
