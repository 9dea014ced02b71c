"""Servers that behave like those of a cloud, with state, over HTTP, on the loop of the test."""

from .cloud import FakeCloud
from .faults import (
    Answer,
    Faults,
    Hang,
    answer,
    cut,
    delay,
    from_proxy,
    garble,
    hide,
    lose_reply,
    make_some,
)
from .keystone import User
from .observing import Call, Calls, Changes

__all__ = [
    "Answer",
    "Call",
    "Calls",
    "Changes",
    "FakeCloud",
    "Faults",
    "Hang",
    "User",
    "answer",
    "cut",
    "delay",
    "from_proxy",
    "garble",
    "hide",
    "lose_reply",
    "make_some",
]
