"""``strict()``: an operation on tensors of two devices is an error, under every framework."""

from collections.abc import Callable
from typing import Any, TypeVar

from xdevice.framework.choosing import decided
from xdevice.framework.watched import Watched

F = TypeVar("F", bound=Callable[..., Any])

_blocks = Watched(lambda owner: owner.mixing.forbid())


class strict:  # noqa: N801  (reads as a verb: `with strict():`)
    """Within a ``with`` block, or a decorated function, no operation may mix devices.

    An operation on tensors of two devices raises `MixedDeviceError`, which names the operation and
    the devices, also under frameworks that otherwise copy without an error. It holds for every framework,
    in the forward and the backward pass, and in every thread of the process while a block is open
    anywhere (in threads that cannot be watched, the framework's own error is raised). `to_device` and the
    framework's own functions that copy are allowed. A scalar on the CPU counts as a number where the
    framework treats it as one.

    Blocks may be nested and reused. Nothing is watched while no block is open.

    Raises
    ------
    ArgumentTypeError
        The decorated object is not a function.
    NotSupportedError
        On entering: the chosen framework has several devices, and its adapter cannot watch operations.

    Examples
    --------
    >>> import numpy, xdevice
    >>> with xdevice.strict():
    ...     y = numpy.ones(3) + numpy.ones(3)
    """

    __slots__ = ()

    def __enter__(self) -> None:
        _blocks.open()
        try:
            _blocks.check(decided())
        except BaseException:
            _blocks.close()
            raise

    def __exit__(self, *error: object) -> None:
        _blocks.close()

    def __call__(self, fn: F) -> F:
        from xdevice.kit.decorating import decorated  # loads `inspect`: only when it is needed

        return decorated(fn, self, "strict()")
