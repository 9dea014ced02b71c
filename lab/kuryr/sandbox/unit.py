"""The [Service] section of a systemd unit, as far as it restricts the program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# Carried out by this package; of the Protect… options without a mount or a filter of their own
# (ProtectClock, ProtectKernelLogs, ProtectKernelModules) what capabilities and the filter give.
RESTRICTIONS = frozenset(
    {
        "User",
        "Group",
        "UMask",
        "RuntimeDirectory",
        "StateDirectory",
        "CapabilityBoundingSet",
        "AmbientCapabilities",
        "NoNewPrivileges",
        "ProtectSystem",
        "ProtectHome",
        "ProtectProc",
        "ProtectControlGroups",
        "ProtectKernelLogs",
        "ProtectKernelModules",
        "ProtectKernelTunables",
        "ProtectClock",
        "ProtectHostname",
        "PrivateTmp",
        "PrivateDevices",
        "RestrictAddressFamilies",
        "RestrictNamespaces",
        "RestrictRealtime",
        "RestrictSUIDSGID",
        "LockPersonality",
        "MemoryDenyWriteExecute",
        "SystemCallArchitectures",
        "SystemCallFilter",
        "SystemCallErrorNumber",
    }
)
# About the program's life, which the lab's supervisor takes care of.
LIFE = frozenset(
    {
        "Type",
        "ExecStart",
        "ExecReload",
        "Restart",
        "RestartSec",
        "RestartPreventExitStatus",
        "RuntimeDirectoryPreserve",
        "TimeoutStopSec",
        "WatchdogSec",
    }
)


class UnitError(Exception):
    """The unit says something that is not understood here."""


@dataclass(frozen=True)
class Unit:
    """A unit's options by name; a repeated one adds to its words, an empty one forgets them."""

    options: dict[str, tuple[str, ...]]

    @classmethod
    def read(cls, path: Path) -> Unit:
        """Read the options of a unit.

        :raises UnitError: an option is not known here, or is not what can be carried out.
        """
        options: dict[str, tuple[str, ...]] = {}
        section = ""
        for line in path.read_text().splitlines():
            stripped = line.strip()
            if stripped.startswith("["):
                section = stripped.strip("[]")
            elif section == "Service" and stripped and stripped[0] not in "#;":
                name, _, value = (part.strip() for part in stripped.partition("="))
                if name not in RESTRICTIONS | LIFE:
                    raise UnitError(f"{path.name}: {name} is not known to lab.kuryr.sandbox")
                options[name] = (*options.get(name, ()), *value.split()) if value else ()
        unit = cls(options)
        unit._check(path.name)
        return unit

    def text(self, name: str, default: str) -> str:
        words = self.options.get(name)
        return words[-1] if words else default

    def words(self, name: str) -> tuple[str, ...]:
        return self.options.get(name, ())

    def flag(self, name: str) -> bool:
        """Return whether a boolean option is on."""
        return self.text(name, "no") in ("yes", "true", "on", "1")

    def capabilities(self) -> frozenset[str] | None:
        """Return the bounding set; None if the unit has none."""
        found = self.options.get("CapabilityBoundingSet")
        return None if found is None else frozenset(found)

    def _check(self, name: str) -> None:
        """Refuse values that are not carried out here, although the man page knows them."""
        allowed = {
            "ProtectSystem": ("no", "strict"),
            "ProtectProc": ("default", "invisible"),
            "SystemCallArchitectures": ("native",),
            "AmbientCapabilities": ("",),
            "Group": (self.text("User", "root"),),
        }
        for option, values in allowed.items():
            if self.text(option, values[0]) not in values:
                raise UnitError(f"{name}: {option}={self.text(option, '')} cannot be carried out")
        for option in ("CapabilityBoundingSet", "RestrictAddressFamilies", "SystemCallFilter"):
            if any(word.startswith("~") for word in self.words(option)):
                raise UnitError(f"{name}: {option} must say what is allowed")
