"""Asks PyTorch's own torch/numa/binding.py where it would bind, on a fake /sys.

usage: torch_binding.py BINDING_PY SYS_ROOT MODE ALLOWED BUS_ID...
Prints one list of CPUs per GPU, as taskset takes it. PyTorch itself is not imported: that takes seconds.
"""
import builtins
import importlib.util
import inspect
import os
import sys
import types

path, sys_root, mode, allowed, *bus_ids = sys.argv[1:]


def below_root(name):
    name = os.fspath(name) if not isinstance(name, int) else name
    return sys_root + name[len("/sys"):] if str(name).startswith("/sys/") else name


def properties(index):
    domain, bus, rest = bus_ids[index].split(":")
    return types.SimpleNamespace(
        pci_domain_id=int(domain, 16), pci_bus_id=int(bus, 16), pci_device_id=int(rest.split(".")[0], 16))


torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(device_count=lambda: len(bus_ids), get_device_properties=properties)
# What asks torch.cuda in 2.13 asks torch.accelerator in 2.15.
torch.accelerator = types.SimpleNamespace(
    is_available=lambda: True, current_accelerator=lambda: "cuda", device_count=torch.cuda.device_count)
torch.get_device_module = lambda device: getattr(torch, device)
internal = types.ModuleType("torch._utils_internal")
internal.signpost_event = lambda **_: None
sys.modules.update({"torch": torch, "torch._utils_internal": internal})

spec = importlib.util.spec_from_file_location("binding", path)
binding = importlib.util.module_from_spec(spec)
spec.loader.exec_module(binding)

real_open, real_listdir = builtins.open, os.listdir
builtins.open = lambda name, *rest, **more: real_open(below_root(name), *rest, **more)
os.listdir = lambda name: real_listdir(below_root(name))
os.sched_getaffinity = lambda _: {int(cpu) for cpu in allowed.split(",")}

options = binding.NumaOptions(affinity_mode=binding.AffinityMode(mode))
choose = binding._get_logical_cpus_to_bind_to
index_name = next(name for name in inspect.signature(choose).parameters if name.endswith("_index"))
for gpu in range(len(bus_ids)):
    cpus = choose(**{index_name: gpu, "numa_options": options})
    print(binding._get_ranges_str_from_ints(cpus))
