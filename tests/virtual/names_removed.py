"""Remove each private name of a framework in turn, and print where more is missing than the feature that needs it.

    python names_removed.py BACKEND [--stand-in | --in-python] [--each=N]

Each name is removed in a forked process, which then enables virtual GPUs and runs a small program. A name that the
framework's own code needs is hidden instead from xdevice alone: a version without it has other code.
"""

import os
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path

from private_lists import lists_of

os.environ["JAX_TRACEBACK_FILTERING"] = "off"  # or errors within JAX seem to be xdevice's

import xdevice
from xdevice import virtual
from xdevice.backends.kit import private_names as kit
from xdevice.contract import Request

NAME, STAND_IN, IN_PYTHON = sys.argv[1], "--stand-in" in sys.argv, "--in-python" in sys.argv
EACH = next((int(word.partition("=")[2]) for word in sys.argv if word.startswith("--each=")), 1)
LISTS = ("STAND_IN", "READ", "OTHERS") if STAND_IN else ("VIRTUAL", "VGPU", "OTHERS")
LISTS += ("IN_PYTHON",) * IN_PYTHON
BLOCKS = {"strict()": xdevice.strict, "watch_transfers()": xdevice.watch_transfers}
SECONDS, KEPT = 150, []


def remove(name):
    owner, attribute = kit.resolved(name.path)
    KEPT.append(getattr(owner, attribute))  # or it may do something as it ends
    public = getattr(owner, "__all__", [])
    if isinstance(public, list) and attribute in public:
        public.remove(attribute)
    try:
        delattr(owner, attribute)
    except (AttributeError, TypeError):
        hide(name)  # it is of a class in C, or comes from a base class
    if not kit._problem(name, imported_only=False):
        hide(name)  # it comes back, from a base class or a library in C


def hide(name):
    resolved = kit.resolved

    def hidden(path):
        if path == name.path:
            raise AttributeError(path)
        return resolved(path)

    kit.resolved = hidden


def of_the_same(name):
    """The names that go with it: those of its path, by other features, and those inside it."""
    return [
        each
        for each in names_of()
        if each.path == name.path or each.path.startswith(f"{name.path}.")
    ]


def names_of(*lists):
    """The names of these lists, or all, of the adapter and of its virtual GPUs."""
    return list(dict.fromkeys(name for each in listed for name in each.names.of(*lists)))


def small_program():
    """Create, move, add, and differentiate."""
    gpu = xdevice.gpu(1)
    x = xdevice.to_device(xdevice.ones(3), gpu)
    with xdevice.scope(gpu):
        assert xdevice.to_numpy(x + x).tolist() == [2, 2, 2]
        assert xdevice.device_of(x + x) == gpu
        value, gradient = xdevice.value_and_grad(lambda x: xdevice.namespace(x).sum(x + x))(x)
    assert float(value) == 6
    assert xdevice.to_numpy(gradient).tolist() == [2, 2, 2]
    assert xdevice.device_of(gradient) == gpu


def check(name):
    """That virtual GPUs, the program, and all features but that of the name work; and that its error names it."""
    hints = tuple(kit.hint(each.names._package, each.last_tried) for each in listed)
    path = name.path.replace(":", ".")
    gone, asked_for = of_the_same(name), set(names_of(*LISTS))
    is_essential = any(each.essential for each in gone if each in asked_for)
    said = kit.missing(names_of())
    assert any(
        line.startswith(f"{path} ") and line.endswith(f", needed for {name.feature}")
        for line in said
    ), said
    try:
        xdevice.virtual_gpus(2, stand_in=STAND_IN)
        assert xdevice.num_gpus() == 2
    except xdevice.VirtualDeviceError as error:
        assert is_essential, f"they are refused: {error}"
        assert f"virtual GPUs do not work under {NAME} {version}, where {path} " in str(error), (
            error
        )
        assert str(error).endswith(hints), error
        return
    assert not is_essential, "they are not refused"
    features = {each.feature for each in gone}
    try:
        small_program()
    except xdevice.NotSupportedError as error:
        assert any(str(error).startswith(f"{feature}: not supp") for feature in features), error
        assert str(error).endswith(hints), error
    for feature in {each.feature for each in gone if each in asked_for}:
        asked = [
            getattr(*kit.resolved(at))
            for each in listed
            for at in each.names._entrances[feature]
            if not kit._problem(kit.PrivateName(at, ""), imported_only=False)
        ]
        asked += [
            lambda opened=opened: opened().__enter__()
            for word, opened in BLOCKS.items()
            if word in feature
        ]
        for ask in asked:
            try:
                ask()
            except xdevice.NotSupportedError as error:
                assert str(error).startswith(
                    f"{feature}: not supported under {NAME} {version}, where "
                ), error
                assert str(error).endswith(hints), error
            except (
                TypeError
            ):  # it is still the framework's own, where the names are of another list
                assert feature not in {each.feature for each in asked_for}
            else:
                raise AssertionError(f"{ask} is not refused")


def tried(name, without):
    """How a forked process ends from which the name is gone: 0, or 2 where code fails that is not ours, else 1."""
    child = os.fork()
    if child == 0:
        status = 1
        signal.alarm(SECONDS)
        try:
            without(name)
            check(name)
            status = 0
        except BaseException as error:
            first = error
            while first.__cause__ is not None:
                first = first.__cause__
            *_, last = traceback.extract_tb(first.__traceback__)
            status = 1 if last.filename.startswith(OWN_FOLDERS) else 2
            print(name.path, file=sys.stderr)
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


xdevice.use(NAME)
if NAME == "paddle":  # it loads the plug-in when it is imported
    from xdevice.virtual.paddle import importing

    with importing(Request(2, stand_in=STAND_IN)):
        import_module("xdevice.backends.paddle")
backend = import_module(f"xdevice.backends.{NAME}")
listed = lists_of(NAME)
# Beside the installed package, in the same folder, is the framework.
homes = (
    Path(__file__).parents[1],
    Path(xdevice.__file__).parent,
    Path(backend.__file__).parents[1],
    Path(virtual.__file__).parent,
)
OWN_FOLDERS = tuple(f"{home}{os.sep}" for home in homes)
version = sys.modules[NAME].__version__
names = [
    name
    for name in names_of(*LISTS)
    if not name.optional and not kit._problem(name, imported_only=False)
]
assert names, "no names are listed, or none is there"
for name in names[::EACH]:
    ended = tried(name, remove)
    if ended == 2:
        ended = tried(name, hide)
    if ended:
        print(name.path, "is needed for more than", name.feature, flush=True)
