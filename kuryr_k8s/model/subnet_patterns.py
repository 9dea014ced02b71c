"""Which subnets of an external network a Service may have its address from, by their names and
tags: the cloud provider's small languages. Pure.

name   ``public*`` is a glob, ``~^public-[0-9]+$`` a regular expression (of the operator alone: one
       that backtracks would hold up everything)
tags   ``a,b`` is any of them, ``&a,b`` (also ``a&b``) all of them
``!`` before any of them is its opposite
"""

import fnmatch
import re
from collections.abc import Callable, Iterable


def by_name(pattern: str) -> Callable[[str], bool]:
    """:raises ValueError: it is no pattern."""
    positive = pattern.removeprefix("!")
    if positive.startswith("~"):
        try:
            expression = re.compile(positive[1:])
        except re.error as error:
            raise ValueError(f"is no regular expression: {error}") from error
        # as Go's MatchString: anywhere in the name
        return lambda name: (expression.search(name) is not None) == (positive == pattern)
    return lambda name: fnmatch.fnmatchcase(name, positive) == (positive == pattern)


def by_tags(pattern: str) -> Callable[[Iterable[str]], bool]:
    """:raises ValueError: no tag is named."""
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
