"""The experiments of the lessons and articles: when does a device pay, and what does it cost to go there?

An experiment is a generator of `Work` in `lessons`, with its title in its docstring.
"""

from collections.abc import Callable, Iterator

from xdevice.errors import ArgumentError
from xdevice.experiments.lessons import EXPERIMENTS
from xdevice.experiments.work import Row, Setting, Work, measured, setting, too_busy

Experiment = Callable[[Setting], Iterator[Work]]

__all__ = ["EXPERIMENTS", "Setting", "Work", "find", "measured", "rows", "setting", "title", "too_busy"]


def find(name: str) -> Experiment:
    """The experiment of that name; an error that lists them if there is none."""
    try:
        return EXPERIMENTS[name]
    except KeyError:
        raise ArgumentError(f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}") from None


def title(experiment: Experiment) -> str:
    """What an experiment compares, in a line."""
    return (experiment.__doc__ or experiment.__name__).splitlines()[0]


def rows(experiment: Experiment, where: Setting, before: Callable[[Work], object] = lambda work: None) -> list[Row]:
    """The rows of the result; ``before`` is called with each piece of work before each of its turns."""
    return measured(list(experiment(where)), before)
