"""Steps of optimizers: those of torch, and Keras's where it runs on torch."""

from contextlib import ExitStack
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from xdevice.contract import Watcher
from xdevice.kit import keras


class Steps(ExitStack):
    """A context in which the watcher is told of each step."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self._watcher, self._found = watcher, False
        hook = register_optimizer_step_post_hook(lambda optimizer, args, kwargs: watcher.stepped(optimizer))
        self.callback(hook.remove)
        self.find_keras()

    def find_keras(self) -> None:
        """Tell of Keras's steps, too, once it is imported."""
        module = None if self._found else keras.running_on("torch")
        if module is not None:
            self._found = True
            self._tell_of(module.optimizers.Optimizer)

    def _tell_of(self, cls: Any) -> None:
        apply, watcher = cls.apply, self._watcher

        def applied(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            result = apply(optimizer, *args, **kwargs)
            watcher.stepped(optimizer)
            return result

        own = vars(cls).get("apply")
        cls.apply = applied
        self.callback(setattr, cls, "apply", own) if own else self.callback(delattr, cls, "apply")
