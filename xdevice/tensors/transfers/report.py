"""What `watch_transfers` gives: a report that reads like a linter's."""

from typing import Any

from xdevice.tensors.transfers import formats, page
from xdevice.tensors.transfers.contents import Contents


class Report(Contents):
    """The lines that copied: first those with something to write instead, each group's worst first.

    ``str`` shows it, and so does a notebook; ``len`` and iteration give the findings. It is there from the beginning
    of a block, and may be asked while the block is open.
    """

    def __str__(self) -> str:
        return formats.text(self)

    def to_json(self) -> str:
        """The report as JSON; its keys are stable."""
        return formats.json(self)

    def plot(self) -> Any:
        """Each line's estimated time as a bar, in a matplotlib ``Figure``.

        Raises
        ------
        NotSupportedError
            matplotlib is not installed.
        """
        return page.plot(self)

    def _repr_html_(self) -> str:  # notebooks show it
        return page.html(self)
