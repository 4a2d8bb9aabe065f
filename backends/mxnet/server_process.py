"""The program of a scheduler or parameter server: ``server_process.py LIBRARY PARENT``, told its role by ``DMLC_ROLE``.

It needs MXNet's library alone, which loads in a tenth of the time that ``import mxnet`` takes.
"""

import ctypes
import os
import signal
import sys
import threading
import time

_LOOK = 0.2  # seconds between two looks whether the parent is still there
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def main(library: str, parent: int) -> int:
    if (
        sys.platform == "linux"
    ):  # let it kill this process, even if it is stopped, when the thread that started it ends
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    mxnet = ctypes.CDLL(library)
    mxnet.MXGetLastError.restype = ctypes.c_char_p
    store = ctypes.c_void_p()
    obey = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
        lambda *command: None
    )
    if mxnet.MXKVStoreCreate(b"dist", ctypes.byref(store)) or mxnet.MXKVStoreRunServer(
        store, obey, None
    ):
        print(mxnet.MXGetLastError().decode(errors="replace"), file=sys.stderr)
        return 1
    return 0


def _end_with(parent: int) -> None:
    """End this process once the parent has ended, before Linux was asked, or on another system."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
