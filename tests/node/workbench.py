"""A node's network without Kubernetes: Open vSwitch's database, namespaces, and the daemon."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from ovsdbapp.backend.ovs_idl import command

from kuryr_k8s import config
from kuryr_k8s.cni.bindings.base import Attachment, BindingContext, Bindings
from kuryr_k8s.cni.bindings.ovs import OpenVSwitchBinding
from kuryr_k8s.cni.dispatcher import Dispatcher
from kuryr_k8s.cni.netlink import Links
from kuryr_k8s.cni.ovs.database import SCHEMA, Ovsdb
from kuryr_k8s.cni.ovs.switch import OpenVSwitch
from kuryr_k8s.cni.patience import USUAL, Patience
from kuryr_k8s.cni.pods.acknowledgements import Acknowledgements
from kuryr_k8s.cni.pods.adds import Adds
from kuryr_k8s.cni.pods.attachments import Attachments
from kuryr_k8s.cni.pods.healing import Healing
from kuryr_k8s.cni.pods.housekeeping import Housekeeping
from kuryr_k8s.cni.pods.kuryrports import KuryrPorts
from kuryr_k8s.cni.pods.outages import Outages
from kuryr_k8s.cni.server import Server
from kuryr_k8s.cni.spool import Spool
from kuryr_k8s.k8s.events import EventRecorder
from kuryr_k8s.k8s.resources import Key
from tests.kit.cni_program import kuryr_cni
from tests.kit.node.fakes import Api, Cache, PoolApi, PoolCache
from tests.node.vswitchd import VSwitchd

NODE = Key("", "node1")
PATIENCE = 240.0  # seconds: for a machine with much else to do


# Nobody whom this machine lets wait for a processor is taken for one who does not answer; and
# looks at what no event reports come too late to hide that an event was missed. The pace of writes
# is not what is tested here.
PATIENT = Patience(
    exchange=PATIENCE,
    delete=PATIENCE,
    transaction=PATIENCE,
    openflow=PATIENCE,
    nft=PATIENCE,
    look_again=600.0,
    status_interval=0.02,
)


class Database:
    """A private ovsdb-server with one bridge, and no ovs-vswitchd."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.socket = directory / "db.sock"
        schema = json.loads(json.dumps(SCHEMA))
        schema["tables"]["Interface"]["indexes"] = [["name"]]
        schema["tables"]["Bridge"]["isRoot"] = True
        (directory / "schema").write_text(json.dumps(schema))
        self._call("ovsdb-tool", "create", directory / "conf.db", directory / "schema")
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            [
                *("ovsdb-server", self.directory / "conf.db", f"--remote=punix:{self.socket}"),
                *("-vconsole:off", "-vsyslog:off", "-vfile:off"),
                f"--unixctl={self.directory}/ctl",
            ],
            env=os.environ | {"OVS_RUNDIR": str(self.directory)},
        )
        end = time.monotonic() + PATIENCE
        while not self._listens():  # the file is there before that
            assert self.process.poll() is None, "ovsdb-server has ended"
            assert time.monotonic() < end, "ovsdb-server did not start"
            time.sleep(0.02)

    def _listens(self):
        with socket.socket(socket.AF_UNIX) as channel:
            try:
                channel.connect(str(self.socket))
            except OSError:
                return False
        return True

    @contextlib.contextmanager
    def elsewhere(self):
        """The same database at another socket, where only those come who know of it."""
        usual, self.socket = self.socket, self.directory / "other.sock"
        self.start()
        try:
            yield f"unix:{self.socket}"
        finally:
            self.stop()
            self.socket = usual

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.socket.unlink(missing_ok=True)

    def fill(self):
        rows = [
            {
                "op": "insert",
                "table": "Open_vSwitch",
                "row": {"external_ids": ["map", [["hostname", "chassis1"]]]},
            },
            {
                "op": "insert",
                "table": "Bridge",
                "row": {"name": "br-int", "datapath_type": "netdev"},
            },
        ]
        transaction = json.dumps(["Open_vSwitch", *rows])
        self._call("ovsdb-client", "transact", f"unix:{self.socket}", transaction)

    def _call(self, *command):
        subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL)


