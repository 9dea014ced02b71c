"""The mark of this cluster, on every object that it makes in the cloud.

``[neutron_defaults] resource_tags`` are chosen by people, and a copied ``kuryr.conf`` gives two
clusters the same ones. The uid of the namespace ``kube-system`` is given once, by the API server,
and nobody gives it again. Whatever bears it is ours; nothing else is changed or deleted.
"""

from collections.abc import Iterable

PREFIX = "kuryr-cluster:"  # followed by the uid: a tag, or a word of a description


class ClusterMark:
    """The mark, which is known as soon as the API server has told the uid.

    :param uid: The uid of the namespace ``kube-system``; empty while it is not known.
    """

    def __init__(self, uid: str = "") -> None:
        self.uid = uid

    @property
    def tag(self) -> str:
        """The tag of our objects."""
        if not self.uid:
            raise RuntimeError("the mark of the cluster is needed before it is known")
        return PREFIX + self.uid

    def is_on(self, words: Iterable[str]) -> bool:
        """Return whether the mark is among the tags of an object."""
        return self.tag in words

    def others_on(self, words: Iterable[str]) -> frozenset[str]:
        """Return the uids of other clusters whose marks are among the tags of an object."""
        return self.others_of(clusters_on(words))

    def others_of(self, clusters: frozenset[str]) -> frozenset[str]:
        """Return the uids of clusters without that of this one."""
        return clusters - {self.uid}


def clusters_on(words: Iterable[str]) -> frozenset[str]:
    """Return the uids of all clusters whose marks are among the tags of an object."""
    return frozenset(word.removeprefix(PREFIX) for word in words if word.startswith(PREFIX))
