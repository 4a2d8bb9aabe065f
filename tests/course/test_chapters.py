"""The cells, tabs and rows of chapters in each format."""

import json
import textwrap

import pytest

from xdevice.errors import ArgumentError
from xdevice.tools.cli.chapter import tabs_to_run
from xdevice.tools.course.read import Prose, read

D2L_CLASSIC = """
    # GPUs

    ```{.python .input}
    x = "mxnet's, the first tab of config.ini"
    ```

    :begin_tab:`pytorch`
    About PyTorch.
    :end_tab:

    ```{.python .input}
    #@tab pytorch
    x = "torch's"
    ```

    Text for all.

    ```{.python .input  n=3}
    #@tab all
    x
    ```

    ```python
    this is not run
    ```

    ```{.python .input}
    #@tab mxnet, pytorch
    y
    ```
"""
D2L_ENGLISH = """
    ```{.python .input}
    %load_ext d2lbook.tab
    tab.interact_select(['mxnet', 'pytorch', 'jax'])
    ```

    ```{.python .input}
    %%tab mxnet
    1
    ```

    ```{.python .input}
    %%tab pytorch, jax
    2
    ```

    ```{.python .input}
    3
    ```

    ```{.python .input #named}
    %%tab pytorch
    4
    ```

    Text.

    ```{.python .input #named}
    %%tab jax
    5
    ```

    ```{.python .input}
    %%tab tensorflow
    6
    ```
"""
MYST = """
    ---
    kernelspec:
      name: python3
    ---
    # Devices

    ```{code-cell} ipython3
    :tags: [hide-input, raises-exception]
    common
    ```

    ::::{tab-set}
    :::{tab-item} PyTorch
    ```{code-cell}
    torch's
    ```
    :::
    :::{tab-item} JAX
    ```{code-cell}
    jax's
    ```
    :::
    ::::

    `````{tab-set}
    ````{tab-item} PyTorch
    ```{code-cell} python
    ---
    tags: [skip-execution]
    ---
    torch's second
    ```
    ````
    `````

    ```{code-cell} bash
    not run
    ```

    ```python
    not run
    ```
"""
PLAIN = """
    # Install

    === "pip"

        ```python
        every
        ```

    === "PyTorch"

        ```python
        torch's
        ```

    === "TensorFlow"

        ```py
        tensorflow's
        ```

    ```bash
    not run
    ```

    1. A list:

       ```python
       every, too
       ```
"""
SETS_OF_TABS = """
    !!! note

        ```python
        admonition
        ```

    === "PyTorch"

        Text in a tab.

        ```python
        torch 1
        ```

        More text.

        ```python
        torch 2
        ```

    === "JAX"
        ```{ .python .annotate }
        jax 1
        ```

        ```python
        jax 2
        ```

    ````{tabs}
    ```{group-tab} PyTorch
    ~~~python
    torch 3
    ~~~
    ```
    ```{group-tab} JAX
    ~~~python
    jax 3
    ~~~
    ```
    ````

    ::::{tab-set}
    :::{tab-item} JAX
    ::::{note}
    Text.
    ::::
    ```python
    jax 4
    ```
    :::
    ::::

    ```python
    every
    ```
"""


