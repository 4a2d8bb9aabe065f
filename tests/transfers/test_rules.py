"""Each rule has a program that triggers it, and a twin that must not."""

from pathlib import Path

import pytest

from xdevice.transfers.rules import ADVICE, RULES

TRIGGERS = {
    "loop-of-a-library": (
        "model = Tensor()\nmodel.fit(5)\n",
        "model = Tensor()\nmodel.fit(1)\nfor _ in range(5):\n    model.item()\n    step()\n",
    ),
    "numbers-one-by-one": (
        """
        params = [Tensor() for _ in range(10)]
        for _ in range(4):
            for p in params:
                p.item()
            step()
        """,
        """
        loss = Tensor()
        for _ in range(4):
            loss.item()
            step()
        """,
    ),
    "sum-on-the-host": (
        """
        loss, total = Tensor(), 0
        for _ in range(4):
            total += loss.item()
            step()
        """,
        """
        loss, total = Tensor(), 0
        for _ in range(4):
            step()
        total += loss.item()
        """,
    ),
    "decision-on-the-host": (
        """
        loss = Tensor()
        for _ in range(4):
            if loss.item() > 3:
                break
        """,
        """
        loss = Tensor()
        if loss.item() > 3:
            loss = None
        """,
    ),
    "number-per-step": (
        """
        losses, loss = [], Tensor()
        for _ in range(4):
            losses.append(loss.item())
            step()
        """,
        """
        losses, loss = [], Tensor()
        for _ in range(4):
            step()
        losses.append(loss.item())
        """,
    ),
    "shown-per-step": (
        "for _ in range(4):\n    Tensor().does('print')\n",
        "Tensor().does('print')\n",
    ),
    "size-not-given": (
        "for _ in range(4):\n    Tensor().repeat([1, 2])\n",
        "for _ in range(4):\n    Tensor().does('size')\n",
    ),
    "size-from-values": (
        "for _ in range(4):\n    Tensor().does('size')\n",
        "Tensor().does('size')\n",
    ),
    "index-from-the-host": (
        "for _ in range(4):\n    Tensor().does('index', back=True)\n",
        "Tensor().does('index', back=True)\n",
    ),
    "number-from-python": (
        "for _ in range(4):\n    Tensor().does('operand', back=True)\n",
        "for x in Tensor().to_fill(4):\n    x.to('gpu')\n",
    ),
    "computed-on-the-host": (
        "Tensor().does('operand', nbytes=16)\n",
        "Tensor().does('operand', back=True, nbytes=16)\n",
    ),
    "operand-elsewhere": (
        "Tensor().does('operand', back=True, nbytes=16)\n",
        "Tensor().does('operand', back=True)\n",  # a number of Python's that is sent once
    ),
    "gradient-crosses": (
        "for _ in range(4):\n    Tensor().does('gradient')\n    step()\n",
        "Tensor().does('gradient')\n",
    ),
    "made-by-numpy": (
        "import numpy as np\nfor _ in range(4):\n    tensor(np.ones(3))\n",
        "import numpy as np\ntensor(np.ones(3))\nfor _ in range(4):\n    zeros(3).to('gpu')\n",
    ),
    "made-on-the-host": (
        "zeros(3).to('gpu')\n",
        "x = zeros(3)\nx.to('gpu')\n",
    ),
    "same-values-again": (
        "x = Tensor()\nfor _ in range(4):\n    x.to('gpu')\n",
        "for x in Tensor().to_fill(4):\n    x.to('gpu')\n",
    ),
    "moved-in-the-loop": (
        "x = Tensor(mark=0)\nfor _ in range(4):\n    x.to('gpu')\n",
        "x = Tensor(mark=0)\nx.to('gpu')\nfor x in [Tensor(mark=0) for _ in range(4)]:\n    x.to('gpu')\n",
    ),
    "built-of-numbers": (
        "for i in range(4):\n    tensor([i, i + 1])\n",
        "tensor([1, 2])\nfor x in [[i, i + 1] for i in range(4)]:\n    tensor(x)\n",
    ),
    "between-gpus": (
        "for x in [Tensor() for _ in range(4)]:\n    x.to_other()\n",
        "Tensor().to_other()\n",
    ),
    "many-small": (
        """
        for batch in [[Tensor(8) for _ in range(6)] for _ in range(4)]:
            moved = [x.to('gpu') for x in batch]
            step()
        """,
        """
        model = [Tensor(8) for _ in range(60)]
        for each in model:
            each.to('gpu')
        for _ in range(4):
            step()
        """,
    ),
    "blocks-although-pinned": (
        "for x in [Tensor(pinned=True) for _ in range(4)]:\n    x.to('gpu')\n    step()\n",
        "for x in [Tensor(pinned=True) for _ in range(4)]:\n    x.to('gpu', non_blocking=True)\n    step()\n",
    ),
    "unpinned-batches": (
        "for x in [Tensor() for _ in range(4)]:\n    x.to('gpu')\n    step()\n",
        "for x in [Tensor() for _ in range(40)]:\n    x.to('gpu')\nfor _ in range(4):\n    step()\n",
    ),
    "fetched-per-step": (
        "for _ in range(4):\n    Tensor().cpu()\n    step()\n",
        "for _ in range(4):\n    step()\nTensor().cpu()\n",
    ),
}


