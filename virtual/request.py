"""The request for virtual GPUs: by a call, or by the environment."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

from xdevice.device import as_integer
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    NotSupportedError,
    VirtualDeviceError,
    did_you_mean,
)
from xdevice.virtual import models

ENV = "XDEVICE_VIRTUAL_GPUS"
MEMORY = "XDEVICE_VIRTUAL_MEMORY"
# the frameworks that a process needs virtual GPUs of, or "all"; without them it ends
REQUIRED = "XDEVICE_VIRTUAL_GPUS_REQUIRED"
VISIBLE = "CUDA_VISIBLE_DEVICES"
MOST = 64  # the largest number that has been tried

STAND_IN, LENIENT, RACES, FORCE = "stand-in", "lenient", "races", "force"
MODEL = "model="  # before the model's name
WORDS = (STAND_IN, LENIENT, RACES, FORCE)
"""The words that may follow the number in the environment variable.

Examples are ``2:stand-in`` and ``2:stand-in,lenient,force``.
"""


@dataclass(frozen=True, slots=True)
class Request:
    """Virtual GPUs that a process, and the processes that it starts, are to have.

    As text, it is the value of `ENV` that makes the same request in a child
    process: ``2``, or ``2:stand-in,lenient,model=t4``.
    """

    number: int  # 0 for none
    force: bool = False  # they hide real GPUs
    stand_in: bool = False  # they stand in for real GPUs, and refuse what these refuse
    lenient: bool = False  # GPUs that stand in refuse nothing that the CPU can compute
    races: bool = False  # missing synchronization between streams is an error
    model: str = ""  # the model of GPU whose properties the GPUs that stand in have
    source: str = ""  # the call, the option, or the variable with its value, that makes the request

    def __str__(self) -> str:
        options = self.stand_in, self.lenient, self.races, self.force
        words = [word for word, is_set in zip(WORDS, options, strict=True) if is_set]
        if self.model:
            words.append(MODEL + self.model)
        return f"{self.number}:{','.join(words)}" if words else str(self.number)


_requested: Request | None = None
_left_out: set[str] = set()
_measured_for = 0


def current() -> Request:
    """The request of `virtual_gpus` if there is one, else that of the environment."""
    return _requested if _requested is not None else parsed(os.environ.get(ENV, ""), ENV)


def parsed(text: str, name: str) -> Request:
    """The request in the value of the variable ``name``: ``2``, or ``2:stand-in,lenient``."""
    text = text.strip()
    source = f"{name}={text}"
    if text in ("", "0"):
        return Request(0, source=source)
    digits, colon, options = text.partition(":")
    words = [word.strip() for word in options.split(",")] if colon else []
    model = _take_model(words, name, source)
    for word in words:
        _check_word(word, words, name, source)
    is_number = digits.isascii() and digits.isdigit()
    number = checked(int(digits) if is_number else None, source, ArgumentError)
    return Request(
        number,
        force=FORCE in words,
        stand_in=STAND_IN in words,
        lenient=LENIENT in words,
        races=RACES in words,
        model=model,
        source=source,
    )


def _take_model(words: list[str], name: str, source: str) -> str:
    """Remove the word with a model, and return the model's name; empty if there is none."""
    named = next((word for word in words if word.startswith(MODEL)), None)
    if named is None:
        return ""
    words.remove(named)
    model = models.check(named.removeprefix(MODEL), source)
    if STAND_IN not in words:
        hint = f"write {name}=2:{STAND_IN},{MODEL}{model}"
        raise ArgumentError(f"{source} has a model without {STAND_IN!r}; {hint}")
    return model


def _check_word(word: str, words: list[str], name: str, source: str) -> None:
    """Raise an error if the word may not follow the number, or only beside ``stand-in``."""
    if word in WORDS:
        if STAND_IN in words or word not in (LENIENT, RACES):
            return
        hint = f"write {name}=2 or {name}=2:{STAND_IN},{word}"
    else:
        hint = did_you_mean(word, WORDS, f"write {name}=2 or {name}=2:{STAND_IN}")
    raise ArgumentError(f"{source} has {word!r} after the number; {hint}")


def require(frameworks: Iterable[str]) -> None:
    """End this process and its children if one of these frameworks is refused virtual GPUs.

    No frameworks mean all of them.
    """
    os.environ[REQUIRED] = ",".join(frameworks) or "all"


