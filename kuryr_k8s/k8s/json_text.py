"""The JSON of the API server, however deeply users nest it.

The server keeps some of what users give as it is, ``metadata.managedFields`` for example, up to
10,000 levels deep. Python's parser gives up at about 1,000.
"""

import json
import logging
import re
from collections.abc import Iterator
from typing import Any

LOG = logging.getLogger(__name__)
MOST = 200  # levels that are kept of such a text; what we read is at most 20 levels deep
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?|[][{}]', re.DOTALL)


def parse(text: bytes) -> Any:
    """Parse a text; if it is nested too deeply, with null for what is below 200 levels.

    :raises ValueError: it is no JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        LOG.debug("%d bytes of the API server are nested too deeply: pruned", len(text))
        return json.loads(b"".join(_prune(text)))


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