@pytest.mark.parametrize("rule", list(ADVICE))
def test_a_rule_has_a_program_that_triggers_it_and_a_twin_that_does_not(reported, rule):
    guilty, innocent = TRIGGERS[rule]
    assert rule in [finding.rule for finding in reported(guilty)]
    assert rule not in [finding.rule for finding in reported(innocent)]


def test_every_rule_is_on_the_page():
    page = (Path(__file__).parents[2] / "docs" / "test" / "copies.md").read_text(encoding="utf-8")
    rules = page.partition("\n## The rules\n")[2].partition("\n## ")[0]
    listed = [line.split("`")[1] for line in rules.splitlines() if line.startswith("| `")]
    assert listed[-len(RULES) :] == list(RULES)


def test_a_number_that_is_read_after_a_loop_is_read_where_it_should_be(reported):
    report = reported(
        """
        def epoch():
            loss = Tensor()
            for _ in range(4):
                loss.item()
            return loss.item()

        for _ in range(5):
            epoch()
            loss = Tensor()
            for _ in range(3):
                pass
            loss.item()
        """
    )
    assert {each.line: each.rule for each in report} == {5: "number-per-step", 6: "", 13: ""}


def test_a_loop_that_updates_parameters_is_part_of_a_step(reported):
    report = reported(
        """
        parameters, total = [Tensor(), Tensor()], 0
        for _ in range(4):
            for p in parameters:
                p.nbytes += 1
            total += Tensor().item()
        """
    )
    assert [each.rule for each in report] == ["sum-on-the-host"]


def test_a_layer_that_is_moved_as_it_is_built_is_no_batch(reported):
    report = reported(
        """
        class Layer(Tensor):
            pass
        for i in range(4):
            layers = [Layer(mark=0).to("gpu")]
        """
    )
    assert [each.rule for each in report] == [""]


def test_copies_of_a_librarys_threads_are_those_of_its_loop(reported):
    report = reported("model = Tensor()\nmodel.predict(5)\n")
    assert [(each.line, each.rule, each.copies) for each in report] == [(2, "loop-of-a-library", 5)]
    report = reported(
        "import threading\nthread = threading.Thread(target=Tensor().item)\nthread.start()\nthread.join()\n"
    )
    assert [(each.line, each.rule) for each in report] == [(0, "")]


def test_a_library_that_copies_has_its_line_shown_and_no_advice(reported, tmp_path, monkeypatch):
    folder = tmp_path / "site-packages" / "measures"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("def value(x):\n    return x.item()\n", encoding="utf-8")
    monkeypatch.syspath_prepend(folder.parent)
    (found,) = reported(
        "import measures\nx = Tensor()\nfor _ in range(4):\n    measures.value(x)\n"
    )
    assert (found.line, found.copies, found.rule, found.advice) == (4, 4, "", "")
    assert found.library == "measures/__init__.py:2  return x.item()"
    assert list(found.wrapped(80))[1] == "    in measures/__init__.py:2  return x.item()"


def test_a_library_that_trains_after_a_loop_is_a_loop_too(reported):
    report = reported("model = Tensor()\nfor _ in range(3):\n    pass\nmodel.fit(5)\n")
    assert [each.rule for each in report] == ["loop-of-a-library"]


def test_what_an_if_lets_a_line_read_is_no_condition(reported):
    report = reported("for i in range(8):\n    step()\n    if i % 2: print(Tensor().item())\n")
    assert [each.rule for each in report] == ["number-per-step"]


def test_rules_without_words_are_of_frameworks_that_have_their_own():
    assert set(TRIGGERS) == set(ADVICE)
    assert RULES.keys() - ADVICE.keys() == {"waits-although-unpinned", "replicated-each-step"}


def test_no_line_is_told_to_prefetch_what_runs_once_an_epoch(reported):
    epochs = """
        for epoch in range(6):
            {}Tensor().to("gpu")
            for _ in range(3):
                {}
    """
    for step in ("step()", "pass"):
        assert [each.rule for each in reported(epochs.format("", step))] == [""]
    often = epochs.format("", "step(); Tensor().to('gpu')")
    assert sorted(each.rule for each in reported(often)) == ["", "unpinned-batches"]


def test_the_same_values_are_known_whatever_names_them(reported):
    program = "x = Tensor()\ndef send(y):\n    y.to('gpu')\nfor _ in range(20):\n    send({})\n"
    (again,) = reported(program.format("x"))
    assert (again.rule, again.advice) == (
        "same-values-again",
        "the same values, sent 20 times: send it once, before the loop",
    )
    assert [each.rule for each in reported(program.format("Tensor()"))] == ["unpinned-batches"]


def test_noise_that_is_named_before_it_is_sent_is_made_on_the_host(reported):
    program = "for _ in range(4):\n    noise = zeros(3)\n    more = 2 * noise\n    {}\n    more.to('gpu')\n"
    assert [each.rule for each in reported(program.format("pass"))] == ["made-on-the-host"]
    assert [each.rule for each in reported(program.format("more = Tensor()"))] == [
        "unpinned-batches"
    ]
