"""Waiting for conditions of the lab, with an error that names the condition."""

from __future__ import annotations

from collections.abc import Callable

from lab.process import wait_until


def wait_for(
    condition: Callable[[], object], what: str, timeout: float, *, pause: float = 0.05
) -> None:
    """Check a condition again and again until it is true.

    :param what: the condition in words, for the error.
    :param timeout: seconds.
    :param pause: seconds between two checks.
    :raises TimeoutError: the condition is still false.
    """
    if not wait_until(lambda: bool(condition()), timeout, pause):
        raise TimeoutError(f"not within {timeout:.0f} s: {what}")
