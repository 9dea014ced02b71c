"""The runtime of a secure container on this machine: see tests/lab/quiet/pods/secure_container.py.

It prints the link that it takes over, and runs until it is killed.
"""

import os
import signal
import stat
import sys
from pathlib import Path

from tests.lab.quiet.pods.secure_container import links_of, running

TUN = Path("/dev/net/tun")  # nobody has made it on the machine; the kernel loads its module


def main(netns, name):
    if not TUN.exists():
        TUN.parent.mkdir(exist_ok=True)
        os.mknod(TUN, stat.S_IFCHR | 0o666, os.makedev(10, 200))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    (link,) = links_of(netns)
    with running(netns, name):
        print(link, flush=True)
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