class Mark(command.BaseCommand):
    """What ovn-controller writes to these interfaces, and ovs-vswitchd when it has caught up."""

    def __init__(self, api, rows):
        super().__init__(api)
        self.rows = rows

    def run_idl(self, txn):
        [bridge] = self.api.idl.tables["Bridge"].rows.values()
        for row in self.api.idl.tables["Interface"].rows.values():
            if str(row.uuid) in self.rows:
                row.setkey("external_ids", "ovn-installed", "true")
                bridge.setkey("external_ids", f"ct-zone-{row.external_ids['iface-id']}", "7")
        for row in self.api.idl.tables["Open_vSwitch"].rows.values():
            row.cur_cfg = row.next_cfg


class Controller:
    """Stands for ovn-controller and ovs-vswitchd: marks ports as installed after a while."""

    def __init__(self, remote, delay=0.02):
        self.delay = delay
        self.seen = asyncio.Queue()
        self.enabled = True
        self._database = Ovsdb(remote, self._changed, self._reached, PATIENT)

    def _reached(self, rows):
        self._changed(rows or [])

    def _changed(self, changes):
        for change in changes:
            ids = (change.values or {}).get("external_ids", {})
            if change.table == "Interface" and "iface-id" in ids and "ovn-installed" not in ids:
                self.seen.put_nowait(change.row)
            if change.values is None:
                self.seen.put_nowait("")

    async def mark(self):
        """Mark all ports that are there; for those that came while this was not enabled."""
        rows = {str(row) for row in self._database.idl.tables["Interface"].rows}
        await self._database.commit(Mark(self._database, rows))

    async def run(self):
        async with asyncio.TaskGroup() as group:
            group.create_task(self._database.run())
            while True:
                rows = {await self.seen.get()}
                await asyncio.sleep(self.delay)
                while not self.seen.empty():
                    rows.add(self.seen.get_nowait())
                if self.enabled:
                    await self._database.commit(Mark(self._database, rows))


def read_conf(directory):
    """The options of a daemon that keeps its records in this directory."""
    conf = config.load([], "test")
    conf.set_override("state_dir", str(directory / "vlan"), group="binding")
    return conf


class Caches:
    """Stands for the caches of a daemon: the Node's KuryrPortPool alone is asked for."""

    def __init__(self, pool):
        self._pool = pool

    def follow(self, _resource, _selectors):
        return self._pool


class Node:
    """The daemon in this process, on a socket; :meth:`cni` runs the real plugin.

    :param others: further classes of bindings, by the class of VIFs.
    :param pods: the KuryrPorts that the cache has at the start.
    """

    def __init__(
        self,
        directory: Path,
        remote: str,
        add_timeout=200.0,
        links=None,
        sweep=600.0,
        others=None,
        pods=(),
        patience=PATIENT,
    ):
        self.socket = directory / "cni.sock"
        self.spool = directory / "spool"
        self.cache = Cache()
        for pod in pods:
            self.cache.put(pod)
        self.api = Api(self.cache)
        self.switch = OpenVSwitch(remote, PATIENT)
        self.links = links or Links()
        self.pool = PoolCache()
        self.pool_api = PoolApi(self.pool)
        self.vswitchd = VSwitchd(directory)
        adds, settled = Adds(), asyncio.Event()
        context = BindingContext(
            conf=read_conf(directory),
            node=NODE,
            api=self.pool_api,
            caches=Caches(self.pool),
            links=self.links,
            switch=self.switch,
            adds=adds,
            settled=settled,
            patience=patience,
        )
        self.binding = OpenVSwitchBinding(context)
        bindings = {name: kind(context) for name, kind in (others or {}).items()}
        self.parked, self.parking = self.binding.parked_ports, self.binding.parking
        usable = Bindings({"VIFOpenVSwitch": self.binding} | bindings)
        kuryrports = KuryrPorts(self.cache, self.api)
        self.attachments = Attachments(
            usable,
            kuryrports,
            adds=adds,
            settled=settled,
            add_timeout=add_timeout,
        )
        self.healing = Healing(
            NODE,
            usable,
            self.attachments,
            kuryrports,
            self.links.events,
            Outages(NODE, EventRecorder(self.api, "test", "node1"), PATIENT),
        )
        self.acknowledgements = Acknowledgements(self.cache, self.api, self.attachments, PATIENT)
        spool = Spool(self.spool)
        self.dispatcher = Dispatcher(self.attachments, spool, patience)
        self.housekeeping = Housekeeping(
            self.attachments,
            spool,
            self.dispatcher.handle,
            synced=self.cache.synced,
            interval=sweep,
        )
        self._stop = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self):
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self.switch.run()),
                group.create_task(self.housekeeping.run()),
                group.create_task(self.parking.run()),
                group.create_task(self.vswitchd.run()),
                *(
                    group.create_task(loop.run())
                    for part in (self.healing, self.acknowledgements)
                    for loop in part.loops()
                ),
            ]
            serving = Server(self.socket, self.dispatcher.handle, patience=PATIENT)
            server = group.create_task(serving.run(self._stop))
            async with asyncio.timeout(PATIENCE):
                await self.attachments.settled.wait()
                await eventually(self.socket.exists)
            try:
                yield self
            finally:
                self._stop.set()
                await asyncio.wait([server])
                for task in tasks:
                    task.cancel()
        self.links.close()

    async def cni(self, command, container="c1", **options):
        return await cni(self.socket, self.spool, command, container, **options)


