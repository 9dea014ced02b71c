"""A device plugin that gives out VFs: `python -m tests.lab.machine.pods.device_plugin`.

It runs on the node, until it is killed, and prints a line once the kubelet knows it. What it
speaks is encoded here, after k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1.
"""

import asyncio
import sys
from pathlib import Path

import grpc
import grpc.aio

SERVICE = "/v1beta1.DevicePlugin/"
DIRECTORY = Path("/var/lib/kubelet/device-plugins")  # whatever the kubelet's --root-dir is
SOCKET = "lab-vf.sock"


class Plugin(grpc.GenericRpcHandler):
    """Serves one resource, whose devices never change."""

    def __init__(self, devices):
        self._devices = b"".join(
            field(1, field(1, device) + field(2, "Healthy")) for device in devices
        )

    def service(self, details):
        method = details.method.removeprefix(SERVICE)
        if method == "ListAndWatch":
            return grpc.unary_stream_rpc_method_handler(self._list_and_watch)
        if method == "Allocate":
            return grpc.unary_unary_rpc_method_handler(self._allocate)
        return grpc.unary_unary_rpc_method_handler(self._nothing)

    async def _list_and_watch(self, _request, _context):
        yield self._devices
        await asyncio.Event().wait()

    async def _allocate(self, request, _context):
        return field(1, b"") * containers(request)

    async def _nothing(self, _request, _context):
        return b""


def containers(request):
    """Return how many containers an AllocateRequest is for."""
    count = at = 0
    while at < len(request):
        length, at = varint_at(request, at + 1)
        count, at = count + 1, at + length
    return count


def varint_at(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value, at


def field(number, content):
    """A field of wire type 2."""
    data = content.encode() if isinstance(content, str) else content
    assert len(data) < 0x80
    return bytes([number << 3 | 2, len(data)]) + data


async def main(resource, *devices):
    """Serve the resource."""
    (DIRECTORY / SOCKET).unlink(missing_ok=True)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Plugin(devices),))
    server.add_insecure_port(f"unix://{DIRECTORY}/{SOCKET}")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix://{DIRECTORY}/kubelet.sock") as channel:
        register = channel.unary_unary("/v1beta1.Registration/Register")
        await register(field(1, "v1beta1") + field(2, SOCKET) + field(3, resource), timeout=30)
    print("registered", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
