"""What a plug-in is compiled from."""

import hashlib
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

_FILES = {"win32": "{}.dll", "darwin": "lib{}.dylib"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a compiler is told, in the words of no compiler."""

    name: str
    """The library's name, without what the system adds to it."""
    purpose: str
    """What needs the library, for messages: ``virtual GPUs for torch 2.13``."""
    source: Path
    """The C++ file; its headers are beside it."""
    key: str
    """What else decides whether a library fits, such as the framework's version."""
    standard: str
    include: tuple[Path, ...] = ()
    """Folders of headers."""
    defines: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    """Folders of libraries, at run time too."""
    libraries: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        return _FILES.get(sys.platform, "lib{}.so").format(self.name)

    @property
    def folder(self) -> str:
        """The name of the folder that holds only the library: it differs where the library would.

        Paths do not count, so that a library serves every machine with the same framework, system and processor.
        """
        facts = [self.key, sys.platform, platform.machine(), self.standard, *self.defines, *self.libraries]
        sources = [self.source, *sorted(self.source.parent.glob("*.h"))]
        content = ["\n".join(facts).encode(), *(path.read_bytes() for path in sources)]
        return f"{self.name}-{digest(b''.join(content))[:16]}"


def digest(content: bytes) -> str:
    """A name for content, by which changed content is told."""
    return hashlib.sha256(content).hexdigest()
