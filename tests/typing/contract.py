"""Every room of every adapter is what the contract says: checked by mypy and pyright, never run."""

from xdevice import contract
from xdevice.backends.numpy import creation as numpy_creation
from xdevice.backends.numpy import exchange as numpy_exchange
from xdevice.backends.numpy import hardware as numpy_hardware
from xdevice.backends.numpy import memory as numpy_memory
from xdevice.backends.numpy import placement as numpy_placement
from xdevice.backends.torch import creation as torch_creation
from xdevice.backends.torch import exchange as torch_exchange
from xdevice.backends.torch import hardware as torch_hardware
from xdevice.backends.torch import memory as torch_memory
from xdevice.backends.torch import placement as torch_placement

hardware: list[contract.Hardware] = [numpy_hardware, torch_hardware]
placement: list[contract.Placement] = [numpy_placement, torch_placement]
creation: list[contract.Creation] = [numpy_creation, torch_creation]
exchange: list[contract.Exchange] = [numpy_exchange, torch_exchange]
memory: list[contract.Memory] = [numpy_memory, torch_memory]
