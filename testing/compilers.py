"""The frameworks' compilers, by which functions in tests are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from xdevice import namespace, using
from xdevice.errors import NotSupportedError, XDeviceError, did_you_mean
from xdevice.framework.adapters import Backend, find, registered

Function: TypeAlias = Callable[..., Any]
Compile: TypeAlias = Callable[[Function], Function]


def compilers_of(config: pytest.Config, name: str) -> list[str]:
    """The parameters of a test: the compiler's name, and the empty string for no compiler."""
    mode = config.getoption("--xdevice-compiled")
    if mode == "no" or name not in registered():
        return [""]
    try:
        _ = find(name).adapter
    except XDeviceError:  # the fixture `xdevice_backend` raises it again
        return [""]
    if not find(name).has("compiling", "compilers"):
        return ["none"] if mode == "only" else [""]
    names = find(name).compiling.compilers()
    compiler = requested_compilers(config).get(name, names[0])
    if compiler not in names:
        raise pytest.UsageError(
            f"--xdevice-compiler={config.getoption('--xdevice-compiler')}: {name} has no compiler "
            f"{compiler!r}; there are {', '.join(names)}"
        )
    return [compiler] if mode == "only" else ["", compiler]


def compiler_for(owner: Backend, compiler: str) -> Compile:
    """The function that compiles; without a compiler, it returns functions as they are."""
    if not compiler:
        return as_it_is

    def compile_function(fn: Function) -> Function:
        try:
            if owner.has("maths", "namespace"):
                with using(owner):
                    namespace()  # made before PaddlePaddle's compiler traces a first use
            return owner.compiling.compiled(fn, compiler)
        except NotSupportedError as error:
            pytest.skip(str(error))

    return compile_function


def as_it_is(fn: Function) -> Function:
    return fn


def requested_compilers(config: pytest.Config) -> dict[str, str]:
    """The compilers that the option names, by framework."""
    value: str = config.getoption("--xdevice-compiler")
    requested: dict[str, str] = {}
    for word in filter(None, map(str.strip, value.split(","))):
        name, _, compiler = word.partition("=")
        problem = None
        if not compiler:
            problem = f"{word!r} names no framework; write for example torch=inductor"
        elif name not in registered():
            hint = did_you_mean(name, registered(), f"there are {', '.join(registered())}")
            problem = f"{name!r} is not a backend; {hint}"
        if problem:
            raise pytest.UsageError(f"--xdevice-compiler={value}: {problem}")
        requested[name] = compiler
    return requested
