"""kuryr-cni as a runtime starts it: a process, its environment, standard input and output."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import threading
import time

import pytest

from kuryr_k8s.cni import installation, server
from kuryr_k8s.cni.patience import USUAL
from kuryr_k8s.cni.protocol import VERSIONS, Request
from tests.kit.cni_program import SOURCE, kuryr_cni, variant


def run(environ, config, *, program=None, **options):
    """(exit code, standard output)."""
    done = subprocess.run(
        [program or kuryr_cni()],
        env={"PATH": "/usr/bin", **environ},
        input=config if isinstance(config, bytes) else json.dumps(config).encode(),
        capture_output=True,
        check=False,
        **options,
    )
    assert done.stderr == b""
    return done.returncode, done.stdout


class Listener:
    """Stands for the daemon: takes one request and answers with these bytes, in these parts.

    :param heed: bytes of the request that are read before the answer; None is all of it.
    """

    def __init__(self, path, *answer, heed=None):
        self.path, self.answer, self.heed, self.request = path, answer, heed, b""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join()
        self._socket.close()

    def _serve(self):
        with self._socket.accept()[0] as channel:
            while (self.heed is None or len(self.request) < self.heed) and (
                part := channel.recv(65536)
            ):
                self.request += part
            with contextlib.suppress(BrokenPipeError):
                for part in self.answer:
                    channel.sendall(part)


def environ(command, **more):
    return {"CNI_COMMAND": command, "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0"} | more


@pytest.fixture
def config(tmp_path):
    return {
        "cniVersion": "1.0.0",
        "name": "kuryr",
        "kuryr_socket": f"{tmp_path}/cni.sock",
        "kuryr_spool": f"{tmp_path}/spool",
    }


@pytest.mark.parametrize("text", [{"cniVersion": "1.0.0"}, b"", b"\0{", b"x" * 5_000_000])
def test_version_is_answered_without_a_daemon(text):
    code, out = run({"CNI_COMMAND": "VERSION"}, text)
    assert code == 0
    assert json.loads(out) == {"cniVersion": VERSIONS[-1], "supportedVersions": list(VERSIONS)}


def test_request_and_answer_are_handed_on(config, tmp_path):
    with Listener(tmp_path / "cni.sock", b'0 9\n{"a": 1}\n') as daemon:
        more = {"CNI_NETNS": "/x", "CNI_X": "", "TRACEPARENT": "00-1", "TRACESTATE": "s=ä",
                "BAGGAGE": "b", "BAGGAGES": "3", "SECRET": "s", "XCNI_A": "1"}  # fmt: skip
        assert run(environ("ADD", **more), config) == (0, b'{"a": 1}\n')
    request = Request.read(daemon.request)
    assert (request.command, request.container_id, request.netns) == ("ADD", "c1", "/x")
    head = "CNI_COMMAND=ADD\0CNI_CONTAINERID=c1\0CNI_IFNAME=eth0\0CNI_NETNS=/x\0CNI_X=\0"
    head += "TRACEPARENT=00-1\0TRACESTATE=s=ä\0BAGGAGE=b\0\0"
    assert daemon.request == head.encode() + json.dumps(config).encode()


def test_of_a_variable_that_is_there_twice_daemon_and_plugin_see_the_first(config, tmp_path):
    script = (
        "import ctypes, sys; strings = [s.encode() for s in sys.argv[2:]];"
        "array = (ctypes.c_char_p * (len(strings) + 1))(*strings, None);"
        "path = sys.argv[1].encode(); argv = (ctypes.c_char_p * 2)(path, None);"
        "ctypes.CDLL(None).execve(path, argv, array)"
    )
    doubled = ["CNI_COMMAND=DEL", "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_COMMAND=ADD",
               "CNI_CONTAINERID=c2", "CNI_NONSENSE"]  # fmt: skip
    done = subprocess.run(
        ["python3", "-c", script, kuryr_cni(), *doubled],
        input=json.dumps(config).encode(),
        check=False,
        capture_output=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    request = (tmp_path / "spool" / "c1.eth0").read_bytes()
    assert request.startswith(b"CNI_COMMAND=DEL\0CNI_CONTAINERID=c1\0CNI_IFNAME=eth0\0\0{")


def test_failure_of_the_daemon_is_the_plugins(config, tmp_path):
    with Listener(tmp_path / "cni.sock", b"1 3\n{}\n"):
        assert run(environ("ADD"), config) == (1, b"{}\n")


def test_the_largest_request_and_a_large_answer_in_parts_are_whole(config, tmp_path):
    head = len(b"CNI_COMMAND=ADD\0CNI_CONTAINERID=c1\0CNI_IFNAME=eth0\0\0")
    text = json.dumps(config).encode()
    text += b" " * (server.LARGEST - head - len(text))
    answer = b"y" * 3_000_000
    with Listener(tmp_path / "cni.sock", b"0", b" 3000000", b"\n", answer) as daemon:
        assert run(environ("ADD"), text) == (0, answer)
    assert len(daemon.request) == server.LARGEST
    assert daemon.request.endswith(text)
    code, out = run(environ("ADD"), text + b" ")
    assert (code, json.loads(out)["code"]) == (1, 6)
    assert json.loads(out)["cniVersion"] == "1.0.0"


@pytest.mark.parametrize("command", ["ADD", "CHECK", "GC", "STATUS", "", "what"])
def test_without_a_daemon(config, command):
    code, out = run(environ(command), config)
    answer = json.loads(out)
    assert code == 1
    assert answer["code"] == (50 if command == "STATUS" else 11)
    assert answer["cniVersion"] == "1.0.0"
    assert "kuryr-k8s-daemon" in answer["msg"]
    assert "No such file" in answer["msg"]


@pytest.mark.parametrize(
    "answer",
    [b"", b"0", b"0 9\n", b"0 9\n{", b"x y\n", b"0\n", b"0 1\n{}", b"-1 0\n", b"256 0\n",
     b"0\n2\n{}", b"0 2 \n{}", b"\n", b"\0 2\n{}", b"0 99999999999999999999\n{}",
     b"z" * 5_000_000],
)  # fmt: skip
def test_half_an_answer_is_none(config, tmp_path, answer):
    with Listener(tmp_path / "cni.sock", answer):
        code, out = run(environ("ADD"), config)
    assert (code, json.loads(out)["code"]) == (1, 11)


def test_a_daemon_that_dies_while_it_is_being_asked_is_none(config, tmp_path):
    text = json.dumps(config).encode() + b" " * 3_000_000
    with Listener(tmp_path / "cni.sock", heed=1):
        code, out = run(environ("ADD"), text)
    assert (code, json.loads(out)["code"]) == (1, 11)


@pytest.mark.parametrize("answer", [None, b"0 9\n{"])
def test_del_is_put_off(config, tmp_path, answer):
    if answer is None:
        assert run(environ("DEL"), config) == (0, b"")
    else:
        with Listener(tmp_path / "cni.sock", answer):
            assert run(environ("DEL"), config) == (0, b"")
    [file] = (tmp_path / "spool").iterdir()
    assert file.name == "c1.eth0"
    assert Request.read(file.read_bytes()).container_id == "c1"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_del_again_replaces_what_was_put_off(config, tmp_path):
    config["kuryr_spool"] = f"{tmp_path}/a/b/spool"
    for more in ("1", "2"):
        assert run(environ("DEL", CNI_ARGS=more), config) == (0, b"")
    [file] = (tmp_path / "a/b/spool").iterdir()
    assert b"CNI_ARGS=2\0" in file.read_bytes()


def test_what_a_killed_plugin_left_is_no_part_of_what_is_put_off(config, tmp_path):
    """Numbers of processes come again: an earlier one of this number left a longer half."""
    (tmp_path / "spool").mkdir()
    program = tmp_path / "kuryr-cni"
    plugin = shlex.quote(str(kuryr_cni()))
    program.write_text(
        f"#!/bin/sh\nprintf '%9999s' x >{tmp_path}/spool/.c1.eth0.$$\nexec {plugin}\n"
    )
    program.chmod(0o755)
    assert run(environ("DEL"), config, program=program) == (0, b"")
    [file] = (tmp_path / "spool").iterdir()
    assert file.name == "c1.eth0"
    assert file.read_bytes().endswith(b"\0\0" + json.dumps(config).encode())


def test_del_that_cannot_be_put_off_fails_and_leaves_nothing(config, tmp_path):
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "c1.eth0").mkdir()
    code, out = run(environ("DEL"), config)
    assert (code, json.loads(out)["code"]) == (1, 5)
    assert [p.name for p in (tmp_path / "spool").iterdir()] == ["c1.eth0"]


def test_del_without_a_directory_to_put_it_off_to_fails(config, tmp_path):
    (tmp_path / "spool").write_text("in the way")
    code, out = run(environ("DEL"), config)
    assert (code, json.loads(out)["code"]) == (1, 5)


@pytest.mark.parametrize("missing", ["CNI_CONTAINERID", "CNI_IFNAME"])
def test_del_without_a_container_cannot_be_put_off(config, missing):
    code, out = run(environ("DEL", **{missing: ""}), config)
    assert (code, json.loads(out)["code"]) == (1, 4)


@pytest.mark.parametrize(
    ("container", "name"),
    [("../../x", "..%2f..%2fx.eth0"), ("ä b\n", "%c3%a4%20b%0a.eth0"), ("A-z_0.", "A-z_0..eth0")],
)
def test_names_of_containers_cannot_leave_the_spool(config, tmp_path, container, name):
    assert run(environ("DEL", CNI_CONTAINERID=container), config) == (0, b"")
    [file] = (tmp_path / "spool").iterdir()
    assert file.name == name


@pytest.mark.parametrize("container", ["c" * 251, "/" * 100_000])
def test_a_name_that_no_file_can_have_fails(config, container):
    code, out = run(environ("DEL", CNI_CONTAINERID=container), config)
    assert (code, json.loads(out)["code"]) == (1, 5)
    assert "too long" in json.loads(out)["msg"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'{"kuryr_socket":"/a"}', "/a"),
        (b'{"kuryr_socket" : "\\/a\\/b" , "x": 1}', "/a/b"),
        (b'{"kuryr_socket"\n\t:\r "/a", "kuryr_socket": "/b"}', "/a"),
        (b'{"kuryr_socket":"/' + b"x" * 200 + b'"', "/" + "x" * 200 + ": File name too long"),
        (b'{"kuryr_socket":"/' + b"x" * 9000 + b'"', ": File name too long"),
        (b'{"kuryr_socket":"/' + b"x" * 107 + b'"', "/" + "x" * 107 + ": File name too long"),
        (b'{"kuryr_socket":"/' + b"x" * 106 + b'"', "/" + "x" * 106 + ": No such file"),
        (b'{"kuryr_socket": 3}', None),
        (b'{"kuryr_socket": ""}', None),
        (b'{"kuryr_socket": "/a', None),
        (b'{"kuryr_socket": "', None),
        (b'{"kuryr_socket"', None),
        (b'{"kuryr_socket":', None),
        (b'{"kuryr_socket": "/\0a"}', None),
        (b"", None),
        (b'{"args": {"cni": {"kuryr_socket": "/evil"}}, "kuryr_socket": "/a"}', "/a"),
        (b'{"args": [{"kuryr_socket": "/evil"}, "}"]}', None),
        (b'{"x": "kuryr_socket", "y": "\\": {\\"kuryr_socket", "kuryr_socket": "/a"}', "/a"),
    ],
)
def test_settings_are_found_without_json(tmp_path, text, found):
    default = tmp_path / "default"
    program = variant(tmp_path, (f'"{installation.SOCKET}"', f'"{default}"'))
    code, out = run(environ("ADD"), text, program=program)
    assert code == 1
    assert f"{found or default}" in json.loads(out)["msg"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("quotes \\ \x01 \n ä € 😀 \x7f".encode(), "quotes \\ \x01 \n ä € 😀 \x7f"),
        (b"\xff\xc0\x80\xed\xa0\x80 \xf5\x80\x80\x80 \xe2\x82", None),
    ],
)
def test_messages_are_json_whatever_is_in_them(tmp_path, name, said):
    text = b'{"cniVersion": "1.\xff", "kuryr_socket": "' + os.fsencode(tmp_path) + b"/" + name
    code, out = run(environ("ADD"), text + b'"}')
    answer = json.loads(out.decode())
    expected = said or name.decode(errors="replace")
    assert code == 1
    assert answer["cniVersion"] == "1.\ufffd"
    if said:
        assert f"/{expected}: No such file" in answer["msg"]


def test_standard_input_that_cannot_be_read_is_said(config):
    done = subprocess.run(
        ["sh", "-c", f"exec {shlex.quote(str(kuryr_cni()))} <&-"],
        env=environ("ADD"),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, json.loads(done.stdout)["code"]) == (1, 5)


def test_an_answer_that_nobody_takes_is_a_failure(config, tmp_path):
    with Listener(tmp_path / "cni.sock", b"0 1000000\n" + b"x" * 1_000_000):
        process = subprocess.Popen(
            [kuryr_cni()], env=environ("ADD"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        process.stdout.close()
        process.stdin.write(json.dumps(config).encode())
        process.stdin.close()
        assert process.wait() == 1


@pytest.fixture(scope="module")
def hurried(tmp_path_factory):
    """It gives up after a second, and has its time to say so: a busy disk may take some of it."""
    seconds = ('{"ADD", 230}, {"STATUS", 5}, {"", 60}', '{"", 1}')
    grace = ("#define GRACE 5 ", "#define GRACE 100 ")
    return variant(tmp_path_factory.mktemp("hurried"), seconds, grace)


@pytest.fixture
def silent(config):
    """A daemon that never answers, for as long as the fixture lives."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(config["kuryr_socket"])
        listening.listen()
        yield


