"""Changes of ``external_ids`` that come together go together.

After each transaction ovs-vswitchd looks at everything that it has, and the interpreter needs
milliseconds for one: twenty Pods that come at once cost as much as one.
"""

import asyncio
from dataclasses import dataclass

from kuryr_k8s.cni.ovs.commands import Ids, Mark
from kuryr_k8s.cni.ovs.database import Ovsdb


@dataclass(slots=True, eq=False)
class _Asked:
    row: str
    ids: Ids
    found: bool | None = None


class Marking:
    """One transaction at a time; what is asked for meanwhile is in the next one."""

    def __init__(self, database: Ovsdb) -> None:
        self._database = database
        self._asked: list[_Asked] = []
        self._turn = asyncio.Lock()

    async def mark(self, row: str, ids: Ids) -> bool:
        """Change these ids of the row, after whatever was asked for before; whether it is there.

        :raises kuryr_k8s.cni.ovs.database.OVSError: the database does not answer.
        """
        mine = _Asked(row, ids)
        self._asked.append(mine)
        try:
            async with self._turn:
                if mine.found is None:
                    await self._commit()
        finally:
            if mine in self._asked:
                self._asked.remove(mine)
        return bool(mine.found)

    async def _commit(self) -> None:
        batch, self._asked = self._asked, []
        try:
            marks = [(each.row, each.ids) for each in batch]
            found = await self._database.commit(Mark(self._database, marks))
        except BaseException:
            self._asked[:0] = batch  # each of them tries for itself
            raise
        for each in batch:
            each.found = each.row in found
