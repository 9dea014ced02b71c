"""What is attached by a binding that has no database for it: a file for each attachment.

The directory must go with the node's boot, as the interfaces do: a file tells what was there.
"""

import dataclasses
import json
import logging
from pathlib import Path

from kuryr_k8s.cni.bindings.base import Attachment, BindingError
from kuryr_k8s.cni.netlink import Vlan

LOG = logging.getLogger(__name__)
_NEW = ".new"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An attachment, its VLAN, and the number of its namespace. The interface was made under
    ``name``, ``port_id`` is Neutron's port; ``ready`` is set once traffic could flow.
    """

    attachment: Attachment
    vlan: Vlan
    number: int
    name: str
    port_id: str
    ready: bool = False


class Records:
    """All records, in memory and on disk; what is in memory is on disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._records: dict[tuple[str, str], Record] = {}
        for path in sorted(directory.glob("*")) if directory.is_dir() else []:
            if path.suffix == _NEW:
                path.unlink()  # of a writer that was cut off: it had done nothing yet
                continue
            record = _read(path)
            self._records[_key(record.attachment)] = record

    def all(self) -> list[Record]:
        return list(self._records.values())

    def get(self, attachment: Attachment) -> Record | None:
        """The record of this very attachment."""
        found = self._records.get(_key(attachment))
        return found if found is not None and found.attachment == attachment else None

    def put(self, record: Record) -> None:
        """Write it, whole or not at all.

        :raises BindingError: it cannot be written.
        """
        path = self._path(record.attachment)
        new = path.with_name(path.name + _NEW)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps(dataclasses.asdict(record)))
            new.replace(path)
        except OSError as error:
            raise BindingError(f"cannot write {path}: {error.strerror}") from error
        self._records[_key(record.attachment)] = record

    def remove(self, attachment: Attachment) -> None:
        """:raises BindingError: it cannot be removed."""
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


def _read(path: Path) -> Record:
    """:raises BindingError: it is none; what it stands for would be forgotten."""
    try:
        data = json.loads(path.read_text())
        attachment, vlan = Attachment(**data.pop("attachment")), Vlan(**data.pop("vlan"))
        return Record(attachment=attachment, vlan=vlan, **data)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BindingError(f"{path} is no record of an attachment: {error}") from error
