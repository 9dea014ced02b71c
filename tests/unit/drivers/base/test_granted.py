"""What is granted to projects, checked once when it is there, and to namespaces."""

import asyncio

import pytest

from kuryr_k8s import config, errors
from kuryr_k8s.drivers.base.granted import Grants, NotGranted, check_named


class Policy:
    """Says to which projects something is granted, and who has asked."""

    def __init__(self, *granted):
        self.granted = set(granted)
        self.asked = []
        self.open = asyncio.Event()
        self.open.set()

    async def check(self, project_id):
        self.asked.append(project_id)
        await self.open.wait()
        if project_id not in self.granted:
            raise errors.Refused(f"nothing is granted to {project_id}")


async def test_project_that_was_refused_is_refused_until_it_is_granted():
    policy = Policy()
    grants = Grants(policy.check)
    for _ in range(2):
        with pytest.raises(errors.Refused):
            await grants.require("tenant")
    policy.granted.add("tenant")
    await grants.require("tenant")


async def test_project_is_checked_once_however_many_ask_until_it_is_forgotten():
    policy = Policy("tenant")
    grants = Grants(policy.check)
    policy.open.clear()
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(grants.require("tenant"))
        await asyncio.sleep(0)  # they ask
        policy.open.set()
    await grants.require("tenant")
    assert policy.asked == ["tenant"]
    policy.granted.clear()
    grants.forget()
    with pytest.raises(errors.Refused):
        await grants.require("tenant")


async def test_nobody_passes_while_the_first_check_is_under_way():
    policy = Policy()
    grants = Grants(policy.check)
    policy.open.clear()
    refused = []

    async def ask():
        try:
            await grants.require("tenant")
        except errors.Refused:
            refused.append("tenant")

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(ask())
        await asyncio.sleep(0)  # they ask
        policy.open.set()
    assert len(refused) == 3


def read(tmp_path, ports):
    path = tmp_path / "kuryr.conf"
    path.write_text("[policy]\n" if ports is None else f"[policy]\nports = {ports}\n")
    return config.load(["--config-file", str(path)], "test")


@pytest.mark.parametrize(
    ("pairs", "by_id"),
    [
        (None, False),  # the default
        ("*:*", False),
        ("team-a:*", False),
        ("team-b:*,*:other,*:*", False),
        ("team-a:port", True),
        ("*:port", True),
        ("*:*,team-a:port", True),
    ],
)
def test_object_is_granted_by_its_id_or_with_all_that_the_project_may_use(tmp_path, pairs, by_id):
    assert check_named(read(tmp_path, pairs), "ports", "team-a", "port") == by_id


@pytest.mark.parametrize("pairs", ["", "team-b:*", "team-a:other", "*:other", "team-b:port"])
def test_what_no_pair_names_is_not_granted(tmp_path, pairs):
    with pytest.raises(NotGranted, match=r"port .* namespace team-a \(\[policy\] ports"):
        check_named(read(tmp_path, pairs), "ports", "team-a", "port")


def test_star_that_a_user_writes_is_no_id_of_an_object(tmp_path):
    assert not check_named(read(tmp_path, "team-a:*,*:*"), "ports", "team-a", "*")


@pytest.mark.parametrize("pairs", ["port", ":port", "team-a:", "Team:port", "team-*:port"])
def test_pair_that_cannot_be_read_is_a_wrong_configuration(tmp_path, pairs):
    with pytest.raises(errors.ConfigError, match="ports"):
        read(tmp_path, pairs)


def test_reference_of_a_container_may_have_colons(tmp_path):
    reference = "https://barbican.example:9311/v1/containers/c"
    assert check_named(read(tmp_path, f"team-a:{reference}"), "ports", "team-a", reference)
