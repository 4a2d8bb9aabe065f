"""What is said of a cell's outputs under several frameworks, and of its outputs since they were recorded."""

import random
from decimal import Decimal

import pytest

from xdevice.tools.course.compare import verdict_of
from xdevice.tools.course.read import Cell
from xdevice.tools.course.record import changes_since, read_record, write_record
from xdevice.tools.course.run import Outcome, TabRun
from xdevice.tools.course.texts import difference
from xdevice.tools.course.values import Curve, Series, t_test


def outcome(text="", *curves):
    return Outcome(
        "ok", text=text, curves=tuple(Curve("loss", (1.0, 2.0), each) for each in curves)
    )


def verdict(first, second, more=((), ())):
    outcomes = {"torch": first, "jax": second}
    repeated = {"torch": [first, *more[0]], "jax": [second, *more[1]]}
    return verdict_of(outcomes, repeated).verdict


@pytest.mark.parametrize(
    ("torch", "jax", "says"),
    [
        ("", "", "silent"),
        ("float32", "float32", "same"),
        ("x is on cuda:1", "x is on gpu(1)", "same"),
        ("loss 0.1234567", "loss 0.1234561", "digits"),
        ("0.5 s", "0.1 s", "times"),
        ("took 59 s, loss 0.5", "took 1 min 2 s, loss 0.5", "times"),
        ("took 59 s, loss 0.5", "took 1 min 2 s, loss 0.7", "numbers"),
        ("3 minutes", "4 minutes", "times"),
        ("Time: 04:55:00 x 3", "Time: 14:05:09 x 3", "times"),
        ("Wall time: 1.21 ms", "Wall time: 1min 2s", "times"),
        (
            "462 ns ± 219 ns per loop (mean ± std. dev. of 7 runs, 1,000,000 loops each)",
            "1.2 µs ± 21.9 ns per loop (mean ± std. dev. of 7 runs, 100,000 loops each)",
            "times",
        ),
        ("/tmp/tmpabcd1234/x", "/tmp/tmpefgh5678/x", "same"),
        (
            "<tf.Variable 'Variable:0' shape=(2,) dtype=float32, numpy=array([1., 2.])>",
            "tensor([1., 2.])",
            "words",
        ),
        (
            "<Variable path=block-1/dense_3/bias, shape=(1,), dtype=float32, value=[0.]>",
            "Parameter containing:\ntensor([0.])",
            "words",
        ),
        ("3.0 MiB", "2.0 MiB", "memory"),
        ("tensor([1., 2.], device='cuda:0')", "Array([1., 2.], dtype=float32)", "words"),
        ("tensor(3)", "<tf.Tensor: shape=(), dtype=int32, numpy=3>", "words"),
        (
            "<tf.Tensor: shape=(2, 1), dtype=float32, numpy=array([[1.], [2.]], dtype=float32)>",
            "Tensor(shape=[2, 1], dtype=float32, place=Place(gpu:0), stop_gradient=True,\n[[1.], [2.]])",
            "words",
        ),
        ("array([1., 2.], ctx=gpu(0))", "[1. 2.]\n<NDArray 2 @gpu(0)>", "words"),
        ("tensor([1., 2.], device='cuda:0')", "[1. 2.] @gpu(0)", "words"),
        ("cuda:1", "gpu(1)", "same"),
        (
            "(device(type='cuda', index=1), {device(type='cpu')})",
            "('/job:localhost/replica:0/task:0/device:GPU:1', {CpuDevice(id=0)})",
            "same",
        ),
        ("Place(gpu:1)", "LogicalDevice(name='/device:GPU:1', device_type='GPU')", "same"),
        (
            "device(type='cuda', index=1)",
            "[PhysicalDevice(name='/physical_device:GPU:1', device_type='GPU')]",
            "words",
        ),
        ("x is on cuda:1", "on CudaDevice(id=1)", "words"),
        ("device(type='cuda', index=1)", "CudaDevice(id=0)", "text"),
        ("loss 0.5 on cuda:0", "loss 0.5 on cuda:1", "text"),
        ("loss 0.5 on cpu:0", "loss 0.5 on gpu(0)", "text"),
        ("tensor([1., 2.], device='cuda:0')", "[1. 2.]\n<NDArray 2 @gpu(1)>", "text"),
        ("tensor([1., 2.], device='cuda:0')", "[1. 2.]\n<NDArray 2 @cpu(0)>", "text"),
        ("tensor([1., 2.])", "[1. 2.]\n<NDArray 2 @cpu(0)>", "words"),
        ("torch.float32", "<dtype: 'float32'>", "same"),
        ("torch: 0.5 sec", "jax.numpy: 0.1 sec", "times"),
        ("torch: 0.5", "jax: 0.5", "same"),
        ("<a at 0x7f00aa11bb22>", "", "text"),
        ("<a at 0x7f00aa11bb22>", "<b at 0x55aabbccdd00>", "text"),
        ("loss 0.5", "loss 0.6", "numbers"),
        ("tensor([1., 2.])", "Array([1., 3.], dtype=float32)", "numbers"),
        ("True", "False", "text"),
        ("tensor([True, False])", "Array([ True, False], dtype=bool)", "words"),
        ("tensor([True, False])", "Array([ True, True], dtype=bool)", "text"),
        ("tensor([True, 1])", "Array([ False, 1], dtype=bool)", "text"),
        ("1 2", "1", "text"),
    ],
)
def test_outputs_of_two_frameworks_are_compared_by_words_and_by_numbers(torch, jax, says):
    assert verdict(outcome(torch), outcome(jax)) == says


