"""Functions of MXNet that are looked at while a block is open: of its library, of its arrays, of its optimizers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

Look = Callable[..., None]

_looked: dict[tuple[Any, str], _Looked] = {}
_lock = threading.Lock()


class _Looked:
    """A function in its place, which is called behind the looks."""

    def __init__(self, holder: Any, name: str) -> None:
        self._holder, self._name, self._is_own = holder, name, name in vars(holder)
        self._run: Any = getattr(holder, name)
        self.looks: tuple[Look, ...] = ()

        def call(*args: Any, **kwargs: Any) -> Any:
            for look in self.looks:
                look(*args, **kwargs)
            return self._run(*args, **kwargs)

        self._call = call
        setattr(holder, name, call)

    def restored(self) -> bool:
        """Put the function back. False where somebody has replaced this one, who may still call it."""
        if vars(self._holder).get(self._name) is not self._call:
            return False
        if self._is_own:
            setattr(self._holder, self._name, self._run)
        else:
            delattr(self._holder, self._name)
        return True


@contextmanager
def looking(looks: Iterable[tuple[Any, str, Look]]) -> Generator[None]:
    """Within the block, a look is given the arguments of the holder's function of that name before it runs.

    In all threads. What a look raises, the call raises. The latest block looks first.
    """
    looks = list(looks)
    with _lock:
        for holder, name, look in looks:
            looked = _looked.get((holder, name)) or _looked.setdefault((holder, name), _Looked(holder, name))
            looked.looks = (look, *looked.looks)
    try:
        yield
    finally:
        with _lock:
            for holder, name, look in looks:
                looked = _looked[holder, name]
                looked.looks = tuple(each for each in looked.looks if each is not look)
                if not looked.looks and looked.restored():
                    del _looked[holder, name]
