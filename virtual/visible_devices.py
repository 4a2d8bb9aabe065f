"""Variables that say which of the virtual GPUs that stand in a program sees."""

import os
import sys

from xdevice.contract import Request

VISIBLE = "CUDA_VISIBLE_DEVICES"
# Variables by which a framework is told to leave out GPUs: read before the framework is imported.
_OF_FRAMEWORKS = ("JAX_PLATFORMS",)


def seen(request: Request) -> Request:
    """The request as a framework gets it: for those virtual GPUs that the program sees."""
    return request._replace(number=len(indices(request)), total=request.number)


def indices(request: Request) -> tuple[int, ...]:
    """The indices of the virtual GPUs that the program sees, among all.

    Of those that stand in, the variable chooses some, as CUDA reads it: up to the first
    word that is not the index of a GPU, and none if an index is there twice.
    """
    total = request.total or request.number
    if not request.stand_in or VISIBLE not in os.environ:
        return tuple(range(total))
    chosen: list[int] = []
    for word in os.environ[VISIBLE].split(","):
        if not word.strip().isdecimal() or int(word) >= total:
            break
        if int(word) in chosen:
            return ()
        chosen.append(int(word))
    return tuple(chosen)


def set_aside() -> None:
    """Remove the variables: a value set before the request for virtual GPUs refers to real GPUs."""
    for variable in (VISIBLE, *_OF_FRAMEWORKS):
        value = os.environ.pop(variable, None)
        if value is not None:
            effect = "which are real, and does not choose among those that stand in"
            print(
                f"xdevice: {variable}={value!r} was set for the machine's GPUs, {effect}; "
                "set it after they are asked for",
                file=sys.stderr,
            )
