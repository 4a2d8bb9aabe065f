"""``xdevice watch``: the script runs as without it, and its copies are reported at the end."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[1] / "third_party" / "xdevice-pages"
COPIES = """
    import os, sys
    from xdevice import gpu, ones
    x = ones((), device=gpu())
    for i in range(4):
        x = x + 1
        float(x)
    print("done", sys.argv[1:], flush=True)
"""
NOTE = "2 virtual GPUs stand in for CUDA's; they compute on the CPU\n"
FOUND = "script.py:7  float(x)\n    4 copies (1 each turn of the loop in line 5), 16 B, gpu:0 → host: about"


@pytest.fixture
def env(tmp_path):
    """The environment in which Python finds the small framework pages."""
    info = tmp_path / "site" / "xdevice_pages-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: xdevice-pages\nVersion: 1.0\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(
        "[xdevice.backends]\npages = xdevice_pages\n", encoding="utf-8"
    )
    clean = {name: text for name, text in os.environ.items() if not name.startswith("XDEVICE")}
    path = os.pathsep.join([str(info.parent), str(PAGES)])
    return {**clean, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}


@pytest.fixture
def run(env, tmp_path, python):
    """Runs the command on a script of that text."""

    def run(text, *options, gpus="2", script="script.py", args=()):
        (tmp_path / "script.py").write_text(textwrap.dedent(text), encoding="utf-8")
        words = ["watch", *(("--gpus", gpus) if gpus else ()), "--backend", "pages", *options]
        done = python("-m", "xdevice", *words, *script.split(), *args, env=env, cwd=tmp_path)
        return done.returncode, done.stdout, done.stderr.removeprefix(NOTE)

    return run


@pytest.fixture
def mistaken(command, tmp_path):
    """What is said of a mistake in the options, before the script runs."""

    def run(*options):
        (tmp_path / "script.py").write_text("open('ran', 'w')", encoding="utf-8")
        done = command("watch", *options, "script.py")
        assert (done.returncode, done.stdout) == (2, "")
        assert not (tmp_path / "ran").exists()
        return done.stderr

    return run


def test_the_report_comes_on_stderr_and_the_output_is_the_scripts(run):
    status, out, err = run(COPIES, args=["--epochs", "3", "--json"])
    assert (status, out) == (0, "done ['--epochs', '3', '--json']\n")
    assert err.startswith(FOUND)
    assert "in all 4 copies, 16 B: " in err
    assert "not seen: other processes" in err


@pytest.mark.parametrize(
    "script", ["script.py", pytest.param("-m script", marks=pytest.mark.weekly)]
)
def test_a_script_is_the_program_that_python_would_run(run, tmp_path, script):
    text = """
        import __main__, pickle, sys
        class Thing: pass
        print(__name__, __file__, sys.argv[1:], sys.path[0])
        print(__main__.Thing is Thing, type(pickle.loads(pickle.dumps(Thing()))) is Thing)
    """
    status, out, err = run(text, script=script, args=["--depth", "3"])
    assert status == 0, err
    assert out.splitlines() == [
        f"__main__ {tmp_path}/script.py ['--depth', '3'] {tmp_path}",
        "True True",
    ]


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        ("raise ValueError('wrong')", 1, "ValueError: wrong\n"),
        pytest.param(
            "raise KeyboardInterrupt",
            -signal.SIGINT,
            "KeyboardInterrupt\n",
            marks=pytest.mark.weekly,
        ),
    ],
)
def test_a_script_that_fails_keeps_its_status_and_is_reported(run, end, status, said):
    found, out, err = run(textwrap.dedent(COPIES) + end)
    assert (found, out) == (status, "done []\n")
    assert FOUND in err
    assert said in err
    assert "watch.py" not in err
    assert "runpy" not in err


@pytest.mark.weekly
def test_ctrl_c_ends_it_with_the_report(env, tmp_path, with_ctrl_c):
    text = textwrap.dedent(COPIES) + "import time; time.sleep(100)"
    (tmp_path / "script.py").write_text(text, encoding="utf-8")
    words = ["watch", "--gpus=2", "--backend=pages", "script.py"]
    process = subprocess.Popen(
        [*with_ctrl_c, sys.executable, "-m", "xdevice", *words],
        env=env,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stdout.readline().startswith("done")
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert FOUND in err


@pytest.mark.weekly
def test_a_fork_of_the_script_reports_nothing(run):
    _, _, err = run(textwrap.dedent(COPIES) + "if os.fork(): os.wait()")
    assert err.count(FOUND) == 1


@pytest.mark.parametrize(
    ("most", "gpus", "status", "said"),
    [
        pytest.param("4", "2", 0, "", marks=pytest.mark.weekly),
        ("3", "2", 1, "4 copies are more than --max-copies 3"),
        (
            "0",
            None,
            2,
            "--max-copies 0 says nothing where no framework has a GPU; --gpus 2",
        ),
    ],
)
def test_a_budget_decides_the_exit_status(run, most, gpus, status, said):
    text = COPIES if gpus else "import xdevice; xdevice.ones(3)"
    found, _, err = run(text, "--max-copies", most, gpus=gpus)
    assert found == status
    assert said in err


def test_a_script_that_fails_is_not_judged_by_its_budget(run):
    assert run(textwrap.dedent(COPIES) + "sys.exit(5)", "--max-copies", "3")[0] == 5


def test_the_report_goes_to_a_file_in_the_format_that_is_asked_for(run, tmp_path):
    text = textwrap.dedent(COPIES) + "os.chdir('/')"
    status, _, err = run(text, "--format", "github", "--report", "report")
    assert (status, err) == (0, "")
    report = (tmp_path / "report").read_text(encoding="utf-8")
    assert report.startswith("::warning file=script.py,line=7,")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--max-copies", "-1"], "argument --max-copies: '-1' is not a whole number of 0 or more"),
        (
            ["--format", "xml"],
            "argument --format: 'xml' is unknown; there are text, json, github",
        ),
        (["--report", "nowhere/report"], "'nowhere/report' cannot be written: No such file"),
        (["--json"], "unknown option '--json'"),
    ],
)
def test_a_mistake_in_the_options_is_said(mistaken, options, said):
    assert said in mistaken(*options)


def test_a_baseline_leaves_new_findings_alone(run, tmp_path):
    known = ("--baseline", "known.json")
    status, _, err = run(COPIES, *known)
    assert status == 2
    assert "no baseline in 'known.json'" in err
    assert "--update-baseline writes one" in err
    assert "script.py:7" in run(COPIES, *known, "--update-baseline")[2]
    moved = "import json\n" + textwrap.dedent(COPIES)
    status, _, err = run(moved, *known, "--max-copies", "0")
    assert status == 0
    assert "float(x)" not in err
    assert "in all 0 copies, 0 B; 4 copies more allowed by `# xdevice: allow`, or by" in err
    again = moved + "for _ in range(3): y = float(x) + 1\n"
    status, _, err = run(again, *known, "--format", "github", "--max-copies", "2")
    assert status == 1
    assert "3 copies are more than --max-copies 2" in err
    assert "script.py,line=10" in err


@pytest.mark.weekly
def test_a_report_as_json_is_a_baseline_too(run):
    run(COPIES, "--format", "json", "--report", "report.json")
    status, _, err = run(COPIES, "--baseline", "report.json", "--max-copies", "0")
    assert status == 0, err
    assert "in all 0 copies, 0 B; 4 copies more allowed" in err


@pytest.mark.weekly
def test_a_line_that_is_written_once_more_is_new(run):
    known = ("--baseline", "known.json")
    run(COPIES, *known, "--update-baseline")
    twice = textwrap.dedent(COPIES).replace(
        "    float(x)\n", "    float(x)\n    x = x * 1\n    float(x)\n"
    )
    assert "script.py:9" in (said := run(twice, *known)[2])
    assert "script.py:7" not in said


@pytest.mark.parametrize("text", ["", "[1]", '{"findings": [{"file": "a"}]}'])
def test_a_file_that_is_no_baseline_is_said_before_the_script_runs(mistaken, tmp_path, text):
    (tmp_path / "known.json").write_text(text, encoding="utf-8")
    said = mistaken("--baseline", "known.json")
    assert "'known.json' is not a baseline of transfers" in said


def test_a_baseline_is_written_where_a_file_is_named(mistaken):
    said = mistaken("--update-baseline")
    assert "--update-baseline writes the file of --baseline FILE; name it" in said


ACTING = "a\x1b[31m\x9b2J\n::error::b\u202e.py"


@pytest.mark.weekly
@pytest.mark.parametrize("form", ["text", "json", "github"])
def test_no_character_of_a_file_or_a_line_acts_on_a_terminal_or_a_workflow(run, tmp_path, form):
    try:
        (tmp_path / ACTING).write_text("", encoding="utf-8")
    except OSError:
        pytest.skip("this file system refuses the name")
    line = "for _ in range(4): x = x * 1; float(x)  # \x1b]0;title\x07 \x9b2J"
    text = textwrap.dedent(COPIES) + line + "\n"
    script = f"import runpy; runpy.run_path({str(tmp_path / ACTING)!r}, run_name='__main__')"
    (tmp_path / ACTING).write_text(text, encoding="utf-8")
    status, _, err = run(script, "--format", form)
    assert status == 0
    assert "b" in err
    assert not [each for each in err if each != "\n" and not each.isprintable()], ascii(err)
    assert not [each for each in err.splitlines() if each.startswith("::error::")]
    if form == "json":
        read = json.loads(err)
        assert any(each["file"].endswith(ACTING) for each in read["findings"])
