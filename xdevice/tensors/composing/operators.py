"""The operators of `Array`, by the array API standard's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from xdevice.contract import Tensor
from xdevice.errors import ArgumentError, ArgumentTypeError
from xdevice.framework.ownership import tensor_owner

Function: TypeAlias = Callable[..., Any]
Operand: TypeAlias = Any
"""An array, or a number of Python or NumPy."""

OF_UFUNCS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "truediv",
    "floor_divide": "floordiv",
    "remainder": "mod",
    "power": "pow",
    "matmul": "matmul",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "left_shift": "lshift",
    "right_shift": "rshift",
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
}
"""The operator of each of NumPy's functions that has one."""

REFLECTED = {
    "eq": "__eq__",
    "ne": "__ne__",
    "lt": "__gt__",
    "le": "__ge__",
    "gt": "__lt__",
    "ge": "__le__",
}
"""The comparison with the operands swapped."""


def _operand(array: Operators, other: Operand) -> Operand:
    """What stands beside the array's tensor; `NotImplemented` for what is not its framework's."""
    if isinstance(other, Operators):
        return other.tensor if other.xp is array.xp else NotImplemented
    if isinstance(other, (bool, int, float, complex)):
        return other
    is_number = hasattr(other, "item") and getattr(other, "shape", None) == ()
    owner = tensor_owner(other)
    if is_number and owner in (None, "numpy"):
        return other.item()
    if owner == "numpy" and array.may_go_to_host():
        return array.xp.asarray(other, device=array.device).tensor
    return NotImplemented


def _binary(name: str) -> tuple[Function, Function, Function]:
    """The operator, the one for an array on the right, and the one that changes the array."""

    def operator(self: Operators, other: Operand, /) -> Any:
        number = _operand(self, other)
        if number is NotImplemented:
            return NotImplemented
        return self.with_tensor(getattr(self.xp.native, name)(self.tensor, number))

    def reflected(self: Operators, other: Operand, /) -> Any:
        number = _operand(self, other)
        if number is NotImplemented:
            return NotImplemented
        return self.with_tensor(getattr(self.xp.native, name)(number, self.tensor))

    def in_place(self: Operators, other: Operand, /) -> Any:
        result = operator(self, other)
        if result is NotImplemented:
            return result
        if result.shape != self.shape:
            raise ArgumentError(
                f"the result has the shape {result.shape}, and the array {self.shape}; write it "
                f"to a new one"
            )
        if self.xp.kind(result.dtype) > self.xp.kind(self.dtype):
            raise ArgumentTypeError(
                f"the result is {result.dtype}, and the array {self.dtype}; write it to a new one"
            )
        self.write(self.xp.native.astype(result.tensor, self.dtype, copy=False))
        return self

    return operator, reflected, in_place


def _comparison(name: str) -> Function:
    """An operator that never leaves the answer to Python, which compares what the objects are."""
    operator = _binary(name)[0]

    def compare(self: Operators, other: Operand, /) -> Any:
        result = operator(self, other)
        if result is NotImplemented and hasattr(other, "shape"):
            raise ArgumentTypeError(
                f"{name} of an array and a {type(other).__module__}.{type(other).__name__}; "
                f"convert it with asarray, or compose it, too"
            )
        return result

    return compare


def _unary(name: str) -> Function:
    def operator(self: Operators) -> Any:
        return self.with_tensor(getattr(self.xp.native, name)(self.tensor))

    return operator


class Operators:
    """What an array needs for its operators, and the operators."""

    __slots__ = ()

    tensor: Any
    xp: Any
    dtype: Any
    shape: Any
    device: Any

    def may_go_to_host(self) -> bool:
        """Whether a library may compute with it in NumPy."""
        raise NotImplementedError

    def with_tensor(self, tensor: Tensor) -> Any:
        """An array of another tensor."""
        raise NotImplementedError

    def write(self, tensor: Tensor) -> None:
        """Change the numbers to those of a tensor of the same shape and dtype."""
        raise NotImplementedError

    __hash__ = None  # type: ignore[assignment]  # it compares elementwise

    __add__, __radd__, __iadd__ = _binary("add")
    __sub__, __rsub__, __isub__ = _binary("subtract")
    __mul__, __rmul__, __imul__ = _binary("multiply")
    __truediv__, __rtruediv__, __itruediv__ = _binary("divide")
    __floordiv__, __rfloordiv__, __ifloordiv__ = _binary("floor_divide")
    __mod__, __rmod__, __imod__ = _binary("remainder")
    __pow__, __rpow__, __ipow__ = _binary("pow")
    __matmul__, __rmatmul__, __imatmul__ = _binary("matmul")
    __and__, __rand__, __iand__ = _binary("bitwise_and")
    __or__, __ror__, __ior__ = _binary("bitwise_or")
    __xor__, __rxor__, __ixor__ = _binary("bitwise_xor")
    __lshift__, __rlshift__, __ilshift__ = _binary("bitwise_left_shift")
    __rshift__, __rrshift__, __irshift__ = _binary("bitwise_right_shift")
    __eq__, __ne__ = _comparison("equal"), _comparison("not_equal")
    __lt__, __le__ = _binary("less")[0], _binary("less_equal")[0]
    __gt__, __ge__ = _binary("greater")[0], _binary("greater_equal")[0]
    __neg__, __pos__ = _unary("negative"), _unary("positive")
    __abs__, __invert__ = _unary("abs"), _unary("bitwise_invert")
