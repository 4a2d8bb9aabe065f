"""Promises about computing: gradients, the array API standard's functions, one program on many devices."""
