"""Certificates of routers in Barbican: what is listed, stored, kept and deleted, and when."""

import json
from dataclasses import replace

import pytest
import requests

from kuryr_k8s import errors
from kuryr_k8s.cloud.barbican.api import StoredSecret
from kuryr_k8s.cloud.transport import error_from
from kuryr_k8s.drivers.l7.certificates import FRESH, StoredCertificates
from kuryr_k8s.model.authority import Authority
from kuryr_k8s.model.certificate import Certificate
from kuryr_k8s.patience import Patience
from tests.kit.clock import ManualClock

PATIENCE = Patience()
PAUSE = PATIENCE.refused
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
        self.problem = self.list_problem = None  # with storing, with listing
        self.is_applied = False  # a secret is stored all the same

    async def list_secrets(self):
        self.lists += 1
        found = [StoredSecret(ref, name) for ref, name in self.secrets.items()]
        self._clock.advance(self.listing)
        if self.list_problem is not None:
            raise self.list_problem
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
    return StoredCertificates(barbican, "ours:", clock, PATIENCE)


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
    assert (stored.refs, stored.offered) == ({"a": former}, {newer})
    clock.advance(PAUSE)
    stored = await certificates.store(wanted("a", digest="2"))
    assert (stored.refs, stored.offered) == ({"a": newer}, frozenset())
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
    stored = await certificates.store(wanted("a"))
    assert (len(stored.refs), stored.is_begun) == (1, False)
    assert barbican.lists == 2


async def test_many_certificates_are_stored_some_at_a_time(certificates, barbican):
    barbican.storing = PATIENCE.storing / 2
    stored = [await certificates.store(wanted(*"abcde")) for _ in range(3)]
    assert [(len(each.refs), each.is_begun) for each in stored] == [
        (2, True),
        (4, True),
        (5, False),
    ]
    assert [len(each.there) for each in stored] == [2, 4, 5]
    assert barbican.stores == 5


@pytest.mark.parametrize("status", [401, 0, 500])
async def test_failure_that_is_not_of_the_certificate_is_tried_again_at_once(
    certificates, barbican, status
):
    kind = errors.BadRequest if status == 401 else errors.CloudError
    barbican.problem = kind("a moment", status=status)
    with pytest.raises(kind):
        await certificates.store(wanted("a"))
    barbican.problem = None
    assert (await certificates.store(wanted("a"))).problem is None


async def test_certificate_for_other_names_is_no_former_one_after_a_restart(barbican, clock):
    both, one = (
        Certificate(
            source="a",
            digest=digest,
            names=frozenset(names),
            shown_for=frozenset(names),
            bundle=b"",
        )
        for digest, names in (("1", "ab"), ("2", "b"))
    )
    renewed = replace(one, digest="3")
    for former, newer, is_kept in ((both, one, False), (one, renewed, True)):
        barbican.problem = None
        await StoredCertificates(barbican, "ours:", clock, PATIENCE).store([former])
        barbican.problem = refusal(403, FULL)
        stored = await StoredCertificates(barbican, "ours:", clock, PATIENCE).store([newer])
        assert bool(stored.refs) is is_kept
        assert stored.outdated == ({"a"} if is_kept else set())


async def test_barbican_that_does_not_answer_is_left_alone_as_long_as_it_took(
    certificates, barbican, clock
):
    barbican.listing, barbican.list_problem = 2 * PAUSE, LOST
    for seconds, lists in ((0.0, 1), (2 * PAUSE - 1, 1), (1, 2)):
        clock.advance(seconds)
        with pytest.raises(errors.CloudError):
            await certificates.store(wanted("a"))
        assert barbican.lists == lists


async def test_lost_answer_costs_one_list_and_no_second_secret(certificates, barbican):
    barbican.problem, barbican.is_applied = LOST, True
    with pytest.raises(errors.CloudError):
        await certificates.store(wanted("a"))
    stored = await certificates.store(wanted("a"))
    assert stored.refs == {"a": "ref 1"}
    assert (barbican.lists, barbican.stores) == (2, 1)


async def test_barbican_that_stores_nothing_is_asked_now_and_then_and_tells_at_once_only_once(
    certificates, barbican, clock
):
    barbican.problem = LOST
    some = wanted(*"abcdefgh")
    with pytest.raises(errors.CloudError):
        await certificates.store(some)
    for _ in range(3):
        assert (await certificates.store(some)).problem is LOST
    assert barbican.stores == 2
    clock.advance(PAUSE)
    assert (await certificates.store(some)).problem is LOST
    assert barbican.stores == 3
    barbican.problem = None
    clock.advance(2 * PAUSE)
    assert len((await certificates.store(some)).refs) == 8


async def test_answers_that_barbican_gives_after_a_minute_leave_time_for_other_changes(
    certificates, barbican, clock
):
    barbican.problem, barbican.storing = LOST, 2 * PAUSE
    with pytest.raises(errors.CloudError):
        await certificates.store(wanted(*"abc"))
    await certificates.store(wanted(*"abc"))
    begun = clock.now()
    for _ in range(3):
        stored = await certificates.store(wanted(*"abc"))
        assert (stored.problem, stored.is_begun) == (LOST, False)
    assert clock.now() == begun


async def test_certificate_that_barbican_never_stores_holds_up_no_other(
    certificates, barbican, clock
):
    store = barbican.store

    async def refuse(name, payload):
        barbican.problem = LOST if ":a:" in name else None
        return await store(name, payload)

    barbican.store = refuse
    with pytest.raises(errors.CloudError):
        await certificates.store(wanted(*"abc"))
    await certificates.store(wanted(*"abc"))
    clock.advance(PAUSE)
    stored = await certificates.store(wanted(*"abc"))
    assert stored.refs.keys() == {"b", "c"}
    assert stored.problem is LOST


async def test_what_nobody_wants_any_more_is_forgotten(certificates, barbican):
    barbican.problem = refusal(403, FULL)
    for digest in "123":
        await certificates.store(wanted("a", digest=digest))
    assert len(certificates._held) == 1