def is_required(framework: str) -> bool:
    """Whether the program needs the framework, or may need it because no framework is named."""
    return is_named(framework) or "all" in _required()


def is_named(framework: str) -> bool:
    return framework in _required()


def _required() -> list[str]:
    return os.environ.get(REQUIRED, "").split(",")


def is_in_environment() -> bool:
    return os.environ.get(ENV, "").strip() not in ("", "0")


def visible() -> int:
    """The number of virtual GPUs that the program sees."""
    return len(visible_indices())


def visible_indices() -> tuple[int, ...]:
    """The indices of the virtual GPUs that the program sees, among those that were asked for.

    Of those that stand in, ``CUDA_VISIBLE_DEVICES`` chooses some, as CUDA reads it: up to the first
    word that is not the index of a GPU, and none if an index is there twice.
    """
    number = current().number
    if not current().stand_in or VISIBLE not in os.environ:
        return tuple(range(number))
    indices: list[int] = []
    for word in os.environ[VISIBLE].split(","):
        if not word.strip().isdecimal() or int(word) >= number:
            break
        if int(word) in indices:
            return ()
        indices.append(int(word))
    return tuple(indices)


def leave_out(framework: str) -> None:
    """Give the framework no virtual GPUs in this process.

    It cannot have them, and its tests are told so.
    """
    _left_out.add(framework)


def is_left_out(framework: str) -> bool:
    return framework in _left_out


def memory() -> int | None:
    """The bytes that each virtual GPU has: the size asked for, or its model's; else ``None``."""
    size, model = _measured_for or memory_limit(), current().model
    return models.MODELS[model].memory if size is None and model else size


def gpu_name() -> str:
    """The name of each GPU that stands in, where all GPUs of a model have one name."""
    model = current().model
    if not model:
        return "xdevice virtual GPU"
    return f"{models.MODELS[model].name} (virtual GPU: xdevice, on the CPU)"


def measure_for(size: int) -> None:
    """Let each virtual GPU have that memory: `fits` measures how much of it is needed."""
    global _measured_for
    _measured_for = size


def memory_limit() -> int | None:
    """The bytes of memory of each virtual GPU; ``None`` without a limit."""
    from xdevice.units import parsed_size  # loads `re`: only when it is needed

    text = os.environ.get(MEMORY, "").strip()
    size = parsed_size(text) if text else None
    if size == 0:
        raise ArgumentError(
            f"{MEMORY}={text} is not a size in memory; write {MEMORY}=4GiB, or a number of bytes"
        )
    return size


def refuse_memory_limit(framework: str, instead: str = "") -> None:
    """Raise an error if the environment asks for a limit.

    For frameworks whose virtual GPUs are CPU devices of the framework itself.
    """
    if memory_limit() is not None:
        reason = f"{framework} cannot limit the memory of one CPU device"
        raise NotSupportedError(f"{MEMORY} asks for a limit, and {reason}; leave it out{instead}")


def refuse_to_hide(real: int, n: int, framework: str, force: bool) -> None:
    """Raise an error if there are real GPUs, unless ``force`` lets n virtual ones hide them."""
    if real and not force:
        hint = f"use these, or hide them with virtual_gpus({n}, force=True)"
        raise VirtualDeviceError(
            f"{n} virtual GPUs were asked for, but {framework} sees {real} real; {hint}"
        )


def make(number: int, force: bool, stand_in: bool, model: str = "") -> Request | None:
    """Replace the current request, and return the previous one for `put_back`.

    Whether GPUs are lenient, and find races, stays as it is.
    """
    global _requested
    arguments = f"{number}, stand_in=True" if stand_in else f"{number}"
    previous = _requested
    _requested = replace(
        current(),
        number=number,
        force=force,
        stand_in=stand_in,
        model=model,
        source=f"virtual_gpus({arguments})",
    )
    return previous


def put_back(previous: Request | None) -> None:
    global _requested
    _requested = previous


def checked(n: object, source: str, error: type[Exception] = ArgumentTypeError) -> int:
    """The number, if that many are possible; ``error`` is raised for other values than numbers."""
    number = as_integer(n)
    hint = f"give an integer from 1 to {MOST}"
    if number is None:
        raise error(f"{source} is not a number of GPUs; {hint}")
    if not 1 <= number <= MOST:
        raise ArgumentError(f"{source} is out of range; {hint}")
    return number
