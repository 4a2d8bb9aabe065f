"""Requests for virtual GPUs as text: read at a process's start, written for child processes."""

import os

from xdevice.contract import Request
from xdevice.errors import ArgumentError, ArgumentTypeError, did_you_mean
from xdevice.hardware.virtual import ENV
from xdevice.integers import as_integer
from xdevice.units import parsed_size
from xdevice.virtual import models

MEMORY = "XDEVICE_VIRTUAL_MEMORY"
REQUIRED = "XDEVICE_VIRTUAL_GPUS_REQUIRED"
MOST = 64  # the largest number that has been tried
LEAST_MEMORY = 2**20  # bytes; what is less was meant with another unit

STAND_IN, LENIENT, RACES, FORCE = "stand-in", "lenient", "races", "force"
MODEL = "model="  # before the model's name
WORDS = (STAND_IN, LENIENT, RACES, FORCE)
"""The words that may follow the number in the environment variable.

Examples are ``2:stand-in`` and ``2:stand-in,lenient,force``.
"""


def of_environment() -> Request:
    """The request of the three variables; its number is 0 if they make none."""
    return parsed(os.environ.get(ENV, ""), ENV)._replace(
        memory=_memory(os.environ.get(MEMORY, "").strip()),
        required=tuple(filter(None, os.environ.get(REQUIRED, "").split(","))),
    )


def to_environment(request: Request) -> None:
    """Let the variables make the request in child processes.

    A limit of memory that the request does not have is left as it is: it is the user's.
    """
    os.environ[ENV] = text_of(request)
    if request.memory is not None:
        os.environ[MEMORY] = str(request.memory)
    if request.required:
        os.environ[REQUIRED] = ",".join(request.required)


def text_of(request: Request) -> str:
    """The value of `ENV` that makes the request: ``2``, or ``2:stand-in,lenient,model=t4``."""
    options = request.stand_in, request.lenient, request.races, request.force
    words = [word for word, is_set in zip(WORDS, options, strict=True) if is_set]
    if request.model:
        words.append(MODEL + request.model)
    return f"{request.number}:{','.join(words)}" if words else str(request.number)


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


def _memory(text: str) -> int | None:
    size = parsed_size(text) if text else None
    if size is not None and size < LEAST_MEMORY:
        raise ArgumentError(
            f"{MEMORY}={text} is not the memory of a GPU, which has a MiB or more; write {MEMORY}=4GiB"
        )
    return size


def checked(n: object, source: str, error: type[Exception] = ArgumentTypeError) -> int:
    """The number, if that many are possible; ``error`` is raised for other values than numbers."""
    number = as_integer(n)
    hint = f"give an integer from 1 to {MOST}"
    if number is None:
        raise error(f"{source} is not a number of GPUs; {hint}")
    if not 1 <= number <= MOST:
        raise ArgumentError(f"{source} is out of range; {hint}")
    return number
