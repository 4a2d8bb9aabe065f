"""The values of options: what argparse calls with the text that was typed."""

import argparse
from typing import TypeVar

N = TypeVar("N", int, float)


def names(text: str) -> list[str]:
    """The names asked for, each once; none means all."""
    return [] if text == "all" else list(dict.fromkeys(name.strip() for name in text.split(",")))


def positive(text: str) -> int:
    return _whole(text, 1, "a whole number of 1 or more")


def count(text: str) -> int:
    return _whole(text, 0, "a whole number of 0 or more")


def first_port(text: str) -> int:
    return _whole(text, 1, "a port from 1 to 65535", most=2**16 - 1)


def seconds(text: str) -> float:
    number = _number(text)
    return _checked(number, 0 < number < float("inf"), text, "a number of seconds above 0")


def scale(text: str) -> float:
    number = _number(text)
    return _checked(number, 0 < number <= 10, text, "a scale above 0 and up to 10; 1 is the lessons' own size")


def tolerance(text: str) -> float:
    number = _number(text)
    return _checked(number, 0 <= number < 1, text, "a tolerance from 0 to below 1")


def _whole(text: str, least: int, what: str, most: float = float("inf")) -> int:
    number = int(text) if text.isascii() and text.isdigit() else -1
    return _checked(number, least <= number <= most, text, what)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")  # fails every comparison


def _checked(number: N, fits: bool, text: str, what: str) -> N:
    if not fits:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return number
