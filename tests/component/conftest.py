"""Fixtures of these tests."""

from tests.kit.fixtures import *  # noqa: F403
