"""``xdevice fits`` under PyTorch: the peak by kind and by line, and three answers."""

import argparse
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from xdevice.contract import MemoryPart, MemoryUse, PeakMemory
from xdevice.device import Device
from xdevice.tools.cli import fits as fits_command
from xdevice.tools.cli.fits_report import Report
from xdevice.units import parsed_size
from xdevice.virtual.fits.estimate import KERNELS, Ended, estimate, most_that_surely_fits
from xdevice.virtual.fits.records import Record
from xdevice.virtual.models import CONTEXT, CONTEXTS

pytestmark = pytest.mark.usefixtures("plug_in")
MIB = 1 << 20

TRAINING = """
    import sys
    import torch

    def train(steps):
        net = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, bias=False) for _ in range(4))).cuda()
        optimizer = torch.optim.Adam(net.parameters())
        x = torch.zeros(512, 1024, device="cuda")
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=False)
            net(x).sum().backward()
            optimizer.step()

    train(int(sys.argv[1]))
    print("trained")
"""
LAYER = 1024 * 1024 * 4
BATCH = 512 * 1024 * 4


@pytest.fixture
def fits(tmp_path):
    """Runs a program's text under ``xdevice fits`` with these options; the status, stdout and the report."""

    def run(text, size, *options, args=(), text_report=False, **environment):
        (tmp_path / "program.py").write_text(textwrap.dedent(text))
        report = tmp_path / "report"
        form = "text" if text_report else "json"
        command = [sys.executable, "-m", "xdevice", "fits", *options]
        command += ["--format", form, "--report", str(report), size, "program.py", *args]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert report.exists(), done.stderr
        written = report.read_text()
        return done.returncode, done.stdout, written if text_report else json.loads(written)

    return run


def kinds_of(report):
    return report["gpus"][0]["kinds"]


def line_of(text, part):
    lines = textwrap.dedent(text).splitlines()
    return next(number for number, line in enumerate(lines, 1) if part in line)


@pytest.mark.weekly
def test_weights_gradients_state_and_activations_at_the_peak_are_told_apart(fits):
    status, out, report = fits(TRAINING, "8GiB", args=["3"])
    assert (status, out, report["answer"]) == (0, "trained\n", "fits")
    kinds = kinds_of(report)
    assert kinds["weights"] == kinds["gradients"] == 4 * LAYER
    state_of_steps = 4 * 512  # Adam's count of steps may be on the GPU
    assert kinds["optimizer state"] - 8 * LAYER in (0, state_of_steps)
    # the optimizer's step computes with copies of all parameters; of the batch and the results of layers, x is alive
    assert report["gpus"][0]["phase"] == "step"
    assert kinds["other"] >= 4 * LAYER + BATCH


def test_the_peak_is_that_of_the_allocator_and_each_byte_of_it_has_a_line(fits):
    _, out, report = fits(
        TRAINING + "    print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())",
        "8GiB",
        args=["2"],
    )
    gpu = report["gpus"][0]
    allocated, reserved = map(int, out.splitlines()[1].split())
    assert (gpu["allocated"], gpu["reserved"]) == (allocated, reserved)
    assert sum(line["nbytes"] for line in gpu["lines"]) == allocated
    assert sum(gpu["kinds"].values()) + gpu["cached"] == reserved
    of_weights = [line["line"] for line in gpu["lines"] if line["kind"] == "weights"]
    assert of_weights == [line_of(TRAINING, "net = ")]
    of_state = [line["line"] for line in gpu["lines"] if line["kind"] == "optimizer state"]
    assert of_state == [line_of(TRAINING, "optimizer.step()")]


