"""The private names of JAX that this adapter replaces or reads: see ``names.txt``."""

from functools import partial

from xdevice.kit import private_names

LAST_TRIED = "0.10.2"

_lists = private_names.listed(__file__)
VIRTUAL, STAND_IN = _lists["VIRTUAL"], _lists["STAND_IN"]
NAMES = [*dict.fromkeys((*VIRTUAL, *STAND_IN, *_lists["OTHERS"]))]

in_place_of = partial(private_names.in_place_of, NAMES)
