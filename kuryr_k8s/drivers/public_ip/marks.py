"""What stands on a floating IP so that it is found again: nothing else records whose it is.

One that we make bears its owner in the description, from its first instant, and then in tags like
everything of the cluster. One that we find keeps the description that people gave it, and has the
tags alone. Nothing here does I/O.
"""

from dataclasses import dataclass

from kuryr_k8s.cloud.neutron.floating_ips import FloatingIP
from kuryr_k8s.drivers.lbaas import tags as lb_tags
from kuryr_k8s.drivers.lbaas.tags import NAMESPACE_TAG, SERVICE_TAG

FOUND_TAG = "kuryr-found"  # it was there before us, and stays after us
CLUSTER_LIMIT = 150  # characters: with it, a description fits into Neutron's 255


@dataclass(frozen=True, slots=True)
class Marks:
    """Those of one cluster.

    :param cluster: ``[neutron_defaults] resource_tags``.
    """

    cluster: tuple[str, ...]

    def description_of(self, owner: str) -> str:
        return f"{SERVICE_TAG}{owner} {self.cluster[0]}"

    def tags_of(self, namespace: str, owner: str) -> tuple[str, ...]:
        return lb_tags.tags_of(self.cluster, namespace, owner)

    def search_for(self, owner: str) -> tuple[str, ...]:
        """The tags by which the owner's are found."""
        return (*self.cluster, f"{SERVICE_TAG}{owner}")

    def owner_of(self, one: FloatingIP) -> str:
        """Whose it is in this cluster; empty: nobody's."""
        if set(self.cluster) <= set(one.tags) and (owner := lb_tags.owner_of(one.tags)):
            return owner
        return self._described(one)

    def others_of(self, one: FloatingIP) -> tuple[str, ...]:
        """The tags that people have given it."""
        ours = (*self.cluster, FOUND_TAG)
        prefixes = (SERVICE_TAG, NAMESPACE_TAG)
        return tuple(tag for tag in one.tags if tag not in ours and not tag.startswith(prefixes))

    def describes(self, one: FloatingIP) -> bool:
        """Whether the description is of our making."""
        return bool(self._described(one))

    def _described(self, one: FloatingIP) -> str:
        mark, _, cluster = one.description.partition(" ")
        return lb_tags.owner_of([mark]) if cluster == self.cluster[0] else ""


def is_any_clusters(one: FloatingIP) -> bool:
    """Whether it is a Service's, of this cluster or of another one."""
    return bool(lb_tags.owner_of((*one.tags, one.description)))
