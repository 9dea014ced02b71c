"""Certificates of routers in Barbican: what is listed, stored, kept and deleted, and when."""

import json

import pytest
import requests

from kuryr_k8s import errors
from kuryr_k8s.cloud.barbican.api import StoredSecret
from kuryr_k8s.cloud.transport import error_from
from kuryr_k8s.drivers.l7.certificates import FRESH, StoredCertificates
from kuryr_k8s.model.authority import Authority
from tests.kit.clock import ManualClock

PAUSE = 30.0
# of Barbican 23: generate_safe_exception_message and QuotaReached.client_message
FULL = "Secret creation issue seen - Creation not allowed because a quota has been reached."

LOST = errors.CloudError("no answer")


def refusal(status, text):
    """The error that an answer of Barbican becomes."""
    response = requests.Response()
    response.status_code = status
    body = {"code": status, "title": "Forbidden", "description": text}
    response._content = json.dumps(body).encode()
    return error_from(response, "POST /secrets")


class Barbican:
    """Keeps secrets in memory; calls take their time, and may fail."""

    def __init__(self, clock):
        self._clock = clock
        self.secrets = {}  # names by refs
        self.lists = self.stores = 0
        self.listing = self.storing = 0.0  # seconds
        self.problem = None  # with storing
        self.is_applied = False  # a secret is stored all the same

    async def list_secrets(self):
        self.lists += 1
        found = [StoredSecret(ref, name) for ref, name in self.secrets.items()]
        self._clock.advance(self.listing)
        return found

    async def store(self, name, payload):
        self.stores += 1
        self._clock.advance(self.storing)
        ref = f"ref {self.stores}"
        if self.problem is None or self.is_applied:
            self.secrets[ref] = name
        if self.problem is not None:
            raise self.problem
        return StoredSecret(ref, name)

    async def delete(self, ref):
        del self.secrets[ref]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def barbican(clock):
    return Barbican(clock)


@pytest.fixture
def certificates(barbican, clock):
    return StoredCertificates(barbican, "ours:", clock, PAUSE)


def wanted(*sources, digest="1"):
    return [Authority(source=each, digest=digest, bundle=b"") for each in sources]


async def test_one_certificate_tells_that_barbican_is_full(certificates, barbican):
    barbican.problem = refusal(403, FULL)
    stored = await certificates.store(wanted("a", "b", "c"))
    assert isinstance(stored.problem, errors.OverQuota)
    assert not stored.refs
    assert barbican.stores == 1


async def test_secret_that_octavia_refuses_is_kept_until_it_is_offered_again(
    certificates, barbican, clock
):
    former = (await certificates.store(wanted("a"))).refs["a"]
    newer = (await certificates.store(wanted("a", digest="2"))).refs["a"]
    certificates.refuse(f"it does not take {newer}", {former})
    stored = await certificates.store(wanted("a", digest="2"))
    assert (stored.refs, stored.refused) == ({"a": former}, {newer})
    clock.advance(PAUSE)
    stored = await certificates.store(wanted("a", digest="2"))
    assert (stored.refs, stored.refused) == ({"a": newer}, frozenset())
    assert barbican.stores == 2


async def test_full_barbican_leaves_former_certificates_in_use_and_tells_which(
    certificates, barbican
):
    former = (await certificates.store(wanted("b", "c"))).refs
    barbican.problem = refusal(403, FULL)
    stored = await certificates.store([*wanted("a", "b"), *wanted("c", digest="2")])
    assert isinstance(stored.problem, errors.OverQuota)
    assert stored.refs == former
    assert stored.outdated == {"c"}


async def test_list_that_takes_long_serves_all_certificates(certificates, barbican, clock):
    barbican.listing = 2 * FRESH
    assert len((await certificates.store(wanted("a", "b", "c"))).refs) == 3
    clock.advance(FRESH)
    assert len((await certificates.store(wanted("a", "b", "c"))).refs) == 3
    assert (barbican.lists, barbican.stores) == (1, 3)
    clock.advance(1.0)
    await certificates.store(wanted("a", "b", "c"))
    assert (barbican.lists, barbican.stores) == (2, 3)


async def test_secrets_are_listed_once_more_after_storing_them_took_long(certificates, barbican):
    barbican.listing = barbican.storing = 2 * FRESH
    assert len((await certificates.store(wanted("a", "b", "c"))).refs) == 3
    assert barbican.lists == 2


async def test_lost_answer_costs_one_list_and_no_second_secret(certificates, barbican):
    barbican.problem, barbican.is_applied = LOST, True
    with pytest.raises(errors.CloudError):
        await certificates.store(wanted("a"))
    stored = await certificates.store(wanted("a"))
    assert stored.refs == {"a": "ref 1"}
    assert (barbican.lists, barbican.stores) == (2, 1)


async def test_certificates_that_barbican_does_not_store_cost_no_list_each(certificates, barbican):
    barbican.problem = LOST
    for _ in range(3):
        with pytest.raises(errors.CloudError):
            await certificates.store(wanted("a", "b", "c"))
    before = barbican.lists
    certificates._refused.clear()  # all are tried again
    assert (await certificates.store(wanted("a", "b", "c"))).problem is LOST
    assert barbican.lists == before + 2
