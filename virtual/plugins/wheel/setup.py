"""A wheel with the compiled plug-ins for one version of a framework.

Run the first command once for each build of the framework, for the CPU and for each CUDA::

    xdevice virtual build --backend torch --to compiled
    FRAMEWORK=torch COMPILED=$PWD/compiled \\
        pip wheel --no-build-isolation --no-deps ./virtual/plugins/wheel

The wheel ``xdevice-plugins-torch`` 2.13.0.0.1.0 requires torch 2.13.0 and xdevice 0.1.0, so pip
chooses the one for the installed torch, as with torchvision. PLATFORM=manylinux_2_28_x86_64 names
another platform than that of this system.
"""

import os
import sysconfig
from importlib.metadata import packages_distributions, version

from setuptools import setup

from xdevice._version import __version__
from xdevice.framework.adapters import find

framework = os.environ["FRAMEWORK"]
library = find(framework).load_unprepared("virtual").recipe().name
distribution = packages_distributions()[framework][0]
release = version(distribution).partition("+")[0]
package = f"xdevice_plugins_{framework}"

setup(
    name=f"xdevice-plugins-{framework}",
    version=f"{release}.{__version__}",
    description=f"xdevice's virtual GPUs, compiled for {framework} {release}",
    long_description=(
        f"The compiled part of xdevice-tensors' virtual GPUs, for {framework} {release}."
    ),
    long_description_content_type="text/plain",
    license="Apache-2.0",
    license_files=["LICENSE"],
    install_requires=[f"{distribution}=={release}", f"xdevice-tensors=={__version__}"],
    packages=[package],
    package_dir={package: os.path.relpath(os.environ["COMPILED"])},
    package_data={package: [f"{library}-*/*", f"{library}-*.sha256"]},
    entry_points={"xdevice.plugins": [f"{framework} = {package}"]},
    options={"bdist_wheel": {"plat_name": os.environ.get("PLATFORM") or sysconfig.get_platform()}},
)
