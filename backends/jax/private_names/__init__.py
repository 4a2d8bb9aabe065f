"""The private names of JAX that this adapter replaces or reads: see ``names.txt``."""

from xdevice.kit.private_names import PrivateNames

LAST_TRIED = "0.10.2"

names = PrivateNames(__file__, "jax", "jax", LAST_TRIED)
VIRTUAL, STAND_IN, NAMES = names.of("VIRTUAL"), names.of("STAND_IN"), names.of()
in_place_of, replace_name, optional = names.in_place_of, names.replace, names.optional
