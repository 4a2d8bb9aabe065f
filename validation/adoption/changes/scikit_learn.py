"""scikit-learn: the devices and dtypes of PyTorch that are there come from xdevice, instead of a list and skips."""


def change(tree):
    kit = tree.file("sklearn/utils/_array_api.py")
    kit.replace(
        r'^( +)for device_name, dtype in itertools\.product\(\n +\("cpu", "cuda", "xpu"\)(?:.*\n)+?'
        r' +yield array_namespace, "mps", "float32"\n',
        r"\1yield from _of_torch()\n",
    )
    kit.replace(
        "^def yield_mixed_namespace_input_permutations",
        '''def _of_torch():
    """Each device of PyTorch, with each dtype that it has."""
    try:
        with xdevice.using("torch"):
            xp = xdevice.namespace()
            info = xp.__array_namespace_info__()
            for device in xdevice.devices():
                for dtype in info.dtypes(device=device, kind="real floating"):
                    yield "torch", str(xdevice.native(device)), dtype
    except xdevice.XDeviceError:  # PyTorch is not installed
        return


\\g<0>''',
    )
    # For an array of a GPU that is not the current one, too, and outside of array API dispatch.
    kit.replace(
        r'^    if _is_xp_namespace\(xp, "torch"\):\n        return array\.cpu\(\)\.numpy\(\)\n(?:.*\n)+?'
        r"    return numpy\.asarray\(array\)\n",
        '    if _is_xp_namespace(xp, "dpnp"):  # pragma: nocover\n'
        "        return array.asnumpy()\n\n"
        "    return xdevice.to_numpy(array)\n",
    )
    kit.replace("^import scipy$", "import scipy\nimport xdevice")
    tests = tree.file("sklearn/utils/_testing.py")
    tests.replace("^import scipy as sp$", "import scipy as sp\nimport xdevice")
    tests.replace(
        r'^    if \(\n +array_namespace == "torch"\n(?:.*\n)+?    elif (array_namespace == "dpnp":)',
        r'    if array_namespace == "torch" and device_name is not None:\n'
        r'        with xdevice.using("torch"):\n'
        r"            there = [str(xdevice.native(device)) for device in xdevice.devices()]\n"
        r"        if not any(name.startswith(device_name) for name in there):\n"
        r'            raise SkipTest(f"PyTorch has no device {device_name} here")\n'
        r"    elif \1",
    )
    # That MPS is there does not say that PyTorch may use the CPU for its missing operations: that check stays.
    tests.replace(
        r"^        if not xp\.backends\.mps\.is_built\(\):\n(?:.*\n)+?"
        r'(?=    elif array_namespace == "cupy")',
        "",
    )
    tests.replace(
        r'^    elif array_namespace == "torch" and device_name == "mps":\n'
        r"        if os\.getenv",
        '    if array_namespace == "torch" and device_name == "mps":\n        if os.getenv',
    )
