"""Annotations by which Pods ask for interfaces, and what they say."""

import json

from kuryr_k8s import errors
from kuryr_k8s.k8s.informer import LONGEST_KEPT, Informer
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.annotation_values import identifier
from kuryr_k8s.model.pod import Pod

MOST = 32  # interfaces
SHOWN = 60  # characters of what is wrong


def asked(pods: Informer[Pod], pod: Pod, annotation: str) -> str | None:
    """Return what the Pod's annotation says; None if it has none.

    :raises errors.Refused: it is too long to be kept as a whole.
    """
    text = pods.annotation(Key(pod.namespace, pod.name), annotation)
    if text is not None and len(text) > LONGEST_KEPT:
        raise errors.Refused(f"annotation {annotation} has more than {LONGEST_KEPT} characters")
    return text


def read_list(text: str) -> list[str]:
    """Read a JSON list of strings.

    :raises ValueError: its words follow the annotation's name: «is no list».
    """
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("is no JSON") from None
    if not isinstance(entries, list):
        raise ValueError("is no list")  # noqa: TRY004 - of the user's text
    if len(entries) > MOST:
        raise ValueError(f"has {len(entries)} entries, and a Pod may have {MOST}")
    if not all(isinstance(entry, str) for entry in entries):
        raise ValueError("has an entry that is no string")
    return entries


def read_ids(text: str) -> list[str]:
    """Read a JSON list of ids.

    :raises ValueError: see :func:`read_list`.
    """
    return [_identifier(entry) for entry in read_list(text)]


def read_pairs(text: str) -> list[tuple[str, ...]]:
    """Read a JSON list of entries that are one id, or two with a comma between them.

    :raises ValueError: see :func:`read_list`.
    """
    pairs = [entry.split(",") for entry in read_list(text)]
    if any(len(pair) > 2 for pair in pairs):
        raise ValueError("has an entry of more than two ids")
    return [tuple(_identifier(each.strip()) for each in pair) for pair in pairs]


def refusal(annotation: str, error: errors.Refused) -> errors.Refused:
    """Return the error with the name of the annotation that asked for it."""
    kind = errors.Refused if isinstance(error, errors.CloudError) else type(error)
    return kind(f"annotation {annotation}: {error}")


def shown(text: str) -> str:
    """Return the begin of what is wrong; it comes into an Event."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _identifier(text: str) -> str:
    try:
        return identifier(text)
    except ValueError as error:
        raise ValueError(f"has an entry that {error}") from None
