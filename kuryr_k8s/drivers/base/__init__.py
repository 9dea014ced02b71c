"""The contracts of drivers: one abstract class for each slot.

A third party subclasses one of these and ships it as a package with an entry point in
``kuryr_k8s.controller.drivers.<slot>``; an option in ``kuryr.conf`` names it. A driver is made
once, is handed all that it may use, and keeps no state outside itself. Methods are idempotent:
they are called again after any failure, and after a restart.
"""

from kuryr_k8s.drivers.base.driver import (
    Driver,
    DriverContext,
    Drivers,
    SlotLookup,
)
from kuryr_k8s.drivers.base.load_balancers import (
    LBaaSDriver,
    NobodyConnects,
    OthersAtWork,
    PortTaken,
    StillShared,
)
from kuryr_k8s.drivers.base.pods import (
    DEVICE_OWNER,
    NAME_LIMIT,
    POOL_TAG,
    PORT_FIELDS,
    BindingFailed,
    InterfaceRequest,
    MultiVIFDriver,
    NodeNotReady,
    PodNetwork,
    PodProjectDriver,
    PodSecurityGroupsDriver,
    PodSubnetsDriver,
    PodVIFDriver,
    PortRequest,
    maker_of,
    releaser_of,
)
from kuryr_k8s.drivers.base.pools import (
    AVAILABLE,
    LEAVING,
    Holder,
    KeepsPorts,
    ParkablePort,
    PooledPort,
    PooledVIFDriver,
    PoolKey,
    PoolNumbers,
    PoolView,
    Records,
    VIFPoolDriver,
    keepers,
)
from kuryr_k8s.drivers.base.services import (
    Owned,
    PublicIPRequest,
    ServiceProjectDriver,
    ServicePublicIPDriver,
    ServiceSecurityGroupsDriver,
    ServiceSubnetsDriver,
)

__all__ = [
    "AVAILABLE",
    "DEVICE_OWNER",
    "LEAVING",
    "NAME_LIMIT",
    "POOL_TAG",
    "PORT_FIELDS",
    "BindingFailed",
    "Driver",
    "DriverContext",
    "Drivers",
    "Holder",
    "InterfaceRequest",
    "KeepsPorts",
    "LBaaSDriver",
    "MultiVIFDriver",
    "NobodyConnects",
    "NodeNotReady",
    "OthersAtWork",
    "Owned",
    "ParkablePort",
    "PodNetwork",
    "PodProjectDriver",
    "PodSecurityGroupsDriver",
    "PodSubnetsDriver",
    "PodVIFDriver",
    "PoolKey",
    "PoolNumbers",
    "PoolView",
    "PooledPort",
    "PooledVIFDriver",
    "PortRequest",
    "PortTaken",
    "PublicIPRequest",
    "Records",
    "ServiceProjectDriver",
    "ServicePublicIPDriver",
    "ServiceSecurityGroupsDriver",
    "ServiceSubnetsDriver",
    "SlotLookup",
    "StillShared",
    "VIFPoolDriver",
    "keepers",
    "maker_of",
    "releaser_of",
]
