"""A driver of dynamic resource allocation, for one VF.

`python -m tests.lab.machine.pods.dra_driver` runs on the node, until it is killed, and prints a
line once the kubelet knows it. What it speaks is encoded here, after
k8s.io/kubelet/pkg/apis/pluginregistration/v1 and dra/v1. Its ResourceSlice is the test's.
"""

import asyncio
import sys
from pathlib import Path

import grpc
import grpc.aio

from tests.lab.machine.pods.device_plugin import field, varint_at

DRIVER, DEVICE, REQUEST = "dra.lab.local", "vf", "one"
REGISTRATION = "/pluginregistration.Registration/"
DRA = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"


class Driver(grpc.GenericRpcHandler):
    """Gives its device to whatever claim it is."""

    def __init__(self, pool, endpoint):
        self._pool, self._endpoint = pool, endpoint
        self.registered = asyncio.Event()

    def service(self, details):
        answers = {
            f"{REGISTRATION}GetInfo": self._info,
            f"{REGISTRATION}NotifyRegistrationStatus": self._notified,
            f"{DRA}NodePrepareResources": self._prepare,
            f"{DRA}NodeUnprepareResources": self._unprepare,
        }
        return grpc.unary_unary_rpc_method_handler(answers[details.method])

    async def _info(self, _request, _context):
        return (
            field(1, "DRAPlugin")
            + field(2, DRIVER)
            + field(3, str(self._endpoint))
            + field(4, "v1.DRAPlugin")
        )

    async def _notified(self, _request, _context):
        self.registered.set()
        return b""

    async def _prepare(self, request, _context):
        device = field(1, REQUEST) + field(2, self._pool) + field(3, DEVICE)
        return for_each(request, field(1, device))

    async def _unprepare(self, request, _context):
        return for_each(request, b"")


def for_each(request, answer):
    """Return a map with this answer for the uid of each claim."""
    return b"".join(field(1, field(1, uid) + field(2, answer)) for uid in uids(request))


def uids(request):
    """Return the uids of the claims in a request."""
    return [dict(fields(claim))[2] for _number, claim in fields(request)]


def fields(message):
    """Yield (number, content) of the fields of a message, all of wire type 2."""
    at = 0
    while at < len(message):
        number = message[at] >> 3
        length, at = varint_at(message, at + 1)
        yield number, message[at : at + length]
        at += length


async def main(kubelet_root, pool):
    """Serve below the directory of a kubelet."""
    endpoint = Path(kubelet_root) / "plugins" / "lab-dra.sock"
    registration = Path(kubelet_root) / "plugins_registry" / "lab-dra.sock"
    driver = Driver(pool, endpoint)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((driver,))
    for socket in (endpoint, registration):
        socket.unlink(missing_ok=True)
        server.add_insecure_port(f"unix://{socket}")
    await server.start()
    await driver.registered.wait()
    print("registered", flush=True)
    try:
        await server.wait_for_termination()
    finally:
        registration.unlink(missing_ok=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
