"""A JSON codec of the data model, in the versioned-object envelopes of OpenStack.

    {"versioned_object.name": "VIFVlanNested", "versioned_object.namespace":
     "os_vif", "versioned_object.version": "1.0", "versioned_object.data": {...}}

Reading is lenient: it drops unknown fields, fills in defaults for missing ones, and accepts a
newer minor version, but no other major version. Writing is exact. ``None`` means "absent", unless
the class sets ``WRITES_NONE``.
"""

import dataclasses
import functools
import types
import typing
from typing import Any, ClassVar, Self, TypeVar

from kuryr_k8s import errors

_PREFIX = "versioned_object"
_REGISTRY: dict[str, type["Versioned"]] = {}
T = TypeVar("T", bound="Versioned")


class DecodeError(errors.Refused, ValueError):
    """The JSON is not what this version of the program can read."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Versioned:
    """Base of the data model: a frozen record with a name and a version."""

    NAMESPACE: ClassVar[str] = "os_vif"
    VERSION: ClassVar[str] = "1.0"
    LIST_VERSION: ClassVar[str | None] = None  # set where a list is an object of its own
    WRITES_NONE: ClassVar[bool] = False  # kuryr's own classes write nulls

    def to_json(self) -> dict[str, Any]:
        """Encode the record as an envelope; reading that returns an equal record."""
        kinds = _element_types(type(self).__name__)
        pairs = ((name, getattr(self, name)) for name in kinds)
        data = {
            name: _encode(value, kinds[name])
            for name, value in pairs
            if value is not None or self.WRITES_NONE
        }
        return _envelope(type(self), type(self).__name__, self.VERSION, data)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Decode an envelope as this class or as a subclass of it.

        :raises DecodeError: it is of another class or major version, or lacks a field.
        """
        name, version, data = _open(value)
        kind = _REGISTRY.get(name)
        if kind is None or not issubclass(kind, cls):
            raise DecodeError(f"expected {cls.__name__}, found {name}")
        if version.split(".")[0] != kind.VERSION.split(".")[0]:
            raise DecodeError(f"cannot read {name} version {version}")
        known = _element_types(name)
        try:
            fields = {key: _decode(data[key], known[key]) for key in known if key in data}
            return kind(**fields)
        except TypeError as error:
            raise DecodeError(f"{name}: {error}") from error


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
def model(cls: type[T]) -> type[T]:
    """Make a class a frozen record that the codec can write, and read by its name."""
    cls = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)
    _REGISTRY[cls.__name__] = cls
    return cls


def _envelope(
    kind: type[Versioned], name: str, version: str, data: dict[str, Any]
) -> dict[str, Any]:
    return {
        f"{_PREFIX}.name": name,
        f"{_PREFIX}.namespace": kind.NAMESPACE,
        f"{_PREFIX}.version": version,
        f"{_PREFIX}.data": data,
    }


def _open(value: Any) -> tuple[str, str, dict[str, Any]]:
    try:
        return value[f"{_PREFIX}.name"], value[f"{_PREFIX}.version"], value[f"{_PREFIX}.data"]
    except (KeyError, TypeError) as error:
        raise DecodeError(f"not a versioned object: {value!r:.80}") from error


def _encode(value: Any, kind: type[Versioned] | None) -> Any:
    """Encode a field's value. The declared class decides the form of a list, empty or not."""
    match value:
        case Versioned():
            return value.to_json()
        case tuple() if kind and kind.LIST_VERSION:
            objects = {"objects": [item.to_json() for item in value]}
            return _envelope(kind, f"{kind.__name__}List", kind.LIST_VERSION, objects)
        case tuple():
            return [_encode(item, kind) for item in value]
        case dict():
            return {key: _encode(item, kind) for key, item in value.items()}
        case _:
            return value


def _decode(value: Any, kind: type[Versioned] | None) -> Any:
    match value:
        case list():
            return tuple(_decode(item, kind) for item in value)
        case {"versioned_object.data": {"objects": list(items)}}:
            return _decode(items, kind)
        case {"versioned_object.data": _} if kind:
            return kind.from_json(value)
        case dict():
            return {key: _decode(item, kind) for key, item in value.items()}
        case _:
            return value


@functools.cache
def _element_types(name: str) -> dict[str, type[Versioned] | None]:
    """Map each field of a model class to the model class that it holds, if any."""
    hints = typing.get_type_hints(_REGISTRY[name])
    return {f.name: _model_in(hints[f.name]) for f in dataclasses.fields(_REGISTRY[name])}


def _model_in(hint: Any) -> type[Versioned] | None:
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias):
        return hint if issubclass(hint, Versioned) else None
    return next(filter(None, map(_model_in, typing.get_args(hint))), None)
