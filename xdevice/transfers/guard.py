"""``transfer_guard``: which copies a block, a function or a test may make."""

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from xdevice.contract import Copy
from xdevice.errors import ArgumentError, ArgumentTypeError, TransferError, did_you_mean, shortened
from xdevice.framework.choosing import without_last
from xdevice.transfers.watching import REMEDIES, CopyEvent, Listener, close_for, open_for

__all__ = ["transfer_guard"]

Level = Literal["allow", "log", "forbid_implicit", "forbid"]
LEVELS: tuple[Level, ...] = get_args(Level)

F = TypeVar("F", bound=Callable[..., Any])


class Levels(NamedTuple):
    host_to_device: Level = "allow"
    device_to_host: Level = "allow"
    device_to_device: Level = "allow"

    def of(self, copy: Copy) -> Level:
        """The level for the copy's direction."""
        if copy.source.kind == "cpu":
            return self.host_to_device
        if copy.target.kind == "cpu":
            return self.device_to_host
        return self.device_to_device


_open: ContextVar[tuple["transfer_guard", ...]] = ContextVar("xdevice.transfer_guard", default=())
_log = logging.getLogger("xdevice.transfers")


class transfer_guard:  # noqa: N801  (reads as a verb: `with transfer_guard("forbid"):`)
    """Allow, log or forbid copies between devices, in a ``with`` block or a decorated function.

    The levels:

    - ``"allow"``.
    - ``"log"``: each copy is logged as a warning of the logger ``xdevice.transfers``.
    - ``"forbid_implicit"``: a copy that the program did not ask for raises
      `TransferError` at its line: ``float(x)``, ``if x``, ``print(x)``,
      ``.item()``, ``np.asarray(x)``, a mask as an index, …
    - ``"forbid"``: every copy raises it.

    A forbidden copy is not made. A level holds for this thread or task and for
    the gradients that it computes. Blocks may be nested and reused: the
    innermost holds. A line that ends with ``# xdevice: allow`` may copy.

    Parameters
    ----------
    level
        For all directions.
    host_to_device, device_to_host, device_to_device
        For one direction, in place of ``level``.

    Raises
    ------
    ArgumentError
        There is no such level.
    ArgumentTypeError
        A level is not a string; the decorated object is not a function.
    NotSupportedError
        On entering: the chosen framework has several devices, and its adapter cannot see copies.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.transfer_guard("forbid_implicit", device_to_device="forbid"):
    ...     x = xdevice.ones(3)
    """

    __slots__ = ("levels",)

    def __init__(
        self,
        level: Level = "forbid",
        *,
        host_to_device: Level | None = None,
        device_to_host: Level | None = None,
        device_to_device: Level | None = None,
    ) -> None:
        levels: list[Level] = []
        for direction_level in (host_to_device, device_to_host, device_to_device):
            levels.append(level if direction_level is None else direction_level)
        self.levels = Levels(*map(checked_level, levels))

    def __enter__(self) -> None:
        open_for(_guard)
        _open.set((*_open.get(), self))

    def __exit__(self, *error: object) -> None:
        _open.set(without_last(_open.get(), self))
        close_for(_guard)

    def __call__(self, fn: F) -> F:
        from xdevice.framework.blocks import decorated  # loads `inspect`: only when it is needed

        return decorated(fn, self, "transfer_guard()")


class _Guard(Listener):
    """Raises an error for a forbidden copy; it is open once for each block in the process."""

    forbids = True

    def see(self, event: CopyEvent) -> None:
        if event.context is None:
            guards = _open.get()
        else:
            guards = event.context.get(_open, ())
        if not guards or event.allowed:
            return
        copy = event.copy
        level = guards[-1].levels.of(copy)
        is_explicit = copy.kind == "copy"
        if level == "allow" or (level == "forbid_implicit" and is_explicit):
            return
        if level == "log":
            _log.warning("%s", event.described())
            return
        raise TransferError(
            f"{event.described()}, which transfer_guard({level!r}) forbids; {REMEDIES[copy.kind]}"
        )


_guard = _Guard()


def checked_level(level: object) -> Level:
    """The level itself; an error that lists the levels if it is not one of them."""
    if level not in LEVELS:
        error_type: type[ArgumentError] = ArgumentTypeError
        if isinstance(level, str):
            error_type = ArgumentError
        names = ", ".join(map(repr, LEVELS))
        hint = did_you_mean(level, LEVELS, f"there are {names}")
        raise error_type(f"no level {shortened(level)}; {hint}")
    return level
