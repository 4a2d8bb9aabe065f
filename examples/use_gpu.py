"""The GPU lesson: find devices, put tensors and a model on them, compute there, fetch the result.

    python examples/use_gpu.py                          the framework that is installed here
    XDEVICE_BACKEND=torch python examples/use_gpu.py    PyTorch
    xdevice run --backend all examples/use_gpu.py       all of them, side by side

The script names no framework, and prints the same lines under all frameworks of a machine. Without
a GPU everything is on ``cpu:0``. Only the model is built with the framework's own layers, in ``native/``.
"""

import _needed  # noqa: F401  (says what is not installed)
import native

import xdevice
from xdevice import (
    cpu,
    device_of,
    gpu,
    is_same_device,
    num_gpus,
    to_device,
    to_numpy,
    try_all_gpus,
    try_gpu,
)


def numbers(x):
    """The tensor's values, copied to the host and rounded."""
    return to_numpy(x).round(2).tolist()


print("Devices")
# A device is a value: it can be created anywhere, whether or not the machine has it.
print("  named:", cpu(), gpu(), gpu(1), xdevice.as_device("cuda:1"), xdevice.as_device("/GPU:1"))
print("  GPUs to use here:", num_gpus())
print("  all devices:", *xdevice.devices())
# try_gpu falls back to the CPU if the GPU does not exist, so the script runs on any machine.
print("  try_gpu():", try_gpu())
print("  try_gpu(10):", try_gpu(10))
print("  try_all_gpus():", *try_all_gpus())

print("Where is a tensor?")
first, second = try_gpu(), try_gpu(1)
# On the framework's default device: mostly the CPU, sometimes the first GPU.
x = xdevice.tensor([1.0, 2.0, 3.0])
print("  x is on", device_of(x))
X = xdevice.ones((2, 3), device=first)
print("  X is on", device_of(X), "and holds", numbers(X))
xdevice.seed(0)  # repeatable; other frameworks draw other numbers from this seed
Y = xdevice.rand((2, 3), device=second)
print("  Y is on", device_of(Y), "and is", *Y.shape)
with second:
    print("  made where that device is the default:", device_of(xdevice.zeros(3)))

print("Copying")
Z = to_device(X, second)
print("  Z, a copy of X for Y's device, is on", device_of(Z))
print("  going where it is already copies nothing:", to_device(Z, second) is Z)
print("  unless a copy is asked for:", to_device(Z, second, copy=True) is not Z)

print("Computing")
# Operands must be on one device. Most frameworks compute there; TensorFlow computes in the scope.
with second:
    total = Y + Z
print("  Y and Z are together:", is_same_device(Y, Z), "and Y + Z is on", device_of(total))
print("  Z + Z holds", numbers(Z + Z))
if not is_same_device(X, Y):  # then there are two devices
    try:
        print("  X + Y: this framework copied without an error, to", device_of(X + Y))
    except Exception as error:  # each framework has its own type of error
        print("  X + Y:", str(error).splitlines()[0])
    try:
        xdevice.check_same_device(X, Y)
    except xdevice.MixedDeviceError as error:
        print("  check_same_device(X, Y):", error)

print("A model")
net = native.linear(weight=[[0.5], [-1.0], [2.0]], bias=[0.25])
net = to_device(net, first)
print("  its parameters are on", device_of(net))
with first:
    output = net(X)
print("  net(X) is on", device_of(output), "and holds", numbers(output))
# Reading parameters: copy all of them to the host at once. The model itself stays where it is.
for name, parameter in to_device(native.parameters(net), cpu()).items():
    print(f"  its {name} holds", to_numpy(parameter).ravel().tolist())
print("  and the model is still on", device_of(net))
