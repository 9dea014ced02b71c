"""The program ``nft``: tables of the kernel's packet filter that are replaced as a whole."""

import asyncio
import contextlib
import os
from typing import BinaryIO

from kuryr_k8s import errors
from kuryr_k8s.cni.patience import USUAL, Patience


def no_table(name: str) -> str:
    """Return the text by which nft removes a table, whether it exists or not."""
    return f"table {name}\ndelete table {name}\n"


def _file(text: str) -> BinaryIO:
    """Return a file with this text.

    A pipe would not do: if we were killed while writing, nft would execute what it has read.
    """
    file = os.fdopen(os.memfd_create("nft"), "w+b")
    file.write(text.encode())
    file.seek(0)
    return file


async def apply(text: str, patience: Patience = USUAL) -> None:
    """Execute a text in one transaction.

    :raises errors.Refused: ``nft`` is not installed.
    :raises errors.KuryrError: nft failed; the message says why.
    """
    with _file(text) as script:
        code, output = await _run(("--file", "-"), script, patience)
    if code:
        lines = output.decode(errors="replace").strip().splitlines()
        raise errors.KuryrError(f"nft ended with {code}: {' '.join(lines[:3])}")


async def exists(table: str, patience: Patience = USUAL) -> bool:
    """Return whether there is a table of this name.

    :raises errors.Refused, errors.KuryrError: as :func:`apply`.
    """
    code, _ = await _run(("list", "table", *table.split()), asyncio.subprocess.DEVNULL, patience)
    return code == 0


async def _run(
    words: tuple[str, ...], stdin: BinaryIO | int, patience: Patience
) -> tuple[int, bytes]:
    """Run nft.

    :returns: its exit code, and its complaints.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *("nft", *words),
            stdin=stdin,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        missing = f"cannot run nft (Debian: package nftables): {error.strerror}"
        raise errors.Refused(missing) from error
    try:
        async with asyncio.timeout(patience.nft):
            _, output = await process.communicate()
    except TimeoutError as error:
        raise errors.KuryrError(f"nft has not ended after {patience.nft:.0f} s") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return process.returncode or 0, output
