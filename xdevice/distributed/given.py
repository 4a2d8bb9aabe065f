"""A seat that `init` is given as arguments, where a program starts the processes itself: Dask workers, Ray actors."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from xdevice.device import as_integer
from xdevice.distributed.seat import LOCALHOST, Seat, has_room, marks_in, seat_in
from xdevice.distributed.token import checked
from xdevice.errors import ArgumentError, ArgumentTypeError, DistributedError
from xdevice.kit.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

LAUNCHER = "init()"
"""What takes a launcher's place in messages."""


def seat_given(given: Mapping[str, Any], env: Mapping[str, str] = os.environ) -> Seat | None:
    """The seat of `init`'s arguments of these names, rank to token; ``None`` if none of them is given.

    Raises
    ------
    ArgumentError
        Some arguments are missing, have an invalid value, or contradict a launcher's variables.
    ArgumentTypeError
        An argument has an invalid type.
    """
    if all(value is None for value in given.values()):
        return None
    missing = [name for name in ("rank", "world_size", "address") if given[name] is None]
    if missing:
        there = ", ".join(name for name, value in given.items() if value is not None)
        raise ArgumentError(f"init() was given {there} without {' and '.join(missing)}; give all three, or none")
    size = _whole("world_size", given["world_size"], 1, None)
    rank = _whole("rank", given["rank"], 0, size)
    host, port = _host_and_port(given["address"], size)
    local = given["local_rank"]
    if local is None and size > 1 and not is_loopback(host):  # the rank would be another host's GPU
        raise ArgumentError("init() was given no local_rank; give one, from 0 on each host")
    local = rank if local is None else _whole("local_rank", local, 0, size)
    _check_against(env, rank, size)
    return Seat(rank, size, local, host, port, LAUNCHER, _secret(given["token"]))


def _whole(name: str, value: Any, least: int, end: int | None) -> int:
    number = as_integer(value)
    if number is None:
        raise ArgumentTypeError(f"{name}={value!r} is not an integer")
    if number < least or (end is not None and number >= end):
        room = f"from {least} to {end - 1}" if end is not None else f"of {least} or more"
        raise ArgumentError(f"{name}={value!r} is not an integer {room}")
    return number


def _host_and_port(address: Any, size: int) -> tuple[str, int]:
    if not isinstance(address, str):
        raise ArgumentTypeError(f"address={address!r} is not a string; give rank 0's, as in '10.0.0.1:29400'")
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit()):
        raise ArgumentError(f"address={address!r} is not a host and a port; give rank 0's, as in '10.0.0.1:29400'")
    if not has_room(int(port), size):
        raise ArgumentError(f"address={address!r} leaves no room for the job's {3 + 2 * size} ports; give a lower port")
    return (LOCALHOST if host == "localhost" else host), int(port)


def _secret(token: Any) -> str:
    if token is None:
        return ""
    if not isinstance(token, str):
        raise ArgumentTypeError(f"token is of type {type(token).__name__}; give all processes the same random string")
    return checked(token, "token")


def _check_against(env: Mapping[str, str], rank: int, size: int) -> None:
    """Raise if a launcher has started this process for another place: one of the two is wrong."""
    marks = marks_in(env)
    try:
        there = seat_in(env)
    except (ArgumentError, DistributedError):
        return  # it tells no place
    if marks and (there.rank, there.world_size) != (rank, size):
        raise ArgumentError(
            f"init() was given rank {rank} of {size}, and {there.launcher} says rank {there.rank} of "
            f"{there.world_size}; give no seat, or unset {' and '.join(marks.split())}"
        )