class Hanging:
    """Stands for a daemon that takes connections, and begins answers, but never ends one.

    :param parts: what it answers, a part every few milliseconds.
    :param reading: whether it reads the request.
    """

    def __init__(self, path, parts=(), *, reading=True):
        self._parts, self._reading, self._over = parts, reading, threading.Event()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(path)
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        self._socket.close()

    def _serve(self):
        with self._socket.accept()[0] as channel, contextlib.suppress(BrokenPipeError):
            while self._reading and channel.recv(65536):
                pass
            for part in self._parts:
                channel.sendall(part)
                if self._over.wait(0.005):
                    return
            self._over.wait()


HANGING = {
    "it never answers": {},
    "it stops in the middle": {"parts": (b"0 1000\n", b"{")},
    "it answers byte by byte": {"parts": (b"0 9999999\n", *[b" "] * 100_000)},
    "it does not even read": {"reading": False},
}


@pytest.mark.parametrize("how", HANGING)
@pytest.mark.parametrize(
    ("command", "code"), [("ADD", 11), ("CHECK", 11), ("GC", 11), ("STATUS", 50), ("DEL", None)]
)
def test_a_daemon_that_hangs_is_given_up(hurried, config, tmp_path, how, command, code):
    """The request is longer than what a socket takes without a reader."""
    text = json.dumps(config).encode() + b" " * 3_000_000
    with Hanging(config["kuryr_socket"], **HANGING[how]):
        failed, out = run(environ(command), text, program=hurried)
    if code is None:
        assert (failed, out) == (0, b"")
        assert (tmp_path / "spool" / "c1.eth0").read_bytes().endswith(text)
    else:
        assert (failed, json.loads(out)["code"]) == (1, code)


