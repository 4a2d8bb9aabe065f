"""A capability of an adapter: its functions, and why it lacks the others."""

from typing import Any

from xdevice.contract import CAPABILITIES, MODULES
from xdevice.errors import NotSupportedError

_NOUNS = {
    "virtual": "virtual GPUs",
    "sharing": "memory to share",
    "mixing": "devices to mix",
    "engine": "engine for several processes",
    "storage": "such numbers to store",
    "transfers": "transfers to watch",
    "allocation": "memory of GPUs to share",
}  # capabilities with a name that does not say what is missing


class Capability:
    """One capability of one adapter: its functions, and a reason for each that it lacks.

    ``reasons`` is the adapter's ``CANNOT``.
    """

    def __init__(self, name: str, backend: str, adapter: str, module: Any, reasons: dict[str, str]) -> None:
        self._name, self._backend, self._adapter, self._reasons = name, backend, adapter, reasons
        for function in CAPABILITIES[name]:
            if hasattr(module, function):
                setattr(self, function, getattr(module, function))

    def __getattr__(self, function: str) -> Any:
        if function.startswith("__"):
            raise AttributeError(function)
        whole = function not in self._reasons and (self._name in self._reasons or self._is_empty())
        what = _NOUNS.get(self._name, self._name) if whole else function
        raise NotSupportedError(f"{self._backend} has no {what}: {self.why_not(function)}")

    def has(self, function: str) -> bool:
        return function in self.__dict__

    def why_not(self, function: str) -> str:
        """Why the adapter lacks the function or the whole capability: its own reason if it gives one."""
        home = f"{self._adapter}.{MODULES.get(self._name, self._name)}"
        missing = home if self._is_empty() else f"{home}.{function}"
        return self._reasons.get(function) or self._reasons.get(self._name) or f"its adapter has no {missing}"

    def _is_empty(self) -> bool:
        return not any(map(self.has, CAPABILITIES[self._name]))
