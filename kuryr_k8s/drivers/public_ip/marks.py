"""Marks by which floating IPs of Services and Pods are found again.

Nothing else records their owners.

A floating IP that we create names its owner and the cluster in the description from its first
instant, and then in tags, like everything of the cluster. One that existed before keeps the
description that people gave it, and has the tags only. Those of versions that did not know the
cluster's mark get it when their Services are looked at. Pure.
"""

from dataclasses import dataclass

from kuryr_k8s.cloud.mark import ClusterMark, clusters_on
from kuryr_k8s.cloud.neutron.floating_ips import FloatingIP
from kuryr_k8s.drivers.base import tags as owner_tags
from kuryr_k8s.model.owner import Owner

FOUND_TAG = "kuryr-found"  # the floating IP existed before, and stays
KEEP_TAG = "kuryr-keep"  # the Service asks that it stays: for when nobody can ask the Service
# The Service names its network. Without it, the operator's option did, which may have changed.
NAMED_TAG = "kuryr-named-network"
WISH_TAGS = frozenset({KEEP_TAG, NAMED_TAG})  # what the Service asks for


@dataclass(frozen=True, slots=True)
class Marks:
    """Marks of one cluster.

    :param cluster: ``[neutron_defaults] resource_tags``.
    :param mark: that tells apart clusters with the same tags.
    """

    cluster: tuple[str, ...]
    mark: ClusterMark

    def description_of(self, owner: Owner) -> str:
        """Return the description of a floating IP that we create."""
        return f"{owner_tags.owner_tag(owner)} {self.mark.tag}"

    def descriptions_of(self, owner: Owner) -> tuple[str, ...]:
        """Return the descriptions by which the owner's floating IPs are found."""
        return self.description_of(owner), f"{owner_tags.owner_tag(owner)} {self.cluster[0]}"

    def tags_of(self, namespace: str, owner: Owner) -> tuple[str, ...]:
        """Return all tags of the owner's floating IP that say whose it is."""
        return owner_tags.tags_of((*self.cluster, self.mark.tag), namespace, owner)

    def search_tags(self, owner: Owner) -> tuple[str, ...]:
        """Return the tags by which the owner's floating IPs are found."""
        return (*self.cluster, owner_tags.owner_tag(owner))

    def clusters_of(self, floating_ip: FloatingIP) -> frozenset[str]:
        """Return the uids of the clusters whose marks the floating IP bears."""
        return clusters_on((*floating_ip.tags, *floating_ip.description.split(" ")))

    def owner_of(self, floating_ip: FloatingIP) -> Owner | None:
        """Return the owner that the floating IP names with the tags of this cluster, if any.

        Tags count with all of ours. The description of a version that did not know the mark has
        the first tag alone, which other clusters may have: it counts while no tag names an owner.
        """
        tagged = owner_tags.owner_of(floating_ip.tags)
        if tagged is not None and set(self.cluster) <= set(floating_ip.tags):
            return tagged
        described = self._described_owner(floating_ip)
        marked = self.mark.is_on(floating_ip.description.split(" "))
        return described if marked or tagged is None else None

    def others_tags(self, floating_ip: FloatingIP) -> tuple[str, ...]:
        """Return the tags that people have given the floating IP."""
        ours = (*self.cluster, self.mark.tag, FOUND_TAG, *WISH_TAGS)
        return tuple(
            tag
            for tag in floating_ip.tags
            if tag not in ours and not tag.startswith(owner_tags.PREFIXES)
        )

    def describes(self, floating_ip: FloatingIP) -> bool:
        """Return whether we wrote the description."""
        return self._described_owner(floating_ip) is not None

    def _described_owner(self, floating_ip: FloatingIP) -> Owner | None:
        mark, _, cluster = floating_ip.description.partition(" ")
        known = (self.mark.tag, self.cluster[0])
        return owner_tags.owner_of([mark]) if cluster in known else None


def is_by_default(floating_ip: FloatingIP) -> bool:
    """Return whether the network of an owner's floating IP was the operator's choice.

    One without the owner's tags has not been told to anybody: what it was made for is not known.
    """
    tags = floating_ip.tags
    return NAMED_TAG not in tags and owner_tags.owner_of(tags) is not None


def is_marked(floating_ip: FloatingIP) -> bool:
    """Return whether the floating IP has an owner, in this cluster or another one."""
    return owner_tags.owner_of((*floating_ip.tags, floating_ip.description)) is not None
