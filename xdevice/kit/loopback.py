"""Loopback: whether an address is this host's alone, and how to keep a framework's library from listening beyond it.

Some libraries bind their sockets to all interfaces, and have no setting for it. `loopback_only` replaces the pointer by
which they call the C library's ``bind``, so that there is no moment at which other hosts can connect.
"""

import ctypes
import os
import struct
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from socket import AF_INET, AF_INET6
from typing import Any

_READ_WRITE = 3  # PROT_READ | PROT_WRITE of <sys/mman.h>
_LOAD, _DYNAMIC = 1, 2  # types of program headers, <elf.h>
_STRTAB, _SYMTAB, _RELA, _RELASZ, _PLTRELSZ, _JMPREL = (
    5,
    6,
    7,
    8,
    2,
    23,
)  # tags of the dynamic section
_FILLED_BY_NAME = (6, 7, 1025, 1026)  # GLOB_DAT and JUMP_SLOT, of x86-64 and of AArch64
_MAPPED = b"\0" * 10 + b"\xff\xff"  # an IPv4 address in IPv6, which clients of both can reach


def is_loopback(host: str) -> bool:
    """Whether the name or address is one of this host's loopback interface.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.1")
    (True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def loopback_only(library: str) -> Generator[None, None, None]:
    """While the block runs, the loaded library binds to loopback, not to all interfaces; it warns where it cannot."""
    try:
        base = _loaded_at(library)
        pointers = [_writable(base + offset) for offset in _pointers(library, b"bind")]
    except (OSError, LookupError, struct.error):
        pointers = []
    if not pointers:
        name = os.path.basename(library)
        warnings.warn(
            f"{name} listens on all interfaces of this host, not on loopback alone", stacklevel=2
        )
    own, replacement = [pointer.value for pointer in pointers], _loopback_bind()
    for pointer in pointers:
        pointer.value = ctypes.cast(replacement, ctypes.c_void_p).value
    try:
        yield
    finally:
        for pointer, value in zip(pointers, own, strict=True):
            pointer.value = value


def _loopback_bind() -> Any:
    """The C library's ``bind``, but for addresses that stand for all interfaces."""
    prototype = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, use_errno=True
    )
    real = prototype(("bind", ctypes.CDLL(None, use_errno=True)))

    def bind(descriptor: int, address: int, length: int) -> int:
        given = _narrowed(ctypes.string_at(address, length))
        copy = ctypes.create_string_buffer(given, len(given))
        return int(real(descriptor, ctypes.addressof(copy), length))

    return prototype(bind)


def _narrowed(address: bytes) -> bytes:
    """A ``struct sockaddr``; with loopback in place of all interfaces."""
    (family,) = struct.unpack_from("=H", address)
    if family == AF_INET and address[4:8] == b"\0" * 4:
        return address[:4] + b"\x7f\0\0\x01" + address[8:]
    if family == AF_INET6 and address[8:24] == b"\0" * 16:
        return address[:8] + _MAPPED + b"\x7f\0\0\x01" + address[24:]
    return address


def _writable(address: int) -> Any:
    """The pointer at that address, which may be written from now on: linkers protect it once it is filled in."""
    page = os.sysconf("SC_PAGESIZE")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address - address % page), ctypes.c_size_t(page), _READ_WRITE):
        raise OSError(ctypes.get_errno(), "mprotect")
    return ctypes.c_void_p.from_address(address)


def _loaded_at(library: str) -> int:
    path = os.path.realpath(library)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            if line.rstrip().endswith(path):
                return int(line.split("-")[0], 16)
    raise LookupError(path)


def _pointers(library: str, name: bytes) -> Iterator[int]:
    """Where in the library, an ELF file of 64 bits, the linker puts the address of that function."""
    with open(library, "rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            raise LookupError("not an ELF file of 64 bits, the low byte first")
        (start,), (size, count) = (
            struct.unpack_from("<Q", head, 32),
            struct.unpack_from("<HH", head, 54),
        )
        file.seek(start)
        headers = [struct.unpack_from("<IIQQQQQQ", file.read(size)) for _ in range(count)]

        def read(address: int, length: int) -> bytes:
            offset, begin = next(
                (h[2], h[3]) for h in headers if h[0] == _LOAD and h[3] <= address < h[3] + h[5]
            )
            file.seek(offset + address - begin)
            return file.read(length)

        section = next(h for h in headers if h[0] == _DYNAMIC)
        file.seek(section[2])
        tags = dict(struct.iter_unpack("<QQ", file.read(section[5])))
        for table, length in ((_JMPREL, _PLTRELSZ), (_RELA, _RELASZ)):
            if table not in tags:
                continue
            for where, info, _ in struct.iter_unpack("<QQq", read(tags[table], tags[length])):
                symbol, kind = info >> 32, info & 0xFFFFFFFF
                if kind in _FILLED_BY_NAME and symbol:
                    (at,) = struct.unpack("<I", read(tags[_SYMTAB] + 24 * symbol, 4))
                    if read(tags[_STRTAB] + at, len(name) + 1) == name + b"\0":
                        yield where
