"""What the programs on the lab tell Prometheus."""

from prometheus_client.parser import text_string_to_metric_families

from lab.kuryr.installation import DAEMON_HEALTH, HEALTH
from lab.process import run


def of_controller():
    """Return the metrics of the first controller, as `Metrics`."""
    return Metrics(None, HEALTH)


def of_daemon(node):
    """Return the metrics of a node's daemon, as `Metrics`."""
    return Metrics(node.netns, DAEMON_HEALTH)


class Metrics:
    """The metrics that a program serves at a moment."""

    def __init__(self, netns, port):
        text = run(["curl", "-fsS", f"http://127.0.0.1:{port}/metrics"], netns=netns)
        families = text_string_to_metric_families(text)
        self._samples = [sample for family in families for sample in family.samples]

    def value(self, name, **labels):
        """Return the value of the sample with that name and these labels.

        :raises KeyError: there is none.
        """
        for sample in self._samples:
            if (sample.name, sample.labels) == (name, labels):
                return sample.value
        raise KeyError(name, labels)
