"""The kubelet's word on which devices a Pod has: its gRPC API PodResources, version 1.

See k8s.io/kubelet/pkg/apis/podresources/v1. The answer names Pods by namespace and name, without a
uid: ask while the runtime sets the Pod up. By then the kubelet has admitted it and given it its
devices, and of an earlier Pod of that name nothing is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from kuryr_k8s import errors
from kuryr_k8s.k8s.resources import Key

LIST = "/v1.PodResourcesLister/List"
LARGEST = 16 * 1024 * 1024  # bytes of an answer; gRPC's own limit is too low for large nodes
PATIENCE = 10.0  # seconds for an answer
_FIELD = descriptor_pb2.FieldDescriptorProto
# Those fields of each message that are read: name, number, and the message that it repeats;
# None: text.
_MESSAGES: dict[str, Sequence[tuple[str, int, str | None, bool]]] = {
    "ListPodResourcesRequest": (),
    "ListPodResourcesResponse": (("pod_resources", 1, "PodResources", True),),
    "PodResources": (
        ("name", 1, None, False),
        ("namespace", 2, None, False),
        ("containers", 3, "ContainerResources", True),
    ),
    "ContainerResources": (
        ("devices", 2, "ContainerDevices", True),
        ("dynamic_resources", 5, "DynamicResource", True),
    ),
    "ContainerDevices": (("resource_name", 1, None, False), ("device_ids", 2, None, True)),
    "DynamicResource": (("claim_name", 2, None, False), ("claim_namespace", 3, None, False)),
}


class KubeletSilent(errors.KuryrError):
    """The kubelet does not answer at its socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDevices:
    """The devices of a Pod.

    :param of_plugins: (resource, id of the device).
    :param claims: the ResourceClaims that gave it devices.
    """

    of_plugins: tuple[tuple[str, str], ...]
    claims: tuple[Key, ...]


class PodResources:
    """The kubelet's socket.

    :param socket: its path.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        classes = _classes()
        self._request = classes["ListPodResourcesRequest"]
        self._response = classes["ListPodResourcesResponse"]

    async def of(self, pod: Key) -> list[PodDevices]:
        """Return the devices of all Pods that the kubelet knows under this name.

        :raises KubeletSilent: it does not answer.
        """
        options = [("grpc.max_receive_message_length", LARGEST)]
        async with grpc.aio.insecure_channel(f"unix://{self._socket}", options=options) as channel:
            call = channel.unary_unary(
                LIST,
                request_serializer=self._request.SerializeToString,
                response_deserializer=self._response.FromString,
            )
            try:
                answer = await call(self._request(), timeout=PATIENCE)
            except grpc.aio.AioRpcError as error:
                raise KubeletSilent(
                    f"the kubelet at {self._socket}: {error.code().name}: {error.details()}"
                ) from error
        return [
            _devices(found)
            for found in answer.pod_resources
            if (found.namespace, found.name) == pod
        ]


def _devices(found: Any) -> PodDevices:
    given = [
        (devices.resource_name, device_id)
        for container in found.containers
        for devices in container.devices
        for device_id in devices.device_ids
    ]
    claims = [
        Key(claim.claim_namespace, claim.claim_name)
        for container in found.containers
        for claim in container.dynamic_resources
    ]
    # containers that follow each other may share a device
    return PodDevices(of_plugins=tuple(sorted(set(given))), claims=tuple(sorted(set(claims))))


def _classes() -> dict[str, Any]:
    """Return the classes of the API's messages."""
    file = descriptor_pb2.FileDescriptorProto(
        name="kuryr_k8s/podresources.proto", package="v1", syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, inner, repeats in fields:
            message.field.add(
                name=field,
                number=number,
                label=_FIELD.LABEL_REPEATED if repeats else _FIELD.LABEL_OPTIONAL,
                type=_FIELD.TYPE_MESSAGE if inner else _FIELD.TYPE_STRING,
                type_name=f".v1.{inner}" if inner else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1.{name}"))
        for name in _MESSAGES
    }
