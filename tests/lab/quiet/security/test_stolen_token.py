"""A stolen token of one node's daemon changes nothing of other nodes, and little of its own.

The requests are dry runs: whoever grants or refuses a request does not know, and one that were
granted would change nothing.
"""

import http.client
import json
import ssl
import urllib.parse

import pytest

from lab.kuryr.installation import Installation
from lab.progress import Progress
from tests.kit import node_credentials as credentials
from tests.kit.node_credentials import AGENT, Place
from tests.lab.cluster import pod

pytestmark = pytest.mark.lab_only
OWN, OTHER = "node2", "node1"


class Thief:
    """A client of the API server with nothing but the token."""

    def __init__(self, lab, token):
        url = urllib.parse.urlsplit(lab.kubernetes.url)
        self._address = (url.hostname, url.port)
        self._trust = ssl.create_default_context(cafile=lab.kubernetes.ca)
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": AGENT}

    def send(self, request):
        """Return the code and the words of the answer."""
        path = request.path
        if request.method != "GET":
            path += f"{'&' if '?' in path else '?'}dryRun=All"
        connection = http.client.HTTPSConnection(*self._address, context=self._trust, timeout=30)
        headers = self._headers | {"Content-Type": request.content}
        body = None if request.body is None else json.dumps(request.body)
        try:
            connection.request(request.method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        finally:
            connection.close()
        try:
            said = json.loads(text).get("message") or ""
        except ValueError:
            said = text
        return answer.status, said


@pytest.fixture
def places(cluster):
    """A Pod on each of two nodes: the thief's, and another one."""
    cluster.apply(*(pod(f"on-{node}", node=node) for node in (OWN, OTHER)))
    cluster.wait_ready(*(f"on-{node}" for node in (OWN, OTHER)))
    return [Place(node, cluster.namespace, f"on-{node}") for node in (OWN, OTHER)]


@pytest.fixture
def thief(cluster):
    path = Installation(progress=Progress(quiet=True)).token_of_node(OWN)
    return Thief(cluster.lab, path.read_text().strip())


def test_stolen_token_changes_nothing_but_what_is_its_nodes(thief, places, capsys):
    rows = [(attempt, *thief.send(attempt)) for attempt in credentials.attempts(*places)]
    with capsys.disabled():
        print(f"\nAttempts with the token of {OWN}'s daemon:\n{credentials.table(rows)}")
    assert [attempt.about for attempt, code, _ in rows if code != attempt.refusal] == []


def test_same_token_is_good_for_what_the_daemon_writes(cluster, thief, places):
    needs = credentials.needs(places[0], cluster.lab.nodes[OWN].chassis)
    rows = [(need, *thief.send(need)) for need in needs]
    assert [(need.about, said) for need, code, said in rows if code != 200] == []
