"""What a plug-in is compiled from: compiler-independent build options."""

import hashlib
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

_FILE_NAMES = {"win32": "{}.dll", "darwin": "lib{}.dylib"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Compiler-independent build options of a shared library."""

    name: str  # of the library, without what the system adds to it
    purpose: str  # what needs the library, for messages: virtual GPUs for torch 2.13
    source: Path  # the C++ file; its headers are beside it
    key: str  # what else decides whether a library fits, such as the framework's version
    standard: str
    include: tuple[Path, ...] = ()  # folders of headers that the key stands for
    shared: tuple[Path, ...] = ()  # folders of our own headers that other plug-ins include, too
    defines: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()  # of libraries, at run time too
    libraries: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        return _FILE_NAMES.get(sys.platform, "lib{}.so").format(self.name)

    @property
    def folder(self) -> str:
        """The name of the library's own folder: a digest of what the library depends on.

        Paths do not count, so that the library serves other machines, too.
        """
        facts = [
            self.key,
            sys.platform,
            platform.machine(),
            self.standard,
            *self.defines,
            *self.libraries,
        ]
        folders = self.source.parent, *self.shared
        sources = [self.source, *(path for each in folders for path in sorted(each.glob("*.h")))]
        content = ["\n".join(facts).encode(), *(path.read_bytes() for path in sources)]
        return f"{self.name}-{digest(b''.join(content))[:16]}"


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
