"""The memory of PyTorch's virtual GPUs that stand in is counted as CUDA's caching allocator counts it."""

import functools
import json
from pathlib import Path

import pytest

from xdevice.virtual.models import MODELS
from xdevice.virtual.request import ENV

pytestmark = pytest.mark.usefixtures("plug_in")
PROGRAM = Path(__file__).with_name("memory.py")
MIB = 1 << 20
WORKSPACE = 2 * 4096 * 1024 + 8 * 16 * 1024  # of cuBLAS, as CUBLAS_WORKSPACE_CONFIG documents it


USUAL = (
    "a_history",
    "a_large_tensor",
    "a_pool",
    "a_product",
    "a_snapshot",
    "an_observer",
    "blocks_and_segments",
    "fragments",
    "garbage_in_two_rounds",
    "garbage_of_the_oldest",
    "garbage_without_a_fraction",
    "more_than_the_model_has",
    "pools_that_do_not_split",
    "pools_that_overflow",
    "recorded_in_issues",
    "settings",
    "stacks_of_a_history",
    "without_the_allocator",
    "workspaces_of_backward",
)
"""The functions that are measured with the usual settings, all at once."""


@pytest.fixture(scope="module")
def measured(in_a_fork):
    """What functions of memory.py return with these settings, each measured once."""

    @functools.cache
    def run(names: tuple[str, ...], model: str, settings: tuple[tuple[str, str], ...]):
        code = f"""
import runpy, sys, xdevice
xdevice.use("torch")
sys.path.insert(0, {str(PROGRAM.parent)!r})
sys.argv += {names}
runpy.run_path({str(PROGRAM)!r}, run_name="__main__")
"""
        request = {ENV: f"1:stand-in,model={model}"}
        done = in_a_fork("torch", code, **request, **dict(settings))
        assert not done.returncode, done.stderr
        return json.loads(done.stdout)

    def measured(name: str, model: str = "rtx4090", **settings: str):
        usual = name in USUAL and model == "rtx4090" and not settings
        return run(USUAL if usual else (name,), model, tuple(settings.items()))[name]

    return measured


# smolix/d2l-neu, outputs/pytorch/chapter_builders-guide/gpus-devices-memory.json: PyTorch 2.11, NVIDIA GeForce RTX 4090
def test_a_large_tensor_is_allocated_and_stays_cached_as_recorded(measured):
    created, deleted, emptied = measured("a_large_tensor")
    assert created == [1032.1, 1046.0]
    assert deleted == [8.1, 1046.0]
    assert emptied == [8.1, 20.0]


def test_backward_has_a_workspace_of_its_own_where_it_has_its_own_thread(measured):
    assert measured("workspaces_of_backward") == [0, 8.125]  # of cuBLAS, as it documents


@pytest.mark.weekly
def test_weights_activations_gradients_and_optimizer_take_what_was_recorded(
    measured,
):  # from the same file
    assert measured("the_steps_of_training") == [168.4, 361.5, 321.7, 610.1]


@pytest.mark.weekly
def test_checkpointing_lowers_the_peak_as_much_as_recorded(measured):
    # recorded in the same file: 2358 and 1335 MiB, of which 754 were allocated before the step. Activations here are a
    # quarter of those, and weights a sixteenth.
    without, with_it = measured("checkpointing")
    assert without - with_it == pytest.approx((2358 - 1335) / 4, rel=0.05)


def test_what_issues_recorded_is_counted(measured):
    rows, before_forward, error, _, cached = measured("recorded_in_issues")
    # pytorch/pytorch, pull request 91854: the summary after a tensor of 1 MiB
    words = "Allocated memory", "from large pool", "from small pool"
    first = next(i for i, row in enumerate(rows) if row[0] == words[0])
    assert [row[0] for row in rows[first : first + 3]] == list(words)
    assert [row[1] for row in rows[first : first + 3]] == ["1024 KiB", "0 KiB", "1024 KiB"]
    # pytorch/pytorch, issue 69526: a batch, and a layer of convolutions, before its forward pass
    assert before_forward == [294.0, 296.0]
    # deepmodeling/deepmd-kit, issue 4594: the error on a T4
    assert "Tried to allocate 37252902.99 GiB." in error
    assert (
        "Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved" in error
    )
    # vllm-project/vllm, pull request 41268: a cached segment of 530 MiB is split for 270 MiB
    assert cached == [270.0, 530.0]


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("name", "setting", "expected"),
    [
        # pytorch/pytorch, issue 161139
        ("a_tensor_of_514_mib", "roundup_power2_divisions:[>:2]", [[514], [768.0, 768.0]]),
        # vllm-project/vllm, pull request 41268: larger segments are not split
        ("in_a_cached_segment", "max_split_size_mb:20", [[270], [270.0, 800.0]]),
    ],
)
def test_settings_have_the_effect_that_issues_recorded(measured, name, setting, expected):
    assert measured(name, PYTORCH_CUDA_ALLOC_CONF=setting) == expected


