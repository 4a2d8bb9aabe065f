"""Paths: links stay, devices and folders are refused, threads do not disturb each other."""

import errno
import json
import os
import socket
import subprocess
import sys
import threading

import numpy
import pytest

import xdevice
from xdevice.testing.contract.storage import file_with


@pytest.fixture(autouse=True)
def numpy_chosen():
    with xdevice.using("numpy"):
        yield


def test_a_links_target_is_written(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "run-1")
    xdevice.save(numpy.ones(2), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "run-1"]
    assert xdevice.load(tmp_path / "link").tolist() == [1, 1]


def test_a_folder_is_the_systems_error(tmp_path):
    for verb in (lambda: xdevice.save(numpy.ones(2), tmp_path), lambda: xdevice.load(tmp_path)):
        with pytest.raises(IsADirectoryError, match=tmp_path.name):
            verb()
    assert os.listdir(tmp_path) == []


def test_a_pipe_or_a_device_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is a device or a pipe"):
        xdevice.save(numpy.ones(2), tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


def loop(path):
    path.symlink_to(path.name)


def pair(path):
    path.symlink_to("other")
    path.with_name("other").symlink_to(path.name)


@pytest.mark.parametrize("made", [loop, pair])
def test_circular_links_are_an_error_and_stay(tmp_path, made):
    made(tmp_path / "link")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(OSError, match="its links lead back to themselves") as caught:
        xdevice.save(numpy.ones(2), tmp_path / "link")
    assert caught.value.errno == errno.ELOOP
    assert caught.value.filename == str(tmp_path / "link")
    assert sorted(os.listdir(tmp_path)) == before
    assert all((tmp_path / name).is_symlink() for name in before)


def test_a_pipe_a_socket_or_a_device_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        paths = [str(tmp_path / "pipe"), str(tmp_path / "socket"), "/dev/zero", "/dev/ptmx"]
        command = [
            sys.executable,
            "-c",
            LOAD_EACH,
            *paths,
        ]  # a process of its own, which can be ended if it waits
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    says = "[Errno 22] cannot be read: it is a device or a pipe; give a file"
    assert done.stdout.splitlines() == [f"{says}: {path!r}" for path in paths], done.stderr


LOAD_EACH = """
import sys, xdevice
xdevice.use("numpy")
for path in sys.argv[1:]:
    try:
        xdevice.load(path)
    except OSError as error:
        print(error)
"""
LOAD = "import sys, xdevice; xdevice.use('numpy'); xdevice.load(sys.argv[1])"


@pytest.mark.parametrize(("size", "limit"), [(2**43, None), (2**33, 2**32)])
def test_a_file_larger_than_memory_is_an_error(tmp_path, size, limit):
    head = json.dumps({"x": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with open(tmp_path / "file", "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 + len(head) + size)  # which takes no room on the disk
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))\n"
        if limit
        else ""
    )
    done = subprocess.run(
        [sys.executable, "-c", code + LOAD, tmp_path / "file"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        f"xdevice.errors.OutOfMemoryError: '{tmp_path}/file' ({8 + len(head) + size} bytes) does not"
    )


def test_a_missing_folder_is_an_error_with_its_path(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"there is no folder .*none'; create it first"
    ) as caught:
        xdevice.save(numpy.ones(2), tmp_path / "none" / "file")
    assert caught.value.filename == str(tmp_path / "none" / "file")


@pytest.mark.parametrize("path", [3, None, 1.5, ["file"]])
def test_an_object_that_is_not_a_path_is_an_error(path):
    with pytest.raises(xdevice.ArgumentTypeError, match="is not a path; write for example"):
        xdevice.save(numpy.ones(2), path)
    with pytest.raises(xdevice.ArgumentTypeError, match="is not a path"):
        xdevice.load(path)


def test_a_path_in_bytes_and_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    xdevice.save(numpy.ones(2), b"file")
    assert xdevice.load("file").tolist() == [1, 1]


def test_threads_leave_one_whole_file(tmp_path):
    trees = [numpy.full(100_000, float(i)) for i in range(8)]
    errors = []

    def saved(tree):
        try:
            xdevice.save(tree, tmp_path / "file")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=saved, args=(tree,)) for tree in trees]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = xdevice.load(tmp_path / "file")
    assert not errors
    assert os.listdir(tmp_path) == ["file"]
    assert any((found == tree).all() for tree in trees)


