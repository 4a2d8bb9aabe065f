"""Imported where the folder ``xdevice`` beside it has lost its ``__init__.py``: another distribution had it, too."""

raise ImportError(
    "the files of xdevice-tensors are incomplete: uninstalling 'xdevice', another project with the same import name, "
    "has removed xdevice/__init__.py; pip install --force-reinstall --no-deps xdevice-tensors"
)
