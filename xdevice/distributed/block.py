"""A group for the length of a ``with`` block."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from xdevice.distributed.group import break_off, init, shutdown

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class process_group:  # noqa: N801  (reads as what it opens: `with process_group():`)
    """A ``with`` block between `init` and `shutdown`; parameters and errors are theirs.

    If the block raises, the other processes raise `DistributedError` with this one's rank.

    Examples
    --------
    >>> import xdevice
    >>> from xdevice import distributed
    >>> with xdevice.using("numpy"), distributed.process_group():
    ...     distributed.world_size()
    1
    """

    def __init__(  # noqa: PLR0913  (those of `init`)
        self,
        timeout: float | None = None,
        *,
        start: float | None = None,
        engine: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        address: str | None = None,
        local_rank: int | None = None,
        token: str | None = None,
        trust_network: bool | None = None,
    ) -> None:
        place = {"rank": rank, "world_size": world_size, "address": address, "local_rank": local_rank, "token": token}
        given = {"start": start, "engine": engine, "trust_network": trust_network, **place}
        self._init: Callable[[], None] = partial(init, timeout, **given)  # type: ignore[arg-type]  # a dict of several

    def __enter__(self) -> None:
        self._init()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            shutdown()
        else:
            break_off(error)
