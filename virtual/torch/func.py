"""``torch.func`` on virtual GPUs."""

from typing import Any

from xdevice.virtual.torch.private_names import Function, in_place_of


def explain_gradients_between_gpus() -> None:
    """Replace autograd's error for gradients of torch.func that cross GPUs by one with a remedy."""

    @in_place_of("torch._functorch.eager_transforms:_autograd_grad")
    def autograd_grad(native: Function, *args: object, **kwargs: object) -> Any:
        try:
            return native(*args, **kwargs)
        except NotImplementedError as error:
            if "Cannot access storage of" not in str(error):
                raise
            raise NotImplementedError(
                "torch.func.grad, vjp and jacrev cannot send a gradient from one GPU to another, "
                "since autograd asks for its memory; use torch.func.jacfwd or "
                "torch.autograd.functional.jacobian"
            ) from error