@pytest.mark.weekly
def test_the_peak_stays_when_the_program_frees_and_resets_it(fits):
    text = """
        import torch

        def compute():
            torch.zeros(64, 1 << 20, device="cuda")
            return torch.zeros(16, 1 << 20, device="cuda")

        for _ in range(3):
            compute()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(200_000):
            torch.empty(1, device="cuda")
    """
    _, _, report = fits(text, "8GiB")
    gpu = report["gpus"][0]
    assert gpu["allocated"] == 256 * MIB
    assert gpu["lines"] == [
        {
            "kind": "other",
            "file": gpu["file"],
            "line": line_of(text, "zeros(64"),
            "nbytes": 256 * MIB,
            "library": "",
            "library_line": 0,
        }
    ]


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("size", "status", "answer"),
    [("4GiB", 0, "fits"), ("1GiB", 3, "cannot be told"), ("500MiB", 1, "does not fit")],
)
def test_there_are_three_answers_and_each_has_a_status(fits, size, status, answer):
    text = "import torch; x = torch.zeros(600, 1 << 18, device='cuda')"  # 600 MiB
    code, _, report = fits(text, size)
    assert (code, report["answer"], report["size"]) == (status, answer, parsed_size(size))
    needs = report["needs"]
    assert needs["least"] == 600 * MIB + int(600 * MIB * KERNELS[""].least) + CONTEXT[0]
    assert needs["most"] == 600 * MIB + int(600 * MIB * KERNELS[""].most) + CONTEXT[1]


@pytest.mark.weekly
def test_what_the_allocator_only_caches_is_released_before_the_answer_is_no(fits):
    text = """
        import torch
        for rows in range(400, 600, 20):
            x = None
            x = torch.zeros(rows, 1 << 18, device='cuda')
    """
    *_, report = fits(text, "2GiB")
    gpu = report["gpus"][0]
    assert gpu["reserved"] <= most_that_surely_fits(2 << 30)
    assert gpu["unlimited"] > 2 << 30, "or nothing had to be released"
    assert report["answer"] == "fits"


@pytest.mark.weekly
def test_a_program_that_needs_too_much_runs_on_and_reads_what_would_help(fits):
    status, out, report = fits(TRAINING, "100MiB", args=["2"], text_report=True)
    assert (status, out) == (1, "trained\n")
    assert report.startswith("does not fit: gpu:0 needs ")
    flat = " ".join(report.split())
    assert "in the optimizer's step: program.py:12 optimizer.step()" in flat
    assert "help: foreach=False or fused=True" in flat
    assert "activations and other tensors: program.py" in flat


@pytest.mark.weekly
def test_the_model_gives_the_size(fits):
    *_, report = fits("import torch; torch.zeros(1).cuda()", "t4")
    assert report["size"] == 15102 * MIB
    context = report["gpus"][0]["range"][1]
    assert (context["least"], context["most"]) == CONTEXTS[7, 5]


@pytest.mark.weekly
def test_the_program_sees_a_gpu_of_that_size_and_no_error_beyond_it(fits):
    text = """
        import torch
        x = torch.zeros(600, 1 << 18, device='cuda')
        print(torch.cuda.get_device_properties(0).total_memory)
    """
    status, out, _ = fits(text, "500MiB")
    assert (status, int(out)) == (1, 500 * MIB)


@pytest.mark.weekly
def test_steps_stop_a_long_program_and_the_report_says_so(fits):
    status, out, report = fits(TRAINING, "8GiB", "--stop-after", "2", args=["1000000"])
    assert (status, out, report["steps"]) == (0, "", 2)
    assert report["not_counted"][0].count("2 steps") == 1


@pytest.mark.weekly
def test_one_step_is_too_few_to_say_that_it_fits(fits):
    status, _, report = fits(TRAINING, "8GiB", "--stop-after", "1", args=["1000000"])
    assert (status, report["answer"]) == (3, "cannot be told")
    assert "before an optimizer had made 2 steps" in report["reason"]


@pytest.mark.weekly
def test_an_error_of_the_program_is_shown_and_nothing_is_promised(fits):
    status, _, report = fits("import torch\ntorch.zeros(1).cuda()\n1 / 0", "8GiB")
    assert (status, report["answer"]) == (3, "cannot be told")
    assert "ended with ZeroDivisionError" in report["reason"]


