"""Programs that start others, for test_fits_children.py: each function is one of them."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time


def use(mebibytes=300):
    import torch

    return torch.zeros(mebibytes, 1 << 18, device="cuda").numel()


def _use_until_all_do(barrier, mebibytes):
    use(mebibytes)
    barrier.wait()


def _by(method):
    process = multiprocessing.get_context(method).Process(target=use)
    process.start()
    process.join()


def fork():
    _by("fork")


def spawn():
    _by("spawn")


def forkserver():
    _by("forkserver")


def raw_fork():
    child = os.fork()
    if not child:
        use()
        os._exit(0)
    os.waitpid(child, 0)


def two_at_once():
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    sizes = 100, 200
    processes = [context.Process(target=_use_until_all_do, args=(barrier, n)) for n in sizes]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def pool():
    with multiprocessing.get_context("spawn").Pool(2) as workers:
        workers.map(use, [100, 200])


def _run(*words, **options):
    subprocess.run([sys.executable, *words], check=True, **options)


def one_after_the_other():
    for mebibytes in (100, 200):
        _run(__file__, "use", str(mebibytes))


def visible_devices():
    command = [sys.executable, __file__, "use"]
    processes = [
        subprocess.Popen(command, env=os.environ | {"CUDA_VISIBLE_DEVICES": str(i)})
        for i in range(2)
    ]
    for process in processes:
        process.wait()


def isolated():
    use()
    _run("-I", "-c", "pass")


def without_environment():
    use()
    _run("-c", "pass", env={})


def other_program():
    use()
    subprocess.run(["true"], check=True)


def failing():
    use()
    subprocess.run([sys.executable, __file__, "fails"], check=False)


def fails():
    use()
    return 1 / 0


def killed():
    command = [sys.executable, __file__, "waits"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        process.kill()


def waits():
    use()
    print("ready", flush=True)
    time.sleep(100)


def exits_at_once():
    use()
    os._exit(0)


def exits_at_once_with_status_3():
    use()
    os._exit(3)


def crashes():
    use()
    os.kill(os.getpid(), signal.SIGSEGV)


def train(steps):
    import torch
    from torch.nn.parallel import DistributedDataParallel

    torch.distributed.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    net = DistributedDataParallel(torch.nn.Linear(1024, 1024).cuda())
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.zeros(64, 1024, device="cuda")).sum().backward()
        optimizer.step()
    torch.distributed.destroy_process_group()


def main(name, *numbers):
    words = [sys.executable, __file__]
    if name == "subprocess":
        _run(__file__, "use")
    elif name == "exec":
        os.execv(sys.executable, [*words, "use"])
    elif name == "subprocess_that_execs":
        _run(__file__, "exec")
    else:
        globals()[name](*map(int, numbers))


if __name__ == "__main__":
    main(*sys.argv[1:])
