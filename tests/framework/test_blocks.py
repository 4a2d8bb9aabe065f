"""Blocks that are left in another order than they were entered."""

from itertools import permutations

from xdevice.framework.choosing import without_last


def test_blocks_left_out_of_order_leave_nothing_behind():
    blocks = ("a", "b", "c")
    for order in permutations(blocks):
        stack = blocks
        for i, block in enumerate(order):
            stack = without_last(stack, block)
            assert stack == tuple(b for b in blocks if b not in order[: i + 1])
    assert without_last(("a", "b", "a", "c"), "a") == ("a", "b", "c")
    assert without_last(blocks, "d") == blocks
