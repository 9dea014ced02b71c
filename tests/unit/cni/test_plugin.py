import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kuryr_k8s.cni import plugin
from kuryr_k8s.cni.protocol import VERSIONS, Request


def run(environ, config, **options):
    """The plugin as a runtime starts it: (exit code, standard output)."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-E", plugin.__file__],
        env={"PATH": "/usr/bin", **environ},
        input=config if isinstance(config, bytes) else json.dumps(config).encode(),
        capture_output=True,
        check=False,
        **options,
    )
    assert done.stderr == b""
    return done.returncode, done.stdout


class Listener:
    """Stands for the daemon: takes one request and answers with these bytes."""

    def __init__(self, path, answer):
        self.path, self.answer, self.request = path, answer, b""
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
            while part := channel.recv(65536):
                self.request += part
            channel.sendall(self.answer)


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


def test_it_loads_nothing_but_what_the_interpreter_has_anyway():
    script = (
        "import sys; before = set(sys.modules); sys.argv = ['kuryr-cni'];"
        "exec(compile(open(sys.argv0).read(), 'p', 'exec'), {'__name__': 'p'});"
        "print(sorted(set(sys.modules) - before))"
    ).replace("sys.argv0", repr(plugin.__file__))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-E", "-c", script], capture_output=True, check=True
    )
    loaded = set(json.loads(done.stdout.replace(b"'", b'"')))
    assert loaded <= {"os", "stat", "_stat", "posixpath", "genericpath", "os.path", "_socket",
                      "_collections_abc", "_signal", "abc", "_abc"}  # fmt: skip


def test_version_is_answered_without_a_daemon():
    code, out = run({"CNI_COMMAND": "VERSION"}, {"cniVersion": "1.0.0"})
    assert code == 0
    assert json.loads(out)["supportedVersions"] == list(VERSIONS)


def test_request_and_answer_are_handed_on(config, tmp_path):
    with Listener(tmp_path / "cni.sock", b'0 9\n{"a": 1}\n') as daemon:
        more = {"CNI_NETNS": "/x", "TRACEPARENT": "00-1", "SECRET": "s"}
        assert run(environ("ADD", **more), config) == (0, b'{"a": 1}\n')
    request = Request.read(daemon.request)
    assert (request.command, request.container_id, request.netns) == ("ADD", "c1", "/x")
    assert b"TRACEPARENT=00-1\0" in daemon.request
    assert b"SECRET" not in daemon.request


def test_failure_of_the_daemon_is_the_plugins(config, tmp_path):
    with Listener(tmp_path / "cni.sock", b"1 3\n{}\n"):
        assert run(environ("ADD"), config) == (1, b"{}\n")


@pytest.mark.parametrize("command", ["ADD", "CHECK", "GC", "STATUS"])
def test_without_a_daemon(config, command):
    code, out = run(environ(command), config)
    answer = json.loads(out)
    assert code == 1
    assert answer["code"] == (50 if command == "STATUS" else 11)
    assert answer["cniVersion"] == "1.0.0"
    assert "kuryr-k8s-daemon" in answer["msg"]


@pytest.mark.parametrize("answer", [b"", b"0", b"0 9\n", b"0 9\n{", b"x y\n", b"0\n"])
def test_half_an_answer_is_none(config, tmp_path, answer):
    with Listener(tmp_path / "cni.sock", answer):
        code, out = run(environ("ADD"), config)
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


def test_del_again_replaces_what_was_put_off(config, tmp_path):
    for _ in range(2):
        assert run(environ("DEL"), config) == (0, b"")
    assert len(list((tmp_path / "spool").iterdir())) == 1


def test_del_that_cannot_be_put_off_fails(config, tmp_path):
    (tmp_path / "spool").write_text("in the way")
    code, out = run(environ("DEL"), config)
    assert (code, json.loads(out)["code"]) == (1, 5)


def test_del_without_a_container_cannot_be_put_off(config):
    code, out = run(environ("DEL", CNI_CONTAINERID=""), config)
    assert (code, json.loads(out)["code"]) == (1, 4)


def test_names_of_containers_cannot_leave_the_spool(config, tmp_path):
    assert run(environ("DEL", CNI_CONTAINERID="../../x"), config) == (0, b"")
    [file] = (tmp_path / "spool").iterdir()
    assert file.name == "..%2f..%2fx.eth0"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'{"kuryr_socket":"/a"}', b"/a"),
        (b'{"kuryr_socket" : "\\/a\\/b" , "x": 1}', b"/a/b"),
        (b'{"kuryr_socket": 3}', b"default"),
        (b'{"kuryr_socket": ""}', b"default"),
        (b'{"kuryr_socket": "/a', b"default"),
        (b"", b"default"),
    ],
)
def test_settings_are_found_without_json(text, found):
    assert plugin.setting(text, b"kuryr_socket", b"default") == found


def test_messages_are_json_whatever_is_in_them():
    answer = plugin.failure(b"", 11, 'a "quoted" \\ \n ä')
    assert json.loads(answer)["msg"] == 'a "quoted" \\ \n ä'


def test_a_daemon_that_never_answers_is_given_up(config, tmp_path):
    source = Path(plugin.__file__).read_text().replace("DEADLINE = 230", "DEADLINE = 1")
    hurried = tmp_path / "kuryr-cni"
    hurried.write_text(source)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(config["kuryr_socket"])
        silent.listen()
        done = subprocess.run(
            [sys.executable, "-ISE", str(hurried)],
            env=environ("ADD"),
            input=json.dumps(config).encode(),
            capture_output=True,
            check=False,
        )
    assert done.returncode == 1
    assert json.loads(done.stdout)["code"] == 11