async def cni(
    socket,
    spool,
    command,
    container="c1",
    *,
    pod="web",
    uid="u1",
    ifname="eth0",
    netns="",
    version="1.0.0",
    config=None,
):
    """Run kuryr-cni: (exit code, what it printed as JSON or None)."""
    environ = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": container,
        "CNI_IFNAME": ifname,
        "CNI_PATH": "/opt/cni/bin",
        "CNI_ARGS": f"K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod};K8S_POD_UID={uid}",
    }
    if netns:
        environ["CNI_NETNS"] = netns
    text = {"cniVersion": version, "name": "kuryr", "type": "kuryr-cni"} | (config or {})
    text |= {"kuryr_socket": str(socket), "kuryr_spool": str(spool)}
    process = await asyncio.create_subprocess_exec(
        kuryr_cni(),
        env=environ,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate(json.dumps(text).encode())
    return process.returncode, json.loads(out) if out else None


def bare_context(conf, links, *, caches=None, patience=USUAL):
    """What bindings get that need neither Open vSwitch nor the API server."""
    return BindingContext(
        conf=conf,
        node=NODE,
        api=None,
        caches=caches,
        links=links,
        switch=None,
        adds=(),
        settled=asyncio.Event(),
        patience=patience,
    )


def attachment(netns, container="c1", uid="u1", *, ifname="eth0"):
    """An interface of the Pod default/web; eth0 is the default one."""
    return Attachment(
        container_id=container,
        ifname=ifname,
        request_ifname="eth0",
        netns=f"/run/netns/{netns}",
        pod_uid=uid,
        namespace="default",
        pod="web",
    )


async def eventually(condition, seconds=PATIENCE):
    """Wait until it holds: for what nothing announces."""
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


def shell(command):
    """Run a command; what it printed."""
    return subprocess.run(command.split(), check=True, capture_output=True, text=True).stdout


def ip(*words, netns=""):
    """``ip`` with JSON output."""
    inside = ["-n", netns] if netns else []
    done = subprocess.run(["ip", *inside, "-j", *words], check=True, capture_output=True)
    return json.loads(done.stdout or b"[]")


def available():
    return os.geteuid() == 0 and all(map(shutil.which, ("ovsdb-server", "ovsdb-tool", "ip")))


@contextlib.asynccontextmanager
async def a_node(tmp_path, remote, *, delay=0.02, **options):
    async with asyncio.TaskGroup() as group:
        controller = Controller(remote, delay)
        task = group.create_task(controller.run())
        try:
            async with Node(tmp_path, remote, **options).running() as node:
                node.controller = controller
                yield node
        finally:
            task.cancel()


def path(name):
    return f"/run/netns/{name}"


def frames(sniffer):
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(sniffer.recv(2000))
    return found
