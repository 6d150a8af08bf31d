"""CPUs that torchrun binds workers to, on machines made of files.

python tests/parity/numa_binding.py > tests/data/launch/numa_bindings.json
"""

import builtins
import json
import os
import pathlib
import tempfile
import types

import torch
import torch.numa.binding as binding

MACHINES = {
    "two sockets, eight GPUs": dict(
        shape=(2, 1, 32, 2, 32), gpus=[0, 0, 0, 0, 1, 1, 1, 1]),
    "two sockets, cores that do not come out even": dict(
        shape=(2, 1, 7, 2, 7), gpus=[0, 1, 0, 1, 0]),
    "eight core complexes, four nodes a socket": dict(
        shape=(1, 4, 16, 2, 8), gpus=[3, 3, 1, 0]),
    "core complexes of two sockets, two nodes each": dict(
        shape=(2, 2, 8, 1, 4), gpus=[0, 0, 0, 3, 3, 1]),
    "one node that the firmware does not name": dict(
        shape=(1, 1, 8, 2, 4), gpus=[-1, -1]),
    "a cpuset with single threads of cores": dict(
        shape=(2, 1, 4, 2, 2), gpus=[0, 0, 1], allowed="1-3,6-8,11,14"),
}


def ids(values):
    return ",".join(str(v) for v in sorted(values))


def make_tree(root, shape):
    """As MachineTree::add_cpus of tests/machine_tree.h."""
    sockets, nodes_per_socket, cores_per_node, threads, cores_per_cache = shape
    cores = sockets * nodes_per_socket * cores_per_node

    def write(name, text):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def threads_of(first, count):
        return ids(t * cores + c for t in range(threads) for c in range(first, first + count))

    for cpu in range(cores * threads):
        core = cpu % cores
        directory = f"sys/devices/system/cpu/cpu{cpu}"
        write(f"{directory}/topology/thread_siblings_list", threads_of(core, 1))
        write(f"{directory}/topology/physical_package_id", core // (nodes_per_socket * cores_per_node))
        first = core // cores_per_cache * cores_per_cache
        caches = [(1, "Data", threads_of(core, 1)), (1, "Instruction", threads_of(core, 1)),
                  (2, "Unified", threads_of(core, 1)), (3, "Unified", threads_of(first, cores_per_cache))]
        for index, (level, kind, shared) in enumerate(caches):
            write(f"{directory}/cache/index{index}/level", level)
            write(f"{directory}/cache/index{index}/type", kind)
            write(f"{directory}/cache/index{index}/shared_cpu_list", shared)
    nodes = sockets * nodes_per_socket
    for node in range(nodes):
        write(f"sys/devices/system/node/node{node}/cpulist", threads_of(node * cores_per_node, cores_per_node))
    write("sys/devices/system/node/possible", f"0-{nodes - 1}")
    return set(range(cores * threads))


def bindings(machine):
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        all_cpus = make_tree(root, machine["shape"])
        for gpu, node in enumerate(machine["gpus"]):
            file = root / f"sys/bus/pci/devices/0000:{gpu:02x}:00.0/numa_node"
            file.parent.mkdir(parents=True)
            file.write_text(f"{node}\n")
        allowed = binding._get_set_of_int_from_ranges_str(machine["allowed"]) if "allowed" in machine else all_cpus
        binding.open = lambda path: builtins.open(f"{root}{path}")
        binding.os = types.SimpleNamespace(
            listdir=lambda path: os.listdir(f"{root}{path}"), path=os.path, sched_getaffinity=lambda pid: allowed)
        torch.cuda.device_count = lambda: len(machine["gpus"])
        torch.cuda.get_device_properties = lambda i: types.SimpleNamespace(
            pci_domain_id=0, pci_bus_id=i, pci_device_id=0)
        return {
            mode.value: [binding._get_ranges_str_from_ints(binding._get_logical_cpus_to_bind_to(
                gpu_index=i, numa_options=binding.NumaOptions(affinity_mode=mode)))
                for i in range(len(machine["gpus"]))]
            for mode in binding.AffinityMode
        }


print(json.dumps([{"machine": name, **machine, "bindings": bindings(machine)}
                  for name, machine in MACHINES.items()], indent=1))
