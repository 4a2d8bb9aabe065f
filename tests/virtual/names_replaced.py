"""Print what virtual GPUs replace and no names.txt of the framework lists, and the reverse.

python names_replaced.py BACKEND [--stand-in]
"""

import sys
from datetime import timedelta
from fnmatch import fnmatchcase
from importlib import import_module
from types import ModuleType

from private_lists import lists_of

import xdevice
from xdevice.backends.kit.private_names import missing, resolved
from xdevice.contract import Request

NAME, STAND_IN = sys.argv[1], "--stand-in" in sys.argv
STATE = {
    "_context",
    "_global_expected_place_",
    "_privateuse1_backend_name",
}  # which the frameworks themselves set
STATE |= {
    f"{enum}.{name}"
    for enum in ("DeviceType", "ProfilerActivity")
    for name in ("__repr__", "__str__", "name")
}


def contents(owners):
    """What each attribute of the framework's modules and classes, and of the owners, is."""
    roots = (NAME, f"{NAME}lib")  # JAX's library is jaxlib
    modules = [
        module for name, module in list(sys.modules.items()) if name.partition(".")[0] in roots
    ]
    holders = {id(holder): holder for holder in [*modules, *owners] if hasattr(holder, "__dict__")}
    for module in modules:
        classes = [each for each in vars(module).values() if isinstance(each, type)]
        holders.update(
            {
                id(c): c
                for c in classes
                if str(getattr(c, "__module__", "")).partition(".")[0] in roots
            }
        )
    return {
        (key, name): (f"{getattr(holder, '__name__', holder)}.{name}", value)
        for key, holder in holders.items()
        for name, value in list(vars(holder).items())
    }


def matches(label):
    """Whether a pattern among the optional names has it: of a module, or of a class in one."""
    paths = [name.path for name in names if name.optional]
    in_classes = [path.partition(":")[2] for path in paths if "." in path.partition(":")[2]]
    patterns = [path.replace(":", ".") for path in paths] + in_classes
    return any(fnmatchcase(label, pattern) for pattern in patterns)


def has(name):
    """Whether the framework has what has the name; else it is one of another version's."""
    try:
        resolved(name.path)
    except AttributeError:
        return not name.optional
    return True


def enable():
    xdevice.virtual_gpus(2, stand_in=STAND_IN)
    _ = xdevice.backend(NAME).hardware


xdevice.use(NAME)
if NAME == "paddle":  # it loads the plug-in when it is imported
    from xdevice.virtual.paddle import importing

    with importing(Request(2, stand_in=STAND_IN)):
        import_module("xdevice.backends.paddle")
import_module(
    f"xdevice.backends.{NAME}"
)  # MXNet cannot be imported without its adapter under NumPy 2
lists = lists_of(NAME)
import_module(f"xdevice.backends.{NAME}")  # what the adapter itself changes does not count
replaced = "STAND_IN" if STAND_IN else "VIRTUAL"
names = [name for each in lists for name in each.names.of(replaced) if has(name)]
missing(
    name for each in lists for name in each.names.of()
)  # looks at each: MXNet's library has a function once it was asked for it
owners = {name.path: resolved(name.path) for name in names}
listed = {(id(owner), attribute) for owner, attribute in owners.values()}
values = {path: getattr(owner, attribute, None) for path, (owner, attribute) in owners.items()}
before = contents([owner for owner, _ in owners.values()])
enable()
there, originals = {key for key, _ in before}, {id(value) for value in values.values()}
for key, (label, value) in contents([owner for owner, _ in owners.values()]).items():
    _, old = before.get(key, ("", None))
    same = (
        value is old or isinstance(value, ModuleType) or key[0] not in there
    )  # or imported meanwhile
    known = key in listed or id(old) in originals or {key[1], label} & STATE or matches(label)
    added = old is None and any(key[1] in each.added for each in lists)
    if not same and not known and not added:
        print("not listed:", label)
for name in names:
    owner, attribute = owners[name.path]
    value = values[name.path]
    # a replaced number, truth value or time cannot be seen: a build with CUDA has an equal one
    is_plain = value is None or isinstance(value, (int, timedelta))
    if getattr(owner, attribute, None) is value and not is_plain and not name.optional:
        print("not replaced:", name.path)
