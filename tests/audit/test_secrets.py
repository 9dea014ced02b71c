"""No secret in any log of the run, though the programs logged all that they had to say."""

import json
import re
from pathlib import Path

import pytest

# What a secret looks like, whichever it is.
SHAPES = {
    "a token of Keystone": re.compile(r"gAAAA[\w-]{40,}"),
    "a token of Kubernetes": re.compile(r"eyJ[\w-]{10,}\.[\w-]{10,}"),
    "an X-Auth-Token or X-Subject-Token as it is": re.compile(
        r"X-(?:Auth|Subject)-Token['\"]?: ?+['\"]?+(?!\{SHA256\})", re.I
    ),
    "a Bearer token": re.compile(r"Bearer [\w.-]{20,}"),
    "a private key": re.compile(r"BEGIN [A-Z ]*PRIVATE KEY"),
    "a password": re.compile(r"['\"]password['\"]: ?+['\"](?!\*\*\*)", re.I),
}
LOGS = ("kuryr-*", "containerd-*", "kubelet-*")  # kuryr-cni's words end in those of its runtime


@pytest.fixture(scope="session")
def logs(lab):
    directory = Path(lab.state) / "logs"
    return [path for pattern in LOGS for path in directory.glob(f"{pattern}.log*")]


@pytest.fixture(scope="session")
def secrets(lab):
    """The very secrets that the programs and their cluster use: {what it is: text}."""
    root = Path(lab.state) / "kuryr"
    tokens = [*root.glob("*.token"), *(Path(lab.state) / "nodes").glob("*/kuryr-daemon.token")]
    found = {f"{path.parent.name}/{path.name}": path.read_text().strip() for path in tokens}
    clouds = json.loads((root / "controller-clouds.yaml").read_text())["clouds"]
    found["the application credential"] = clouds["kuryr"]["auth"]["application_credential_secret"]
    for path in (Path(lab.state) / "pki").glob("*.key"):
        # one line of it is as bad as all
        found[path.name] = path.read_text().splitlines()[1]
    return found


def test_programs_logged_their_requests_in_full(lab):
    """Else it would prove nothing that no secret is found."""
    text = (Path(lab.state) / "logs" / "kuryr-controller.log").read_text()
    assert "DEBUG keystoneauth.session" in text, "python3 -m lab.kuryr up --debug"
    assert "X-Auth-Token: {SHA256}" in text


def test_no_log_holds_a_secret(logs, secrets, show):
    found = []
    for path in logs:
        with path.open(errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                what = [name for name, secret in secrets.items() if secret in line]
                what += [name for name, shape in SHAPES.items() if shape.search(line)]
                found += [f"{path.name}:{number}: {name}" for name in what]
    size = sum(path.stat().st_size for path in logs) >> 20
    names = f"{len(secrets)} secrets and {len(SHAPES)} shapes"
    show(f"Secrets in {len(logs)} logs ({size} MiB), of {names}:", found[:50])
    assert not found
