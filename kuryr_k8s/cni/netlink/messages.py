"""What all families of netlink have in common (netlink(7)): several requests in one message, and
their answers.

A general library takes milliseconds of the interpreter for what takes the kernel microseconds.
"""

import os
import socket
import struct
from collections.abc import Collection, Iterator, Sequence
from types import TracebackType
from typing import Self

# linux/netlink.h
REQUEST, ACK, DUMP, EXCL, CREATE = 0x1, 0x4, 0x300, 0x200, 0x400
ERROR, DONE = 2, 3
NESTED, NETWORK_ORDER = 0x8000, 0x4000
ROOM = 65536  # bytes that are taken at once: twice what the kernel sends


class Request:
    """One request. ``tolerated`` are the kernel's errors that count as success."""

    def __init__(
        self, kind: int, flags: int, body: bytes, tolerated: Collection[int] = ()
    ) -> None:
        self.kind, self.flags, self.body, self.tolerated = kind, flags, body, tolerated

    def encode(self, number: int) -> bytes:
        head = struct.pack("=IHHII", 16 + len(self.body), self.kind, self.flags, number, 0)
        return head + self.body


class Channel:
    """A socket in the network namespace that the thread is in when it is made.

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
        """Have all of them done, in this order; one that fails does not keep those after it.

        :returns: how many did not meet a tolerated error.
        :raises OSError: what the kernel said to the first that failed.
        """
        if not requests:
            return 0
        self._socket.send(b"".join(each.encode(n) for n, each in enumerate(requests, 1)))
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
        """The body of the one answer to a question.

        :raises OSError: there is none.
        """
        self._socket.send(Request(kind, REQUEST, body).encode(1))
        [(answer, _number, said)] = messages(self._socket.recv(ROOM))
        if answer == ERROR:
            raise _refusal(_error(said))
        return said

    def dump(self, kind: int, body: bytes) -> Iterator[bytes]:
        """The bodies of all that the kernel has of a kind; to be read to the end.

        :raises OSError: it does not tell.
        """
        self._socket.send(Request(kind, REQUEST | DUMP, body).encode(1))
        while True:
            for answer, _number, said in messages(self._socket.recv(ROOM)):
                if answer not in (DONE, ERROR):
                    yield said
                elif code := _error(said):
                    raise _refusal(code)
                else:
                    return


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def nested(kind: int, value: bytes) -> bytes:
    return attribute(kind | NESTED, value)


def string(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def unsigned(kind: int, value: int) -> bytes:
    """A number of 32 bits."""
    return attribute(kind, struct.pack("=I", value))


def messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(type, sequence number, body) of each message."""
    at = 0
    while len(data) - at >= 16:
        length, kind, _flags, sequence, _pid = struct.unpack_from("=IHHII", data, at)
        yield kind, sequence, data[at + 16 : at + length]
        at += (length + 3) & ~3


def attributes(data: bytes | Sequence[int]) -> Iterator[tuple[int, bytes]]:
    data = bytes(data)
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        yield kind & ~(NESTED | NETWORK_ORDER), data[4:length]
        data = data[(length + 3) & ~3 :]


def _error(body: bytes) -> int:
    return -int(struct.unpack_from("=i", body)[0])


def _refusal(code: int) -> OSError:
    return OSError(code, os.strerror(code))
