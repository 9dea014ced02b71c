"""A kubelet as far as its API PodResources goes, which it speaks at a socket.

What it sends is encoded here, after k8s.io/kubelet/pkg/apis/podresources/v1: by nobody's word but
the specification's.
"""

import contextlib

import grpc
import grpc.aio

LIST = "/v1.PodResourcesLister/List"


class Kubelet:
    """Answers with the Pods that the test tells it of."""

    def __init__(self):
        self.pods = []

    def admit(self, namespace, name, devices=(), claims=()):
        """A Pod has devices, as (resource, id), and claims, as (namespace, name)."""
        given = [
            _field(2, _field(1, resource) + _field(2, device_id) + _field(4, b""))
            for resource, device_id in devices
        ]
        claimed = [
            _field(5, _field(1, "class") + _field(2, claim) + _field(3, where))
            for where, claim in claims
        ]
        container = _field(1, "main") + b"".join([*given, *claimed])
        self.pods.append(_field(1, name) + _field(2, namespace) + _field(3, container))

    @contextlib.asynccontextmanager
    async def serving(self, socket):
        """Serve at a socket."""
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((_Handlers(self),))
        server.add_insecure_port(f"unix://{socket}")
        await server.start()
        try:
            yield self
        finally:
            await server.stop(None)


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, kubelet):
        self._kubelet = kubelet

    def service(self, details):
        if details.method != LIST:
            return None

        async def answer(_request, _context):
            return b"".join(_field(1, pod) for pod in self._kubelet.pods)

        return grpc.unary_unary_rpc_method_handler(answer)


def _field(number, content):
    """A field of wire type 2 (protobuf.dev, Encoding)."""
    data = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value):
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
