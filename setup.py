"""What pyproject.toml cannot say: the index's page, archives that are the same anywhere, one module."""

import gzip
import os
import re
import tarfile
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
EPOCH = "315532800"  # 1980, the first year that a wheel's times can have
os.environ.setdefault("SOURCE_DATE_EPOCH", EPOCH)  # setuptools reads it for the wheel


def declared(file, pattern):
    found = re.search(pattern, (HERE / file).read_text(encoding="utf-8"), re.MULTILINE)
    return found and found[1]


def index_page():
    """README with links to the repository as it is at the version's tag; as it is where no address is known."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    repository = declared("pyproject.toml", r'^Repository = "(.*?)/?"$')
    if repository is None:
        return text
    tag = "v" + declared("xdevice/_version.py", r'^__version__ = "(.*)"$')
    text = re.sub(r"(!\[[^\]]*\]\()(?!\w+:|#)", rf"\g<1>{repository}/raw/{tag}/", text)
    return re.sub(r"(?<!!)(\[[^\]]*\]\()(?!\w+:|#)", rf"\g<1>{repository}/blob/{tag}/", text)


def plain_mode(mode):
    """The mode that git would give a file, whatever the umask."""
    return 0o755 if mode & 0o100 else 0o644


class SameSource(sdist):
    """The source archive is the same anywhere: its files sorted, with one time, no owner and plain modes."""

    def make_archive(self, base_name, format, **of):
        archive, time = f"{base_name}.tar.gz", int(os.environ["SOURCE_DATE_EPOCH"])

        def plain(entry):
            entry.mtime, entry.mode = time, plain_mode(entry.mode)
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            return entry

        with (
            open(archive, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=time) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tree,
        ):
            for path in sorted(Path(of["base_dir"]).rglob("*")):
                tree.add(path, arcname=path.as_posix(), recursive=False, filter=plain)
        return archive


class SameWheel(bdist_wheel):
    """setuptools sorts the files and gives them one time; their modes are left."""

    def write_wheelfile(self, *args, **options):
        super().write_wheelfile(*args, **options)  # the last of the files
        for file in filter(Path.is_file, Path(self.bdist_dir).rglob("*")):
            file.chmod(plain_mode(file.stat().st_mode))


class BesideThePackage(build_py):
    """``xdevice.py`` beside the folder ``xdevice``: Python imports it only where ``xdevice/__init__.py`` is gone."""

    def run(self):
        super().run()
        if not self.editable_mode:
            self.copy_file(HERE / "release" / "xdevice.py", self._beside())

    def get_outputs(self, include_bytecode=1):
        return [
            *super().get_outputs(include_bytecode),
            *([] if self.editable_mode else [self._beside()]),
        ]

    def _beside(self):
        return os.path.join(self.build_lib, "xdevice.py")


setup(
    long_description=index_page(),
    long_description_content_type="text/markdown",
    cmdclass={"sdist": SameSource, "bdist_wheel": SameWheel, "build_py": BesideThePackage},
)
