"""PyTorch's virtual GPUs under CUDA's own device type: each job here has processes of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xdevice.virtual.models import MODELS
from xdevice.virtual.request import ENV, MEMORY

pytestmark = pytest.mark.usefixtures("plug_in")


def run(*arguments, status=0, **environment):
    """What the command prints, on two virtual GPUs that stand in."""
    env = os.environ | {ENV: "2:stand-in"} | environment
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        env=env,
        cwd=Path(__file__).parent,
    )
    assert done.returncode == status, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout, done.stderr


SHARED = """
import torch
from torch import multiprocessing, nn

def add_one(model, turns, queue):
    turns.get()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    queue.put([torch.cuda.get_device_name(0), *(str(parameter.device) for parameter in model.parameters())])

if __name__ == "__main__":
    model = nn.Linear(2, 2).to("cuda:1")
    nn.init.zeros_(model.weight)
    model.share_memory()
    context = multiprocessing.get_context("spawn")
    turns, queue = context.SimpleQueue(), context.SimpleQueue()
    children = [context.Process(target=add_one, args=(model, turns, queue)) for _ in range(2)]
    for child in children:
        child.start()  # both have the model before one of them changes it
    for child in children:
        turns.put(None)
        said = queue.get()
    for child in children:
        child.join()
    print(said, model.weight.tolist())
"""


@pytest.mark.weekly
def test_spawned_processes_of_a_program_share_a_models_memory(tmp_path):
    program = tmp_path / "shared.py"
    program.write_text(SHARED)
    out, error = run("-m", "xdevice", "emulate", "--gpus", "2", str(program))
    assert (
        out
        == "['virtual GPU 0 (xdevice, on the CPU)', 'cuda:1', 'cuda:1'] [[2.0, 2.0], [2.0, 2.0]]\n"
    )
    assert error.count("stand in for CUDA's") == 1, "once for the job"


TORCHRUN = f"""#!{sys.executable}
import sys
from torch.distributed.run import main

if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.mark.weekly
def test_parallel_training_under_torchrun_gives_the_cpus_numbers(tmp_path):
    torchrun = tmp_path / "torchrun"
    torchrun.write_text(TORCHRUN)  # as pip writes it into the environment's folder of commands
    torchrun.chmod(0o755)
    program, path = (
        Path(__file__).with_name("parallel.py"),
        f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
    )
    with_four = "-W", "ignore", "-m", "xdevice", "emulate", "--gpus", "4", "--"
    launch = "torchrun", "--standalone", "--nproc_per_node", "4", str(program)
    out, error = run(*with_four, *launch, OMP_NUM_THREADS="1", PATH=path, **{ENV: ""})
    assert out.splitlines()[-1].endswith(" exactly")
    assert len(out.splitlines()) == 20
    assert error.count("4 virtual GPUs stand in for CUDA's") == 1, "once for the job"


TOO_MUCH = """
import xdevice, torch
kept, x = [], torch.zeros(1 << 18, device="cuda:1")
try:
    while True:
        kept.append(x + 1)
except torch.cuda.OutOfMemoryError as error:
    print(len(kept), str(error))
kept.clear()
torch.cuda.set_per_process_memory_fraction(0.5, 0)
for size in (12 << 20, 34 << 20):
    try:
        print(len(torch.empty(size, dtype=torch.uint8, device="cuda")))
    except torch.cuda.OutOfMemoryError as error:
        print(str(error).partition(". ")[2])
print(torch.cuda.get_per_process_memory_fraction(0), len(torch.empty(46 << 20, dtype=torch.uint8, device="cuda:1")))
torch.cuda.empty_cache()
print((x + 1).device, torch.cuda.get_device_properties(1).total_memory, torch.cuda.mem_get_info(0))
"""


def test_memory_ends_where_it_is_told_to_and_a_program_says_once_that_its_gpus_are_virtual():
    out, error = run("-c", TOO_MUCH, **{MEMORY: "64MiB"})
    assert out.startswith(
        "63 CUDA out of memory. Tried to allocate 2.00 MiB. GPU 1 has a total capacity of 64.00 MiB"
        " of which 0 bytes is free. Including non-PyTorch memory, this process has 64.00 MiB memory"
        " in use. Of the allocated memory 64.00 MiB is allocated by PyTorch, and 0 bytes is"
        " reserved by PyTorch but unallocated."
    )
    assert f"\n{12 << 20}\nTried to allocate 34.00 MiB. GPU 0 has a total" in out
    assert "32.00 MiB allowed;" in out
    assert f"\n0.5 {46 << 20}\n" in out
    assert out.endswith(f"cuda:1 {64 << 20} ({64 << 20}, {64 << 20})\n")
    assert error.splitlines() == ["2 virtual GPUs stand in for CUDA's; they compute on the CPU"]


