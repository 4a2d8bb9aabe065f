"""Programs written for GPUs, run as users run them: in a process of their own, where virtual GPUs stand in."""

import os
import subprocess
import sys
import textwrap

import pytest

from xdevice.virtual.request import ENV

SAID = "2 virtual GPUs stand in for CUDA's; they compute on the CPU"


@pytest.fixture
def program(tmp_path, plug_in):
    """Run a program's text with two GPUs that stand in, or on the CPU; the lines that it prints come back."""

    def run(text, *, gpus=True, words=(), **env):
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(text))
        clean = {
            name: value
            for name, value in os.environ.items()
            if name != ENV and not name.endswith("_WARNED")
        }
        start = ["-m", "xdevice", "emulate", "--gpus", "2", *words] if gpus else []
        done = subprocess.run(
            [sys.executable, *start, str(path)],
            capture_output=True,
            text=True,
            timeout=150,
            env={**clean, **env},
        )
        assert done.returncode == 0, done.stderr[-5000:]
        assert (SAID in done.stderr) == gpus, done.stderr
        return done.stdout.splitlines()

    return run


# Keras chooses kernels by the list of GPUs: each of these has one of its own where there is cuDNN.
KERAS = """
    import keras, numpy as np
    from keras import layers
    keras.utils.set_random_seed(0)
    words = keras.Input((6,), dtype="int32")
    x = layers.Embedding(9, 8)(words)
    x = layers.GRU(8, return_sequences=True)(layers.LSTM(8, return_sequences=True)(x))
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    x = layers.BatchNormalization()(layers.Conv1D(8, 3, padding="same", activation="relu")(x))
    net = keras.Model(words, layers.Dense(3)(layers.Flatten()(layers.Dropout(0.0)(x))))
    net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    rng = np.random.default_rng(0)
    history = net.fit(rng.integers(0, 9, (16, 6)), rng.integers(0, 3, 16), 8, 2, verbose=0, shuffle=False)
    net.save_weights("net.weights.h5")
    net.load_weights("net.weights.h5")
    print(*(f"{loss:.5f}" for loss in history.history["loss"]))
"""


@pytest.fixture
def keras_losses(program):
    """The losses of a network with an embedding, an LSTM, a GRU, attention and a convolution: GPU's, and CPU's."""

    def both(backend, then=""):
        text = KERAS + textwrap.indent(textwrap.dedent(then), "    ")
        with_gpus = program(text, KERAS_BACKEND=backend)
        (alone,) = program(KERAS, gpus=False, KERAS_BACKEND=backend)
        return (
            [float(x) for x in with_gpus[0].split()],
            [float(x) for x in alone.split()],
            with_gpus[1:],
        )

    return both
