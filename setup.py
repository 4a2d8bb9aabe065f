"""What pyproject.toml cannot say: the packages, the index's page, reproducible archives, one module."""

import gzip
import os
import re
import tarfile
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
# The buildings: each folder of the repository is a package of the wheel.
BUILDINGS = {
    "xdevice": "xdevice",
    "xdevice.backends": "backends",
    "xdevice.virtual": "virtual",
    "xdevice.testing": "testing",
    "xdevice.tools": "tools",
}
EPOCH = "315532800"  # 1980, the first year that a wheel's times can have
os.environ.setdefault("SOURCE_DATE_EPOCH", EPOCH)  # setuptools reads it for the wheel


def value_in(file, pattern):
    """The group of the pattern in the file's text, or ``None``."""
    text = (ROOT / file).read_text(encoding="utf-8")
    match = re.search(pattern, text, re.MULTILINE)
    return match and match[1]


def packages():
    """Every package of every building, by its name in the wheel."""
    return [
        ".".join([name, *module.parent.relative_to(ROOT / folder).parts])
        for name, folder in BUILDINGS.items()
        for module in sorted((ROOT / folder).rglob("__init__.py"))
    ]


def index_page():
    """README with links to the repository at the version's tag.

    Without the repository's address the links stay as they are.
    """
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    repository = value_in("pyproject.toml", r'^Repository = "(.*?)/?"$')
    if repository is None:
        return text
    tag = "v" + value_in("xdevice/_version.py", r'^__version__ = "(.*)"$')
    text = re.sub(r"(!\[[^\]]*\]\()(?!\w+:|#)", rf"\g<1>{repository}/raw/{tag}/", text)
    return re.sub(r"(?<!!)(\[[^\]]*\]\()(?!\w+:|#)", rf"\g<1>{repository}/blob/{tag}/", text)


def plain_mode(mode):
    """The mode that git would give a file, independent of the umask."""
    return 0o755 if mode & 0o100 else 0o644


class ReproducibleSource(sdist):
    """The source archive has sorted files, all with the same time, no owner and plain modes."""

    def make_archive(self, base_name, format, **options):
        archive = f"{base_name}.tar.gz"
        time = int(os.environ["SOURCE_DATE_EPOCH"])

        def plain(entry):
            entry.mtime = time
            entry.mode = plain_mode(entry.mode)
            entry.uid = 0
            entry.gid = 0
            entry.uname = ""
            entry.gname = ""
            return entry

        with (
            open(archive, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=time) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tree,
        ):
            for path in sorted(Path(options["base_dir"]).rglob("*")):
                tree.add(path, arcname=path.as_posix(), recursive=False, filter=plain)
        return archive


class ReproducibleWheel(bdist_wheel):
    """The wheel has files with plain modes; setuptools sorts them and gives them the same time."""

    def write_wheelfile(self, *args, **options):
        super().write_wheelfile(*args, **options)  # the last of the files
        for path in Path(self.bdist_dir).rglob("*"):
            if path.is_file():
                path.chmod(plain_mode(path.stat().st_mode))


class WithModuleBesidePackage(build_py):
    """The wheel has ``xdevice.py`` beside the folder ``xdevice``.

    Python imports it only if ``xdevice/__init__.py`` is missing.
    """

    def run(self):
        super().run()
        if not self.editable_mode:
            self.copy_file(ROOT / "release" / "xdevice.py", self._module())

    def get_outputs(self, include_bytecode=1):
        outputs = list(super().get_outputs(include_bytecode))
        if not self.editable_mode:
            outputs.append(self._module())
        return outputs

    def _module(self):
        return os.path.join(self.build_lib, "xdevice.py")


setup(
    packages=packages(),
    package_dir=BUILDINGS,
    include_package_data=False,  # the sources have more files in these folders
    package_data={
        "": ["*.txt", "*.css", "*.h", "*.cc"],
        "xdevice": ["__init__.pyi", "py.typed"],
        "xdevice.virtual": ["at_start/*.py", "commands/*", "curand/*.h"],
    },
    long_description=index_page(),
    long_description_content_type="text/markdown",
    cmdclass={
        "sdist": ReproducibleSource,
        "bdist_wheel": ReproducibleWheel,
        "build_py": WithModuleBesidePackage,
    },
)
