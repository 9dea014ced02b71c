"""The annotation by which a Pod chooses NeutronPorts."""

import pytest

from kuryr_k8s import errors
from kuryr_k8s.drivers.multi_vif.neutron_port_wish import Label, read_choice


@pytest.mark.parametrize("text", ["db", "db-0", "vm.storage", "0", " db "])
def test_name_is_one(text):
    assert read_choice(text) == (text.strip(), ())


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("app=db", [("app", "db", True)]),
        ("app==db", [("app", "db", True)]),
        ("example.org/app = db , tier!=test", [("example.org/app", "db", True),
                                              ("tier", "test", False)]),
        ("app=", [("app", "", True)]),
    ],
)  # fmt: skip
def test_labels_are_a_list(text, labels):
    wanted = tuple(Label(key=key, value=value, must=must) for key, value, must in labels)
    assert read_choice(text) == ("", wanted)


@pytest.mark.parametrize("text", ["app in (db)", "!app", "Db", "app=db,", "=db", "a/b", "app=a=b"])
def test_anything_else_is_refused(text):
    with pytest.raises(errors.Refused, match="neither the name of a NeutronPort nor a list"):
        read_choice(text)


def test_empty_annotation_chooses_nothing():
    assert read_choice("  ") == ("", ())