FORKED = """
import fcntl, glob, itertools, os, subprocess, time, torch, warnings

def of_child(function):
    reader, writer = os.pipe()
    if not os.fork():
        os.write(writer, str(function()).encode())
        os._exit(0)
    os.wait()
    return os.read(reader, 999).decode()

def compute():
    try:
        return torch.ones(2, device="cuda").tolist()
    except RuntimeError as error:
        return str(error)[:49]

for call in (
    lambda: os.environ.update(PYTORCH_NVML_BASED_CUDA_CHECK="1") or torch.cuda.is_available(),
    torch.cuda.device_count,
    lambda: torch.manual_seed(0),
    torch.cuda.is_available,
    torch.accelerator.is_available,
    torch.cuda.get_arch_list,
    lambda: torch.amp.GradScaler("cuda"),
    torch.cuda.current_device,
    torch.cuda.get_device_name,
    lambda: torch.cuda.get_device_properties(0),
):
    print(of_child(lambda: call() is None or of_child(compute)))

ready, stay = os.pipe(), os.pipe()
first = os.fork()
if not first:
    kept = torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
    os.write(ready[1], b".")
    os.close(stay[1])
    os.read(stay[0], 1)  # until the parent closes its end
    os._exit(0)
os.read(ready[0], 1)

def use_both():
    os.environ |= {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    kept = torch.empty(1 << 30, dtype=torch.uint8, device="cuda:1")
    with warnings.catch_warnings(record=True) as caught:
        free = [torch.cuda.mem_get_info(index)[0] >> 20 for index in range(2)]
    try:
        torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        said = str(error).partition(" is free. ")[2].partition(" Of the")[0]
    return free, said, *(str(each.message)[:54] for each in caught)

def warned(call):
    os.environ |= {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    with warnings.catch_warnings(record=True) as caught:
        call()
    return len(caught)

for call in (
    torch.cuda.init,
    torch.cuda.empty_cache,
    torch.cuda.synchronize,
    torch.cuda.mem_get_info,
    lambda: torch.ones(2, device="cuda:1").sum() and torch.cuda.empty_cache(),
):
    print(of_child(lambda: warned(call)), end=" ")
print()

print(of_child(use_both).replace(str(first), "FIRST"))
command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"]
listed = of_child(lambda: torch.cuda.list_gpu_processes(0)).replace(str(first), "FIRST")
print(*listed.split())
print(*subprocess.run(command, capture_output=True, text=True).stdout.split())

[machine] = glob.glob(os.environ["XDEVICE_VIRTUAL_MACHINE"] + "-2-t4")
with open(machine) as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    joining = os.fork()
    if not joining:
        file.close()
        os.write(ready[1], b".")
        torch.cuda.mem_get_info(0)
        os._exit(not os.path.exists(machine))
    os.read(ready[0], 1)
    while not any(map(os.path.samefile, glob.glob(f"/proc/{joining}/fd/*"), itertools.repeat(machine))):
        time.sleep(0.01)
    os.rename(machine, machine + ".removed")
print(os.waitpid(joining, 0)[1])
os.rename(machine + ".removed", machine)

os.close(stay[1])
os.wait()
print(of_child(lambda: torch.cuda.mem_get_info(0)[0] >> 20))
"""


@pytest.mark.weekly
def test_forks_and_the_memory_of_the_machine(tmp_path):
    model = {ENV: "2:stand-in,model=t4", "TMPDIR": str(tmp_path)}
    out, _ = run("-W", "default", "-c", FORKED, **model)
    *of_forks, with_contexts, both, listed, by_nvidia_smi, on_removed_file, after = out.splitlines()
    assert (
        of_forks == ["[1.0, 1.0]"] * 3 + ["Cannot re-initialize CUDA in forked subprocess. T"] * 7
    )
    assert with_contexts == "0 0 1 1 1 "
    context, total = MODELS["t4"].context, MODELS["t4"].memory
    free = [total - (8 << 30) - 2 * context >> 20, total - (1 << 30) - context >> 20]
    said = (
        "Process FIRST has 8.18 GiB memory in use. "
        f"Including non-PyTorch memory, this process has {context / 2**20:.2f} MiB memory in use."
    )
    assert both == str((free, said, "rank 1 first uses cuda:0 here, which is rank 0's, and "))
    assert listed == "GPU:0 process FIRST uses 8379.500 MB GPU memory"
    assert by_nvidia_smi == "8379 MiB 0 MiB"
    assert int(after) == total - context >> 20, "those that have ended have nothing"
    assert on_removed_file == "0", (
        "a process joins the others, even if the file is removed meanwhile"
    )


