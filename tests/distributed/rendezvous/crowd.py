"""A job of real processes without a framework, forked from this one: ``crowd.py PROCESSES PER_HOST SCENARIO VICTIM``.

Hosts are addresses of loopback. Each process enters collectives, and the victim misbehaves at the third. Prints, as a
JSON dict by rank, what each has to tell: its last collective, its error and rank to blame.
"""

import json
import os
import random
import signal
import sys
import time
import traceback

from xdevice.distributed.membership import Membership
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous.messages import Fingerprint
from xdevice.distributed.rendezvous.ports import free_block
from xdevice.distributed.tree_barrier import Follower, Leader
from xdevice.errors import DistributedError

SAME = Fingerprint.of("all_reduce('sum')", ["float32[3] on cpu"])

processes, per_host, scenario, victim = (
    int(sys.argv[1]),
    int(sys.argv[2]),
    sys.argv[3],
    int(sys.argv[4]),
)
TIMEOUT = (
    1.0 if scenario in ("frozen", "elsewhere") else 30.0
)  # where no process stays away, a busy machine is no reason
AGREED = {"backend": "numpy", "engine": "mpi", "version": "0", "timeout": TIMEOUT}


def misbehave(membership):
    if scenario == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif scenario == "frozen":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif scenario == "late":
        time.sleep(1)
    elif scenario == "elsewhere":
        time.sleep(600)
    elif scenario == "shapes":
        membership.enter(Fingerprint.of("all_reduce('sum')", ["float32[4] on cpu"]))
    elif scenario == "calls":
        membership.enter(Fingerprint("barrier"))
    elif scenario == "leaves":
        membership.enter(Fingerprint("shutdown"))
    elif scenario == "raises":
        membership.report_error(ValueError("of the victim"))
        os._exit(1)


def run(membership, rank, told):
    chance = random.Random(rank)
    for number in range(200 if scenario == "dawdles" else 6):
        if rank == victim and number == 3:
            misbehave(membership)
        if scenario == "dawdles":
            time.sleep(chance.choice((0, 0, 0, 0.001, 0.01)))
        asked = time.monotonic()
        membership.enter(SAME)
        told["times"].append((asked, time.monotonic()))
    membership.enter(Fingerprint("shutdown"))
    membership.close()


def one(rank, port):
    os.environ["XDEVICE_HOST"] = f"127.0.0.{1 + rank // per_host}"
    membership = Membership(
        ProcessInfo(rank, processes, rank % per_host, "127.0.0.1", port, "a test"), 60.0, AGREED
    )
    membership.set_timeout(TIMEOUT)
    told = {"times": []}
    try:
        run(membership, rank, told)
    except DistributedError as error:
        told.update(error=str(error), rank=error.rank, kind=type(error).__name__)
    node = membership._barrier._node
    told.update(node=type(node).__name__, last=membership.last)
    told["together"] = node.number if isinstance(node, (Leader, Follower)) else 0
    return told


def main():
    port = free_block(2 * processes + 3)
    readers, children = [], []
    for rank in range(processes):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                told = one(rank, port)
                os.write(writer, json.dumps(told).encode())
                time.sleep(
                    1 if rank == 0 and "error" in told else 0
                )  # its coordinator tells the others
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(writer)
        readers.append(reader)
        children.append(child)
    found = {
        rank: heard(reader)
        for rank, reader in enumerate(readers)
        if rank != victim or scenario in WHOLE
    }
    for child in children:
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(child, 0)
    print(json.dumps(found))


WHOLE = ("", "late", "dawdles", "shapes", "calls", "leaves")
"""Scenarios in which the victim lives on, and tells."""


def heard(reader):
    text = b""
    while part := os.read(reader, 65536):
        text += part
    os.close(reader)
    return json.loads(text) if text else None


if __name__ == "__main__":
    main()
