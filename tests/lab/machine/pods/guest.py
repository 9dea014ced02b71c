"""The runtime of a secure container on this machine: see tests/lab/quiet/pods/secure_container.py.

It prints the link that it takes over, and runs until it is killed.
"""

import signal
import sys

from tests.lab.quiet.pods.secure_container import links_of, running


def main(netns, name):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    (link,) = links_of(netns)
    with running(netns, name):
        print(link, flush=True)
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
