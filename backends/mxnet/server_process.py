"""The program of a scheduler or of a parameter server: ``server_process.py LIBRARY PARENT``.

The environment variable ``DMLC_ROLE`` decides which of the two it is. The program loads MXNet's
library alone, which takes a tenth of the time of ``import mxnet``.
"""

import ctypes
import os
import signal
import sys
import threading
import time

_POLLING_INTERVAL = 0.2  # seconds between checks whether the parent runs
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def main(library: str, parent: int) -> int:
    # Linux kills this process, even a stopped one, when the thread that started it ends
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    mxnet = ctypes.CDLL(library)
    mxnet.MXGetLastError.restype = ctypes.c_char_p
    store = ctypes.c_void_p()
    controller = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    ignore_commands = controller(lambda *command: None)
    failed = mxnet.MXKVStoreCreate(b"dist", ctypes.byref(store))
    failed = failed or mxnet.MXKVStoreRunServer(store, ignore_commands, None)
    if failed:
        print(mxnet.MXGetLastError().decode(errors="replace"), file=sys.stderr)
        return 1
    return 0


def _end_with(parent: int) -> None:
    """End this process once the parent has ended.

    This is needed on other systems, and if the parent ends before Linux is asked to do it.
    """
    while os.getppid() == parent:
        time.sleep(_POLLING_INTERVAL)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