@pytest.fixture
def chapter(tmp_path):
    def write(text, name="chapter.md", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(textwrap.dedent(text).encode(encoding))
        return read(path)

    return write


def in_short(chapter):
    """The first line of each cell with its tabs and its row."""
    return [
        (cell.code.splitlines()[0], " ".join(sorted(cell.tabs)), cell.row) for cell in chapter.cells
    ]


def test_an_unmarked_cell_of_d2l_is_for_the_first_tab_of_the_course(chapter, tmp_path):
    (tmp_path / "config.ini").write_text("[build]\ntabs = mxnet, pytorch\n", encoding="utf-8")
    read_chapter = chapter(D2L_CLASSIC)
    assert read_chapter.tabs == ("torch", "mxnet")
    assert in_short(read_chapter) == [
        ('x = "mxnet\'s, the first tab of config.ini"', "mxnet", 0),
        ('x = "torch\'s"', "torch", 0),
        ("x", "", 1),
        ("y", "mxnet torch", 2),
    ]


def test_an_unmarked_cell_of_d2l_without_config_is_for_the_framework_it_imports(chapter):
    text = D2L_CLASSIC.replace('x = "mxnet', 'from d2l import mxnet as d2l; x = "mxnet')
    assert chapter(text).cells[0].tabs == {"mxnet"}


def test_an_unmarked_cell_with_a_name_is_for_all_tabs(chapter):
    fence = "```{.python .input #%s}\n%s\n```\n"
    cells = ["#@tab mxnet\nfrom d2l import mxnet", "#@tab pytorch\nfrom d2l import torch"]
    text = "".join(fence % ("imports", cell) for cell in cells) + fence % ("both", "import torch")
    assert in_short(chapter(text)) == [
        ("from d2l import mxnet", "mxnet", 0),
        ("from d2l import torch", "torch", 0),
        ("import torch", "", 1),
    ]


def test_the_cell_that_chooses_tabs_is_no_cell_and_unmarked_ones_are_for_all(chapter):
    read_chapter = chapter(D2L_ENGLISH)
    assert read_chapter.tabs == ("torch", "mxnet", "jax")  # without tensorflow's leftover
    assert in_short(read_chapter) == [
        ("1", "mxnet", 0),
        ("2", "jax torch", 0),
        ("3", "", 1),
        ("4", "torch", 2),
        ("5", "jax", 2),
        ("6", "tensorflow", 2),
    ]
    assert [cell.code.strip() for cell in read_chapter.cells_of("jax")] == ["2", "3", "5"]


def test_cells_of_myst_in_tabs_with_colons_and_with_backticks(chapter):
    read_chapter = chapter(MYST)
    assert read_chapter.tabs == ("torch", "jax")
    assert in_short(read_chapter) == [
        ("common", "", 0),
        ("torch's", "torch", 1),
        ("jax's", "jax", 1),
        ("torch's second", "torch", 2),
    ]
    assert read_chapter.cells[0].tags == ("hide-input", "raises-exception")
    assert read_chapter.cells[3].tags == ("skip-execution",)
    assert read_chapter.cells[3].heading == "Devices"


def test_fences_of_plain_markdown_in_tabs_of_material_and_in_lists(chapter):
    read_chapter = chapter(PLAIN)
    assert read_chapter.tabs == ("torch", "tensorflow")
    assert in_short(read_chapter) == [
        ("every", "", 0),
        ("torch's", "torch", 1),
        ("tensorflow's", "tensorflow", 1),
        ("every, too", "", 2),
    ]


def test_the_cells_of_tabs_in_a_set_are_paired_in_their_order(chapter):
    assert in_short(chapter(SETS_OF_TABS)) == [
        ("admonition", "", 0),
        ("torch 1", "torch", 1),
        ("torch 2", "torch", 2),
        ("jax 1", "jax", 1),
        ("jax 2", "jax", 2),
        ("torch 3", "torch", 3),
        ("jax 3", "jax", 3),
        ("jax 4", "jax", 4),
        ("every", "", 5),
    ]


def test_a_heading_has_no_marks(chapter):
    read_chapter = chapter("## [**The `gpu`**] device {#device}\n\n```python\n1\n```\n")
    assert read_chapter.cells[0].heading == "The gpu device"


def test_a_byte_order_mark_and_windows_line_ends_do_not_count(chapter):
    assert in_short(chapter("```python\r\n1\r\n```\r\n", encoding="utf-8-sig")) == [("1", "", 0)]


def test_a_notebook_has_tabs_by_its_marks_and_tags(chapter):
    def code(source, *tags):
        return {
            "cell_type": "code",
            "source": source,
            "metadata": {"tags": list(tags)},
            "outputs": [],
            "execution_count": None,
        }

    text = {"cell_type": "markdown", "source": "## Moving", "metadata": {}}
    cells = [code("1"), text, code("%%tab pytorch\n2"), code("3", "jax", "raises-exception")]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    read_chapter = chapter(json.dumps(notebook), "chapter.ipynb")
    assert in_short(read_chapter) == [("1", "", 0), ("2", "torch", 1), ("3", "jax", 1)]
    assert read_chapter.cells[1].heading == "Moving"


def test_what_is_no_chapter_is_an_error(chapter, tmp_path):
    with pytest.raises(ArgumentError, match="no cells of Python"):
        chapter("# Only text\n")
    with pytest.raises(ArgumentError, match="is not a Jupyter notebook"):
        chapter("no JSON", "chapter.ipynb")
    with pytest.raises(ArgumentError, match="is not a Jupyter notebook"):
        chapter("[1]", "list.ipynb")
    julia = {"cells": [], "nbformat": 4, "nbformat_minor": 4}
    julia["metadata"] = {"language_info": {"name": "julia"}}
    with pytest.raises(ArgumentError, match="is written in julia, and only Python"):
        chapter(json.dumps(julia), "julia.ipynb")
    with pytest.raises(ArgumentError, match=r"is not UTF-8 \(byte 12 cannot be read\); save it as"):
        chapter("```python\n# é\n```\n", encoding="latin-1")
    with pytest.raises(ArgumentError, match="is a folder"):
        read(tmp_path)
    with pytest.raises(ArgumentError, match="does not exist"):
        read(tmp_path / "missing.md")


def test_tabs_have_the_names_of_frameworks_in_any_spelling(chapter):
    read_chapter = chapter(D2L_ENGLISH)
    assert tabs_to_run(read_chapter, ["PyTorch", "torch", "jax"]) == ["torch", "jax"]
    with pytest.raises(ArgumentError, match="has no tab 'tensorflow'; it has torch, mxnet, jax"):
        tabs_to_run(read_chapter, ["tensorflow"])
    with pytest.raises(ArgumentError, match="'rust' is not a tab or a framework"):
        tabs_to_run(read_chapter, ["rust"])
    with pytest.raises(ArgumentError, match="did you mean 'pytorch'"):
        tabs_to_run(read_chapter, ["pytroch"])


@pytest.mark.parametrize(
    ("label", "tabs"),
    [
        ("TensorFlow 2", {"tensorflow"}),
        ("PyTorch (recommended)", {"torch"}),
        ("JAX/Flax", {"jax"}),
        ("Keras (JAX)", {"jax"}),
        ("TensorFlow/Keras", {"tensorflow"}),
        ("PyTorch, JAX", {"torch", "jax"}),
        ("Linux", set()),
        ("pip", set()),
    ],
)
def test_a_label_can_say_more_than_the_frameworks_name(chapter, label, tabs):
    text = f'=== "{label}"\n\n    ```python\n    1\n    ```\n'

    [cell] = chapter(text).cells

    assert cell.tabs == tabs


def test_a_notebook_may_lack_metadata(chapter):
    cells = [{"cell_type": "code", "source": "1"}, {"cell_type": "markdown", "metadata": None}]
    notebook = {"cells": cells, "nbformat": 4, "nbformat_minor": 5}

    assert [cell.code for cell in chapter(json.dumps(notebook), "a.ipynb").cells] == ["1"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '"x"', '{"cells": null}', '{"cells": [3]}'])
