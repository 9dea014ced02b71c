"""The fake cloud outside of the machine, whose power it does not share."""

import asyncio
import threading

from tests.kit.fakes.cloud import FakeCloud
from tests.lab.machine.boot import master


class CloudOutside:
    """Runs in a thread, since commands in the machine block; with one network for Pods."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._cloud = FakeCloud(hosts=[master.NAME])

    def __enter__(self):
        self._thread.start()
        self._run(self._cloud.__aenter__())
        cloud = self._cloud
        port = cloud.url.rpartition(":")[2]
        outside = f"http://{master.CLOUD}:{port}"
        cloud.keystone.endpoints |= {
            name: url.replace(cloud.url, outside) for name, url in cloud.keystone.endpoints.items()
        }
        cloud.url = cloud.keystone.url = outside
        cloud.pods = cloud.add_network("pods", "10.77.0.0/16")
        cloud.group = cloud.add_security_group("pods")
        return cloud

    def __exit__(self, *error):
        self._run(self._cloud.__aexit__(*error))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)