@pytest.mark.weekly
def test_a_program_without_a_gpu_is_not_said_to_fit(fits):
    status, _, report = fits("import torch; torch.zeros(1)", "8GiB")
    assert (status, report["needs"]) == (3, None)
    assert "used no memory of a GPU" in report["reason"]


@pytest.mark.weekly
def test_what_the_host_cannot_hold_is_said_and_not_killed(fits):
    text = "import torch; x = torch.zeros(1 << 42, dtype=torch.uint8, device='cuda')"  # 4 TiB
    status, _, report = fits(text, "8192GiB", "--compute")
    assert (status, report["answer"]) == (3, "cannot be told")
    assert "the host has too little memory: the program needs 4.0 TiB" in report["reason"]


@pytest.mark.weekly
def test_memory_that_manual_updates_use_is_told_apart_too(fits):
    text = """
        import torch
        w = torch.nn.Parameter(torch.zeros(1 << 20, device="cuda"))
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.w = w
        model = Model()
        for _ in range(3):
            (model.w * torch.ones(1 << 20, device="cuda")).sum().backward()
            with torch.no_grad():
                model.w -= 0.1 * model.w.grad
    """
    *_, report = fits(text, "8GiB")
    kinds = kinds_of(report)
    assert kinds["weights"] == kinds["gradients"] == 4 * MIB


@pytest.mark.weekly
def test_depthwise_and_pointwise_convolutions_make_the_range_wider(fits):
    text = """
        import sys
        import torch
        net = torch.nn.Conv2d(3, 3, 3, groups=3).cuda()
        if len(sys.argv) > 1:
            net = torch.nn.Sequential(net, torch.nn.Conv2d(3, 1, 1)).cuda()
        kept = torch.zeros(1 << 30, device="cuda")
        net(torch.zeros(8, 3, 512, 512, device="cuda")).sum().backward()
    """
    *_, report = fits(text, "8GiB")
    assert report["gpus"][0]["range"][0]["words"] == "kernels' temporary memory of convolutions"
    *_, report = fits(text, "8GiB", args=["pointwise"])
    reserved = report["gpus"][0]["reserved"]
    kernels, context = report["gpus"][0]["range"]
    assert kernels["most"] == int(reserved * KERNELS["depthwise and pointwise convolutions"].most)
    assert "depthwise and pointwise convolutions" in kernels["words"]
    assert (context["least"], context["most"]) == CONTEXT


@pytest.mark.parametrize(
    ("known", "answer"),
    [
        ({}, "fits"),
        ({"with_temporary": 3 << 30, "temporary": "sorting"}, "cannot be told"),
        ({"libraries": 2 << 30}, "cannot be told"),
    ],
)
def test_what_kernels_and_libraries_may_need_is_a_part_of_the_most(known, answer):
    peak = PeakMemory(Device("gpu", 0), 1 << 30, 1 << 30, "", 0, "", (), **known)
    assert estimated(peak, 3 << 30).answer == answer


def test_the_range_of_a_program_is_that_of_what_it_computes():
    peak = PeakMemory(Device("gpu", 0), 1 << 30, 1 << 30, "", 0, "", ())
    for kernels in ((), ("convolutions",)):
        need = estimated(peak, 3 << 30, kernels).needs[0]
        part = need.shares[0].parts()[0]
        least, most, _ = KERNELS[kernels[0] if kernels else ""]
        assert (part.least, part.most) == (int((1 << 30) * least), int((1 << 30) * most))


def estimated(peak, size, kernels=()):
    """The answer for one process with that peak."""
    uses = (("torch", MemoryUse((peak,), 5, kernels=kernels)),)
    record = Record(1, 0, "train.py", 0.0, False, (0,), ended=1.0, uses=uses)
    return estimate(size, [record], Ended("", True, False))


