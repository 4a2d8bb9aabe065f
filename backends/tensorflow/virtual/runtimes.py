"""Runtimes and meshes beside the eager context: sessions of TensorFlow 1, servers of a cluster, meshes of DTensor.

Sessions and servers are given as many logical CPUs as the context has. DTensor's meshes of GPUs are made of the CPUs
that stand for them, so their ``device_type()`` is ``CPU``.
"""

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2 as _config
from tensorflow.dtensor.python import config as _dtensor
from tensorflow.dtensor.python import layout as _layout
from tensorflow.python.client import session as _session

from xdevice.backends.tensorflow import hardware

dtensor: Any = _dtensor
layout: Any = _layout
public: Any = tf
session: Any = _session


def start(to_real: Callable[[Any], Any], to_shown: Callable[[Any], Any]) -> None:
    """Give them the GPUs; the functions translate names of devices."""
    _begin_sessions()
    _list_sessions(to_shown)
    _serve()
    _mesh(to_real, to_shown)


def _counted(config: Any) -> Any:
    """The configuration with CPUs for the GPUs; a program that asks for none, or for fewer, gets so many."""
    made = _config.ConfigProto()  # type: ignore[attr-defined, unused-ignore]  # generated
    made.CopyFrom(config)
    there, asked = hardware.count("gpu"), config.device_count
    gpus = min(asked["GPU"], there) if "GPU" in asked else there
    made.device_count["CPU"], made.device_count["GPU"] = gpus + hardware.first_virtual(), 0
    return made


def _begin_sessions() -> None:
    kind = session.BaseSession
    begin = kind.__init__

    def begin_with_gpus(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
        here = not target and isinstance(config, _config.ConfigProto)  # type: ignore[attr-defined, unused-ignore]
        begin(self, target, graph, _counted(config) if here else config)

    kind.__init__ = begin_with_gpus


def _list_sessions(to_shown: Callable[[Any], Any]) -> None:
    kind = session.BaseSession
    listed = kind.list_devices

    def shown(self: Any) -> list[Any]:
        names = [(to_shown(device.name), device) for device in listed(self)]
        make = session._DeviceAttributes
        return [
            make(name, name.split(":")[-2], device.memory_limit_bytes, device.incarnation) for name, device in names
        ]

    kind.list_devices = shown


def _serve() -> None:
    home: Any = import_module("tensorflow.python.training.server_lib")
    made = home._make_server_def

    def with_gpus(*args: Any, **kwargs: Any) -> Any:
        server = made(*args, **kwargs)
        server.default_session_config.CopyFrom(_counted(server.default_session_config))
        return server

    home._make_server_def = with_gpus


def _mesh(to_real: Callable[[Any], Any], to_shown: Callable[[Any], Any]) -> None:
    kind, counted = layout.Mesh, dtensor.num_local_devices
    begin, listed = kind.__init__, kind.local_devices
    parameters = signature(begin)

    def count(device_type: str) -> int:
        word = device_type.lower()
        return hardware.count(word) if word in ("cpu", "gpu") else int(counted(device_type))

    def real(devices: Any) -> Any:
        return devices and [to_real(d if isinstance(d, str) else d.to_string()) for d in devices]

    def begin_on_cpus(self: Any, *args: Any, **kwargs: Any) -> None:
        given = parameters.bind(self, *args, **kwargs)
        given.arguments.update({word: real(given.arguments.get(word)) for word in ("local_devices", "global_devices")})
        begin(*given.args, **given.kwargs)

    dtensor.num_local_devices = public.experimental.dtensor.num_local_devices = count
    kind.__init__, kind.local_devices = begin_on_cpus, lambda self: [to_shown(name) for name in listed(self)]