STARTED = """
import torch, xdevice
torch.ones(2, requires_grad=True).sum().backward()  # torch makes threads for the devices that there are
xdevice.use("torch")
xdevice.virtual_gpus(2, stand_in=True)
host, there = torch.ones(3, requires_grad=True), torch.ones(3, device="cuda:1", requires_grad=True)
first = (there * there).sum().cpu()
((host * host).sum() + first).backward()  # begins on the CPU
print(host.grad.tolist(), there.grad.tolist(), torch.cuda.memory_allocated(0))
"""


def test_a_backward_pass_before_them_leaves_later_ones_whole(in_a_fork):
    done = in_a_fork("torch", STARTED)
    assert done.stdout == "[2.0, 2.0, 2.0] [2.0, 2.0, 2.0] 0\n", done.stderr


AS_BUILT_WITH_CUDA = """
import torch
kernel = torch.library.Library("aten", "IMPL")
kernel.impl("_fused_rms_norm", lambda *args: print("a kernel for real GPUs was called"), "CUDA")
import xdevice
xdevice.use("torch")
xdevice.virtual_gpus(2, stand_in=True)  # after the kernel is there, as in a build with CUDA
x = torch.arange(1.0, 4.0, device=xdevice.native("gpu:1")).requires_grad_()
torch.nn.functional.rms_norm(x, (3,)).prod().backward()
expected = x.detach().cpu().requires_grad_()
torch.nn.functional.rms_norm(expected, (3,)).prod().backward()
print(x.device, torch.equal(x.grad.cpu(), expected.grad))
"""


def test_an_operation_with_a_kernel_for_cuda_alone_is_composed_as_on_the_cpu(in_a_fork):
    done = in_a_fork("torch", AS_BUILT_WITH_CUDA)
    assert done.stdout == "cuda:1 True\n", done.stderr


FIRST_BACKWARD = """
import xdevice, sys, torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **kwargs or {})

x = torch.arange(3.0, device="cuda:1", requires_grad=True)
if sys.argv[1] == "compile":
    torch.compile(lambda x: (x * x).sum())(x).backward()
elif sys.argv[1] == "aot_function":
    from functorch.compile import aot_function, nop
    aot_function(lambda x: (x * x).sum(), fw_compiler=nop, bw_compiler=nop)(x).backward()
elif sys.argv[1] == "make_fx":
    x.grad = make_fx(lambda x: torch.autograd.grad((x * x).sum(), x)[0], tracing_mode="fake")(x)(x)
else:
    first, second = Seen(), Seen()
    for mode in (first, second):
        x.grad, y = None, (x * x).sum()
        with mode:
            y.backward()
    assert first.names == second.names, first.names
print(x.grad.tolist(), x.grad.device)
"""


@pytest.mark.weekly
@pytest.mark.parametrize("tracer", ["compile", "aot_function", "make_fx", "mode"])
def test_the_first_backward_of_a_process_may_be_traced(tracer):
    out, _ = run("-W", "ignore", "-c", FIRST_BACKWARD, tracer)
    assert out == "[0.0, 2.0, 4.0] cuda:1\n"


@pytest.mark.weekly
def test_a_program_may_end_with_a_backward():
    code = "import xdevice, torch; x = torch.ones(2, device='cuda:1', requires_grad=True); (x * x).sum().backward()"
    for _ in range(
        4
    ):  # where the end does not wait for autograd's threads, every third is aborted or so
        run("-c", code)


ON_CPU_ALONE = """
import torch
library = torch.library.Library("written_for_cpu", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CPU")
print(torch.ops.written_for_cpu.twice(torch.ones(2, device="cuda")).tolist())
"""


@pytest.mark.weekly
def test_lenient_ones_compute_an_operation_for_the_cpu_alone():
    command = "-m", "xdevice", "emulate", "--gpus", "2"
    assert run(*command, "--lenient", "-c", ON_CPU_ALONE)[0] == "[2.0, 2.0]\n"
    assert (
        "Could not run 'written_for_cpu::twice'" in run(*command, "-c", ON_CPU_ALONE, status=1)[1]
    )