@pytest.mark.weekly
def test_a_snapshot_has_the_settings_as_recorded(measured):  # pytorch/pytorch, pull request 119404
    usual = measured("settings_of_a_snapshot", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    recorded = {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "max_split_size": -1,
        "garbage_collection_threshold": 0.0,
        "expandable_segments": True,
        "pinned_num_register_threads": 1,
        "release_lock_on_cudamalloc": False,
        "pinned_use_cuda_host_register": False,
        "roundup_power2_divisions": {str(1 << power): 0 for power in range(16)},
    }
    assert recorded.items() <= usual.items()
    setting = "max_split_size_mb:2000,roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"
    changed = measured("settings_of_a_snapshot", PYTORCH_CUDA_ALLOC_CONF=setting)
    assert (changed["max_split_size"], changed["expandable_segments"]) == (2097152000, False)


def test_blocks_segments_and_streams_are_as_documented(measured):
    *sizes, freed, reused, other_stream, emptied = measured("blocks_and_segments")
    allocated = [512, 1024, 2048, 2048 + MIB]
    large = [MIB + 512, 9 * MIB, 10 * MIB, 10 * MIB + 512]
    for size in large:
        allocated.append(allocated[-1] + size)
    assert [each for each, _ in sizes] == allocated
    # the second large block fits into the segment of the first; from 10 MiB on, blocks have segments of their own
    reserved = [2, 2, 2, 2, 22, 22, 32, 44]
    assert [each // MIB for _, each in sizes] == reserved
    assert freed == reused == [0, 44 * MIB]
    assert other_stream == [0, 64 * MIB]
    assert emptied == [0, 0]


def test_segments_that_grow_do_not_fragment(measured):
    assert measured("fragments") == [30, 80, 150, 150, 30, 0]
    grown = measured("fragments", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert grown == [40, 60, 80, 80, 40, 0]
    unsplit = measured("fragments", PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:21")
    assert unsplit[3] == 150
    assert unsplit[5] == 0


@pytest.mark.parametrize(
    ("model", "setting", "size"),
    [
        ("rtx4090", {}, WORKSPACE),
        pytest.param("h100", {}, 32 * MIB, marks=pytest.mark.weekly),
        pytest.param(
            "h100",
            {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
            32 * MIB,
            marks=pytest.mark.weekly,
        ),
        pytest.param(
            "t4",
            {"CUBLAS_WORKSPACE_CONFIG": ":16:8"},
            128 * 1024,
            marks=pytest.mark.weekly,
        ),
    ],
)
def test_a_product_allocates_the_workspaces_of_its_libraries(measured, model, setting, size):
    product, added, cleared = measured("a_product", model, **setting)
    assert product == 512 + size
    assert added == product + MIB
    assert cleared == 512


def test_memory_ends_where_the_models_does(measured):
    kept, message = measured("more_than_the_model_has")
    assert kept == 100 * MIB
    assert message.startswith(
        "CUDA out of memory. Tried to allocate 24.00 GiB. GPU 0 has a total capacity of 23.65 GiB of"
        " which 23.19 GiB is free. Including non-PyTorch memory, this process has 471.50 MiB memory"
        " in use. Of the allocated memory 100.00 MiB is allocated by PyTorch, and 0 bytes is"
        " reserved by PyTorch but unallocated."
    )


def test_a_snapshot_has_segments_and_blocks(measured):
    segments, _, inactive = measured("a_snapshot")
    used, unused = "active_allocated", "inactive"
    assert segments == [
        [0, 20 * MIB, 3 * MIB, 3 * MIB, "large", False, [[3 * MIB, used], [17 * MIB, unused]]],
        [0, 2 * MIB, 512, 10, "small", False, [[512, used], [2 * MIB - 512, unused]]],
    ]
    assert inactive == 2


def test_a_history_has_the_events_of_the_allocator_with_the_stacks_that_allocated(measured):
    events, function, timeline, *enabled = measured("a_history")
    here = ["a_history"]
    assert events == [  # the last 7, of 8
        ["alloc", 3 * MIB, here],
        ["segment_alloc", 2 * MIB, here],
        ["alloc", 10, here],
        ["free_requested", 3 * MIB, here],
        ["free_completed", 3 * MIB, here],
        ["segment_free", 20 * MIB, ["empty_cache"]],
        ["oom", 30 << 30, here],
    ]
    assert function == "a_history"
    assert "cudaFree" in timeline
    assert enabled == [True, [[[]], False]]


def test_frees_have_stacks_as_the_context_says(measured):
    found = measured("stacks_of_a_history")
    actions = ["segment_alloc", "alloc", "snapshot", "free_requested", "free_completed"]
    actions.append("segment_free")
    assert found["None"] == [[[action] for action in actions], []]
    assert found["state"] == [[[action] for action in actions], ["tensor"]]
    names = ["tensor", "tensor", None, "tensor", "tensor", None]
    assert found["alloc"] == [with_names(actions, names), ["tensor"]]
    names = ["tensor", "tensor", None, "dropped", "dropped", "empty_cache"]
    assert found["all"] == [with_names(actions, names), ["tensor"]]


def with_names(actions, names):
    pairs = zip(actions, names, strict=True)
    return [[action] if name is None else [action, name] for action, name in pairs]


def test_garbage_is_what_was_unused_for_longer_than_the_average(measured):
    # 1100 MiB are allowed. Of three unused segments the one of 300 MiB is the oldest: it has missed two searches, the
    # others one. 880 MiB may be reserved: the oldest suffices; or 550: the others follow.
    assert measured("garbage_of_the_oldest")[:6] == [300, 500, 900, 1050, 1, 0]
    assert measured("garbage_in_two_rounds")[:6] == [300, 500, 900, 450, 3, 0]
    assert measured("garbage_without_a_fraction")[:6] == [300, 500, 900, 1350, 0, 0]


def test_each_setting_of_the_allocator_is_followed_or_refused(measured):
    segment, fraction, backend, unknown = measured("settings")
    assert segment == [40, 1.0]
    assert fraction[1] == 0.5
    assert backend == (
        "virtual GPUs have no allocator cudaMallocAsync; remove backend:cudaMallocAsync from"
        " PYTORCH_CUDA_ALLOC_CONF"
    )
    assert unknown == "Unrecognized key 'max_split_size' in CUDA allocator config."


def test_a_pool_has_segments_of_its_own_until_nothing_uses_it(measured):
    uses, elsewhere, both, emptied, reused, unused, of_pool, of_all, *rest = measured("a_pool")
    assert (uses, elsewhere, unused) == (2, 20, 1)
    # 30 in the pool, and 20 of another thread; then 30 elsewhere, and 10 in the 20 of the thread
    assert both == 50
    assert emptied == reused == 80
    assert (of_pool, of_all) == (1, 3)
    left, ids, in_pool, _ = rest
    assert left == 50
    assert [tuple(each) for each in ids] == [(0, 0), (0, 1)]
    assert in_pool in (30 * MIB, None)  # PyTorch before 2.13 does not count pools


def test_a_pool_serves_other_allocations_when_the_memory_is_full_if_it_may(measured):
    served, refused = measured("pools_that_overflow")
    assert served == [50, 60]
    assert "Tried to allocate 50.00 MiB." in refused
    assert "100.00 MiB allowed; " in refused
    of_pools = "with 60.00 MiB allocated in private pools (e.g., CUDA Graphs), "
    assert of_pools + "and 0 bytes is reserved by PyTorch but unallocated" in refused


def test_a_pool_leaves_its_segments_whole_if_asked(measured):
    assert measured("pools_that_do_not_split") == [20, 40, 0, True]


def test_memory_beside_the_allocator_is_not_counted(measured):
    assert measured("without_the_allocator") == [0, 0, 30]


def test_an_error_names_the_segment_that_was_wanted(measured):
    was_told, names = measured("an_observer")
    assert was_told
    assert names == [f"Tried to allocate {size} MiB" for size in ("2.00", "20.00", "1024.00")]


@pytest.mark.weekly
def test_the_visualizer_reads_a_dumped_history(measured):
    found = measured("pages_of_a_history")
    assert found["actions"] == ["segment_alloc", "alloc", "alloc", "free_completed"]
    assert found["pages"] == [True] * 3
    assert found["segsum"]
    assert found["compared"] == [True, True]
    assert found["settings"] is False


@pytest.mark.weekly
def test_processes_and_raw_memory_are_counted(measured):
    listed, with_raw, used, kept = measured("processes")
    lines = listed.splitlines()
    assert lines[0] == "GPU:0"
    megabytes = MODELS["rtx4090"].context / MIB + 20  # with a segment
    assert lines[1].split() == ["process", "PID", "uses", f"{megabytes:.3f}", "MB", "GPU", "memory"]
    assert with_raw == kept + 30 * MIB
    assert used == 50 * MIB + MODELS["rtx4090"].context


@pytest.mark.weekly
def test_the_allocators_settings_are_read_when_a_gpu_is_first_used(measured):
    # 30 MiB in two pages of 20, and 25 in what is left of them and one more; otherwise 30 + 26
    assert measured("settings_after_the_import") == [60, 2]
