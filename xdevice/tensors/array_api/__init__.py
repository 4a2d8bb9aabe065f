"""The framework's arrays under the array API standard's names: what `namespace` returns."""
