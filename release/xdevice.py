"""Imported if the folder ``xdevice`` beside this file has lost its ``__init__.py``.

That happens when another distribution that has the same file is uninstalled.
"""

raise ImportError(
    "the files of xdevice-tensors are incomplete: uninstalling 'xdevice', another project with "
    "the same import name, has removed xdevice/__init__.py; "
    "pip install --force-reinstall --no-deps xdevice-tensors"
)
