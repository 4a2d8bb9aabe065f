"""The frameworks that a command runs under."""

import sys
from collections.abc import Sequence

from xdevice.framework.choosing import backend
from xdevice.framework.registry import ORDER, available

# The reference implementation of the array API standard comes with tests; it has no models, and
# is no framework to run a script under unless it is named.
_ONLY_BY_NAME = frozenset({"array_api_strict"})


def frameworks(selection: Sequence[str]) -> list[str]:
    """The selected frameworks, or all that are installed and have a device on this machine."""
    names = list(selection)
    if not names:
        names = _with_devices([name for name in available() if name not in _ONLY_BY_NAME])
    if not names:
        return [str(backend())]  # an error says what to install
    return [str(backend(name)) for name in names]


def _with_devices(names: Sequence[str]) -> list[str]:
    """The frameworks without those that have no device; a line on stderr says why."""
    # A framework that is in ORDER has a CPU.
    uncertain_names = [name for name in names if name not in ORDER]
    if not uncertain_names:
        return list(names)
    from xdevice.tools.cli.probe import probe_all  # with what it needs, 4 ms

    reports = probe_all(uncertain_names, 120.0, quiet=True)
    names_without: set[str] = set()
    for report in reports:
        if report["status"] == "ok" and not report["devices"]:
            reason = "it has no device"
            if report["problem"]:
                reason = report["problem"]["reason"]
            print(f"xdevice: {report['name']} is left out: {reason}", file=sys.stderr)
            names_without.add(report["name"])
    return [name for name in names if name not in names_without]