def test_curves_count_as_numbers():
    assert verdict(outcome("", (1.0, 0.5)), outcome("", (1.0, 0.5000001))) == "digits"
    assert verdict(outcome("", (1.0, 0.5)), outcome("", (1.0, 0.6))) == "numbers"
    assert verdict(outcome("", (1.0, 0.5)), outcome("", (1.0, 0.5), (1.0, 0.5))) == "text"


def test_a_row_says_which_tab_fails_or_was_not_run():
    failed, not_run = Outcome("failed", error="no"), Outcome()
    assert verdict(outcome("1"), failed) == "failed"
    assert verdict(failed, not_run) == "failed"
    assert verdict(outcome("1"), not_run) == "not run"


def raised(error, text=""):
    return Outcome("ok", text=text, error=error)


@pytest.mark.parametrize(
    ("torch", "jax", "says"),
    [
        (raised("TypeError: no"), raised("TypeError: no"), "same"),
        (raised("TypeError: on cuda:1"), raised("TypeError: on gpu(1)"), "same"),
        (raised("TypeError: no\nsecond\nlast"), raised("TypeError: yes\nlast"), "same"),
        (raised("TypeError: torch says no"), raised("TypeError: jax says no"), "same"),
        (raised("TypeError: no"), raised("ValueError: no"), "other error"),
        (raised("TypeError: 3 devices"), raised("TypeError: 2 devices"), "other error"),
        (raised("TypeError: no"), outcome(), "one error"),
        (raised("TypeError: no", "1"), raised("TypeError: no", "2"), "numbers"),
        (raised("TypeError: no"), Outcome("failed", error="TypeError: no"), "failed"),
    ],
)
def test_an_error_that_is_the_lesson_is_compared_by_its_type_and_its_last_line(torch, jax, says):
    assert verdict(torch, jax) == says


def test_the_note_on_errors_says_what_each_tab_raises():
    outcomes = {"torch": raised("TypeError: no"), "jax": raised("ValueError: no")}
    assert verdict_of(outcomes, {}).note == "torch: TypeError: no; jax: ValueError: no"
    outcomes["jax"] = outcome()
    assert verdict_of(outcomes, {}).note == "torch: TypeError: no; none under jax"
    assert verdict_of({"torch": raised("TypeError: no")}, {}).verdict == "alone"


def test_a_note_says_in_which_values_the_tabs_differ():
    def note(torch, jax):
        outcomes = {"torch": outcome(torch), "jax": outcome(jax)}
        return verdict_of(outcomes, {tab: [printed] for tab, printed in outcomes.items()}).note

    assert note("on cuda:0", "on cuda:1") == "torch and jax: devices gpu:0 and gpu:1"
    assert note("True", "False") == "torch and jax: truth values True and False"
    assert note("1", "") == "torch and jax: one prints nothing"
    more_tensors = note("tensor([1.], device='cuda:0')\nNone", "[1.] @gpu(0)\n[0.] @gpu(0)")
    assert more_tensors == "torch and jax: 1 and 2 numbers and curves"
    assert note("1 2", "1") == "torch and jax: 2 and 1 numbers and curves"
    at_two_places = note("tensor([1.], device='cuda:0')", "[1.]\n<NDArray 1 @gpu(1)>")
    assert at_two_places == "torch and jax: tensors on gpu:0 and gpu:1"


