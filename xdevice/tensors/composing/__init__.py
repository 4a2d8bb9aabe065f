"""`compose`: tensors in libraries that know the array API standard but not their framework.

`arrays` is a tensor that obeys the standard, `indexing` its ``x[key]``, `functions` its namespace,
and `calls` passes such arrays to a library and takes tensors back.
"""
