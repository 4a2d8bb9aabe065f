"""``value_and_grad``: one functional interface to every framework's gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, ParamSpec

from xdevice.device import whole_number
from xdevice.errors import ArgumentError, ArgumentTypeError, NotATensorError
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import tensor_owner
from xdevice.tensors.trees.tree import Flat, flatten

__all__ = ["value_and_grad"]

P = ParamSpec("P")

_nested = ContextVar(
    "xdevice.value_and_grad", default=False
)  # within another call: it needs more care
listeners: list[
    Callable[[Callable[..., Any]], None]
] = []  # called with each function differentiated, not within one


def value_and_grad(
    fn: Callable[P, Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[P, tuple[Any, Any]]:
    """A function that returns the value of ``fn`` and its gradient; ``fn`` returns a scalar.

    The gradient has the structure of the argument: a tensor, or a tree of tensors, each gradient on its parameter's
    device, and zero where the value does not depend on the parameter; ``None`` among the parameters stays ``None``.
    The value is detached, and no gradient accumulates in the arguments. Tensors may be on several devices, and ``fn``
    may move them: gradients flow through `to_device`. Calls may be nested, where the framework can.

    Parameters
    ----------
    fn
        Returns a tensor of one number.
    argnums
        Which positional argument to differentiate with respect to; for a tuple, the gradients are a tuple.
    has_aux
        Whether ``fn`` returns ``(value, aux)``; the result is then ``((value, aux), gradient)``.

    Raises
    ------
    ArgumentError
        ``argnums`` is negative. On calling: there is no such argument, or ``fn`` returns several numbers.
    ArgumentTypeError
        ``fn`` cannot be called, or ``argnums`` is not an integer or a tuple of integers. On calling: a parameter
        is not of floating-point numbers, or ``fn`` does not return a tensor of them.
    NotATensorError
        On calling: an argument to differentiate for has no tensor, or something that is not a tensor.
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
            f"{fn!r} cannot be called; pass the function that returns the value"
        )
    wrong = f"argnums={argnums!r} is not the number of a positional argument; give 0, 1, … or a tuple of these"
    chosen = tuple(
        whole_number(i, wrong) for i in (argnums if isinstance(argnums, tuple) else (argnums,))
    )
    if len(set(chosen)) != len(chosen):
        raise ArgumentError(f"argnums={argnums!r} names an argument twice; name each once")

    def differentiated(*args: P.args, **kwargs: P.kwargs) -> tuple[Any, Any]:
        last = max(chosen)
        if last >= len(args):
            raise ArgumentError(
                f"argnums={argnums!r}, but {len(args)} positional arguments were given; count from 0"
            )
        flats = [flatten(args[i]) for i in chosen]
        owner, parameters = parameters_in(flats)
        call = Call(fn, args, kwargs, How(chosen, owner, has_aux), flats)
        value, aux, gradients = differentiate(call, parameters)
        tell_ended(fn)
        trees = with_tensors(flats, gradients)
        return (value, aux) if has_aux else value, tuple(trees) if isinstance(
            argnums, tuple
        ) else trees[0]

    return differentiated


class How(NamedTuple):
    """For which arguments a function is differentiated, under which framework, and whether it returns more."""

    chosen: tuple[int, ...]
    owner: Backend
    has_aux: bool

    def bind(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
        return Call(fn, args, kwargs, self, [flatten(args[i]) for i in self.chosen])


class Call:
    """A function with its arguments, called with variables in place of the tensors in the chosen ones."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        how: How,
        flats: list[Flat],
    ) -> None:
        self.fn, self.args, self.kwargs, self.how, self.flats = fn, args, kwargs, how, flats

    def paths(self) -> list[str]:
        return [path for flat in self.flats for path in flat.paths]

    def __call__(self, variables: list[Any]) -> tuple[Any, Any]:
        new = list(self.args)
        for i, tree in zip(self.how.chosen, with_tensors(self.flats, variables), strict=True):
            new[i] = tree
        return _checked_value(self.fn(*new, **self.kwargs), self.how.owner, self.how.has_aux)


def with_tensors(flats: Sequence[Flat], tensors: Sequence[Any]) -> list[Any]:
    """The trees with these tensors in place of their own, one after the other; ``None`` stays."""
    rest = iter(tensors)
    return [
        flat.rebuild([None if leaf is None else next(rest) for leaf in flat.leaves])
        for flat in flats
    ]


def differentiate(call: Call, parameters: list[Any]) -> tuple[Any, Any, list[Any]]:
    """The call's value, what it returns beside that, and the gradient for each parameter."""
    nested = _nested.get()
    token = _nested.set(True)
    try:
        return call.how.owner.gradients.value_and_gradients(call, parameters, nested)
    finally:
        _nested.reset(token)


def tell_ended(fn: Callable[..., Any]) -> None:
    if listeners and not differentiating():
        for listener in listeners:
            listener(fn)


def differentiating() -> bool:
    """Whether this is inside the function of a `value_and_grad`."""
    return _nested.get()


def parameters_in(flats: Sequence[Flat]) -> tuple[Backend, list[Any]]:
    """The tensors to differentiate for, in order, and the framework that owns them; ``None`` is passed by."""
    places = [(flat, i) for flat in flats for i, leaf in enumerate(flat.leaves) if leaf is not None]
    tensors = [flat.leaves[i] for flat, i in places]
    owners: dict[Backend, None] = {}
    for (flat, i), tensor in zip(places, tensors, strict=True):
        owner = tensor_owner(tensor)
        if owner is None:
            what = f"{flat.at(i)} there is an object of type {type(tensor).__name__}"
            raise NotATensorError(
                f"gradients are of tensors, and{what}; pass a tensor or a tree of tensors"
            )
        owners[owner] = None
    if len(owners) != 1:
        found = " and ".join(owners) or "no tensor"
        raise NotATensorError(
            f"gradients are of one framework's tensors, and here is {found}; pass its parameters"
        )
    owner = next(iter(owners))
    for (flat, i), tensor in zip(places, tensors, strict=True):
        if not owner.gradients.is_floating(tensor):
            what = f"gradients are of floating-point tensors, and a parameter{flat.at(i)} is of {tensor.dtype}"
            raise ArgumentTypeError(f"{what}; pass it as another argument, or convert it first")
    return owner, tensors


def _is_pair(
    result: Any,
) -> bool:  # not in a line below, where pyright would take either of the pair for a tuple
    return isinstance(result, tuple) and len(result) == 2


def _checked_value(result: Any, owner: Backend, has_aux: bool) -> tuple[Any, Any]:
    if has_aux and not _is_pair(result):
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
    size = 1  # not by math.prod, which torch.compile cannot trace
    for length in value.shape:
        size *= length
    if size != 1:
        raise ArgumentError(
            f"fn returned a tensor of shape {tuple(value.shape)}; return one number, a sum say"
        )
    return value, aux
