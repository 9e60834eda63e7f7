"""A cluster of several hosts by the command line, docs/hosts.md: here two run directories."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.apps.test_half_dead import until
from tests.apps.test_udp import free_port, pingpong, verbs_ready
from tools.flitnet import page, paths
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import FlitnetError


class Host:
    """One of the hosts: its run directory and its commands."""

    def __init__(self, run: Path) -> None:
        self.run = run

    def __call__(self, *argv: str | Path) -> subprocess.CompletedProcess[str]:
        env = dict(os.environ) | {"FLITNET_RUN": str(self.run)}
        return subprocess.run(
            [paths.ROOT / "flitnet", *argv], env=env, capture_output=True, text=True, timeout=60,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def refuses(self, code: int, says: str, *argv: str | Path) -> None:
        done = self(*argv)
        assert done.returncode == code and says in done.stderr, done.stdout + done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Host, Host, Path]]:
    file = tmp_path / "two.toml"
    file.write_text(
        "[network]\nnodes = 2\n"
        f'[attach]\nkind = "udp"\nfabric = "127.0.0.1:{(port := free_port())}"\n'
        f'listen = "127.0.0.1:{port}"\n'
    )
    a, b = Host(tmp_path / "a"), Host(tmp_path / "b")
    yield a, b, file
    for host in (b, a):
        assert host("down").returncode == 0
        assert not host.run.exists(), "nothing is left"


def test_a_node_joins(hosts: tuple[Host, Host, Path]) -> None:
    verbs_ready()
    a, b, file = hosts
    up = a("up", file, "--here", "n0")
    assert up.returncode == 0 and "flitnet join" in up.stdout, up.stdout + up.stderr
    assert up.stdout.startswith("1 node (n0) attached in ")
    status = a("status")
    assert "flitnet   1 node, 400 Mb/s links" in status.stdout
    assert status.returncode == 1 and "n1, of another host, is not attached" in status.stdout
    joined = b("join", file, "--here", "n1", "--key", a.run / "cluster.key")
    assert joined.returncode == 0, joined.stderr
    assert (b.run / "cluster.key").stat().st_mode & 0o777 == 0o600
    assert a("status").returncode == 0 and b("status").returncode == 0
    assert "nodes of this host attached: 1" in b("status").stdout
    parts = {"n0": Cluster.open(a.run), "n1": Cluster.open(b.run)}

    def start(node: str, argv: list[str]) -> subprocess.Popen[str]:
        return parts[node].popen(node, argv)

    pingpong(start, "n0", "n1", "127.0.0.1")
    assert b("set", "congestion", "none").returncode == 0
    b.refuses(2, "n0 runs on another host; this one has n1", "exec", "n0", "--", "true")
    b.refuses(1, "the fabric runs on another host", "link")
    a.refuses(2, "n1 runs on another host", "node", "n1", "kill")
    assert b("node", "n1", "kill").returncode == 0
    assert "flitnet node n1 start" in b("status").stdout
    started = b("node", "n1", "start")
    assert started.returncode == 0, started.stderr
    assert a("status").returncode == 0 and b("status").returncode == 0
    a.refuses(2, "n1 runs on another host", "load", "best-effort", "--rate", "1M")


def test_each_host_shows_what_it_knows(hosts: tuple[Host, Host, Path]) -> None:
    """A node of another host is up where the fabric hears it; of what its HCA counts nothing is
    here: neither zeros nor a device that is down."""
    verbs_ready()
    a, b, file = hosts
    port = free_port()
    assert a("up", file, "--here", "n0").returncode == 0
    joined = b("join", file, "--here", "n1", "--key", a.run / "cluster.key",
               "--metrics", f"127.0.0.1:{port}")  # fmt: skip
    assert joined.returncode == 0 and f"metrics: http://127.0.0.1:{port}/metrics" in joined.stdout
    parts = {"n0": Cluster.open(a.run), "n1": Cluster.open(b.run)}

    def start(node: str, argv: list[str]) -> subprocess.Popen[str]:
        return parts[node].popen(node, argv)

    pingpong(start, "n0", "n1", "127.0.0.1")

    def seen() -> bool:
        state = page.look(a.run)
        counted = [state[what].get("n1", 0) for what in ("sent_bytes", "received_bytes")]
        return state["nodes"]["n1"]["up"] and min(counted) > 100_000

    until(seen)
    state = page.look(a.run)
    assert {key: state["nodes"]["n1"][key] for key in ("qps", "programs", "scheme")} == {
        "qps": None, "programs": None, "scheme": None,
    }  # fmt: skip
    assert state["nodes"]["n0"]["scheme"] == "credit" and state["part"]
    assert "The fabric runs on another host" in page.look(b.run)["away"]
    for host, node in ((a, "n0"), (b, "n1")):
        devices = [path.name for path in (host.run / "sys/class/infiniband").iterdir()]
        assert devices == [f"{node}-flitnet0"]
        assert "as this host's HCAs received" in host("status").stdout
    assert json.loads(a("status", "--json").stdout)["here"] == ["n0"]
    first, there = (json.loads(host("status", "--json").stdout)["seconds"] for host in (a, b))
    assert 0 < first < there
    until(lambda: there < json.loads(a("status", "--json").stdout)["seconds"])  # one clock
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as metrics:
        assert b'flitnet_device_port_up{node="n1"' in metrics.read()
    assert a("link", "n1", "down").returncode == 0
    until(lambda: not page.look(a.run)["nodes"]["n1"]["up"])


def test_a_host_may_run_the_fabric_alone(hosts: tuple[Host, Host, Path]) -> None:
    verbs_ready()
    a, b, file = hosts
    port = free_port()
    up = a("up", file, "--here", "none", "--metrics", f"127.0.0.1:{port}")
    assert up.returncode == 0 and up.stdout.startswith("the fabric started in "), up
    assert "the nodes: flitnet join" in up.stdout and "exec" not in up.stdout
    a.refuses(2, "n0 runs on another host; this one has none", "exec", "n0", "--", "true")
    a.refuses(2, "run on other hosts: ask there", "load", "best-effort", "--rate", "1M")
    a.refuses(2, "run on other hosts: set it there", "set", "completion_queues", "global")
    assert list((a.run / "sys").rglob("*-flitnet0")) == []
    Cluster.open(a.run).kill("exporter")
    again = a("exporter", "start")
    assert again.returncode == 0 and "serves again" in again.stdout, again
    key = a.run / "cluster.key"
    b.refuses(2, "name the nodes of this host", "join", file, "--here", "none", "--key", key)
    assert b("join", file, "--here", "n0,n1", "--key", key).returncode == 0
    assert a("status").returncode == 0
    assert all(node["up"] for node in page.look(a.run)["nodes"].values())
    clip = paths.ROOT / "traces" / "t2_city.ts"
    played = b("replay", clip, "--from", "n0", "--to", "n1", "--seconds", "0.5")
    assert played.returncode == 0, played.stdout + played.stderr
    loaded = b("load", "control", "--rate", "1M", "--seconds", "0.5")
    assert loaded.returncode == 0, loaded.stdout + loaded.stderr


def test_both_hosts_know_what_is_wrong(hosts: tuple[Host, Host, Path]) -> None:
    """A pulled cable is no fault, here or there; a fabric that is gone is, and says why."""
    verbs_ready()
    a, b, file = hosts
    assert a("up", file, "--here", "n0").returncode == 0
    assert b("join", file, "--here", "n1", "--key", a.run / "cluster.key").returncode == 0
    assert a("link", "n1", "down").returncode == 0
    there = Cluster.open(b.run)
    until(lambda: there.node_status("n1")["link_down"])
    for host, where in ((a, ""), (b, ", on the fabric's host,")):
        done = host("status")
        assert done.returncode == 0, done.stdout
        assert f"link n1 is down; back into service{where} with: flitnet link n1 up" in (
            " ".join(done.stdout.split())
        )
    assert a("link", "n1", "up").returncode == 0
    until(lambda: there.node_status("n1")["attached"])
    assert a("fabric", "kill").returncode == 0
    until(lambda: not there.node_status("n1")["attached"])
    done = b("status")
    assert done.returncode == 1 and "n1 is not attached: fabricd at 127.0.0.1" in done.stdout
    assert json.loads(b("status", "--json").stdout)["absent"] == ["n1"]


def test_who_cannot_join(hosts: tuple[Host, Host, Path]) -> None:
    a, b, file = hosts
    key = file.with_name("no.key")
    b.refuses(2, "--key FILE", "join", file, "--here", "n1")
    b.refuses(2, "no such file", "join", file, "--here", "n1", "--key", key)
    key.write_text("no key at all\n")
    why = f"--key {key}: not 64 hexadecimal digits"
    b.refuses(2, why, "join", file, "--here", "n1", "--key", key)
    b.refuses(2, "Is a directory", "join", file, "--here", "n1", "--key", key.parent)
    a.refuses(2, "'n7' is no node", "up", file, "--here", "n7")
    a.refuses(2, "'' is no node", "up", file, "--here", "")
    file.write_text("[network]\nnodes = 2\n")
    a.refuses(2, 'attach.kind = "udp"', "up", file, "--here", "n0")


def test_a_key_of_another_cluster_is_named(hosts: tuple[Host, Host, Path]) -> None:
    """Whoever joins hears why it is not let in, not only that it is not."""
    verbs_ready()
    a, b, file = hosts
    assert a("up", file, "--here", "n0").returncode == 0
    key = file.with_name("other.key")
    old = (a.run / "cluster.key").read_text()
    key.write_text(old.translate(str.maketrans("0123456789", "1234567890")))
    key.chmod(0o600)
    b.refuses(1, "n1 (", "join", file, "--here", "n1", "--key", key, "--wait", "2")
    swapped = file.with_name("swapped.toml")  # another cluster file, the right key
    swapped.write_text(file.read_text() + '[[node]]\nname = "n1"\n[[node]]\nname = "n0"\n')
    says = "cluster.toml here is not the fabric's: n1 is node 1 there"
    key = a.run / "cluster.key"
    other = file.with_name("sizes.toml")  # where packets would be refused by nodes one by one
    other.write_text(file.read_text().replace("nodes = 2", "nodes = 2\npacket_size = 120"))
    sizes = "cluster.toml here is not the fabric's: network.packet_size is 40 there, 120 here"
    b.refuses(1, sizes, "join", other, "--here", "n1", "--key", key, "--wait", "1")
    b.refuses(1, says, "join", swapped, "--here", "n1", "--key", key, "--wait", "1")


def test_a_key_of_ones_own_is_in_a_file_of_each_host(hosts: tuple[Host, Host, Path]) -> None:
    """Then there is no cluster.key that could be copied, and `up` names what can be."""
    verbs_ready()
    a, b, file = hosts
    key = file.with_name("my.key")
    key.write_text("5e" * 32)
    key.chmod(0o600)
    file.write_text(file.read_text() + 'key_file = "my.key"\n')
    up = a("up", file, "--here", "n0")
    copies = f"{a.run}/cluster.toml and {key}"
    assert f"flitnet join FILE --here NODES, with copies of {copies}\n" in up.stdout, up
    joined = b("join", a.run / "cluster.toml", "--here", "n1")
    assert joined.returncode == 0, joined.stderr


def test_who_asks_at_another_port_than_the_fabrics_is_told(tmp_path: Path) -> None:
    """attach.fabric with a port of one's own, and attach.listen forgotten."""
    attach = {"kind": "udp", "fabric": f"127.0.0.1:{free_port()}",
              "listen": (listen := f"127.0.0.1:{free_port()}")}  # fmt: skip
    cluster = Cluster({"network": {"nodes": 1}, "attach": attach}, run=tmp_path / "r")
    cluster.attach_timeout_s = 2
    with pytest.raises(FlitnetError, match=rf"attach.listen has another port: {listen}\)"):
        cluster.up()
