"""``value_and_grad``: one functional interface to every framework's gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, ParamSpec, TypeAlias

from xdevice.contract import Tensor
from xdevice.errors import ArgumentError, ArgumentTypeError, NotATensorError, shortened
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import tensor_owner
from xdevice.integers import whole_number
from xdevice.tensors.trees.by_place import LeavesByPlace

__all__ = ["value_and_grad"]

P = ParamSpec("P")
Function: TypeAlias = Callable[..., Any]

listeners: list[Callable[[Function], None]] = []
"""Called with each differentiated function when its call ends, except within another one."""

_is_nested = ContextVar("xdevice.value_and_grad", default=False)


def value_and_grad(
    fn: Callable[P, Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[P, tuple[Any, Any]]:
    """A function that returns the value of ``fn`` and its gradient; ``fn`` returns a scalar.

    The gradient has the structure of the argument: a tensor, or a tree of
    tensors. Each gradient is on its parameter's device, and is zero if the
    value does not depend on the parameter. ``None`` among the parameters stays
    ``None``. The value is detached, and no gradient accumulates in the
    arguments. Tensors may be on several devices, and ``fn`` may move them:
    gradients flow through `to_device`. Calls may be nested if the framework
    supports that.

    Parameters
    ----------
    fn
        Returns a tensor of one number.
    argnums
        The number of the positional argument to differentiate with respect to; for a tuple of
        numbers, the gradients are a tuple.
    has_aux
        Whether ``fn`` returns ``(value, aux)``; the result is then ``((value, aux), gradient)``.

    Raises
    ------
    ArgumentError
        ``argnums`` is negative. On calling: there is no such argument, or ``fn`` returns several
        numbers.
    ArgumentTypeError
        ``fn`` cannot be called, or ``argnums`` is not an integer or a tuple of integers. On
        calling: a parameter is not of floating-point numbers, or ``fn`` does not return a tensor
        of them.
    NotATensorError
        On calling: an argument to differentiate for has no tensor, or a leaf that is not a tensor.
    NotSupportedError
        On calling: the framework has no gradients, or no gradients of gradients.

    Examples
    --------
    >>> import xdevice
    >>> step = xdevice.value_and_grad(lambda w, x: (w * x).sum())  # doctest: +SKIP
    >>> value, gradient = step(xdevice.ones(2), xdevice.tensor([3.0, 4.0]))  # doctest: +SKIP
    >>> xdevice.to_numpy(gradient)  # doctest: +SKIP
    array([3., 4.], dtype=float32)
    """
    if not callable(fn):
        raise ArgumentTypeError(
            f"{shortened(fn)} cannot be called; pass the function that returns the value"
        )
    chosen = _argument_numbers(argnums)

    def differentiated(*args: P.args, **kwargs: P.kwargs) -> tuple[Any, Any]:
        if max(chosen) >= len(args):
            raise ArgumentError(
                f"argnums={argnums!r}, but {len(args)} positional arguments were given; "
                "count from 0"
            )
        flats = [LeavesByPlace(args[i]) for i in chosen]
        owner, parameters = parameters_in(flats)
        call = Call(fn, args, kwargs, Differentiation(chosen, owner, has_aux), flats)
        value, aux, gradients = differentiate(call, parameters)
        notify_listeners(fn)
        trees = tuple(with_tensors(flats, gradients))
        result = value
        if has_aux:
            result = (value, aux)
        gradient = trees
        if not isinstance(argnums, tuple):
            gradient = trees[0]
        return result, gradient

    return differentiated


def _argument_numbers(argnums: int | tuple[int, ...]) -> tuple[int, ...]:
    message = (
        f"argnums={shortened(argnums)} is not the number of a positional argument; give 0, 1, … "
        "or a tuple of these"
    )
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    chosen = tuple(whole_number(number, message) for number in numbers)
    if len(set(chosen)) != len(chosen):
        raise ArgumentError(f"argnums={argnums!r} names an argument twice; name each once")
    return chosen


class Differentiation(NamedTuple):
    """How a function is differentiated: for which arguments, under which framework."""

    chosen: tuple[int, ...]
    owner: Backend
    has_aux: bool

    def bind(self, fn: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
        flats = [LeavesByPlace(args[i]) for i in self.chosen]
        return Call(fn, args, kwargs, self, flats)


class Call:
    """A function and its arguments, to be called with variables in place of their tensors."""

    def __init__(
        self,
        fn: Function,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        how: Differentiation,
        flats: list[LeavesByPlace],
    ) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.how = how
        self.flats = flats

    def paths(self) -> list[str]:
        return [path for flat in self.flats for path in flat.paths]

    def __call__(self, variables: list[Tensor]) -> tuple[Tensor, Any]:
        new_args = list(self.args)
        new_trees = with_tensors(self.flats, variables)
        for i, tree in zip(self.how.chosen, new_trees, strict=True):
            new_args[i] = tree
        result = self.fn(*new_args, **self.kwargs)
        return _checked_value(result, self.how.owner, self.how.has_aux)


def with_tensors(flats: Sequence[LeavesByPlace], tensors: Sequence[Tensor]) -> list[Any]:
    """The trees with these tensors in place of their own, in order; ``None`` stays."""
    remaining = iter(tensors)
    trees = []
    for flat in flats:
        new_leaves = [None if leaf is None else next(remaining) for leaf in flat.leaves]
        trees.append(flat.rebuild(new_leaves))
    return trees


def differentiate(call: Call, parameters: list[Tensor]) -> tuple[Tensor, Any, list[Tensor]]:
    """The call's value, its auxiliary result, and the gradient for each parameter."""
    is_nested = _is_nested.get()
    token = _is_nested.set(True)
    try:
        return call.how.owner.gradients.value_and_gradients(call, parameters, is_nested)
    finally:
        _is_nested.reset(token)


