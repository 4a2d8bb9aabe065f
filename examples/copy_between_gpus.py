"""The first steps of the multi-GPU lesson: one tensor on each GPU, adding, copying, not copying.

    python examples/copy_between_gpus.py                       the framework that is installed here
    xdevice run --backend all examples/copy_between_gpus.py    all of them, side by side

On a machine with fewer than two GPUs the script uses two virtual ones. It names no framework.
"""

import _needed  # noqa: F401  (says what is not installed)
from _gpus import two_gpus

import xdevice
from xdevice import device_of, is_same_device, strict, to_device, to_numpy

first, second = two_gpus()

print("Two tensors")
X = xdevice.ones((2, 3), device=first)
xdevice.seed(0)
Y = xdevice.rand((2, 3), device=second)
print("  X is on", device_of(X), "and holds", to_numpy(X).tolist())
print("  Y is on", device_of(Y), "and is", *Y.shape)

print("Adding them")
# Some frameworks raise an error here and others copy. Under strict() all raise the same error.
try:
    with strict():
        X + Y
except xdevice.MixedDeviceError as error:
    print("  X + Y is an error about", " and ".join(map(str, sorted(error.devices))))
    print("  and says what to do:", str(error).partition("; ")[2])

print("Copying X to where Y is")
Z = to_device(X, second)
print("  Z is on", device_of(Z), "and X still on", device_of(X))
# Most frameworks compute on the device of the operands; TensorFlow computes on that of the scope.
with strict(), second:
    total = Y + Z
print("  Y + Z is on", device_of(total), "with Y and Z:", is_same_device(total, Y, Z))
print("  and is one more than Y:", bool((abs(to_numpy(total) - to_numpy(Y) - 1) < 1e-6).all()))

print("Copying what is there already")
print("  copies nothing:", to_device(Z, second) is Z)
print("  unless one is asked for:", to_device(Z, second, copy=True) is not Z)
