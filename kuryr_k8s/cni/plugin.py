#!/usr/bin/python3 -ISE
"""kuryr-cni: hands a CNI request on to the node's daemon, and prints its answer.

Runtimes start this file for every request, so that its start is what counts: one file, and
no imports but those that the interpreter has loaded anyway, or that are written in C.

A request is the environment as in ``/proc/PID/environ`` (only what CNI and tracing define), an
empty entry, and standard input; then the sending side is closed. The answer is a line
«exit code, length», and as many bytes for standard output. All is judged by the daemon,
except where it cannot be reached: then ADD and CHECK fail with «try again later», STATUS with
«not available», and a DEL is left in a directory, for the daemon to do when it starts.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import os

SOCKET = b"/run/kuryr/cni.sock"
SPOOL = b"/var/lib/kuryr/spool"
DEADLINE = 230  # seconds; the kubelet gives up at 240
VERSIONS = ("0.3.1", "0.4.0", "1.0.0", "1.1.0")
TRACING = (b"TRACEPARENT", b"TRACESTATE", b"BAGGAGE")
Environ = dict[bytes, bytes]
# SPEC, «Error»
BAD_ENVIRONMENT, IO_FAILURE, TRY_LATER, NOT_AVAILABLE = 4, 5, 11, 50


class Unreachable(Exception):
    """The daemon is not there, or went away before its answer was complete."""


def main(environ: Environ, stdin: int, stdout: int) -> int:
    """Serve one request; returns the exit code. ``stdin`` and ``stdout`` are descriptors."""
    command = environ.get(b"CNI_COMMAND", b"")
    config = read_all(stdin)
    if command == b"VERSION":
        versions = ", ".join(f'"{version}"' for version in VERSIONS)
        text = f'{{"cniVersion": "{VERSIONS[-1]}", "supportedVersions": [{versions}]}}\n'
        write_all(stdout, text.encode())
        return 0
    request = request_bytes(environ, config)
    try:
        code, answer = ask(setting(config, b"kuryr_socket", SOCKET), request)
    except Unreachable as error:
        code, answer = without_daemon(command, environ, config, request, str(error))
    write_all(stdout, answer)
    return code


def request_bytes(environ: Environ, config: bytes) -> bytes:
    """The request as the daemon reads it, and as it is spooled."""
    entries = [
        b"%s=%s\0" % (name, value)
        for name, value in environ.items()
        if name.startswith(b"CNI_") or name in TRACING
    ]
    return b"".join(entries) + b"\0" + config


def ask(path: bytes, request: bytes) -> tuple[int, bytes]:
    """Send the request and return (exit code, bytes for standard output)."""
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        channel.connect(path)
        channel.sendall(request)
        channel.shutdown(_socket.SHUT_WR)
        head, newline, answer = read_all(channel.fileno()).partition(b"\n")
        code, length = (int(word) for word in head.split()) if newline else (0, -1)
    except (OSError, ValueError) as error:
        raise Unreachable(f"{path.decode('utf-8', 'replace')}: {error}") from error
    finally:
        channel.close()
    if len(answer) != length:
        raise Unreachable("it went away before its answer was complete")
    return code, answer


def without_daemon(
    command: bytes, environ: Environ, config: bytes, request: bytes, reason: str
) -> tuple[int, bytes]:
    """What is left to do where the daemon cannot be asked."""
    message = f"kuryr-k8s-daemon cannot be reached on this node: {reason}"
    if command == b"DEL":
        container = environ.get(b"CNI_CONTAINERID", b"")
        ifname = environ.get(b"CNI_IFNAME", b"")
        if not container or not ifname:
            message = "CNI_CONTAINERID and CNI_IFNAME must be set"
            return 1, failure(config, BAD_ENVIRONMENT, message)
        try:
            spool(setting(config, b"kuryr_spool", SPOOL), container + b"." + ifname, request)
        except OSError as error:
            return 1, failure(config, IO_FAILURE, f"{message}; nor can DEL be put off: {error}")
        return 0, b""
    return 1, failure(config, NOT_AVAILABLE if command == b"STATUS" else TRY_LATER, message)


def spool(directory: bytes, name: bytes, request: bytes) -> None:
    """Leave a request on disk: one file for each attachment, whole or not at all."""
    os.makedirs(directory, 0o700, exist_ok=True)  # noqa: PTH103 - pathlib is not imported
    letters = (b"%c" % code for code in name)
    safe = b"".join(c if c.isalnum() or c in b"-_." else b"%%%02x" % ord(c) for c in letters)
    path = directory + b"/" + safe
    temporary = b"%s/.%s.%d" % (directory, safe, os.getpid())
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(temporary, flags, 0o600)
    try:
        write_all(file, request)
        os.fsync(file)
    finally:
        os.close(file)
    os.rename(temporary, path)  # noqa: PTH104
    parent = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def failure(config: bytes, code: int, message: str) -> bytes:
    """SPEC, «Error»: the JSON of a failed request."""
    version = setting(config, b"cniVersion", b"1.0.0").decode("ascii", "replace")
    text = "".join(c if c >= " " and c not in '"\\' else f"\\u{ord(c):04x}" for c in message)
    return f'{{"cniVersion": "{version}", "code": {code}, "msg": "{text}"}}\n'.encode()


def setting(config: bytes, name: bytes, default: bytes) -> bytes:
    """The string of a key of the configuration, found without reading the rest of the JSON."""
    _, found, rest = config.partition(b'"' + name + b'"')
    rest = rest.lstrip()
    if not found or rest[:1] != b":":
        return default
    rest = rest[1:].lstrip()
    end = rest.find(b'"', 1)
    return rest[1:end].replace(b"\\/", b"/") if rest[:1] == b'"' and end > 1 else default


def read_all(file: int) -> bytes:
    """Read up to the end."""
    parts = []
    while part := os.read(file, 65536):
        parts.append(part)
    return b"".join(parts)


def write_all(file: int, content: bytes) -> None:
    """Write all of it, however little the file takes at a time."""
    while content:
        content = content[os.write(file, content) :]


def give_up(*_: object) -> None:
    """Handle the alarm."""
    raise Unreachable(f"no answer within {DEADLINE} s")


if __name__ == "__main__":
    _signal.signal(_signal.SIGALRM, give_up)
    _signal.alarm(DEADLINE)
    try:
        status = main(dict(os.environb), 0, 1)
    except Unreachable as late:  # the alarm rang outside of ask()
        write_all(1, failure(b"", TRY_LATER, str(late)))
        status = 1
    os._exit(status)  # nothing is left to clean up