def test_status_gives_a_silent_daemon_up_before_the_kubelet_calls_the_node_dead(config, silent):
    begin = time.monotonic()
    code, out = run(environ("STATUS"), config)
    assert (code, json.loads(out)["code"]) == (1, 50)
    assert time.monotonic() - begin < 30


def test_deadlines_are_below_the_kubelets():
    source = SOURCE.read_text()
    [table] = re.findall(r"deadlines\[\] = \{(.*)\};", source)
    seconds = {name: int(number) for name, number in re.findall(r'\{"(\w*)", (\d+)\}', table)}
    [grace] = map(int, re.findall(r"#define GRACE (\d+)", source))
    assert seconds.pop("ADD") + grace < 240  # the kubelet's for RunPodSandbox
    assert seconds.pop("STATUS") + grace < 30
    assert max(seconds.values()) + grace < 120
    assert USUAL.delete < seconds[""]  # then no DEL that was put off is still being done


def test_del_that_the_daemon_cannot_do_now_is_put_off(config, tmp_path):
    with Listener(tmp_path / "cni.sock", b"75 3\n{}\n"):
        assert run(environ("DEL"), config) == (0, b"")
    [file] = (tmp_path / "spool").iterdir()
    assert Request.read(file.read_bytes()).command == "DEL"


