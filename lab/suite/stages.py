"""The stages of the test suite as data: what each of them runs, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import chain


class Needs(StrEnum):
    """The states of the machine that stages need; each one comes after the one before it."""

    ENVIRONMENT = "the tox environment"
    PROGRAMS = "the programs that are built"
    CLOUD = "OpenStack, OVN and Open vSwitch"
    PRODUCT = "the lab with the product on it"
    MACHINE = "a node that is a virtual machine"


@dataclass(frozen=True)
class Stage:
    """A part of the tests that runs as one command.

    ``options`` are pytest's, besides those of every stage (SAMPLED or COMPLETE). ``command`` runs
    instead of pytest.
    """

    name: str
    needs: Needs
    paths: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    # the tox environment; py313 has the Python of Debian 13
    python: str = "py"
    only_complete: bool = False

    def argv(self, *, complete: bool) -> list[str]:
        """Build the command line, without the prefix that leads into its environment."""
        if self.command:
            return list(self.command)
        return ["pytest", *self.paths, *self.options, *(COMPLETE if complete else SAMPLED)]


# Options of all stages: those of ``make test``, and those of ``make test-all``.
SAMPLED = ("-m", "not complete")
COMPLETE = ("--all-faults",)
_TWO = ("--numprocesses=2", "--dist=worksteal")
_NEW_PYTHON = "py313"

# This row needs the processors only: it uses what the other one leaves while that one waits.
HERE = (
    Stage("lint", Needs.ENVIRONMENT, command=("sh", ".ci/lint")),
    Stage("unit", Needs.ENVIRONMENT, ("tests/unit",), ("--numprocesses=2",)),
    Stage("fakes", Needs.ENVIRONMENT, ("tests/contract",), ("--real=no",)),
    Stage("node", Needs.CLOUD, ("tests/node",), _TWO),
    Stage("component", Needs.PROGRAMS, ("tests/component",), _TWO),
    Stage("tables", Needs.PROGRAMS, ("tests/tables",), _TWO),
    Stage(
        "unit-3.13",
        Needs.ENVIRONMENT,
        ("tests/unit",),
        ("--numprocesses=2",),
        python=_NEW_PYTHON,
        only_complete=True,
    ),
    Stage(
        "component-3.13",
        Needs.PROGRAMS,
        ("tests/component",),
        _TWO,
        python=_NEW_PYTHON,
        only_complete=True,
    ),
)

# This row waits most of the time, for the cloud and the cluster. Stages of one line run side by
# side: they disturb nobody, themselves included.
LAB = (
    (
        Stage("contract", Needs.CLOUD, ("tests/contract",), ("--real=only", "--numprocesses=4")),
        Stage(
            "quiet",
            Needs.PRODUCT,
            ("tests/lab/quiet",),
            ("--numprocesses=4", "--dist=loadgroup"),
        ),
    ),
    (Stage("disruptive", Needs.PRODUCT, ("tests/lab/disruptive",)),),
    # One after the other: there is one machine, with one card.
    (Stage("machine", Needs.MACHINE, ("tests/lab/machine",)),),
)

# After all others: reads what they left in logs.
AUDIT = Stage("audit", Needs.PRODUCT, ("tests/audit",))

# How pytest is asked for everything that there is. The variable stands for --real=yes, an option
# that pytest knows only where tests/contract is named.
COLLECTION = ("tests",)
COLLECTION_ENV = {"CONTRACT_REAL": "yes"}


def all_stages(*, complete: bool) -> list[Stage]:
    """List the stages of ``make test``, or of ``make test-all``."""
    stages = [*HERE, *chain.from_iterable(LAB), AUDIT]
    return [stage for stage in stages if complete or not stage.only_complete]