def test_names_are_paths_and_differ(tmp_path):
    tree = {
        "a.b": numpy.ones(1),
        "a": {"b": numpy.zeros(1)},
        "\udc80": numpy.ones(2),
        "__metadata__": numpy.ones(3),
    }
    xdevice.save(tree, tmp_path / "file")
    data = (tmp_path / "file").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert set(header) == {"__metadata__", "a.b", "a.b#2", "\\udc80", "__metadata__#2"}
    back = xdevice.load(tmp_path / "file")
    assert list(back) == list(tree)
    assert back["a"]["b"].tolist() == [0]
    assert len(back["__metadata__"]) == 3


def test_a_tree_too_deep_for_python_is_an_error(tmp_path):
    tree = [numpy.ones(1)]
    for _ in range(100_000):
        tree = [tree]
    with pytest.raises(xdevice.ArgumentTypeError, match="nested too deep"):
        xdevice.save(tree, tmp_path / "file")
    assert os.listdir(tmp_path) == []
    while tree:  # taken apart here: Python would do it by recursion
        tree = tree.pop() if isinstance(tree, list) else None


def test_a_file_with_a_changed_header_is_a_tree_or_refused(tmp_path):
    """With any byte changed, the file is loaded as a tree, or refused with an error of xdevice's."""
    xdevice.save({"w": numpy.ones((2, 3), "float32"), "b": [numpy.zeros(0), 5]}, tmp_path / "file")
    whole = (tmp_path / "file").read_bytes()
    size = 8 + int.from_bytes(whole[:8], "little")
    outcomes = {"loaded": 0, "refused": 0}
    for i in range(size):
        for byte in {whole[i] ^ 1, whole[i] ^ 128, ord("9"), ord('"')}:
            (tmp_path / "file").write_bytes(whole[:i] + bytes([byte]) + whole[i + 1 :])
            try:
                xdevice.load(tmp_path / "file")
                outcomes["loaded"] += 1
            except (xdevice.FileFormatError, xdevice.NotSupportedError):
                outcomes["refused"] += 1
    assert min(outcomes.values()) > 10


@pytest.mark.parametrize("shape", [[0, 2**62], [0, 2**62, 2**62], [0] * 70])
def test_an_empty_tensor_of_an_impossible_shape(tmp_path, shape):
    empty = file_with({"x": ("F32", numpy.zeros(0, "float32"))}).replace(
        b"[0]", json.dumps(shape).encode(), 1
    )
    head = empty[8:]
    (tmp_path / "file").write_bytes(len(head).to_bytes(8, "little") + head)
    with pytest.raises((xdevice.FileFormatError, xdevice.NotSupportedError)):
        xdevice.load(tmp_path / "file")


def test_open_files_and_hard_links_keep_the_old_content(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    with xdevice.using("numpy"):
        xdevice.save(xdevice.zeros(1000), path)
        before = path.read_bytes()
        os.link(path, link)
        with open(path, "rb") as reader:
            xdevice.save(xdevice.ones(1000), path)
            assert reader.read() == before
    assert link.read_bytes() == before != path.read_bytes()


def test_an_integer_of_too_many_digits_is_an_error_with_its_path(tmp_path):
    for tree in ({"x": numpy.ones(2), "n": [10**5000]}, {"x": numpy.ones(2), "n": {10**5000: 1}}):
        with pytest.raises(
            xdevice.ArgumentTypeError, match=r"<integer of 16610 bits> at n.* is too long"
        ):
            xdevice.save(tree, tmp_path / "file")
    assert not (tmp_path / "file").exists()
