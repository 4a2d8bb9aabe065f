"""Which frameworks are installed, and what to type to install one.

The names of frameworks are here for hints in errors, and for the tabs of courses.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from importlib.util import find_spec

from xdevice.errors import did_you_mean

# Names that may be written in place of a framework's long name.
SHORT_NAMES = {"strict": "array_api_strict"}

# Other names of a framework, for the hint of an error and for tabs.
_ALIASES = {
    **dict.fromkeys(("pytorch", "pt", "lightning", "accelerate", "transformers"), "torch"),
    **dict.fromkeys(("tf", "keras", "keras-core"), "tensorflow"),
    **dict.fromkeys(("tensorflow-cpu", "tensorflow-gpu"), "tensorflow"),
    **dict.fromkeys(("paddlepaddle", "paddlepaddle-gpu", "pd"), "paddle"),
    **dict.fromkeys(("mx", "gluon"), "mxnet"),
    **dict.fromkeys(("flax", "equinox", "haiku", "optax", "jaxlib", "jnp"), "jax"),
    **dict.fromkeys(("np", "scipy"), "numpy"),
    "array-api-strict": "array_api_strict",
    **dict.fromkeys(("cp", "cupyx", "cupy-cuda12x", "cupy-cuda13x"), "cupy"),
}

# Frameworks that compute on GPUs only.
NEED_GPUS = frozenset({"cupy"})

# Packages that do not have the name of the import.
_PACKAGES = {
    "paddle": "paddlepaddle",
    "cupy": "cupy-cuda12x",
    "array_api_strict": "array-api-strict",
}
# With its dependencies, MXNet would replace NumPy by an old version.
_COMMANDS = {"mxnet": "pip install --no-deps mxnet==1.9.1, and pip install requests graphviz"}


def is_installed(name: str) -> bool:
    """Whether the framework can be imported; does not import it."""
    if sys.modules.get(name) is not None:
        return True
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):  # ValueError: sys.modules[name] is None
        return False
    # without an origin it is a bare folder of that name
    return spec is not None and spec.origin is not None


def package_of(name: str) -> str:
    """The package of the framework itself, and not an extra of xdevice."""
    return _PACKAGES.get(name, str(name))


def install_command(name: str) -> str:
    return _COMMANDS.get(name) or f"pip install {package_of(name)}"


def framework_named(word: str) -> str:
    """The framework with this name or other name, in any capitals: ``PyTorch`` is torch.

    Another word is returned in small letters.
    """
    name = word.strip().lower().replace("_", "-")
    return _ALIASES.get(name, name)


def hint_for(name: str, registered: Collection[str], group: str) -> str:
    """What to type in place of a name that no adapter has.

    ``registered`` are the names that have one, and ``group`` is the entry-point
    group of adapters.
    """
    word = str(name).lower().replace("_", "-")
    package = word.partition(".")[0]
    framework = _ALIASES.get(word) or _ALIASES.get(package, package)
    if framework == word and word not in registered and is_installed(word):
        return (
            f"install an adapter for {name}: a package with an entry point in the group {group!r}"
        )
    # other frameworks' names are less alike: jittor, oneflow
    return did_you_mean(framework, registered, "xdevice info lists what is installed", least=0.6)
