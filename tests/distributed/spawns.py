"""A program that starts its processes itself, as Dask and Ray do: ``spawns.py BACKEND ADDRESS``."""

import multiprocessing
import sys

import xdevice
from xdevice import distributed as dist


def take_part(backend, given):
    xdevice.use(backend)
    for _ in range(2):  # the same processes may come together again
        with dist.process_group(20, start=60, **given):
            total = dist.all_reduce(xdevice.tensor([1.0 + dist.rank(), 2.0]))
            here = dist.rank(), dist.local_rank(), dist.world_size()
    # whole, also where two processes print at once
    sys.stdout.write(f"{here} {xdevice.to_numpy(total).tolist()} {dist.rank()}\n")
    sys.stdout.flush()
    if given["rank"] == 1:
        dist.init(20, **{**given, "rank": 0, "world_size": 1})  # alone from now on
        assert dist.world_size() == 1


def main(backend, address):
    places = [{"rank": rank, "world_size": 2, "address": address} for rank in range(2)]
    places[1]["local_rank"] = 0
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=take_part, args=(backend, place)) for place in places]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(process.exitcode for process in processes))


if __name__ == "__main__":
    main(*sys.argv[1:])
