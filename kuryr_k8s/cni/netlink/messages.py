"""Messages of netlink (netlink(7)), common to all its families: several requests at once.

A general library spends milliseconds of the interpreter on what takes the kernel microseconds.
"""

import contextlib
import os
import socket
import struct
from collections.abc import Collection, Iterator, Sequence
from types import TracebackType
from typing import Self

# linux/netlink.h
REQUEST, ACK, DUMP, EXCL, CREATE = 0x1, 0x4, 0x300, 0x200, 0x400
ERROR, DONE = 2, 3
SOL_NETLINK, STRICT_CHECK = 270, 12
NESTED, NETWORK_ORDER = 0x8000, 0x4000
ROOM = 65536  # bytes for one answer: twice what the kernel sends


class Request:
    """One request.

    :param tolerated: the kernel's errors that count as success.
    """

    def __init__(
        self, kind: int, flags: int, body: bytes, tolerated: Collection[int] = ()
    ) -> None:
        self.kind, self.flags, self.body, self.tolerated = kind, flags, body, tolerated

    def encode(self, number: int) -> bytes:
        """Return the request as the kernel reads it, with its number in the message."""
        head = struct.pack("=IHHII", 16 + len(self.body), self.kind, self.flags, number, 0)
        return head + self.body


class Channel:
    """A socket in the network namespace of the thread that makes it.

    :param family: of netlink, such as ``socket.NETLINK_ROUTE``.
    """

    def __init__(self, family: int) -> None:
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, family)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def do(self, *requests: Request) -> int:
        """Do all requests, in this order; one that fails does not stop those after it.

        :returns: how many met no error, not even a tolerated one.
        :raises OSError: the kernel's answer to the first one that failed.
        """
        if not requests:
            return 0
        self._socket.send(b"".join(request.encode(n) for n, request in enumerate(requests, 1)))
        failed: dict[int, int] = {}
        answers, done = 0, 0
        while answers < len(requests):
            for kind, number, body in messages(self._socket.recv(ROOM)):
                if kind == ERROR:
                    answers += 1
                    code = _error(body)
                    done += not code
                    if code and code not in requests[number - 1].tolerated:
                        failed[number] = code
        if failed:
            raise _refusal(failed[min(failed)])
        return done

    def ask(self, kind: int, body: bytes) -> bytes:
        """Ask a question that has one answer.

        :returns: the body of the answer.
        :raises OSError: the kernel refused.
        """
        self._socket.send(Request(kind, REQUEST, body).encode(1))
        [(answer, _number, reply)] = messages(self._socket.recv(ROOM))
        if answer == ERROR:
            raise _refusal(_error(reply))
        return reply

    def choose(self) -> None:
        """Have the kernel list only objects that match the header of :meth:`dump`, if it can."""
        with contextlib.suppress(OSError):  # Linux before 4.20
            self._socket.setsockopt(SOL_NETLINK, STRICT_CHECK, 1)

    def dump(self, kind: int, body: bytes) -> Iterator[bytes]:
        """List all objects of a kind; the caller must read to the end.

        :returns: the body of each.
        :raises OSError: the kernel refused.
        """
        self._socket.send(Request(kind, REQUEST | DUMP, body).encode(1))
        while True:
            for answer, _number, reply in messages(self._socket.recv(ROOM)):
                if answer not in (DONE, ERROR):
                    yield reply
                elif code := _error(reply):
                    raise _refusal(code)
                else:
                    return


def attribute(kind: int, value: bytes) -> bytes:
    """Encode an attribute."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def nested(kind: int, value: bytes) -> bytes:
    """Encode an attribute whose value consists of attributes."""
    return attribute(kind | NESTED, value)


def string(kind: int, value: str) -> bytes:
    """Encode an attribute that is a text."""
    return attribute(kind, value.encode() + b"\0")


def unsigned(kind: int, value: int) -> bytes:
    """Encode an attribute that is a number of 32 bits."""
    return attribute(kind, struct.pack("=I", value))


def messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Generate (type, sequence number, body) of each message."""
    at = 0
    while len(data) - at >= 16:
        length, kind, _flags, sequence, _pid = struct.unpack_from("=IHHII", data, at)
        yield kind, sequence, data[at + 16 : at + length]
        at += (length + 3) & ~3


def attributes(data: bytes | Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Generate (kind, value) of each attribute."""
    data = bytes(data)
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        yield kind & ~(NESTED | NETWORK_ORDER), data[4:length]
        data = data[(length + 3) & ~3 :]


def _error(body: bytes) -> int:
    return -int(struct.unpack_from("=i", body)[0])


def _refusal(code: int) -> OSError:
    return OSError(code, os.strerror(code))
