"""What a type checker knows of a tensor."""

from typing import Any, Protocol, TypeAlias


class Tensor(Protocol):
    """Any framework's tensor: what has a shape and a dtype."""

    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...


Operand: TypeAlias = Tensor | complex
