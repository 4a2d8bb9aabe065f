"""Names that a framework does not promise to keep: one that has gone costs the feature that needs it."""

import sys
import types

import pytest

from xdevice.backends.kit import private_names
from xdevice.backends.kit.private_names import (
    PrivateName,
    PrivateNames,
    hint,
    missing,
    missing_features,
    resolved,
)
from xdevice.errors import NotSupportedError, VirtualDeviceError

THERE = PrivateName("json:JSONEncoder.encode", "a test", ("o",))
GONE = PrivateName("json:JSONEncoder._encode_all", "a test")
OTHER = PrivateName("json:dumps", "a test", ("obj", "precision"))

ROWS = """
# of a framework that has a start, a profiler and a compiler
[VIRTUAL]
!lathe:start -- virtual GPUs
lathe: profile _record -- profiles
>lathe:profile Profiler -- profiles
lathe:compile (graph, level) -- compiling
>lathe:compile -- compiling
?lathe:_new_* -- what only newer versions have

[OTHERS]
lathe.inside:count -- counting
"""


@pytest.fixture
def names(tmp_path, monkeypatch):
    """The names of a framework of one module, which has them all."""
    lathe = types.ModuleType("lathe")
    vars(lathe).update(
        __version__="3.0", start=int, profile=len, _record=len, Profiler=type("Profiler", (), {})
    )
    lathe.compile = lambda graph, level: graph
    monkeypatch.setitem(sys.modules, "lathe", lathe)
    monkeypatch.setattr(private_names, "_replaced", set())
    (tmp_path / "names.txt").write_text(
        ROWS.replace(">lathe:profile Profiler", ">lathe: profile Profiler")
    )
    return PrivateNames(str(tmp_path / "__init__.py"), "lathe", "pylathe", "2.0")


@pytest.fixture
def lathe(names):
    return sys.modules["lathe"]


HINT = "; 2.0 has it: pip install pylathe==2.0"


def test_a_gone_or_changed_name_is_told():
    assert missing([THERE]) == []
    assert missing([GONE]) == ["json.JSONEncoder._encode_all is not there, needed for a test"]
    (line,) = missing([OTHER])
    assert line.startswith("json.dumps takes (obj, skipkeys,")
    assert line.endswith("not (obj, precision), needed for a test")


def test_a_feature_is_missing_once_and_essential_if_one_of_its_names_is():
    gone = PrivateName("json:_gone", "a test", essential=True)
    (found,) = missing_features([THERE, GONE, gone])
    assert found == (
        "a test",
        "json.JSONEncoder._encode_all is not there, json._gone is not there",
        True,
    )
    assert not missing_features([GONE])[0].essential


def test_the_line_to_type_is_of_a_version_with_a_wheel_for_this_python():
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert hint("lathe", "2.0") == "2.0 has it: pip install lathe==2.0"
    assert (
        hint("lathe", {"3.0": "2.6 2.7", "2.0": f"2.5 {here}"})
        == "2.0 has it: pip install lathe==2.0"
    )
    assert hint("lathe", {"3.0": "2.6 2.7", "2.0": "2.5"}) == "3.0 has it, under Python 2.6 or 2.7"


def test_without_an_essential_name_virtual_gpus_are_refused(names, lathe):
    names.check("VIRTUAL")
    del lathe.start
    with pytest.raises(VirtualDeviceError) as raised:
        names.check("VIRTUAL")
    said = "virtual GPUs do not work under lathe 3.0, where lathe.start is not there, needed for virtual GPUs"
    assert str(raised.value) == said + HINT


def test_without_another_its_feature_is_missing_and_its_entrances_say_so(names, lathe):
    del lathe._record
    names.check("VIRTUAL")
    said = f"profiles: not supported under lathe 3.0, where lathe._record is not there{HINT}"
    for ask in (
        lathe.profile,
        lathe.Profiler,
        lambda: names.require("profiles"),
        names.value("lathe:_record"),
    ):
        with pytest.raises(NotSupportedError) as raised:
            ask()
        assert str(raised.value) == said
    assert isinstance(lathe.Profiler, type)
    assert not names.has("profiles")
    assert lathe.compile("a graph", 1) == "a graph"
    assert names.has("compiling")


def test_a_function_that_takes_other_parameters_is_not_replaced(names, lathe):
    lathe.compile = lambda graph, *, fast: graph
    names.in_place_of("lathe:compile")(lambda compile, graph, level: "replaced")
    with pytest.raises(
        NotSupportedError,
        match=r"^compiling: .* lathe\.compile takes \(graph, fast\), not \(graph, level\);",
    ):
        lathe.compile("a graph", 1)


def test_what_is_replaced_takes_what_it_replaces(names, lathe):
    names.check("VIRTUAL")

    @names.in_place_of("lathe:compile")
    def twice(compile, graph, level):
        return compile(graph, level) * 2

    assert lathe.compile("a", 1) == "aa"
    names.replace("lathe:_new_thing", 1)
    names.replace_everywhere("lathe:start", str)
    assert lathe._new_thing == 1
    assert lathe.start is str
    names.check("VIRTUAL")  # which looks no more at what is replaced
    assert missing(names.of("VIRTUAL")) == []


def test_only_a_name_that_is_listed_is_replaced_or_read(names, lathe):
    for ask in (lambda: names.replace("lathe:other", 1), lambda: names.value("lathe:other")):
        with pytest.raises(
            LookupError, match=r"lathe:other is private, and names\.txt does not list it"
        ):
            ask()
    with pytest.raises(LookupError, match=r"names\.txt lists nothing for 'other'"):
        names.require("other")


def test_the_check_imports_nothing_where_that_is_left_for_later(names):
    names.check("OTHERS", imported_only=True)
    assert names.has("counting")  # as far as is known
    with pytest.raises(NotSupportedError, match=r"^counting: .* lathe\.inside\.count is not there"):
        names.require("counting")


def test_a_module_that_is_gone_raises_when_it_is_used(names):
    inside = names.module("lathe.inside")
    with pytest.raises(NotSupportedError, match=r"^counting: .* where lathe\.inside is not there"):
        inside.count()
    assert names.optional("lathe.inside:count", otherwise=7) == 7


def test_a_path_has_an_owner_and_a_name():
    import json

    assert resolved("json:JSONEncoder.encode") == (json.JSONEncoder, "encode")
