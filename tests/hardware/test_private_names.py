"""Names that a framework does not promise to keep: one that has gone, or takes other parameters, is told."""

import sys

import pytest

from xdevice.errors import VirtualDeviceError
from xdevice.kit.private_names import PrivateName, check, missing, replace, resolved

THERE = PrivateName("json:JSONEncoder.encode", "a test", ("o",))
GONE = PrivateName("json:JSONEncoder._encode_all", "a test")
OTHER = PrivateName("json:dumps", "a test", ("obj", "precision"))


def test_a_gone_or_changed_name_is_told():
    assert missing([THERE]) == []
    assert missing([GONE]) == ["json.JSONEncoder._encode_all is not there, needed for a test"]
    (line,) = missing([OTHER])
    assert line.startswith("json.dumps takes (obj, skipkeys,")
    assert line.endswith("not (obj, precision), needed for a test")


def test_the_error_names_both_versions():
    with pytest.raises(VirtualDeviceError) as raised:
        check([THERE, GONE, OTHER], "json", "3.0", "2.0")
    assert str(raised.value) == (
        "virtual GPUs do not work under json 3.0: json.JSONEncoder._encode_all is not there, needed for a test "
        "(and 1 more: xdevice doctor); the last version tried is 2.0"
    )


def test_the_check_imports_nothing():
    sys.modules.pop("this", None)
    check([PrivateName("this:nothing", "a test")], "this", "1", "1")
    assert "this" not in sys.modules


def test_a_path_has_an_owner_and_a_name():
    import json

    assert resolved("json:JSONEncoder.encode") == (json.JSONEncoder, "encode")


def test_only_a_name_that_is_listed_is_replaced():
    import string

    names = [PrivateName("string:capwords", "a test"), PrivateName("string:_x_*", "a test", optional=True)]
    plain = string.capwords
    try:
        replace(names, "string:capwords", len)
        replace(names, "string:_x_new", 1)
        assert string.capwords is len and string._x_new == 1 and missing(names) == []
    finally:
        string.capwords = plain
        del string._x_new
    with pytest.raises(LookupError, match=r"string:digits is replaced, and private_names\.py does not list it"):
        replace(names, "string:digits", "")