def test_the_advice_is_about_nccl_where_its_buffers_decide_and_a_library_has_its_line():
    line = "/venv/lib/python3.11/site-packages/trainer/loop.py", 12
    parts = (MemoryPart("other", "train.py", 3, 1 << 29, *line),)
    device = Device("gpu", 0)
    peak = PeakMemory(device, 1 << 29, 1 << 30, "train.py", 3, "step", parts, libraries=2 << 30)
    text = " ".join(Report(estimated(peak, 3 << 30)).to_text(200).split())
    assert "train.py:3, in trainer/loop.py:12" in text
    assert text.count("help:") == 1
    assert "help: fewer process groups, or a smaller NCCL_BUFFSIZE" in text
    text = Report(estimated(peak, 1 << 30)).to_text(200)
    assert "NCCL_BUFFSIZE" not in text
    assert "PYTORCH_ALLOC_CONF=expandable_segments:True" in text


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("computation", "words", "factor"),
    [
        ("torch.sort(x)", "sorting", 2 * (1 + 3)),  # the values, and their indices of 64 bits
        ("torch.fft.fft(torch.complex(x, x))", "Fourier transforms", 8 * (2 + 2)),
        ("torch.linalg.inv(x.view(4, 1024, 1024))", "linear algebra", 3 * (1 + 1)),
    ],
)
def test_kernels_with_much_temporary_memory_are_not_said_to_fit(fits, computation, words, factor):
    text = f"""
        import torch
        x = torch.rand(1 << 22, device="cuda")
        y = {computation}
    """
    status, _, report = fits(text, "1000MiB")
    kernels = report["gpus"][0]["range"][0]
    assert kernels["words"] == f"temporary memory of {words}"
    assert kernels["most"] >= factor * 16 * MIB
    if words == "Fourier transforms":
        assert (status, report["answer"]) == (3, "cannot be told")


@pytest.mark.weekly
def test_convolutions_without_a_module_are_noticed(fits):
    text = """
        import torch
        x = torch.zeros(8, 3, 64, 64, device="cuda")
        torch.nn.functional.conv2d(x, torch.zeros(8, 3, 3, 3, device="cuda"))
    """
    *_, report = fits(text, "8GiB")
    assert "convolutions" in report["gpus"][0]["range"][0]["words"]


@pytest.mark.weekly
def test_a_status_that_the_program_exits_with_is_said(fits):
    *_, report = fits("import sys, torch; torch.zeros(1).cuda(); sys.exit(3)", "8GiB")
    assert "the program ended with status 3" in report["reason"]


@pytest.mark.weekly
def test_inference_mode_is_not_advised_where_nothing_has_weights(fits):
    *_, report = fits("import torch; torch.zeros(100, 1 << 18).cuda()", "50MiB")
    assert not [each for each in report["advice"] if "inference_mode" in each]


# Without computing

DECISION = """
    import torch
    x = torch.randn(1 << 20, device="cuda")
    kept = torch.arange(100, device="cuda") % 3 == 0  # small, so that it is computed
    print(len(torch.arange(100, device="cuda")[kept]), kept.any().item(), x.isnan().any().item(), x.sum().item())
    if x.max() > 3:
        torch.zeros(1 << 40, device="cuda")
"""


@pytest.mark.weekly
def test_what_values_decide_is_not_told_without_computing(fits):
    status, out, report = fits(DECISION, "8GiB")
    assert (status, out) == (3, "34 True False 0.0\n")
    line = line_of(DECISION, "if x.max()")
    assert f"program.py:{line} needs the truth value of a tensor" in report["reason"]
    assert "add --compute" in report["reason"]
    read = line_of(DECISION, "print(len")
    assert any(f"program.py:{read}" in each for each in report["not_counted"])