def test_an_error_says_why_a_file_is_not_a_notebook(chapter, text):
    with pytest.raises(ArgumentError, match=r"it is not JSON|it has no list of cells"):
        chapter(text, "a.ipynb")


@pytest.mark.parametrize(
    ("kernel", "language"),
    [
        ({"name": "ir"}, "R"),
        ({"name": "julia-1.9"}, "Julia"),
        ({"name": "python3", "language": "python3"}, ""),
        ({"name": "python3", "language": "ipython"}, ""),
        ({"name": "irene"}, ""),
    ],
)
def test_a_notebooks_kernel_tells_its_language(chapter, kernel, language):
    cells = [{"cell_type": "code", "source": "1", "metadata": {}}]
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4}
    text = json.dumps(notebook)
    if language:
        with pytest.raises(ArgumentError, match=f"written in {language}, and"):
            chapter(text, "a.ipynb")
    else:
        assert chapter(text, "a.ipynb").cells


def test_the_framework_that_cells_use_most_is_the_first_of_those_imported(chapter):
    text = """
        ```python
        import numpy as np
        import torch.utils.data as data
        import jax.numpy as jnp
        from flax import linen as nn
        ```

        ```python
        loader = data.DataLoader(np.zeros(3))
        np.ones(3), np.ones(3), np.ones(3)
        nn.Dense(jnp.ones(3).size)
        ```
    """
    assert chapter(text).imported() == ["jax", "torch", "numpy"]


