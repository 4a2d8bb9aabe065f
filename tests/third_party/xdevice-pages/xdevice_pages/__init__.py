"""Pages under xdevice: page 0 is the CPU, and those opened on demand are virtual GPUs."""

import pages  # noqa: F401  (importing the adapter imports the framework)

CANNOT = {
    "models": "pages has arrays, and no models",
    "gradients": "pages does not differentiate",
}
