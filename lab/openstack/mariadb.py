"""MariaDB for the OpenStack services, and their databases' schemas.

MariaDB itself records which schema is complete, in the same write-ahead log as the schema: a
migration that was interrupted has no entry, and its database is dropped and made again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from lab.lifecycle import probes
from lab.lifecycle.supervisor import Component
from lab.paths import Paths
from lab.process import run

_RECORD = "lab.migrated"


def socket(paths: Paths) -> Path:
    """Return the path of the server's socket."""
    return paths.run / "mariadb" / "mariadb.sock"


def url(paths: Paths, database: str) -> str:
    """Build the database's address in the notation of SQLAlchemy."""
    return f"mysql+pymysql://root@localhost/{database}?unix_socket={socket(paths)}&charset=utf8mb4"


def component(paths: Paths) -> Component:
    """Describe the server: only a UNIX socket, and nothing waits for the disk."""
    return Component(
        "mariadb",
        (
            "mariadbd",
            "--no-defaults",
            "--user=mysql",
            f"--datadir={paths.data / 'mariadb'}",
            f"--socket={socket(paths)}",
            "--skip-networking",
            "--max-connections=300",
            # 2: a commit reaches the kernel, so that a killed server loses nothing.
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-doublewrite=0",
            "--sync-binlog=0",
            "--innodb-buffer-pool-size=128M",
            "--performance-schema=off",
        ),
        ready=(
            probes.command(
                "mariadb", "--no-defaults", "-S", str(socket(paths)), "-uroot", "-e", "select 1"
            ),
        ),
        timeout=60,
        grace=20,
    )


def prepare(paths: Paths) -> None:
    """Make the data directory, unless it is there and complete."""
    directory = socket(paths).parent
    directory.mkdir(exist_ok=True)
    shutil.chown(directory, "mysql", "mysql")
    target = paths.data / "mariadb"
    if target.exists():
        return
    temporary = paths.data / "mariadb.new"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    shutil.chown(temporary, "mysql", "mysql")
    run(
        [
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={temporary}",
            "--user=mysql",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ],
        cwd=Path("/"),
    )
    temporary.rename(target)


def sql(paths: Paths, statement: str) -> str:
    """Run a statement.

    :returns: the rows, tab-separated.
    """
    return run(
        [
            "mariadb",
            "--no-defaults",
            "-S",
            str(socket(paths)),
            "-uroot",
            "-N",
            "-B",
            "-e",
            statement,
        ]
    )


def migrate(paths: Paths, database: str, version: str, work: Callable[[], None]) -> None:
    """Have work() fill an empty database, unless that was completed for this version before."""
    sql(
        paths,
        "create database if not exists lab; create table if not exists "
        f"{_RECORD} (name varchar(64) primary key, version varchar(64))",
    )
    if version in sql(paths, f"select version from {_RECORD} where name = '{database}'").split():
        return
    sql(
        paths,
        f"drop database if exists {database}; create database {database} character set utf8mb3",
    )
    work()
    sql(paths, f"replace into {_RECORD} values ('{database}', '{version}')")


def insert_missing(paths: Paths, table: str, row: Mapping[str, str], where: str) -> None:
    """Insert a row of SQL expressions, unless one matches already."""
    columns = ", ".join(f"`{name}`" for name in row)
    sql(
        paths,
        f"insert into {table} ({columns}) select {', '.join(row.values())} from dual "
        f"where not exists (select 1 from {table} where {where})",
    )