def notify_listeners(fn: Function) -> None:
    """Call the listeners after the end of a call, unless it is within another one."""
    if listeners and not differentiating():
        for listener in listeners:
            listener(fn)


def differentiating() -> bool:
    """Whether this is inside the function of a `value_and_grad`."""
    return _is_nested.get()


def parameters_in(flats: Sequence[LeavesByPlace]) -> tuple[Backend, list[Tensor]]:
    """The framework and the tensors to differentiate for, in order; ``None`` is left out."""
    tensors: list[Tensor] = []
    owners: dict[Backend, None] = {}
    for flat in flats:
        for i, leaf in enumerate(flat.leaves):
            if leaf is None:
                continue
            owner = tensor_owner(leaf)
            if owner is None:
                raise NotATensorError(
                    f"gradients are of tensors, and{flat.at(i)} there is an object of type "
                    f"{type(leaf).__name__}; pass a tensor or a tree of tensors"
                )
            tensors.append(leaf)
            owners[owner] = None
    if len(owners) != 1:
        frameworks = " and ".join(owners) or "no tensor"
        raise NotATensorError(
            f"gradients are of one framework's tensors, and here is {frameworks}; "
            "pass its parameters"
        )
    owner = next(iter(owners))
    for flat in flats:
        _check_floating(flat, owner)
    return owner, tensors


def _check_floating(flat: LeavesByPlace, owner: Backend) -> None:
    for i, leaf in enumerate(flat.leaves):
        if leaf is not None and not owner.gradients.is_floating(leaf):
            raise ArgumentTypeError(
                f"gradients are of floating-point tensors, and a parameter{flat.at(i)} is of "
                f"{leaf.dtype}; pass it as another argument, or convert it first"
            )


def _checked_value(result: Any, owner: Backend, has_aux: bool) -> tuple[Tensor, Any]:
    if has_aux and not (isinstance(result, tuple) and len(result) == 2):
        raise ArgumentTypeError(
            f"has_aux=True, but fn returned a {type(result).__name__}; return (value, aux)"
        )
    value, aux = result if has_aux else (result, None)
    if tensor_owner(value) != owner:
        raise ArgumentTypeError(
            f"fn returned an object of type {type(value).__name__}; return a tensor of {owner}"
        )
    if not owner.gradients.is_floating(value):
        raise ArgumentTypeError(
            f"the value is of {value.dtype}; return one of floating-point numbers"
        )
    size = 1  # without math.prod, which torch.compile cannot trace
    for length in value.shape:
        size *= length
    if size != 1:
        raise ArgumentError(
            f"fn returned a tensor of shape {tuple(value.shape)}; return one number, a sum say"
        )
    return value, aux
