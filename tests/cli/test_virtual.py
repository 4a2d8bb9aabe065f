"""``xdevice virtual build``, and what ``xdevice doctor`` says of virtual GPUs, with a framework that has a plug-in."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

VIRTUAL = """
    import os
    from pathlib import Path
    from xdevice import NotSupportedError
    from xdevice.virtual import plugins
    def recipe():
        if "TOY_OLD" in os.environ:
            raise NotSupportedError("virtual GPUs need toy 2 or newer, and this is 1.5; pip install --upgrade toy")
        source = Path(__file__).with_name("toy.cc")
        return plugins.Recipe("toy", "virtual GPUs for toy 1.5", source, "toy 1.5", "c++17")
    def enable(request):
        if request.stand_in or "TOY_OLD" in os.environ:
            plugins.library(recipe())
"""


@pytest.fixture
def toy_with_plug_in(with_toy, tmp_path, compiler):
    """Runs a command where the framework has virtual GPUs, which stand in by a plug-in."""
    folder = tmp_path / "xdevice_toy"
    folder.mkdir()
    (folder / "virtual.py").write_text(textwrap.dedent(VIRTUAL))
    (folder / "toy.cc").write_text('extern "C" int answer() { return 42; }\n')

    def run(*arguments, **options):
        return with_toy(
            "good", *arguments, **{"XDG_CACHE_HOME": str(tmp_path / "cache"), "CXX": "", **options}
        )

    return run


@pytest.fixture
def toy_with_virtual_names(with_toy, tmp_path):
    """Runs a command where another package provides the toy's virtual GPUs, and lists a name that the toy lacks."""
    names = """
        from xdevice.backends.kit.private_names import PrivateName
        LAST_TRIED = "1.4"
        NAMES = [PrivateName("toy:Tensor._stream", "streams of virtual GPUs")]
    """
    files = {
        "xdevice_toy_gpus/__init__.py": "",
        "xdevice_toy_gpus/private_names.py": textwrap.dedent(names),
        "xdevice_toy_gpus-1.dist-info/METADATA": (
            "Metadata-Version: 2.1\nName: xdevice-toy-gpus\nVersion: 1\n"
        ),
        "xdevice_toy_gpus-1.dist-info/entry_points.txt": (
            "[xdevice.virtual_gpus]\ntoy = xdevice_toy_gpus\n"
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return with_toy


@pytest.mark.weekly
def test_doctor_and_status_show_what_the_adapter_and_its_virtual_gpus_lack(toy_with_virtual_names):
    for action in (["doctor"], ["virtual", "status"]):
        done = toy_with_virtual_names("newer", *action, "--backend", "toy", COLUMNS="300")
        lines = [line for line in done.stdout.splitlines() if " is not there" in line]
        assert len(lines) == 2, done.stdout + done.stderr
        assert "placement: not supported: toy.Tensor._device is not there" in lines[0]
        assert "streams of virtual GPUs: not supported: toy.Tensor._stream is not" in lines[1]


@pytest.mark.weekly
def test_build_says_where_and_how_long(toy_with_plug_in, tmp_path):
    build = "virtual", "build", "--backend", "toy,numpy"
    out = toy_with_plug_in(*build, status=0).stdout
    (library,) = (tmp_path / "cache" / "xdevice").glob("toy-*/*toy.*")
    assert re.fullmatch(
        rf"toy: {library} was compiled in \d+\.\d s\nno plug-in is needed for numpy\n", out
    )
    assert toy_with_plug_in(*build, status=0).stdout.startswith(
        f"toy: {library} is there already\n"
    )


def test_build_fills_a_folder_for_others(toy_with_plug_in, tmp_path):
    folder = tmp_path / "new" / "plug-ins"
    build = "virtual", "build", "--backend", "toy", "--to", str(folder)
    out = toy_with_plug_in(*build, status=0, umask=0o077).stdout
    (library,) = folder.glob("toy-*/*toy.*")
    assert f"toy: {library} was compiled in " in out
    assert f"set XDEVICE_PLUGINS={folder} where" in out
    readable = [each.stat().st_mode & 0o555 for each in (library.parent, library)]
    assert readable == [0o555] * 2
    assert library.parent.with_suffix(".sha256").stat().st_mode & 0o444 == 0o444
    done = toy_with_plug_in(
        "virtual", "build", "--backend", "toy", XDEVICE_PLUGINS=str(folder), CXX="none", PATH=""
    )
    assert done.stdout == f"toy: {library} is there already\n"
    assert not (tmp_path / "cache").exists()


@pytest.mark.weekly
def test_the_docs_recipe_for_a_container_works(toy_with_plug_in, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "project" / "virtual.md").read_text(
        encoding="utf-8"
    )
    lines = [
        line.partition(" ")
        for line in re.search(r"```dockerfile\n(.*?)```", page, re.DOTALL)[1].splitlines()
    ]
    words = {
        name: rest.replace("/opt/", f"{tmp_path}/built/").split() for name, _, rest in lines if name
    }
    assert words["RUN"][:2] == ["xdevice", "virtual"]
    toy_with_plug_in(*words["RUN"][1:], "--backend", "toy", status=0)
    _, source, _ = words["COPY"]
    last_stage = tmp_path / "last" / "xdevice"
    shutil.copytree(source, last_stage, copy_function=shutil.copy)
    name, _, value = words["ENV"][0].partition("=")
    there = {name: value.replace(source, str(last_stage)), "CXX": "", "PATH": "/"}
    shutil.rmtree(source)
    done = toy_with_plug_in("virtual", "build", "--backend", "toy", status=0, **there)
    assert done.stdout.startswith(f"toy: {last_stage}/toy-")
    assert done.stdout.endswith(" is there already\n")


def test_build_needs_no_extra(toy_with_plug_in, toy, tmp_path):
    env = toy.write(tmp_path, "good") | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    code = "import sys; sys.modules['rich'] = sys.modules['psutil'] = None\nfrom xdevice.tools.cli import main\n"
    code += "sys.exit(main(['virtual', 'build', '--backend', 'toy']))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, "was compiled in" in done.stdout) == (0, True), done.stderr


@pytest.mark.weekly
def test_what_build_cannot_do_is_an_error(toy_with_plug_in, tmp_path):
    build = "virtual", "build", "--backend", "toy"
    assert "names no C++ compiler" in toy_with_plug_in(*build, status=1, CXX="none").stdout
    assert "need toy 2 or newer" in toy_with_plug_in(*build, status=1, TOY_OLD="1").stdout
    assert (
        "'ghost', which is not installed"
        in toy_with_plug_in("virtual", "build", "--backend", "ghost", status=2).stderr
    )
    assert (
        "--to goes with xdevice virtual build"
        in toy_with_plug_in("virtual", "status", "--to", "x", status=2).stderr
    )
    if os.name != "nt":
        (tmp_path / "open").mkdir()
        (tmp_path / "open").chmod(0o777)
        refused = toy_with_plug_in(*build, "--to", str(tmp_path / "open"), status=2).stderr
        assert "can be written by other users (mode 777); name another folder" in refused


@pytest.fixture
def found(toy_with_plug_in):
    """What the doctor says of the toy's virtual GPUs."""

    def ask(**env):
        done = toy_with_plug_in("doctor", "--backend", "toy", "--json", status=0, **env)
        (finding,) = [
            f for f in json.loads(done.stdout)["findings"] if f["subject"] == "toy virtual GPUs"
        ]
        return finding["state"], finding["reason"], finding["cure"]

    return ask


def test_doctor_says_what_compiles_a_plug_in(found):
    state, reason, cure = found()
    assert (state, cure) == ("good", "xdevice virtual build compiles it now")
    assert reason.endswith("stand in for real ones, by a plug-in that is compiled at the first use")


@pytest.mark.weekly
def test_doctor_says_why_virtual_gpus_cannot_stand_in(found, toy_with_plug_in):
    state, reason, _ = found(CXX="none")
    assert state == "note"
    assert reason.startswith(
        "work, and cannot stand in: virtual GPUs for toy 1.5 are compiled when"
    )
    assert "CXX=none names no C++ compiler" in reason
    state, reason, _ = found(TOY_OLD="1")
    assert (state, reason[:34]) == ("note", "virtual GPUs need toy 2 or newer, "), (
        "not even without standing in"
    )
    toy_with_plug_in("virtual", "build", "--backend", "toy", status=0)
    assert found() == ("good", "work, and can stand in for real ones", None)


@pytest.mark.weekly
def test_doctor_advises_no_useless_install(toy, tmp_path):
    env = toy.write(tmp_path, "good", nvml=False)
    code = "import sys; sys.modules['mxnet'] = sys.modules['cupy'] = None\nfrom xdevice.tools.cli import main\n"
    code += "sys.exit(main(['doctor', '--backend', 'mxnet,cupy,toy', '--json']))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=100
    )
    findings = {f["subject"]: f for f in json.loads(done.stdout)["findings"]}
    assert findings["mxnet"]["cure"].startswith("pip install --no-deps mxnet==1.9.1")
    if findings["machine"]["state"] == "note":  # no GPU
        assert findings["cupy"]["reason"] == "not installed; it needs a GPU"
        assert findings["cupy"]["cure"] is None


@pytest.mark.weekly
def test_status_lists_the_features_that_this_version_lacks(with_toy):
    def status(framework):
        lines = with_toy(
            framework, "virtual", "status", "--backend", "toy,numpy", status=0
        ).stdout.splitlines()
        return [line for line in lines if line.startswith(("toy", "numpy"))]

    placement = (
        "placement: not supported: toy.Tensor._device is not there, toy.Tensor._place is not there"
    )
    hint = "1.4 has it: pip install toy==1.4"
    assert status("good") == []  # before the files of the others
    assert status("changed") == [
        f"toy 1.5: virtual GPUs do not work: toy._start is not there; {hint}",
        f"toy 1.5: {placement}; {hint}",
    ]
    assert status("newer") == [f"toy 1.5: {placement}; {hint}"]
