import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuryr_k8s.cni import protocol
from kuryr_k8s.cni.protocol import Attached, CNIError, Request
from tests.kit.node.fakes import request_bytes


def code_of(raw):
    with pytest.raises(CNIError) as caught:
        Request.read(raw)
    return caught.value.code, caught.value.message


def test_an_add_is_read():
    request = Request.read(request_bytes(config={"prevResult": {"ips": []}}))
    assert (request.command, request.container_id, request.ifname) == ("ADD", "c1", "eth0")
    assert request.netns == "/run/netns/x"
    assert request.pod == "default/web"
    assert request.pod_uid == "u1"
    assert request.config.name == "kuryr"
    assert request.config.previous == {"ips": []}
    assert request.config.valid is None


@pytest.mark.parametrize("command", ["ADD", "CHECK"])
@pytest.mark.parametrize("name", ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"])
@pytest.mark.parametrize("value", [None, ""])
def test_what_is_missing_is_named(command, name, value):
    code, message = code_of(request_bytes(command, **{name: value}))
    assert code == 4
    assert name in message


def test_del_needs_no_namespace_and_no_pod():
    request = Request.read(request_bytes("DEL", CNI_NETNS=None, CNI_ARGS=None))
    assert request.pod_uid == ""


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0", "1.1.0"])
def test_versions_we_know(version):
    assert Request.read(request_bytes(version=version)).config.version == version


@pytest.mark.parametrize("version", ["0.2.0", "0.1.0", "2.0.0", "", None, 1])
def test_versions_we_do_not_know_are_code_1(version):
    assert code_of(request_bytes(config={"cniVersion": version}))[0] == 1


@pytest.mark.parametrize(
    ("command", "version"), [("CHECK", "0.3.1"), ("GC", "1.0.0"), ("STATUS", "1.0.0")]
)
def test_commands_that_the_version_does_not_know_are_code_1(command, version):
    assert code_of(request_bytes(command, version=version))[0] == 1


@pytest.mark.parametrize("command", ["", "add", "FROB", None])
def test_unknown_command_is_code_4(command):
    assert code_of(request_bytes(CNI_COMMAND=command))[0] == 4


@pytest.mark.parametrize("ifname", ["", ".", "..", "a/b", "a:b", "a b", "x" * 16])
def test_names_that_linux_refuses(ifname):
    assert code_of(request_bytes(ifname=ifname))[0] == 4


@pytest.mark.parametrize("container", ["-a", "a/b", "../x", ".a", "ä", "a b"])
def test_container_ids_that_the_specification_refuses(container):
    assert code_of(request_bytes(container=container))[0] == 4


@pytest.mark.parametrize("config", [{"name": None}, {"name": "a/b"}, {"prevResult": []}])
def test_wrong_configuration_is_code_7(config):
    assert code_of(request_bytes(config=config))[0] == 7


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_code_6(text):
    assert code_of(b"CNI_COMMAND=STATUS\0\0" + text)[0] == 6


def test_missing_pod_uid_is_named():
    request = Request.read(request_bytes(CNI_ARGS="K8S_POD_NAMESPACE=a;K8S_POD_NAME=b"))
    with pytest.raises(CNIError, match="K8S_POD_UID"):
        request.require_pod()


@pytest.mark.parametrize("key", ["cni.dev/valid-attachments", "cni.dev/attachments"])
def test_both_spellings_of_the_attachments(key):
    config = {key: [{"containerID": "c1", "ifname": "eth0"}]}
    request = Request.read(request_bytes("GC", version="1.1.0", config=config))
    assert request.config.valid == {Attached(container_id="c1", ifname="eth0")}


@pytest.mark.parametrize("listed", [3, [1], [{"containerID": "c1"}]])
def test_broken_list_of_attachments_is_code_7(listed):
    config = {"cni.dev/valid-attachments": listed}
    assert code_of(request_bytes("GC", version="1.1.0", config=config))[0] == 7


@given(st.binary(max_size=400))
def test_whatever_comes_is_a_request_or_a_cni_error(raw):
    try:
        Request.read(raw)
    except CNIError as error:
        json.dumps(error.to_json(protocol.version_of(raw)))


@given(
    st.dictionaries(
        st.text("ABCDEF_", min_size=1),
        st.text(st.characters(exclude_characters=";\0")),
        max_size=5,
    )
)
def test_args_come_back(args):
    text = ";".join(f"{name}={value}" for name, value in args.items())
    assert protocol.read_args(text) == {n: v.strip() for n, v in args.items()}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (b'{"cniVersion": "0.4.0"', "0.4.0"),
        (b'{"cniVersion" : "9.9.9"}', "1.1.0"),
        (b"nothing", "1.1.0"),
    ],
)
def test_errors_speak_the_version_of_the_configuration(text, version):
    assert protocol.version_of(text) == version