@pytest.mark.weekly
def test_what_sparse_gradients_hold_is_not_told_without_computing(fits):
    text = """
        import torch
        words = torch.nn.Embedding(10_000, 64, sparse=True).cuda()
        optimizer = torch.optim.SparseAdam(words.parameters())
        words(torch.zeros(10_000, dtype=torch.int64, device="cuda")).sum().backward()
        optimizer.step()
    """
    status, _, report = fits(text, "8GiB")
    assert status == 3
    line = line_of(text, "optimizer.step()")
    assert f"program.py:{line} needs the values for aten::sparse_mask" in report["reason"]


@pytest.mark.weekly
def test_an_integer_that_decides_on_a_size_is_not_told_without_computing(fits):
    text = """
        import torch
        scores = torch.rand(1 << 20, device="cuda")
        right = (scores > 0.5).sum().item()  # only told
        torch.nn.BatchNorm1d(4).cuda().eval()(torch.ones(8, 4, device="cuda"))
        chosen = torch.empty(right, 64, device="cuda")
        total = chosen * 2
    """
    status, _, report = fits(text, "8GiB")
    assert status == 3
    assert f"program.py:{line_of(text, 'total')} needs the values for aten::mul" in report["reason"]


@pytest.mark.weekly
def test_an_integer_that_may_decide_how_often_a_loop_runs_is_told_in_the_answer(fits):
    text = """
        import torch
        count = torch.ones(1 << 20, dtype=torch.int64, device="cuda").sum()
        kept = [torch.zeros(1 << 20, device="cuda") for _ in range(int(count.item()))]
    """
    _, _, report = fits(text, "8GiB")
    assert report["answer"] == "fits"
    line = line_of(text, "kept")
    assert f"unless integers decide that it reads as 0: program.py:{line}" in report["reason"]


@pytest.mark.weekly
def test_twelve_programs_need_the_same_bytes_whether_or_not_they_are_computed(fits):
    text = Path(__file__).with_name("fits_programs.py").read_text()
    outputs = [fits(text, "64GiB", *options)[1] for options in ((), ("--compute",))]
    assert outputs[0].count("\n") == 12
    assert outputs[0] == outputs[1]


@pytest.mark.weekly
def test_a_norm_keeps_what_its_kernel_on_a_gpu_keeps(fits):
    text = """
        import torch
        from torch.nn.functional import rms_norm
        x = torch.randn(4096, 1024).bfloat16().cuda().requires_grad_()
        weight = torch.rand(1024).bfloat16().cuda().requires_grad_()
        before = torch.cuda.memory_allocated()
        y = rms_norm(x, (1024,), weight)
        print(torch.cuda.memory_allocated() - before - y.nbytes)
        y.backward(x.detach())
        leaves = [leaf.detach().cpu().requires_grad_() for leaf in (x, weight)]
        rms_norm(leaves[0], (1024,), leaves[1]).backward(leaves[0].detach())
        for leaf, expected in zip((x, weight), leaves):
            torch.testing.assert_close(leaf.grad.cpu(), expected.grad, rtol=0.02, atol=0.02)
    """
    _, out, report = fits(text, "8GiB", "--compute")
    assert (out, report["answer"]) == (f"{4096 * 4}\n", "fits")


