"""ADD and DEL on the lab's OVN, also with parked ports, beside ptp, bridge, bare starts, OVN."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.node import prepared_pods
from bench.node.ovsdb import Switch
from bench.node.parallel_processes import Program, Run, at_once
from bench.report import Report, Table, Target, percentile
from lab import facts
from lab.kuryr.installation import CONTROLLER, Installation, daemon
from lab.lifecycle.lab import Lab
from lab.ovn import daemons as ovn
from lab.paths import Paths
from lab.process import run
from lab.progress import Progress

NODE = "node1"
PREFIX = "kuryr-bench"
BRIDGE = "kuryr-bench0"
# Ranges that the lab does not use. One family and no masquerading: the least work for them.
RANGES = {"ptp": "10.250.0.0/22", "bridge": "10.251.0.0/22"}
OURS, PARKED = "kuryr-cni", "kuryr-cni, parked:"
PLUGINS = (OURS, PARKED, "bridge", "ptp")
ALONE_LIMITS = {OURS: 100.0, PARKED: 50.0}  # ms
STARTS = ("kuryr-cni VERSION", "python3 -ISE -c pass")
OVN = "OVN: row to ovn-installed"
# The parts of an ADD of ours, as seen in Open vSwitch's database.
SPANS = ("start to row in OVS", "row to ovn-installed", "ovn-installed to exit")
CPU = "daemon's CPU, ADD and DEL"
CPU_PARKED = "daemon's CPU, parked"  # mean of a round; the kernel counts in steps of 10 ms
CPUS = {OURS: CPU, PARKED: CPU_PARKED}
Series = dict[str, list[float]]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument(
        "--alone", type=int, default=50, help="runs of each, one after another (50)"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="rounds of parallel runs of each (5)"
    )
    parser.add_argument("--parallel", type=int, default=20, help="runs in a round (20)")


def measure(options: argparse.Namespace) -> Report:
    """Measure all plugins in turns, so that a disturbance meets all; return the report."""
    progress = Progress(quiet=True)
    Lab(progress=progress).up()
    installation = Installation(progress=progress)
    installation.up()
    process = installation.supervisor.records()[daemon(NODE)].process
    assert process is not None
    bench = Bench(installation.lab, installation.lab.nodes[NODE], process.pid)
    count = max(options.alone, options.rounds * options.parallel)
    with ExitStack() as stack:
        installation.supervisor.stop(CONTROLLER)
        stack.callback(installation.supervisor.start, CONTROLLER)
        parked = options.parallel
        pods = stack.enter_context(prepared_pods.pods(bench.lab, bench.node, count, parked))
        stack.enter_context(bench.node_prepared(options.parallel))
        bench.pods = itertools.cycle(pods[:count])
        bench.parked = itertools.cycle(pods[count:])
        bench.round(1)  # the bridge is made, files are in memory
        bench.take_results()
        for _ in range(options.alone):
            bench.round(1)
        alone = bench.take_results()
        for _ in range(options.rounds):
            bench.round(options.parallel)
        return report(alone, bench.take_results(), options.parallel)


class Results:
    """The measured times in milliseconds, and the failures, by name."""

    def __init__(self) -> None:
        self.times: Series = defaultdict(list)
        self.failures: dict[str, list[str]] = defaultdict(list)

    def add(self, name: str, runs: Sequence[Run], good: Callable[[Run], bool]) -> None:
        """Add the times of runs that are good, and the outputs of the others."""
        for run_ in runs:
            if run_.code == 0 and good(run_):
                self.times[name].append(run_.seconds * 1000)
            else:
                output = run_.output.decode(errors="replace").strip()
                self.failures[name].append(f"exit code {run_.code}: {output}")


class Bench:
    """The benchmark on one node; interfaces of Pods are made in namespaces of its own."""

    pods: Iterator[prepared_pods.Pod]
    parked: Iterator[prepared_pods.Pod]  # those whose ports are

    def __init__(self, lab: facts.Lab, node: facts.Node, daemon_pid: int) -> None:
        self.lab, self.node = lab, node
        self._daemon_pid = daemon_pid
        self.results = Results()
        self._configs = {name: json.dumps(_config(name, node)).encode() for name in PLUGINS}
        self._nb = f"unix:{ovn.run_dir(Paths.from_environment())}/ovn-nb.sock"

    def take_results(self) -> Results:
        """Return the results until now, and begin with none."""
        results, self.results = self.results, Results()
        return results

    @contextmanager
    def node_prepared(self, count: int) -> Iterator[None]:
        """Make namespaces, and devices to measure OVN alone with; remove them at the end."""
        self._clean()
        for i in range(count):
            run(["ip", "netns", "add", f"{PREFIX}-{i}"])
            run(["ip", "link", "add", _device(i), "type", "veth", "peer", f"{_device(i)}p"])
            run(["ip", "link", "set", _device(i), "up"])
        self.switch = Switch(self.node.ovs_socket)
        try:
            yield
        finally:
            self.switch.close()
            self._clean()

    def round(self, count: int) -> None:
        """Measure everything once, with so many processes at the same time."""
        for name in PLUGINS:
            source = self.parked if name == PARKED else self.pods
            pods = [next(source) for _ in range(count)]
            before = self._daemon_cpu()
            self._plugin(name, pods)
            if name in CPUS:
                self.results.times[CPUS[name]].append((self._daemon_cpu() - before) / count)
        self._starts(count)
        self._ovn([next(self.pods) for _ in range(count)])

    def _plugin(self, name: str, pods: Sequence[prepared_pods.Pod]) -> None:
        ours = name == OURS
        adds = at_once([self._request(name, "ADD", i, pod) for i, pod in enumerate(pods)],
                       self.switch if ours else None)  # fmt: skip
        self.results.add(f"{name} ADD", adds, _has_address)
        if ours:
            for pod, add in zip(pods, adds, strict=True):
                self._add_spans(pod.vif.vif_name, add)
        dels = at_once([self._request(name, "DEL", i, pod) for i, pod in enumerate(pods)])
        self.results.add(f"{name} DEL", dels, lambda _: True)
        if name in CPUS:
            self._settle()

    def _add_spans(self, device: str, add: Run) -> None:
        if add.code:
            return
        interface = self.switch.pop_times(device)
        times = (add.begin, interface.row, min(interface.installed, add.end), add.end)
        for name, (begin, end) in zip(SPANS, itertools.pairwise(times), strict=True):
            self.results.times[name].append((end - begin) * 1000)

    def _daemon_cpu(self) -> float:
        """Return the milliseconds of processor time that the daemon has used."""
        stat = Path(f"/proc/{self._daemon_pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) * 1000 / os.sysconf("SC_CLK_TCK")

    def _starts(self, count: int) -> None:
        version = Program(
            (f"{self.node.cni_bin_dir}/kuryr-cni",), {"CNI_COMMAND": "VERSION"}, b"{}"
        )
        python = Program((sys.executable, "-ISE", "-c", "pass"), {})
        for name, program in zip(STARTS, (version, python), strict=True):
            self.results.add(name, at_once([program] * count), lambda _: True)

    def _ovn(self, pods: Sequence[prepared_pods.Pod]) -> None:
        ports = {_device(i): pod.vif.id for i, pod in enumerate(pods)}
        seconds = self.switch.installation("br-int", ports)
        self.results.times[OVN] += [value * 1000 for value in seconds.values()]
        self._settle()

    def _request(self, plugin: str, command: str, index: int, pod: prepared_pods.Pod) -> Program:
        environ = {
            "PATH": os.environ["PATH"],
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": f"{PREFIX}-{pod.name}",
            "CNI_NETNS": f"/run/netns/{PREFIX}-{index}",
            "CNI_IFNAME": "eth0",
            "CNI_PATH": self.node.cni_bin_dir,
            "CNI_ARGS": pod.cni_args,
        }
        executable = f"{self.node.cni_bin_dir}/{_executable(plugin)}"
        return Program((executable,), environ, self._configs[plugin])

    def _settle(self) -> None:
        """Wait until every chassis has done the work of the last round."""
        run([f"{self.lab.bin}/ovn-nbctl", f"--db={self._nb}", "--wait=hv", "sync"])

    def _clean(self) -> None:
        for name in _words(run(["ip", "-o", "netns", "list"])):
            if name.startswith(f"{PREFIX}-"):
                run(["ip", "netns", "del", name])
        for line in run(["ip", "-o", "link", "show", "type", "veth"]).splitlines():
            device = line.split(": ")[1].partition("@")[0]
            if device.startswith(_device(0)[:-1]) and device.endswith("p"):
                run(["ip", "link", "del", device])
        run(["ip", "link", "del", BRIDGE], check=False)
        for name in RANGES:
            run(["rm", "-rf", _data(name)])


def _executable(plugin: str) -> str:
    return OURS if plugin == PARKED else plugin


def _device(index: int) -> str:
    return f"kbench{index}"


def _words(text: str) -> Iterable[str]:
    return [line.split()[0] for line in text.splitlines() if line.strip()]


def _data(name: str) -> str:
    return f"/run/{PREFIX}-{name}"


def _config(plugin: str, node: facts.Node) -> dict[str, Any]:
    """Return a plugin's configuration; ours is the one that the daemon has installed."""
    if _executable(plugin) == OURS:
        conflist = json.loads((Path(node.cni_conf_dir) / "10-kuryr.conflist").read_text())
        return {**conflist["plugins"][0], "cniVersion": "1.0.0", "name": conflist["name"]}
    ipam = {
        "type": "host-local",
        "dataDir": _data(plugin),
        "ranges": [[{"subnet": RANGES[plugin]}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    config = {"cniVersion": "1.0.0", "name": f"{PREFIX}-{plugin}", "type": plugin, "ipam": ipam}
    return config | ({"bridge": BRIDGE, "isGateway": True} if plugin == "bridge" else {})


def _has_address(add: Run) -> bool:
    return bool(json.loads(add.output)["ips"])


def report(alone: Results, parallel: Results, count: int) -> Report:
    """Return the report of single runs and of parallel ones, so many at once."""
    names = [f"{name} {command}" for command in ("ADD", "DEL") for name in PLUGINS]
    names += [*STARTS, OVN, *SPANS, CPU, CPU_PARKED]
    figures: dict[str, Any] = {"parallel": count}
    for name in names:
        figures[name] = {
            "alone": _summary(alone, name),
            "parallel": _summary(parallel, name),
        }
    beside = f"{count} AT ONCE"
    columns = ("ms", "ALONE p50", "p99", f"{beside} p50", "p99", "FAILED", "N",
               "/ BRIDGE alone p50", "/ BRIDGE at once p99")  # fmt: skip
    main = [_row(name, figures) for name in names if name not in (*SPANS, CPU, CPU_PARKED)]
    spans = [_row(name, figures)[:5] for name in (*SPANS, CPU, CPU_PARKED)]
    tables = [
        Table("From start to exit of the process", columns, main),
        Table("Where an ADD of ours spends the time", columns[:5], spans),
    ]
    failures = [
        (name, text)
        for results in (alone, parallel)
        for name in names
        for text in results.failures[name][:3]
    ]
    if failures:
        tables.append(Table("Failures", ("WHAT", "HOW"), failures))
    return Report("cni", tables, _targets(figures, count), figures)


def _summary(results: Results, name: str) -> dict[str, float]:
    times = results.times[name]
    summary: dict[str, float] = {"n": len(times), "failed": len(results.failures[name])}
    if times:
        summary |= {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99)}
    return summary


def _row(name: str, figures: Mapping[str, Any]) -> list[Any]:
    alone, parallel = figures[name]["alone"], figures[name]["parallel"]
    nothing = "-"
    row = [name]
    for figures_of_mode in (alone, parallel):
        row += [figures_of_mode.get("p50", nothing), figures_of_mode.get("p99", nothing)]
    row += [alone["failed"] + parallel["failed"], alone["n"] + parallel["n"]]
    plugin, _, command = name.rpartition(" ")
    if plugin in PLUGINS and command in ("ADD", "DEL"):
        bridge = figures[f"bridge {command}"]
        for ours, theirs, share in (
            (alone, bridge["alone"], "p50"),
            (parallel, bridge["parallel"], "p99"),
        ):
            known = share in ours and share in theirs
            row.append(ours[share] / theirs[share] if known else nothing)
    else:
        row += [nothing, nothing]
    return row


def _targets(figures: Mapping[str, Any], count: int) -> list[Target]:
    never = float("inf")
    floor = figures[STARTS[1]]["parallel"].get("p99", never)
    install = figures[OVN]["parallel"].get("p99", never)
    targets = []
    for command, plugin, own in (
        ("ADD", OURS, install),
        ("ADD", PARKED, 0.0),
        ("DEL", OURS, 0.0),
        ("DEL", PARKED, 0.0),
    ):
        ours, bridge = figures[f"{plugin} {command}"], figures[f"bridge {command}"]
        limit = bridge["parallel"].get("p99", 0.0) + floor + own
        p50, p99 = ours["alone"].get("p50", never), ours["parallel"].get("p99", never)
        name = f"{command}, port parked" if plugin == PARKED else command
        what = "bridge + interpreter" + (" + OVN" if own else "")
        targets += [
            Target(f"{name}, alone, p50", p50, ALONE_LIMITS[plugin], "ms"),
            Target(f"{name}, {count} at once, p99 ({what})", p99, limit, "ms"),
            Target(f"{name}: failed", ours["alone"]["failed"] + ours["parallel"]["failed"], 0),
        ]
    return targets
