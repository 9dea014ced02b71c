"""The programs that forward in an amphora: haproxy, and for UDP and SCTP nftables.

Octavia's image has LVS for them, which needs a kernel module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from octavia.amphorae.backends.utils import haproxy_query  # type: ignore[import-not-found]
from octavia.common.config import cfg  # type: ignore[import-not-found]

from lab.openstack.amphora.machine import Amphora
from lab.process import COMPONENT_MARK, CommandError, run, wait_until

# haproxy is not Octavia's child for the supervisor: it outlives a restart of it, as in a machine.
_ENV = {COMPONENT_MARK: "amphora"}


class InvalidConfig(Exception):
    """haproxy refuses its configuration; the one before stays."""


class Haproxy:
    """The haproxy of one amphora."""

    def __init__(self, amphora: Amphora) -> None:
        self._amphora = amphora
        self._config = amphora.directory / "haproxy.cfg"
        self._pid_file = amphora.directory / "haproxy.pid"

    @property
    def socket(self) -> Path:
        return self._amphora.directory / f"{self._amphora.load_balancer_id}.sock"

    @property
    def wanted(self) -> bool:
        return self._config.exists()

    @property
    def pid(self) -> str | None:
        """The number of the process, if it runs.

        The recorded number may be another program's by now, or that of another amphora's haproxy.
        """
        try:
            pid = self._pid_file.read_text().split()[0]
            process = Path("/proc") / pid
            command = (process / "comm").read_text().strip()
            is_here = (process / "ns/net").samefile(f"/run/netns/{self._amphora.netns}")
        except (OSError, IndexError):
            return None
        return pid if command == "haproxy" and is_here else None

    def configure(self, text: str) -> None:
        """Write a configuration, unless haproxy refuses it; `start` makes it work.

        :raises InvalidConfig: haproxy refuses it.
        """
        # The group: haproxy's default is root's. Limits: root may not be allowed to raise them.
        # Descriptors: the next process takes the sockets over without a gap.
        text = text.replace(
            "    user nobody\n", "    user nobody\n    group nogroup\n    no strict-limits\n"
        ).replace("mode 0666 level user", "mode 0666 level user expose-fd listeners")
        new = self._config.with_suffix(".new")
        new.write_text(text)
        try:
            self._run("-c", "-f", str(new))
        except CommandError as error:
            new.rename(self._config.with_suffix(".refused"))
            raise InvalidConfig(str(error)) from error
        new.rename(self._config)

    def start(self) -> None:
        """Start haproxy, or follow the running one without a gap.

        Its sockets are open at the return.
        """
        old, after = self.pid, []
        if old is not None:
            state = self._amphora.directory / str(self._amphora.load_balancer_id) / "servers-state"
            state.parent.mkdir(exist_ok=True)
            haproxy_query.HAProxyQuery(str(self.socket)).save_state(str(state))
            after = ["-x", str(self.socket), "-sf", old]
        self._run("-D", "-f", str(self._config), "-p", str(self._pid_file), *after)
        self._amphora.announce()

    def stop(self) -> None:
        """Stop haproxy, and do not start it again.

        :raises CommandError: it does not end.
        """
        self._config.unlink(missing_ok=True)
        for signal in ("TERM", "KILL"):
            if (pid := self.pid) is not None:
                run(["kill", f"-{signal}", pid], check=False)
                wait_until(lambda: self.pid is None, 5)
        if self.pid is not None:
            raise CommandError(f"haproxy of {self._amphora.netns} does not end")
        self._pid_file.unlink(missing_ok=True)

    def _run(self, *arguments: str) -> str:
        program = cfg.CONF.haproxy_amphora.haproxy_cmd
        return run([program, *arguments], netns=self._amphora.netns, env=_ENV, timeout=30)


def haproxy_version() -> str:
    """Return the version in the form of 2.6.12."""
    words = run([cfg.CONF.haproxy_amphora.haproxy_cmd, "-v"]).split()
    return words[2].partition("-")[0]


def forward_datagrams(amphora: Amphora) -> None:
    """Let nftables forward what amphora.datagrams says: no health, no weights but 0."""
    rules = ["table inet lb {}", "delete table inet lb"]
    listeners = [each for each in amphora.datagrams.values() if each["members"]]
    if listeners:
        rules += [
            "add table inet lb",
            "add chain inet lb in { type nat hook prerouting priority dstnat; }",
            "add chain inet lb out { type nat hook postrouting priority srcnat; }",
            "add rule inet lb out ct status dnat masquerade",
        ]
    rules += [f"add rule inet lb in {_forwarding(each)}" for each in listeners]
    run(["nft", "-f", "-"], netns=amphora.netns, stdin="\n".join(rules) + "\n")


def _forwarding(listener: dict[str, Any]) -> str:
    family = "ip6" if ":" in listener["vip"] else "ip"
    members = [f"{number} : {to}" for number, to in enumerate(listener["members"])]
    choice = f"jhash {family} saddr" if listener["sticky"] else "numgen inc"
    return (
        f"{family} daddr {listener['vip']} {listener['protocol']} dport {listener['port']} "
        f"dnat {family} addr . port to {choice} mod {len(members)} map {{ {', '.join(members)} }}"
    )
