"""The agent in a virtual machine, which runs commands for the host: one command a connection.

Alone in its file, and with nothing but the standard library: it is copied to the machine.

The client sends a line of JSON, {"token", "argv", "env"}; what the command prints comes back in
frames of a kind (`o`: output, `x`: the exit code), a length, and the data. A further line from the
client is the name of a signal for the command; when the connection ends, the command's session is
killed.
"""

import contextlib
import hmac
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

PORT = 7000


def main() -> None:
    """Serve the clients that know the token, for ever."""
    token = Path(sys.argv[1]).read_text().strip()
    with socket.create_server(("", PORT)) as server:
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_serve, args=(connection, token), daemon=True).start()


def _serve(connection: socket.socket, token: str) -> None:
    with connection, connection.makefile("rb") as lines, contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wanted = json.loads(lines.readline())
        if not hmac.compare_digest(wanted["token"], token):
            return
        try:
            child = subprocess.Popen(
                wanted["argv"],
                env=wanted["env"],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            _send(connection, b"o", f"{wanted['argv'][0]}: {error}\n".encode())
            _send(connection, b"x", b"127")
            return
        threading.Thread(target=_obey, args=(lines, child), daemon=True).start()
        passing = threading.Thread(target=_pass_on, args=(child, connection), daemon=True)
        passing.start()
        code = child.wait()
        passing.join(1)  # what outlives it on purpose may keep its output open
        _send(connection, b"x", str(code).encode())


def _pass_on(child: "subprocess.Popen[bytes]", connection: socket.socket) -> None:
    assert child.stdout is not None
    with child.stdout as output, contextlib.suppress(OSError):
        while data := output.read1(65536):  # type: ignore[attr-defined]
            _send(connection, b"o", data)


def _obey(lines, child: "subprocess.Popen[bytes]") -> None:  # type: ignore[no-untyped-def]
    with contextlib.suppress(OSError, ValueError):
        for line in lines:
            child.send_signal(signal.Signals[line.decode().strip()])
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def _send(connection: socket.socket, kind: bytes, data: bytes) -> None:
    connection.sendall(kind + struct.pack("!I", len(data)) + data)


if __name__ == "__main__":
    main()
