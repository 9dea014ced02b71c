"""The lab's daemons have a token each, which is bound to the Node as it is now."""

import base64
import json
import time
from types import SimpleNamespace

import pytest

from lab.kuryr import node_token

UID = "uid-of-the-node"
NEW = "the.new.token"


@pytest.fixture
def lab(tmp_path):
    """A cluster whose kubectl knows one Node, and notes the tokens that it makes."""
    program = tmp_path / "kubectl"
    program.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *"get node"*) printf {UID};; '
        f'*) echo "$@" >> {tmp_path}/made; echo {NEW};; esac\n'
    )
    program.chmod(0o755)
    kubernetes = SimpleNamespace(admin_kubeconfig="admin")
    return SimpleNamespace(bin=str(tmp_path), kubernetes=kubernetes, made=tmp_path / "made")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "node.token"


def token(uid=UID, *, lasts=30 * 86400):
    node = {"name": "node1", "uid": uid}
    claims = {"exp": time.time() + lasts, "kubernetes.io": {"node": node}}
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"head.{payload}.signature"


def test_first_token_is_bound_to_the_node(lab, path):
    assert node_token.missing(lab, "node1", path) == NEW
    made = lab.made.read_text()
    assert "create token kuryr-daemon --bound-object-kind=Node --bound-object-name=node1" in made
    assert f"--bound-object-uid={UID}" in made


def test_token_of_the_node_as_it_is_is_kept(lab, path):
    path.write_text(token())
    assert node_token.missing(lab, "node1", path) is None
    assert not lab.made.exists()


@pytest.mark.parametrize(
    "held",
    [token("uid-of-an-earlier-node"), token(lasts=3600), "head.e30.signature", "", "a.b.c"],
    ids=["earlier node", "at its end", "unbound", "empty", "broken"],
)
def test_token_that_would_be_refused_is_made_anew(lab, path, held):
    path.write_text(held)
    assert node_token.missing(lab, "node1", path) == NEW
