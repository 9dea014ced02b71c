"""The JSON of the API server, however deeply users nest it.

The server keeps some of what users give as it is, ``metadata.managedFields`` for example, up to
10,000 levels deep. Python's parser gives up at about 1,000, and refuses numbers of more than 4,300
digits.
"""

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

LOG = logging.getLogger(__name__)
LONGEST_NUMBER = 4300  # digits: sys.get_int_max_str_digits(), as it is by default
MOST = 200  # levels that are kept of such a text; what we read is at most 20 levels deep
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?|[][{}]', re.DOTALL)


async def parse(text: bytes) -> Any:
    """Parse a text as :func:`parse_now` does; what takes long is done in a thread.

    :raises ValueError: it is no JSON.
    """
    try:
        return _loads(text)
    except RecursionError:
        LOG.debug("%d bytes of the API server are nested too deeply: pruned", len(text))
        return await asyncio.to_thread(parse_now, text)


def parse_now(text: bytes) -> Any:
    """Parse a text; if it is nested too deeply, with null for what is below 200 levels.

    :raises ValueError: it is no JSON.
    """
    try:
        return _loads(text)
    except RecursionError:
        return _loads(b"".join(_prune(text)))


def _loads(text: bytes) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return json.loads(text, parse_int=_number)


def _number(digits: str) -> int:
    """Return an integer; 0 for one that Python does not read."""
    return int(digits) if len(digits) <= LONGEST_NUMBER else 0


def _prune(text: bytes) -> Iterator[bytes]:
    """Yield the text in pieces, with null for each object or array that is too deep."""
    depth = kept_from = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        match text[found.start()]:
            case 0x5B | 0x7B:  # [ {
                depth += 1
                if depth == MOST + 1:
                    yield text[kept_from : found.start()]
                    yield b"null"
            case 0x5D | 0x7D:  # ] }
                if depth == MOST + 1:
                    kept_from = found.end()
                depth -= 1
    if depth <= MOST:
        yield text[kept_from:]
