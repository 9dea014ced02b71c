"""etc/rbac grants all that the programs ask for, and nothing that they do not use."""

from collections import Counter
from pathlib import Path

import pytest

from tests.audit import audit_log, grants
from tests.kit.paths import ETC
from tests.kit.stages import ACCOUNT, RULES

RBAC = ETC / "rbac"


@pytest.fixture(scope="session")
def granted():
    return grants.shipped(RBAC)


@pytest.fixture(scope="session")
def on_the_lab(lab, began):
    """What was asked of the lab's API server."""
    return _Log([Path(lab.kubernetes.audit_log)], began)


@pytest.fixture(scope="session")
def in_component_tests(reports):
    """What was asked of the component tests' ones; nothing outside of `make test`."""
    paths = sorted(reports.glob("component-audit-*.log")) if reports else []
    return _Log(paths, audit_log.BEGINNING)


class _Log:
    def __init__(self, paths, since):
        self._by_path = {path: audit_log.requests(path, since) for path in paths}
        self.requests = [request for found in self._by_path.values() for request in found]
        self._starts = {path: audit_log.starts(path, since) for path in paths}

    def refused(self):
        """Return (request, whether its server had not read the permissions yet) of each that was
        refused."""
        return [
            (request, any(start.covers(request, requests) for start in self._starts[path]))
            for path, requests in self._by_path.items()
            for request in requests
            if request.refused
        ]


def test_no_request_was_refused(granted, on_the_lab, in_component_tests, show):
    # a server that starts refuses what tests grant just as what etc/rbac grants
    known = granted.union(*(grants.of_rule(rule, ACCOUNT) for rule in RULES))
    refused, starting = [], []
    for request, early in (*on_the_lab.refused(), *in_component_tests.refused()):
        is_granted = any(grant.covers(request) for grant in known)
        (starting if early and is_granted else refused).append(str(request))
    asked = len(on_the_lab.requests) + len(in_component_tests.requests)
    show(f"Refused (403), of {asked} requests:", refused)
    if starting:
        show("Refused though granted, by an API server that had no permissions yet:", starting)
    assert on_the_lab.requests, "the audit log has no request of ours"
    assert not refused, "etc/rbac does not grant what is asked for"


@pytest.mark.complete  # a sample of the tests need not use all of them
def test_every_granted_verb_was_used(granted, on_the_lab, in_component_tests, show):
    lab, component = (
        _uses(granted, on_the_lab.requests),
        _uses(granted, in_component_tests.requests),
    )
    line = "{:<17} {:<7} {:<29} {:<34} {:>6} {:>9}".format
    table = [line("ACCOUNT", "VERB", "RESOURCE", "ONLY", "LAB", "COMPONENT")]
    for grant in sorted(granted):
        resource = f"{grant.resource}{'.' if grant.group else ''}{grant.group}"
        only = "/".join(part for part in (grant.namespace, grant.name) if part)
        row = (grant.account, grant.verb, resource, only, lab[grant], component[grant])
        table.append(line(*row))
    show("Granted by etc/rbac, and how often used:", table)
    unused = [str(grant) for grant in sorted(grants.unused(granted, lab))]
    show("Granted and never used on the lab:", unused)
    assert not unused, "etc/rbac grants what no test on the lab uses"


def _uses(granted, requests):
    """How many of the requests each grant allowed."""
    return Counter(grant for request in requests for grant in granted if grant.covers(request))
