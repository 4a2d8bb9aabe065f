"""JAX: the CPU, and CUDA, ROCm, Metal devices as ``gpu``, and TPUs.

Surprises: asking for any device starts every platform that JAX has, and a GPU's then takes three
quarters of its memory (``XLA_PYTHON_CLIENT_PREALLOCATE``). An array made without a device is
*uncommitted*: an operation may take it elsewhere. Tensors inside ``jax.jit`` and ``jax.vmap`` have
no place yet, and asking for it, `to_device` included, is an error; inside ``jax.grad`` alone they
have one. Inside ``jax.jit`` the ``device=`` of a new array decides where the whole function is
computed; `scope`, `seed` and random numbers, which would be constants there, are errors. 64-bit
numbers are off until ``jax_enable_x64``. Work is queued on the CPU too.
"""

import jax as jax

CANNOT: dict[str, str] = {}
GPU_BUILD = "pip install --upgrade 'jax[cuda12]'"
