"""Changes of ``external_ids``, batched into few transactions.

After each transaction ovs-vswitchd examines everything that it has, and the interpreter needs
milliseconds for one. With batches twenty Pods at once cost as much as a single Pod.
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
    """One transaction at a time; what is asked for meanwhile joins the next one."""

    def __init__(self, database: Ovsdb) -> None:
        self._database = database
        self._asked: list[_Asked] = []
        self._turn = asyncio.Lock()

    async def mark(self, row: str, ids: Ids) -> bool:
        """Change ids of a row, after everything that was asked for before.

        :returns: whether the row exists.
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
            marks = [(asked.row, asked.ids) for asked in batch]
            found = await self._database.commit(Mark(self._database, marks))
        except BaseException:
            self._asked[:0] = batch  # each caller tries again for itself
            raise
        for asked in batch:
            asked.found = asked.row in found
