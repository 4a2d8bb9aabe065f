"""The private names of TensorFlow that this adapter replaces or reads: see ``names.txt``."""

from xdevice.kit.private_names import listed

LAST_TRIED = "2.21.0"

_lists = listed(__file__)
VIRTUAL, STAND_IN = _lists["VIRTUAL"], _lists["STAND_IN"]
NAMES = [*dict.fromkeys((*VIRTUAL, *STAND_IN, *_lists["OTHERS"]))]