@pytest.mark.parametrize("line", ["os.environ['KERAS_BACKEND'] = 'jax'", "%env KERAS_BACKEND=jax"])
def test_a_chapter_that_chooses_keras_backend_imports_it(chapter, line):
    text = f"```python\nimport os\n{line}\nimport keras, numpy\n```\n"
    assert chapter(text).imported() == ["jax", "numpy"]


def test_a_chapter_has_a_title_and_its_prose_between_the_cells(chapter):
    read_chapter = chapter(D2L_CLASSIC)
    assert read_chapter.title == "GPUs"
    assert [
        part.text.partition("\n")[0] if isinstance(part, Prose) else part.code.strip()
        for part in read_chapter.parts
    ] == [
        "# GPUs",
        'x = "mxnet\'s, the first tab of config.ini"',
        "About PyTorch.",
        'x = "torch\'s"',
        "Text for all.",
        "x",
        "```python",
        "y",
    ]
    assert read_chapter.parts[2].tabs == {"torch"}


@pytest.mark.parametrize("text", [
    '=== "Paddel"\n\n    ```python\n    1\n    ```\n',
    "```{.python .input}\n#@tab paddel\n1\n```\n",
    "```{.python .input}\n#@tab pytorch, Pytroch\n1\n```\n",
    "```{.python .input}\ntab.interact_select('tensorfow')\n```\n```{.python .input}\n1\n```\n",
    ":::{tab-item} Tensor-Flow\n```{code-cell}\n1\n```\n:::\n",
])  # fmt: skip
def test_what_is_nearly_the_name_of_a_framework_is_an_error(chapter, text):
    with pytest.raises(
        ArgumentError, match=r"has a tab '[\w-]+', which is not a framework; did you mean '\w+'\?$"
    ):
        chapter(text)


@pytest.mark.parametrize("label", ["Linux", "macOS", "pip", "conda", "Tensors", "Python", "MLX"])
def test_a_label_that_is_not_like_a_frameworks_name_is_for_all(chapter, label):
    [cell] = chapter(f'=== "{label}"\n\n    ```python\n    1\n    ```\n').cells
    assert cell.tabs == set()


RAISING = {
    "d2l": "```{.python .input}\n%%tab pytorch\n%%expect_exception TypeError\nx + y\n```\n",
    "d2l's other": "```{.python .input}\n%%expect_exception\n#@tab pytorch\nx + y\n```\n",
    "myst": "```{code-cell}\n---\ntags: [raises-exception]\n---\nx + y\n```\n",
    "comment": "```python\n# raises-exception\nx + y\n```\n",
    "comment behind": "```python\nx + y  # raises-exception\n```\n",
}


@pytest.mark.parametrize("mark", RAISING)
def test_each_dialect_marks_a_cell_whose_error_is_the_lesson(chapter, mark):
    [cell] = chapter(RAISING[mark]).cells
    assert (cell.code.strip(), cell.tags) == ("x + y", ("raises-exception",))
    assert cell.tabs == ({"torch"} if mark.startswith("d2l") else set())


def test_a_notebook_of_the_format_3_is_refused(chapter):
    with pytest.raises(ArgumentError, match="of the format 3; jupyter nbconvert --to notebook"):
        chapter('{"worksheets": [{"cells": []}], "nbformat": 3}', "old.ipynb")


def test_an_admonition_keeps_its_title_and_a_formula_of_myst_its_marks(chapter):
    text = """
        :::{note} First
        second
        :::

        ```{math}
        :label: sum
        a + b
        ```

        !!! warning "Hot"

            Careful.

        ```python
        1
        ```
    """
    prose = [part.text for part in chapter(text).parts if isinstance(part, Prose)]
    assert " ".join("\n".join(prose).split()) == (
        "> > **Note** > > First > second $$ a + b $$ (sum) > > **Hot** > > Careful."
    )