def test_del_that_can_neither_be_done_nor_put_off_fails(config, tmp_path):
    (tmp_path / "spool").write_text("in the way")
    with Listener(tmp_path / "cni.sock", b"75 3\n{}\n"):
        code, out = run(environ("DEL"), config)
    assert (code, json.loads(out)["code"]) == (1, 5)


def test_a_daemon_whose_queue_is_full_is_given_up(hurried, config):
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as first:
        busy.bind(config["kuryr_socket"])
        busy.listen(0)
        first.connect(config["kuryr_socket"])
        code, out = run(environ("ADD"), config, program=hurried)
    assert (code, json.loads(out)["code"]) == (1, 11)


def test_standard_input_without_an_end_is_given_up(hurried):
    process = subprocess.Popen(
        [hurried], env=environ("ADD"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        out = process.stdout.read()
        process.stdin.close()
    assert (process.returncode, json.loads(out)["code"]) == (1, 11)


def test_other_signals_do_not_disturb(config, tmp_path):
    """SIGSTOP and SIGCONT interrupt what is waited for."""
    listening = Listener(tmp_path / "cni.sock", b"0 2\n{}")
    process = subprocess.Popen(
        [kuryr_cni()], env=environ("ADD"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    for _ in range(20):
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGCONT)
    with listening:
        out, _ = process.communicate(json.dumps(config).encode())
    assert (process.returncode, out) == (0, b"{}")