def test_a_row_that_fails_under_one_tab_says_whether_the_others_agree():
    outcomes = {"torch": outcome("1"), "mxnet": Outcome("failed", error="no"), "jax": outcome("1")}
    row = verdict_of(outcomes, {tab: [printed] for tab, printed in outcomes.items()})
    assert row == ("failed", "under mxnet; under the others: prints the same")


def with_seeds(*losses):
    return [outcome(f"loss {loss}") for loss in losses]


def test_seeds_explain_numbers_that_are_as_far_apart_as_other_seeds():
    near = with_seeds(0.51, 0.48, 0.53), with_seeds(0.55, 0.50, 0.47)
    far = with_seeds(0.51, 0.48, 0.53), with_seeds(1.55, 1.50, 1.47)
    for says, (torch, jax) in (("seeds", near), ("beyond", far)):
        assert verdict(torch[0], jax[0], (torch[1:], jax[1:])) == says
    # no seed changes them, and they are not the same
    same = with_seeds(0.5, 0.5, 0.5), with_seeds(0.8, 0.8, 0.8)
    assert verdict(same[0][0], same[1][0], (same[0][1:], same[1][1:])) == "beyond"


def test_a_number_that_is_beyond_its_seeds_is_seen_among_those_that_are_not():
    draw = random.Random(0).gauss

    def text(last):
        return " ".join(f"{draw(0, 1):.4f}" for _ in range(9)) + f" {last:.4f}"

    runs = [[outcome(text(draw(mean, 0.01))) for _ in range(3)] for mean in (1.0, 1.0, 3.0)]
    assert verdict(runs[0][0], runs[1][0], (runs[0][1:], runs[1][1:])) == "seeds"
    assert verdict(runs[0][0], runs[2][0], (runs[0][1:], runs[2][1:])) == "beyond"


@pytest.mark.parametrize(
    "seeds", [3, *(pytest.param(n, marks=pytest.mark.weekly) for n in (2, 5, 9))]
)
@pytest.mark.parametrize("numbers", [1, pytest.param(20, marks=pytest.mark.weekly)])
def test_numbers_that_only_seeds_move_are_rarely_beyond_them(seeds, numbers):
    draw = random.Random(1).gauss

    def run():
        return [Series("x", (Decimal(draw(0, 1)),), Decimal("1e-4")) for _ in range(numbers)]

    def runs():
        return [run() for _ in range(seeds)]

    beyond = sum(t_test(runs(), runs()).is_significant for _ in range(1000))
    assert beyond <= 6  # 1 in 1000 is expected


def test_the_rounding_of_printed_digits_is_no_difference():
    torch, jax = with_seeds("0.88", "0.88", "0.88"), with_seeds("0.91", "0.91", "0.91")
    assert verdict(torch[0], jax[0], (torch[1:], jax[1:])) == "beyond"
    torch, jax = with_seeds("0.88", "0.88", "0.88"), with_seeds("0.89", "0.89", "0.90")
    assert verdict(torch[0], jax[0], (torch[1:], jax[1:])) == "digits"


def test_the_name_of_a_virtual_gpu_is_that_of_the_gpu():
    virtual = "'NVIDIA A100-SXM4-80GB (virtual GPU 1: xdevice, on the CPU)'"
    assert difference(virtual, "'NVIDIA A100-SXM4-80GB'").cause == "name"


def tab(*pairs, name="torch"):
    cells = tuple(Cell(code) for code, _ in pairs)
    return TabRun(name, 0, cells, tuple(outcome for _, outcome in pairs), None, "1.0")


