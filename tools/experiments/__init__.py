"""The lessons' experiments: when a device pays, what copies cost.

An experiment is a generator of `Work` in `lessons`, with its title in its
docstring.
"""

from xdevice.tools.experiments.lessons import EXPERIMENTS, find, rows, title
from xdevice.tools.experiments.work import Setting, Work, measured, setting, too_busy

__all__ = [
    "EXPERIMENTS",
    "Setting",
    "Work",
    "find",
    "measured",
    "rows",
    "setting",
    "title",
    "too_busy",
]
