"""``xdevice virtual``, which the package that provides virtual GPUs carries out."""

import argparse

from xdevice.hardware.virtual import provider


def main(options: argparse.Namespace) -> int:
    return provider().run_command(options)
