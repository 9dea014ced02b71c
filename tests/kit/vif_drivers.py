"""The part of a pod_vif driver that tests of other parts need only to have one."""


class AsksNothingOfNeutron:
    """Has what a pod_vif driver has to have; whoever calls it finds out."""

    async def ensure(self, request):
        raise NotImplementedError

    async def update_security_groups(self, vif, groups):
        raise NotImplementedError

    async def release(self, vif):
        raise NotImplementedError
