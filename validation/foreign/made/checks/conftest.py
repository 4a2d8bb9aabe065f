import torch  # noqa: F401  (as most projects do here: the tool seeds it before a file is imported)
