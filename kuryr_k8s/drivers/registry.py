"""Drivers and handlers by the names of their entry points (stevedore)."""

from typing import TypeVar

from stevedore import DriverManager, ExtensionManager
from stevedore.exception import MultipleMatches, NoMatches

from kuryr_k8s import entry_points, errors

T = TypeVar("T")


def load_class(namespace: str, name: str, kind: type[T], option: str) -> type[T]:
    """Return the class that the entry point ``name`` names.

    :param option: The option that names the entry point, for the message.
    :raises errors.ConfigError: There is no such entry point, there are several, or it is not a
        ``kind``; the message names what is installed.
    """
    try:
        loaded: object = DriverManager(
            namespace,
            name,
            on_load_failure_callback=_reraise,
            on_missing_entrypoints_callback=None,
        ).driver
    except NoMatches as error:
        raise errors.ConfigError(_unknown(namespace, name, option)) from error
    except MultipleMatches as error:
        raise errors.ConfigError(f"{option}: {entry_points.ambiguity(namespace, name)}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, kind)):
        raise errors.ConfigError(f"{option}: {name!r} is not a {kind.__name__}")
    return loaded


def _unknown(namespace: str, name: str, option: str) -> str:
    installed = ExtensionManager(namespace, on_load_failure_callback=_ignore).names()
    known = ", ".join(sorted(set(installed))) or "none"
    return f"{option}: there is no {name!r} (installed: {known})"


def _reraise(_manager: object, entry_point: object, error: BaseException) -> None:
    raise errors.ConfigError(f"{entry_point}: {error}") from error


def _ignore(_manager: object, _entry_point: object, _error: BaseException) -> None:
    """Ignore a broken package: it must not hide the names of the others."""
