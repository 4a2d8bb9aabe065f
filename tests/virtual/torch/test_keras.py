"""Keras on PyTorch: its names of devices, and training, on virtual GPUs that do and do not stand in."""

import subprocess
import sys
import textwrap

import pytest

TRAINS = """
    import os
    os.environ["KERAS_BACKEND"] = "torch"
    import xdevice
    xdevice.use("torch")
    xdevice.virtual_gpus(2)
    import keras, numpy as np
    for name in ("vgpu:1", "gpu:1", "cpu"):
        with keras.device(name):
            keras.utils.set_random_seed(0)
            net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
            net.compile("sgd", "mse")
            x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
            loss = net.fit(x, x.sum(1), 8, 2, verbose=0, shuffle=False).history["loss"][-1]
            print(f"{loss:.5f}", xdevice.device_of(net), net.layers[0].kernel.value.device)
"""


@pytest.mark.weekly
def test_a_network_trains_on_the_virtual_gpu_that_keras_is_told():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(TRAINS)],
        capture_output=True,
        text=True,
        timeout=150,
        env=None,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second, host = [line.split() for line in done.stdout.splitlines()]
    assert first[1:] == second[1:] == ["gpu:1", "vgpu:1"]
    assert host[1:] == ["cpu:0", "cpu"]
    assert first[0] == second[0] == host[0]


@pytest.mark.weekly
def test_recurrent_layers_convolutions_and_attention_of_keras_train_to_the_cpus_numbers(
    keras_losses,
):
    with_gpus, alone, more = keras_losses(
        "torch",
        """
        print(net.layers[1].embeddings.value.device)
        with keras.device("gpu:1"):
            print(keras.ops.ones(2).device)
        """,
    )
    assert with_gpus == pytest.approx(alone, abs=2e-5)
    assert more == ["cuda:0", "cuda:1"]


def test_forked_processes_compute_gradients_as_in_kerass_guide_to_several_gpus(program):
    lines = program("""
        import torch
        def train(index):
            x = torch.ones(3, device=f"cuda:{index}", requires_grad=True)
            (2 * x).sum().backward()
            print(index, x.grad.tolist(), flush=True)
        if __name__ == "__main__":
            torch.multiprocessing.start_processes(train, nprocs=torch.cuda.device_count(), start_method="fork")
    """)
    assert sorted(lines) == ["0 [2.0, 2.0, 2.0]", "1 [2.0, 2.0, 2.0]"]
