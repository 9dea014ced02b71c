"""Patterns that choose subnets of an external network by their names and tags, without I/O.

They are those of the cloud provider.

name   ``public*`` is a glob, ``~^public-[0-9]+$`` a regular expression (from the operator only:
       one that backtracks would block everything)
tags   ``a,b`` matches any of the tags, ``&a,b`` (also ``a&b``) all of them
``!``  before a pattern negates it
"""

import fnmatch
import re
from collections.abc import Callable, Iterable


def by_name(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches names.

    :raises ValueError: the pattern is invalid.
    """
    positive = pattern.removeprefix("!")
    if positive.startswith("~"):
        try:
            expression = re.compile(positive[1:])
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from error
        # like Go's MatchString: anywhere in the name
        return lambda name: (expression.search(name) is not None) == (positive == pattern)
    return lambda name: fnmatch.fnmatchcase(name, positive) == (positive == pattern)


def by_tags(pattern: str) -> Callable[[Iterable[str]], bool]:
    """Return a function that matches the tags of a subnet.

    :raises ValueError: the pattern names no tag.
    """
    positive = pattern.removeprefix("!").strip()
    every = "&" in positive
    named = {tag.strip() for tag in positive.replace("&", ",").split(",") if tag.strip()}
    if not named:
        raise ValueError("names no tag")
    wanted = not pattern.startswith("!")

    def matches(tags: Iterable[str]) -> bool:
        there = named & set(tags)
        return (there == named if every else bool(there)) == wanted

    return matches
