"""An adapter in a distribution of its own, installed as anybody's, inherits the contract in five lines."""

import re
import shutil
from pathlib import Path

import pytest

from xdevice.testing import contract

DISTRIBUTION = "xdevice-pages"
HERE = Path(__file__).parent / DISTRIBUTION


def test_its_test_is_five_lines():
    lines = (HERE / "tests" / "test_contract.py").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line]) == 5


@pytest.fixture(scope="module")
def passed(run, elsewhere):
    """How many promises it keeps on one device."""
    counts, status, said = run(elsewhere)
    assert status == 0, said
    return counts["passed"]


@pytest.mark.weekly
def test_it_keeps_it_on_two_virtual_gpus(run, elsewhere):
    counts, status, said = run(
        elsewhere, "--xdevice-virtual-gpus=2", "--xdevice-require", "-k", "not real_gpu"
    )
    assert status == 0, said
    parts = contract.Suite.__mro__
    promises = [name for part in parts for name in vars(part) if name.startswith("test_")]
    assert counts["passed"] > len(promises)
    assert "skipped" not in counts


GPUS_ALONE = """
pages.open_pages(1)
def kinds(): return ("gpu",)
def count(kind): return len(pages.PAGES) if kind == "gpu" else 0
def native(device): return pages.PAGES[device.index]
def as_device(page): return Device("gpu", page.index)
def properties(device):
    unknown = {"total_memory": None, "compute_capability": None, "uuid": None}
    return {"name": repr(native(device)), "virtual": False, **unknown}
"""


@pytest.mark.weekly
def test_it_keeps_it_without_a_cpu(run, elsewhere, tmp_path, passed):
    without = shutil.copytree(elsewhere, tmp_path / "without")
    for file, more in (
        ("site/xdevice_pages/hardware.py", GPUS_ALONE),
        ("tests/words.py", 'def native_devices(): return [(pages.PAGES[1], "gpu:1")]'),
    ):
        with (without / file).open("a", encoding="utf-8") as text:
            text.write(f"\n\n{more}\n")
    counts, status, said = run(without, "--xdevice-require")
    assert status == 0, said
    assert counts["passed"] > passed
    assert "skipped" not in counts


ALIAS = "made = array.to(hardware.native(device)); made.numbers = array.numbers; return made"
LIES = {
    "placement": {
        f"def move(array, device, non_blocking): {ALIAS}": "test_writes_stay_on_their_device",
        "def copy(array): return array": "test_a_forced_copy_shares_no_memory",
    },
    "mixing": {
        "def forbid(): import contextlib; return contextlib.nullcontext()": "test_strict_holds_inside_a_scope"
    },
    "creation": {"def seed(n): pass": "test_a_seed_repeats_random_numbers"},
}  # none of which is caught by the promise about another
WRONG_PLACE = {
    "placement": {
        "def device_of(array): return hardware.as_device(pages.PAGES[0])": "make_on_each_device"
    }
}
NOT_MOVED = {
    "placement": {
        "def move_many(arrays, device, non_blocking): return arrays": (
            "test_tensors_move_together_as_alone"
        )
    }
}


@pytest.mark.parametrize(
    "lies",
    [
        pytest.param(LIES, id="four lies"),
        pytest.param(WRONG_PLACE, id="wrong place", marks=pytest.mark.weekly),
        pytest.param(NOT_MOVED, id="not moved", marks=pytest.mark.weekly),
    ],
)
def test_an_adapter_that_lies_is_caught(run, elsewhere, tmp_path, lies):
    lying = shutil.copytree(elsewhere, tmp_path / "lying")
    for capability, told in lies.items():
        with (lying / "site" / "xdevice_pages" / f"{capability}.py").open(
            "a", encoding="utf-8"
        ) as file:
            file.write("\n\n" + "\n".join(told) + "\n")
    caught = [promise for told in lies.values() for promise in told.values()]
    counts, status, said = run(
        lying, "--xdevice-virtual-gpus=2", "--tb=no", "-rf", "-k", " or ".join(caught)
    )
    assert status == 1, said
    assert all(re.search(rf"^FAILED .*{promise}", said, re.MULTILINE) for promise in caught), said
    assert "errors" not in counts


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(
            {"creation": "rand, randn, seed, ones, arange"},
            id="five factories",
        ),
        pytest.param(  # a dozen functions are left
            dict.fromkeys(("creation", "exchange", "memory", "mixing", "virtual")),
            id="five capabilities",
        ),
    ],
)
@pytest.mark.weekly
def test_what_is_missing_is_not_promised(run, elsewhere, tmp_path, lost, passed):
    poorer = shutil.copytree(elsewhere, tmp_path / "poorer")
    for capability, functions in lost.items():
        file = poorer / "site" / "xdevice_pages" / f"{capability}.py"
        if functions is None:
            file.unlink()
        else:
            file.write_text(
                f"{file.read_text(encoding='utf-8')}\n\ndel {functions}\n", encoding="utf-8"
            )
    counts, status, said = run(poorer)
    assert status == 0, said
    assert passed / 5 < counts["passed"] < passed
