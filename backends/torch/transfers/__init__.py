"""Copies between devices, as torch lets them be seen.

Virtual GPUs tell of each before it is made. On real GPUs torch warns of those for which Python waits.
"""

import sys
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager

from xdevice.backends.torch.hardware import gpus
from xdevice.backends.torch.transfers import backward, real
from xdevice.backends.torch.transfers.steps import Steps
from xdevice.backends.torch.virtual import copies, runtime
from xdevice.contract import Copy, Watcher


@contextmanager
def watch(watcher: Watcher) -> Generator[None]:
    def see(copy: Copy) -> None:
        steps.find_keras()  # which may be imported later
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # inspect's is slower
        if copy.kind == "copy" and backward.is_autograds(caller):
            copy = copy._replace(kind="gradient")
        watcher.see(copy, backward.caller())

    with ExitStack() as stack:
        steps = stack.enter_context(Steps(watcher))
        stack.enter_context(backward.watched(watcher))
        copies.watch(see, watcher)
        stack.callback(copies.watch, None)
        if gpus()[0] == "cuda" and gpus()[1] and not runtime.is_in_use():
            stack.enter_context(real.watched(see))
        yield


def unseen() -> Iterable[str]:
    kind, number = gpus()
    if runtime.is_in_use():
        yield "a copy that CUDA makes within one operation, and that torch's own tags do not tell of"
    elif kind == "cuda" and number:
        yield "on real GPUs, copies for which Python does not wait, and the size of the others"
    elif number:
        yield f"copies on {kind}, of which torch does not tell"
