"""Runtimes and meshes beside the eager context: sessions of TensorFlow 1, servers of a cluster, meshes of DTensor.

Sessions and servers are given as many logical CPUs as the context has. DTensor's meshes of GPUs are made of the CPUs
that stand for them, so their ``device_type()`` is ``CPU``.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2 as _config
from tensorflow.dtensor.python import layout as _layout
from tensorflow.python.client import session as _session

from xdevice.backends.tensorflow import hardware
from xdevice.backends.tensorflow.private_names import in_place_of

layout: Any = _layout
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
    made.device_count["CPU"], made.device_count["GPU"] = gpus + hardware.virtual.first, 0
    return made


def _begin_sessions() -> None:
    @in_place_of("tensorflow.python.client.session:BaseSession.__init__")
    def begin_with_gpus(begin: Any, self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
        here = not target and isinstance(config, _config.ConfigProto)  # type: ignore[attr-defined, unused-ignore]
        begin(self, target, graph, _counted(config) if here else config)


def _list_sessions(to_shown: Callable[[Any], Any]) -> None:
    @in_place_of("tensorflow.python.client.session:BaseSession.list_devices")
    def shown(listed: Any, self: Any) -> list[Any]:
        names = [(to_shown(device.name), device) for device in listed(self)]
        make = session._DeviceAttributes
        return [
            make(name, name.split(":")[-2], device.memory_limit_bytes, device.incarnation) for name, device in names
        ]


def _serve() -> None:
    @in_place_of("tensorflow.python.training.server_lib:_make_server_def")
    def with_gpus(make: Any, *args: Any, **kwargs: Any) -> Any:
        server = make(*args, **kwargs)
        server.default_session_config.CopyFrom(_counted(server.default_session_config))
        return server


def _mesh(to_real: Callable[[Any], Any], to_shown: Callable[[Any], Any]) -> None:
    parameters = signature(layout.Mesh.__init__)

    @in_place_of("tensorflow.dtensor.python.config:num_local_devices")
    def count(counted: Any, device_type: str) -> int:
        word = device_type.lower()
        return hardware.count(word) if word in ("cpu", "gpu") else int(counted(device_type))

    def real(devices: Any) -> Any:
        return devices and [to_real(d if isinstance(d, str) else d.to_string()) for d in devices]

    @in_place_of("tensorflow.dtensor.python.layout:Mesh.__init__")
    def begin_on_cpus(begin: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        given = parameters.bind(self, *args, **kwargs)
        given.arguments.update({word: real(given.arguments.get(word)) for word in ("local_devices", "global_devices")})
        begin(*given.args, **given.kwargs)

    @in_place_of("tensorflow.dtensor.python.layout:Mesh.local_devices")
    def local_devices(listed: Any, self: Any) -> list[Any]:
        return [to_shown(name) for name in listed(self)]

    public: Any = tf
    public.experimental.dtensor.num_local_devices = count
