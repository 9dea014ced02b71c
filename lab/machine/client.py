"""The agent's client: `python3 client.py PORT TOKEN-FILE COMMAND...`.

It ends as the command ends, passes SIGTERM on, and its own end is the command's. Alone in its
file, and with nothing but the standard library: it is copied beside the machine, as the lab can be
worked on by another clone of the repository.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path

# Of the host; the machine has directories of its own.
_NOT_THERE = ("TMPDIR", "TMP")


def main() -> int:
    """Run a command in the machine, and print its output.

    :returns: the command's exit code, or 255 where the connection ended before.
    """
    port, token, *argv = sys.argv[1:]
    env = {name: value for name, value in os.environ.items() if name not in _NOT_THERE}
    wanted = {"token": Path(token).read_text().strip(), "argv": argv, "env": env}
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(json.dumps(wanted).encode() + b"\n")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda got, _: connection.sendall(_name(got)))
        with connection.makefile("rb") as answer:
            while len(head := answer.read(5)) == 5:
                data = answer.read(int.from_bytes(head[1:], "big"))
                if head[:1] == b"x":
                    code = int(data)
                    return code if code >= 0 else 128 - code
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
    print(f"the connection to the machine ended: {argv[0]}", file=sys.stderr)
    return 255


def _name(number: int) -> bytes:
    return signal.Signals(number).name.encode() + b"\n"


if __name__ == "__main__":
    sys.exit(main())
