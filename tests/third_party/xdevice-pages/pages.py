"""A tiny array framework: each array is on a page of memory, and arrays on two pages do not mix.

Page 0 is there from the start, `open_pages` adds more. NumPy does the arithmetic.
"""

from __future__ import annotations

import operator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

__version__ = "1.0"


class MixedPagesError(ValueError):
    """An operation on arrays of two pages."""


class Page:
    """A piece of memory with a random generator of its own, and an account of what is used."""

    def __init__(self, index):
        self.index, self.used = index, 0
        self.random = np.random.default_rng()

    def __repr__(self):
        return f"<page {self.index}>"


class Array:
    """Numbers on a page; always in memory of their own."""

    def __init__(self, numbers, page=None):
        self.numbers, self.page = np.array(numbers), page or current.get()
        self.page.used += self.numbers.nbytes

    def __del__(self):
        if hasattr(self, "numbers"):
            self.page.used -= self.numbers.nbytes

    def __repr__(self):
        return f"Array({self.read('repr').tolist()}, {self.page})"

    def __len__(self):
        return len(self.numbers)

    @property
    def shape(self):
        return self.numbers.shape

    @property
    def dtype(self):
        return self.numbers.dtype

    def to(self, page):
        """These numbers on that page, always copied."""
        if page is not self.page:
            copied("to", self, page)
        return Array(self.numbers, page)

    def read(self, operation):
        """The numbers, for Python, which must not write them."""
        copied(operation, self, None)
        return self.numbers

    def __float__(self):
        return float(self.read("float"))


def copied(operation, array, page):
    """Called before numbers go to another page, or to Python: then there is no page."""


def refuse(operation, pages):
    """Say no to an operation on arrays of several pages."""
    raise MixedPagesError(f"{operation} of arrays on {' and '.join(map(repr, pages))}")


def open_pages(n):
    """Open n more pages."""
    PAGES.extend(Page(len(PAGES)) for _ in range(n))


@contextmanager
def on(page):
    """New arrays go to the page."""
    token = current.set(page)
    try:
        yield page
    finally:
        current.reset(token)


def seed(n):
    """Seed the generator of every page."""
    for page in PAGES:
        page.random = np.random.default_rng([n, page.index])


def _compute(name, function):
    def compute(self, *others):
        pages = list(dict.fromkeys(x.page for x in (self, *others) if isinstance(x, Array)))
        if len(pages) > 1:
            refuse(name, pages)
        return Array(
            function(self.numbers, *(x.numbers if isinstance(x, Array) else x for x in others)),
            self.page,
        )

    return compute


for _name in ("add", "sub", "mul", "truediv", "matmul", "neg", "getitem", "lt", "gt"):
    setattr(Array, f"__{_name}__", _compute(_name, getattr(operator, _name)))

PAGES = [Page(0)]
current = ContextVar("pages.current", default=PAGES[0])
