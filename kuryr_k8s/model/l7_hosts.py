"""Hosts as rules of L7 policies: regular expressions of haproxy (PCRE), written and read. Pure."""

import re
from collections.abc import Collection

from kuryr_k8s.model.load_balancer import HOST_NAME, REGEX, L7Rule
from kuryr_k8s.model.routes import Host

PORT = "(:[0-9]+)?"  # the header may name one
_LABEL = "[^.]+"
_SPECIAL = re.compile(r"[][\\^$.|?*+(){}]")
# Octavia's template writes these as HTML does, or haproxy ends a word there
_UNSAFE = re.compile(r"""[&<>"'#`\s]""")
_WRITTEN = re.compile(
    rf"\^(?P<label>{re.escape(_LABEL)})?(?P<name>([a-z0-9_-]|\\\.)+){re.escape(PORT)}\$"
)


def host_rules(host: Host) -> tuple[L7Rule, ...]:
    """Return the rule for a host; none if any will do."""
    if host.is_any:
        return ()
    return (L7Rule(HOST_NAME, REGEX, f"^{pattern(host)}{PORT}$"),)


def host_of(rules: Collection[L7Rule]) -> Host | None:
    """Return the host for which :func:`host_rules` returns rules; None if it returns others."""
    if len(rules) != 1:
        return None
    [rule] = rules
    written = _WRITTEN.fullmatch(rule.value) if rule.compare_type == REGEX else None
    if written is None or rule.type != HOST_NAME or rule.invert:
        return None
    return Host(("*" if written["label"] else "") + written["name"].replace("\\", ""))


def includes(rule: L7Rule, other: L7Rule) -> bool:
    """Return whether a rule is for all hosts of another one, and as inverted as that."""
    if not (rule.type == other.type == HOST_NAME and rule.compare_type == other.compare_type):
        return False
    names = _names(rule)
    return rule.invert == other.invert and all(
        name in names or any(re.fullmatch(each, _example(name)) for each in names)
        for name in _names(other)
    )


def _example(name: str) -> str:
    """Return a host that a regular expression matches."""
    return name.replace(_LABEL, "0").replace("\\", "")


def _names(rule: L7Rule) -> set[str]:
    """Return the regular expressions of which any may match, without the port."""
    text = rule.value.removeprefix("^").removesuffix(f"{PORT}$")
    if not text.startswith("("):
        return {text}
    names, _, domain = text.removeprefix("(").partition(")")
    return {f"{name}{domain}" for name in names.split("|")}


def pattern(host: Host) -> str:
    """Return a regular expression for the names of a host. Octavia's comparison ignores case."""
    return f"{_LABEL}{escaped(host.name[1:])}" if host.is_wildcard else escaped(host.name)


def escaped(text: str) -> str:
    """Return a regular expression for a text."""
    text = _SPECIAL.sub(r"\\\g<0>", text)
    return _UNSAFE.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
