"""The part of `bench nested` that runs in the machine, with nothing but the standard library."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Call the plugin as the arguments say; print the seconds of each command as JSON."""
    wanted = json.loads(sys.argv[1])
    conflist = json.loads(Path(wanted["conflist"]).read_text())
    config = {**conflist["plugins"][0], "cniVersion": "1.0.0", "name": conflist["name"]}
    times: dict[str, list[float]] = {"kuryr-cni VERSION": [], "ADD": [], "DEL": []}
    for number in range(wanted["count"] + 1):
        subprocess.run(["ip", "netns", "add", "bench"], check=True)
        try:
            for name in times:
                seconds = _call(wanted, name.rpartition(" ")[2], f"bench{number}", config)
                if number:  # the first one reads files and loads modules
                    times[name].append(seconds)
        finally:
            subprocess.run(["ip", "netns", "del", "bench"], check=True)
    print(json.dumps(times))


def _call(wanted: Any, command: str, container: str, config: Any) -> float:
    environment = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": container,
        "CNI_IFNAME": "eth0",
        "CNI_NETNS": "/run/netns/bench",
        "CNI_PATH": os.path.dirname(wanted["plugin"]),  # noqa: PTH120
        "CNI_ARGS": wanted["args"],
    }
    begin = time.monotonic()
    done = subprocess.run(
        [wanted["plugin"]],
        input=json.dumps(config).encode(),
        env=environment,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command}: {done.stdout.decode()} {done.stderr.decode()}")
    return time.monotonic() - begin


main()