@pytest.mark.weekly
def test_two_processes_need_the_same_bytes_whether_or_not_they_are_computed(fits):
    text = """
        import os, sys
        import torch
        import torch.distributed as dist
        import torch.multiprocessing as mp
        from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
        from torch.nn.parallel import DistributedDataParallel

        def train(rank, folder):
            dist.init_process_group("nccl", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
            torch.cuda.set_device(rank)
            for wrap in (DistributedDataParallel, FullyShardedDataParallel, fully_shard):
                net = torch.nn.Sequential(*(torch.nn.Linear(900, 900) for _ in range(3))).cuda()
                net = wrap(net)
                optimizer = torch.optim.Adam(net.parameters())
                for _ in range(2):
                    optimizer.zero_grad()
                    net(torch.randn(700, 900, device="cuda")).square().mean().backward()
                    optimizer.step()
                allocated = torch.cuda.memory_stats()["allocated_bytes.all.allocated"]
                os.write(1, f"{rank} {wrap.__name__} {allocated}\\n".encode())  # at once, beside another's
                dist.barrier()
            dist.destroy_process_group()

        if __name__ == "__main__":
            folder = os.path.join(os.getcwd(), sys.argv[1])
            os.mkdir(folder)
            mp.spawn(train, (folder,), 2)
    """
    figures = []
    for name, *options in (("without",), ("with", "--compute")):
        status, out, report = fits(text, "8GiB", "--gpus", "2", *options, args=[name])
        assert status == 0, report["reason"]
        reserved = [str((gpu["device"], gpu["reserved"])) for gpu in report["gpus"]]
        figures.append(sorted(reserved + out.splitlines()))
    assert len(figures[0]) == 2 + 6
    assert figures[0] == figures[1]


@pytest.mark.weekly
def test_a_trainer_of_another_library_needs_the_same_bytes_whether_or_not_it_is_computed(fits):
    text = """
        import accelerate
        import torch
        accelerator = accelerate.Accelerator(gradient_accumulation_steps=2, mixed_precision="bf16")
        net = torch.nn.Sequential(torch.nn.Linear(700, 1500), torch.nn.GELU(), torch.nn.Linear(1500, 300))
        data = torch.utils.data.TensorDataset(torch.randn(900, 700), torch.randint(300, (900,)))
        loader = torch.utils.data.DataLoader(data, batch_size=300)
        net, optimizer, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters()), loader)
        for x, y in loader:
            with accelerator.accumulate(net):
                accelerator.backward(torch.nn.functional.cross_entropy(net(x), y))
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        print(torch.cuda.memory_stats()["allocated_bytes.all.allocated"])
    """
    figures = []
    for options in ((), ("--compute",)):
        _, out, report = fits(text, "8GiB", *options)
        figures.append((out, report["answer"], report["gpus"][0]["reserved"]))
    assert figures[0][1] == "fits"
    assert figures[0] == figures[1]


@pytest.mark.weekly
@pytest.mark.skipif(sys.platform != "linux", reason="the units of ru_maxrss")
def test_large_weights_take_no_memory_of_the_host(fits):
    text = """
        import resource
        import torch
        net = torch.nn.Sequential(*(torch.nn.Linear(1 << 14, 1 << 14) for _ in range(4)))
        net = net.to(torch.bfloat16).cuda()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # in KiB
    """
    _, out, report = fits(text, "8GiB")
    assert report["gpus"][0]["allocated"] >= 4 << 29
    assert int(out) < 1 << 20


@pytest.mark.weekly
def test_what_is_allocated_at_exit_counts(fits):
    text = """
        import atexit
        import torch
        torch.zeros(1, device="cuda")
        atexit.register(lambda: torch.zeros(2000, 1 << 18, device="cuda"))
    """
    status, _, report = fits(text, "1200MiB")
    assert (status, report["answer"]) == (1, "does not fit")


@pytest.mark.parametrize(("text", "model"), [("12GB", "rtx3060"), ("24GiB", "rtx3090")])
def test_a_size_that_no_card_has_is_told_the_nearest(text, model):
    *_, hint = fits_command._size(text)
    assert f"no card that is known has {text}; the nearest is {model}" in hint


def test_a_size_that_holds_no_tensor_is_refused():
    with pytest.raises(
        argparse.ArgumentTypeError, match=r"'1MiB' is less than .* 2MiB; write 24GiB"
    ):
        fits_command._size("1MiB")


@pytest.mark.parametrize("text", ["16160MiB", "8192GiB"])
def test_other_sizes_are_taken_as_they_are(text):
    assert not fits_command._size(text)[2]
