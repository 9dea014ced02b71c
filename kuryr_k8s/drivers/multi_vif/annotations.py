"""Annotations by which Pods ask for interfaces, and what they say."""

from collections.abc import Iterable
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.named.objects import told
from kuryr_k8s.k8s.informer import LONGEST_KEPT, Informer
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.annotation_values import identifier, json_list, json_of
from kuryr_k8s.model.network_selection import MOST_INTERFACES
from kuryr_k8s.model.pod import Pod

SHOWN = 60  # characters of what is wrong


def annotation_of(pods: Informer[Pod], pod: Pod, annotation: str) -> str | None:
    """Return what the Pod's annotation says; None if it has none.

    :raises errors.Refused: it is too long to be kept as a whole.
    """
    return kept(pods, Key(pod.namespace, pod.name), annotation)


def has_any(pods: Informer[Pod], pod: Pod, annotations: Iterable[str]) -> bool:
    """Return whether the Pod has any of these annotations."""
    key = Key(pod.namespace, pod.name)
    return any(pods.annotation(key, annotation) is not None for annotation in annotations)


def kept(objects: Informer[Any], key: Key, annotation: str) -> str | None:
    """Return what an object's annotation says; None if it has none.

    :raises errors.Refused: it is too long to be kept as a whole.
    """
    text = objects.annotation(key, annotation)
    if text is not None and len(text) > LONGEST_KEPT:
        raise errors.Refused(f"annotation {annotation} has more than {LONGEST_KEPT} characters")
    return text


def read_ids(text: str) -> list[str]:
    """Read a JSON list of ids.

    :raises ValueError: its words follow the annotation's name: «is no list».
    """
    return [read_id(entry, "an entry") for entry in _strings_of(json_list(text))]


def read_pairs(text: str) -> list[tuple[str, ...]]:
    """Read a JSON list of entries that are one id, or two with a comma between them.

    :raises ValueError: its words follow the annotation's name: «is no list».
    """
    return _pairs_of(json_list(text))


def read_pairs_by_name(text: str) -> dict[str, list[tuple[str, ...]]]:
    """Read a JSON object with a list of entries for each name, see :func:`read_pairs`.

    :raises ValueError: its words follow the annotation's name: «is no object».
    """
    fields = json_of(text)
    if not isinstance(fields, dict):
        raise ValueError("is no object")  # noqa: TRY004 - of the user's text
    return {name: _pairs_of(entries) for name, entries in fields.items()}


def read_id(text: str, what: str) -> str:
    """Read an id.

    :param what: the words for what ought to be an id.
    :raises ValueError: its words follow the annotation's name: «has an entry that is no id».
    """
    try:
        return identifier(text)
    except ValueError as error:
        raise ValueError(f"has {what} that {error}") from None


def refusal(asker: str, error: errors.Refused) -> errors.Refused:
    """Return the error with the annotation, or its entry, that asked for it before its words.

    What Neutron refused is a plain refusal then: the annotation is wrong, not the call.
    """
    return told(f"annotation {asker}", error)


def shown(text: str) -> str:
    """Shorten what is wrong for an Event."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _pairs_of(entries: object) -> list[tuple[str, ...]]:
    pairs = [entry.split(",") for entry in _strings_of(entries)]
    if any(len(pair) > 2 for pair in pairs):
        raise ValueError("has an entry of more than two ids")
    return [tuple(read_id(each.strip(), "an entry") for each in pair) for pair in pairs]


def _strings_of(entries: object) -> list[str]:
    if not isinstance(entries, list):
        raise ValueError("has no list where one belongs")  # noqa: TRY004 - of the user's text
    if len(entries) > MOST_INTERFACES:
        raise ValueError(f"has {len(entries)} entries, and a Pod may have {MOST_INTERFACES}")
    if not all(isinstance(entry, str) for entry in entries):
        raise ValueError("has an entry that is no string")
    return entries
