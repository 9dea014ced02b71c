"""Records of attachments: what outlives the daemon."""

import dataclasses
import json

import pytest

from kuryr_k8s.cni.bindings.base import Attachment, BindingError
from kuryr_k8s.cni.bindings.nested import NestedRecord
from kuryr_k8s.cni.bindings.records import Records
from kuryr_k8s.cni.netlink import Vlan


def record(container="c1", **values):
    attachment = Attachment(
        container_id=container,
        ifname="eth0",
        request_ifname="eth0",
        netns="/run/netns/x",
        pod_uid="u1",
        namespace="default",
        pod="web",
    )
    vlan = Vlan(link="eth0", vlan_id=5)
    return NestedRecord(
        attachment=attachment, nested=vlan, number=3, name="tap1", port_id="p", **values
    )


def test_what_was_written_is_read_by_the_next_daemon(tmp_path):
    Records(tmp_path / "new", NestedRecord).put(record())
    Records(tmp_path / "new", NestedRecord).put(record("c2", ready=True))
    assert Records(tmp_path / "new", NestedRecord).all() == [record(), record("c2", ready=True)]


def test_vlan_is_written_as_daemons_of_earlier_versions_read_it(tmp_path):
    Records(tmp_path, NestedRecord).put(record())
    (path,) = tmp_path.iterdir()
    written = json.loads(path.read_text())
    assert written.pop("attachment")["container_id"] == "c1"
    assert written == {
        "vlan": {"link": "eth0", "vlan_id": 5},
        "number": 3,
        "name": "tap1",
        "port_id": "p",
        "ready": False,
    }


def test_a_record_is_replaced_and_removed(tmp_path):
    records = Records(tmp_path, NestedRecord)
    records.put(record())
    records.put(record(ready=True))
    assert Records(tmp_path, NestedRecord).all() == [record(ready=True)]
    records.remove(record().attachment)
    records.remove(record().attachment)
    assert records.all() == Records(tmp_path, NestedRecord).all() == []


def test_another_sandbox_of_the_same_name_is_not_it(tmp_path):
    records = Records(tmp_path, NestedRecord)
    records.put(record())
    other = dataclasses.replace(record().attachment, netns="/run/netns/y")
    assert records.get(record().attachment) == record()
    assert records.get(other) is None


def test_a_write_that_was_cut_off_counts_as_none(tmp_path):
    (tmp_path / "c1-eth0.json.new").write_text('{"atta')
    assert Records(tmp_path, NestedRecord).all() == []
    assert not list(tmp_path.iterdir())


def test_a_record_that_cannot_be_read_is_not_forgotten(tmp_path):
    (tmp_path / "c1-eth0.json").write_text("{}")
    with pytest.raises(BindingError, match="is not a record of an attachment"):
        Records(tmp_path, NestedRecord)


def test_a_directory_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BindingError, match="cannot write"):
        Records(tmp_path / "file" / "vlan", NestedRecord).put(record())
