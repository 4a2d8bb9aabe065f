"""Functions of the array API standard that are composed of others, or take arguments in several forms."""

from __future__ import annotations

from xdevice.kit.elementwise import Elementwise
from xdevice.kit.products import Products
from xdevice.kit.searching import Searching
from xdevice.kit.sets import Sets
from xdevice.kit.shapes import Shapes
from xdevice.kit.statistics import Statistics


class Composed(Elementwise, Statistics, Shapes, Searching, Sets, Products):
    """The functions, each a method of the standard's name; a class for each section of the standard."""
