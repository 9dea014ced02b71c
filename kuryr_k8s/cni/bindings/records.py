"""Records of attachments for bindings without a database: a file for each attachment.

The directory must go with the node's boot, as interfaces do: a file states what was attached.
"""

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from kuryr_k8s.cni.bindings.base import Attachment, BindingError

LOG = logging.getLogger(__name__)
_NEW = ".new"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An attachment. A binding adds fields in a subclass; they are written as JSON."""

    attachment: Attachment

    @classmethod
    def read(cls, data: dict[str, Any]) -> Self:
        """Read a record from its JSON; override this where a field is not a plain value.

        :raises TypeError, KeyError: it is not a record.
        """
        return cls(**data | {"attachment": Attachment(**data["attachment"])})

    def write(self) -> dict[str, Any]:
        """Return the JSON that :meth:`read` reads."""
        return dataclasses.asdict(self)


R = TypeVar("R", bound=Record)


class Records(Generic[R]):
    """The records of one binding: each that is in memory is on disk as well.

    :param kind: the class of the records.
    """

    def __init__(self, directory: Path, kind: type[R]) -> None:
        self._directory = directory
        self._records: dict[tuple[str, str], R] = {}
        for path in sorted(directory.glob("*")) if directory.is_dir() else []:
            if path.suffix == _NEW:
                path.unlink()  # its writer was cut off, and had done nothing else yet
                continue
            record = _read(path, kind)
            self._records[_key(record.attachment)] = record

    def all(self) -> list[R]:
        """Return all records."""
        return list(self._records.values())

    def get(self, attachment: Attachment) -> R | None:
        """Return the record of this very attachment, None if there is none."""
        found = self._records.get(_key(attachment))
        return found if found is not None and found.attachment == attachment else None

    def put(self, record: R) -> None:
        """Write a record, whole or not at all.

        :raises BindingError: it cannot be written.
        """
        path = self._path(record.attachment)
        new = path.with_name(path.name + _NEW)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps(record.write()))
            new.replace(path)
        except OSError as error:
            raise BindingError(f"cannot write {path}: {error.strerror}") from error
        self._records[_key(record.attachment)] = record

    def remove(self, attachment: Attachment) -> None:
        """Remove the record of an attachment; without one nothing happens.

        :raises BindingError: it cannot be removed.
        """
        path = self._path(attachment)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise BindingError(f"cannot remove {path}: {error.strerror}") from error
        self._records.pop(_key(attachment), None)

    def _path(self, attachment: Attachment) -> Path:
        return self._directory / f"{attachment.container_id}-{attachment.ifname}.json"


def _key(attachment: Attachment) -> tuple[str, str]:
    return attachment.container_id, attachment.ifname


def _read(path: Path, kind: type[R]) -> R:
    """Read a record from its file.

    :raises BindingError: it is not a record. Were it skipped, its interface would be forgotten.
    """
    try:
        return kind.read(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BindingError(f"{path} is not a record of an attachment: {error}") from error
