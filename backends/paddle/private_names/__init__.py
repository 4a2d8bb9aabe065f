"""The private names of PaddlePaddle that the adapter replaces or reads: see ``names.txt``.

``paddle.base.core`` is not public, and lacks on a build for the CPU what is optional there.
"""

from xdevice.backends.kit.private_names import PrivateNames

LAST_TRIED = {"3.3.1": "3.10 3.11 3.12 3.13"}
"""The newest version that has all of these names, by the Pythons that have wheels of it."""

names = PrivateNames(__file__, "paddle", "paddlepaddle", LAST_TRIED)
NAMES = names.of()
