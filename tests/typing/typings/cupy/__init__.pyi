# CuPy is too large to be installed for the types of one adapter, and what it has is of type Any.
from typing import Any

def __getattr__(name: str) -> Any: ...