@pytest.mark.parametrize(
    ("recorded", "printed", "words"),
    [
        (outcome("<f at 0x7f00aa11bb22>"), outcome("<f at 0x55aabbccdd00>"), None),
        (outcome("took 0.5 sec, loss 0.12345"), outcome("took 1.5 sec, loss 0.12344"), None),
        (outcome("loss 0.5"), outcome("loss 0.6"), "other numbers"),
        (outcome("1.0 MiB"), outcome("2.0 MiB"), "other memory"),
        (outcome("True"), outcome("False"), "other text"),
        (outcome("1"), Outcome("failed", error="ValueError: no"), "was ok, is failed"),
        (
            Outcome("failed", error="ValueError: no"),
            Outcome("failed", error="ValueError: other"),
            "other error",
        ),
        (raised("ValueError: at 0x7f00aa11bb22"), raised("ValueError: at 0x55aabbccdd00"), None),
        (raised("ValueError: no"), raised("KeyError: no"), "other error"),
        (raised("ValueError: no"), outcome(), "other error"),
        (outcome("", (1.0, 0.5)), outcome("", (1.0, 0.5001)), None),
        (outcome("", (1.0, 0.5)), outcome("", (1.0, 0.6)), "another curve 'loss'"),
        (outcome("", (1.0, 0.5)), outcome(""), "other curves"),
    ],
)
def test_a_record_tells_what_has_changed(tmp_path, recorded, printed, words):
    path = tmp_path / "chapter.outputs.json"
    write_record(path, [tab(("f()", recorded))])
    changes = changes_since(read_record(path), [tab(("f()", printed))])
    assert [change.words for change in changes] == ([words] if words else [])
    # what does not count makes no diff
    before = path.read_text(encoding="utf-8")
    write_record(path, [tab(("f()", printed))])
    assert (path.read_text(encoding="utf-8") == before) == (words is None)


def test_cells_are_known_by_their_code_wherever_they_are(tmp_path):
    path = tmp_path / "chapter.outputs.json"
    write_record(path, [tab(("a", outcome("1")), ("b", outcome("2")), ("a", outcome("3")))])
    moved = tab(("new", outcome("4")), ("a", outcome("1")), ("a", outcome("3")))
    changes = changes_since(read_record(path), [moved, tab(("a", outcome("1")), name="jax")])
    assert [(change.tab, change.number, change.words) for change in changes] == [
        ("torch", 1, "this cell was not recorded"),
        ("torch", 0, "a recorded cell is gone"),
        ("jax", 0, "this tab was not recorded"),
    ]


@pytest.mark.parametrize(("torch", "jax", "note"), [
    ("the loss falls", "the loss rises", "'falls' and 'rises'"),
    ("one two", "one two three", "no more text and 'three'"),
    ("a b c d e f g h", "b c d e f g h", "'a b c d e f' and 'b c d e f g'"),
    ("x" * 99, "y", f"'{'x' * 60}' and 'y'"),
])  # fmt: skip
def test_a_difference_of_words_is_shown_where_it_begins(torch, jax, note):
    outcomes = {"torch": outcome(torch), "jax": outcome(jax)}

    assert verdict_of(outcomes, {"torch": [], "jax": []}) == ("text", f"torch and jax: {note}")


def test_a_tab_whose_numbers_no_seed_changes_is_one_draw():
    torch, jax = with_seeds("0.40", "0.89", "0.12"), with_seeds("0.95", "0.95", "0.95")
    assert verdict(torch[0], jax[0], (torch[1:], jax[1:])) == "seeds"
    torch, jax = with_seeds("0.401", "0.402", "0.403"), with_seeds("0.95", "0.95", "0.95")
    assert verdict(torch[0], jax[0], (torch[1:], jax[1:])) == "beyond"


@pytest.mark.parametrize(("torch", "jax", "note"), [
    (("1.5", "1.6", "1.7"), ("2.5", "2.5", "2.5"), "loss: 1.6 ± 0.1 and 2.5 ± 0; no seed changes the second"),
    (("2.5",) * 3, ("1.5",) * 3, "loss: 2.5 ± 0 and 1.5 ± 0, which no seed changes"),
])  # fmt: skip
def test_the_report_says_which_numbers_no_seed_changes(torch, jax, note):
    runs = {"torch": with_seeds(*torch), "jax": with_seeds(*jax)}
    said = verdict_of({name: outcomes[0] for name, outcomes in runs.items()}, runs).note
    assert said.startswith(f"torch and jax: {note} (t ")
