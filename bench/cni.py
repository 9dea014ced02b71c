"""(to be written)"""

from __future__ import annotations

import argparse

from bench.report import Report


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""


def measure(options: argparse.Namespace) -> Report:
    raise NotImplementedError
