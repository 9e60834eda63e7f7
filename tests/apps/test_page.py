"""The live page: what it serves of a cluster that comes, works and goes, and what it refuses."""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.fabric_run import Run
from tests.apps.test_verbs import assert_done, pingpong, start_server
from tools.flitnet import addresses, operate, page, pages, paths
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import UsageError
from tools.flitnet.layout import HEIGHT, WIDTH, Place, bends, layout
from tools.flitnet.report import ClassReport, StreamReport, report

LIVE = paths.ROOT / "dashboards" / "live"


class Browser:
    """A page of its own for a run directory, and somebody who asks it."""

    def __init__(self, run: Path) -> None:
        self.process = subprocess.Popen(
            [str(paths.ROOT / "flitnet"), "page", "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE, text=True, env=dict(os.environ) | {"FLITNET_RUN": str(run)},
        )  # fmt: skip
        self.said = self.process.stdout.readline()
        self.port = int(re.search(r":(\d+)/", self.said)[1])

    def get(self, path: str, method: str = "GET") -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, path)
        reply = connection.getresponse()
        found = (reply.status, reply.getheader("Content-Type", ""), reply.read())
        connection.close()
        return found

    def state(self) -> dict[str, Any]:
        status, kind, body = self.get("/state.json")
        assert (status, kind) == (200, "application/json")
        return json.loads(body)

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        for _ in range(400):
            if holds(state := self.state()):
                return state
            time.sleep(0.02)
        raise AssertionError(state)


@pytest.fixture
def browse() -> Iterator[Callable[[Path], Browser]]:
    made: list[Browser] = []

    def make(run: Path) -> Browser:
        made.append(Browser(run))
        return made[-1]

    yield make
    for browser in made:
        browser.process.send_signal(signal.SIGINT)
        assert browser.process.wait(20) == 0, "Ctrl-C is how one leaves"


def test_it_follows_a_cluster(browse, make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    run = tmp_path / "run"
    browser = browse(run)
    assert "flitnet up" in browser.state()["away"]
    cluster = make_cluster({"network": {"topology": "mesh:2x2"}}, run=run)
    state = browser.until(
        lambda s: "away" not in s and all(node["up"] for node in s["nodes"].values())
    )
    assert list(state["nodes"]) == ["n0", "n1", "n2", "n3"]
    assert sorted(state["routers"]) == ["0", "1", "2", "3"]
    assert len(state["links"]) == 4 + 4
    assert len(state["port_flits"]) == 4 + 2 * 4, "both ways; ports that lead nowhere have none"
    assert_done(pingpong(cluster, ["ibv_rc_pingpong", "-n", "200"], 19201))
    state = browser.until(lambda s: s["classes"]["best_effort"]["packets"] >= 400)
    assert state["sent_bytes"]["n0"] > 0 and sum(state["port_flits"].values()) > 0
    operate.set_link(cluster.run, "n3", "down")
    state = browser.until(lambda s: s["links_down"] == 1 and not s["nodes"]["n3"]["up"])
    assert [link["link"] for link in state["links"] if not link["up"]] == ["n3"]
    cluster.kill("fabricd")
    assert "does not answer" in browser.until(lambda s: "away" in s)["away"]
    cluster.down()
    assert "flitnet up" in browser.until(lambda s: "No cluster" in s.get("away", ""))["away"]


def test_an_hca_that_was_killed_is_down(
    browse, make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """Its page stays behind and says that it is up."""
    run = tmp_path / "run"
    cluster = make_cluster(run=run)
    browser = browse(run)
    browser.until(lambda s: all(node["up"] for node in s.get("nodes", {"": {"up": 0}}).values()))
    server = start_server(cluster, ["ibv_rc_pingpong"], 19206)
    try:
        browser.until(lambda s: s["nodes"]["n0"]["programs"] == 1)
        cluster.kill("hcad:n0")
        nodes = browser.until(lambda s: not s["nodes"]["n0"]["up"])["nodes"]
    finally:
        server.kill()
        server.communicate()
    assert nodes["n1"]["up"]
    assert (nodes["n0"]["qps"], nodes["n0"]["programs"]) == (0, 0)


def test_an_hca_that_was_killed_sends_nothing() -> None:
    """What the fabric counts of its node is of all its sessions: not the rest of what it counted.
    Of a node elsewhere there is nothing else from the beginning."""
    snapshot = pages.Snapshot({
        "flitnet_attach_received_bytes_total": {
            (("node", node), ("side", "fabric")): 9e9 for node in ("n0", "n1", "n2")
        },
        "flitnet_device_port_data_transmitted_bytes_total": {(("node", "n0"),): 5e6},
        "flitnet_device_port_data_received_bytes_total": {(("node", "n0"),): 6e6},
    })  # fmt: skip
    links = {f"n{i}": {"link": f"n{i}", "to": f"0:{i}", "up": True} for i in range(3)}
    flits = {f"0:{i}": 1e9 for i in range(3)}
    sent, received = page._bytes(snapshot, links, flits, 128, here=("n0", "n1"))
    assert sent == {"n0": 5e6, "n2": 9e9}
    assert received == {"n0": 6e6, "n2": 16e9}


def test_it_listens_by_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with page.Server(Path("/nowhere"), addresses.parse("--listen", "[::1]:0")) as server:
        assert server.server_address[0] == "::1"


def test_browsers_that_go_say_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with page.Server(tmp_path, ("127.0.0.1", 0)) as server:
        server.daemon_threads = False  # closing waits for all answers
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        for _ in range(5):
            with socket.create_connection(server.server_address) as browser:
                browser.sendall(b"GET /live.js HTTP/1.1\r\nHost: x\r\n\r\n" * 200)
                reset = struct.pack("ii", 1, 0)
                browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        server.shutdown()
        thread.join()
    assert capfd.readouterr().err == ""


def test_garbage_in_a_page_is_no_garbage_in_the_browser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"power_now_w": float("nan"), "streams": [{"dmp": float("inf"), "sent": 3}]}
    monkeypatch.setattr(page, "look", lambda _: found)
    state = json.loads(page.Watch(tmp_path).state(), parse_constant=pytest.fail)
    assert state == {"power_now_w": 0.0, "streams": [{"dmp": 0.0, "sent": 3}]}
    monkeypatch.undo()
    (tmp_path / "processes.json").write_text("{}")
    (tmp_path / "cluster.toml").write_text("")
    monkeypatch.setattr(page.ctl, "ask", lambda *_: {"links": []})
    garbage = pages.Snapshot({"flitnet_links_down": {(): float("nan")}})
    monkeypatch.setattr(page.pages, "read", lambda _: garbage)
    assert "makes no sense" in page.look(tmp_path)["away"]


def test_what_it_serves_and_what_not(browse, tmp_path: Path) -> None:
    browser = browse(tmp_path)
    for path, kind in (("/", "text/html"), ("/live.js", "text/javascript"),
                       ("/live.css", "text/css"), ("/?x=1", "text/html")):  # fmt: skip
        status, found, body = browser.get(path)
        assert status == 200 and found.startswith(kind) and body
    for path in ("/etc/passwd", "/../page.py", "/live.js/..", "/%2e%2e/%2e%2e/meson.build",
                 "/" + "x" * 5000):  # fmt: skip
        assert browser.get(path)[0] == 404, path
    assert browser.get("/", "POST")[0] == 501
    status, kind, body = browser.get("/", "HEAD")
    assert (status, body) == (200, b"") and kind.startswith("text/html")


def test_the_script_finds_what_the_page_has() -> None:
    asked = set(re.findall(r'find\("([\w-]+)"\)', (LIVE / "live.js").read_text()))
    there = set(re.findall(r'id="([\w-]+)"', (LIVE / "index.html").read_text()))
    assert asked <= there and len(asked) > 10
    assert not re.search("innerHTML|document.write|eval", (LIVE / "live.js").read_text())


# As much of a browser as live.js asks for; says what stands in each element after each state.
DOCUMENT = """
const blank = (tag) => ({
  tag, children: [], style: {}, viewBox: { baseVal: { height: 100 } }, textContent: "",
  classList: { toggle() {} }, setAttribute() {},
  append(...those) { this.children.push(...those); },
  replaceChildren() { this.children = []; this.textContent = ""; },
  get text() {
    const words = this.children.map((c) => typeof c === "string" ? c : c.text);
    return this.textContent + words.join("|");
  },
});
const elements = {};
globalThis.document = {
  getElementById: (id) => elements[id] ??= blank(id), createElement: blank,
  createElementNS: (space, tag) => blank(tag),
};
globalThis.getComputedStyle = () => ({ getPropertyValue: () => "" });
const coming = JSON.parse(require("fs").readFileSync(0, "utf8"));
globalThis.setTimeout = (look) => {
  const words = Object.entries(elements).map(([id, element]) => [id, element.text]);
  words.push(["last latency", String(history.latency.real_time.at(-1))]);
  console.log(JSON.stringify(Object.fromEntries(words)));
  if (coming.length) look();
};
globalThis.fetch = async () => ({ json: async () => coming.shift() });
"""


def shown(states: list[dict[str, Any]]) -> list[dict[str, str]]:
    """What the page shows after each state."""
    if (node := shutil.which("node")) is None:
        pytest.skip("no node here")
    done = subprocess.run(
        [node, "-e", DOCUMENT + (LIVE / "live.js").read_text()], input=json.dumps(states),
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def state_at(seconds: float, sent_bytes: float, streams: list[dict[str, Any]]) -> dict[str, Any]:
    none = ClassReport().__dict__
    place = {"x": 1.0, "y": 1.0}
    idle = {"up": True, "qps": 0, "programs": 0, "scheme": "none"}
    return {
        "seconds": seconds, "started": 1.0, "link_mbps": 400, "flit_bits": 128,
        "pass_through": False, "topology": "single",
        "clock": {"mode": "elastic", "dilation_window": 1.0},
        "nodes": {"n0": place | idle}, "routers": {"0": place}, "streams": streams,
        "links": [{"link": "n0", "to": "0:0", "up": True}],
        "classes": dict.fromkeys(("control", "real_time", "best_effort"), none),
        "power": {"cap_w": 1.0, "mean_w": 0.0, "max_w": 0.0}, "power_now_w": 0.0,
        "lane_flits": [0] * 16, "port_flits": {}, "sent_bytes": {"n0": sent_bytes},
        "received_bytes": {}, "links_down": 0, "lost": 0,
    }  # fmt: skip


def test_a_stream_that_waits_is_not_refused() -> None:
    def stream(name: str, admitted: bool, by: str | None) -> dict[str, Any]:
        return StreamReport(name, "n0", "n1", admitted=admitted, rejected_by=by).to_dict()

    streams = [stream("a", True, None), stream("b", False, None), stream("c", False, "r3")]
    page_shows = shown([state_at(5.0, 0, streams)])[0]
    assert page_shows["away"] == ""
    assert page_shows["streams-note"].startswith("1 admitted, 1 refused, 1 waiting;")
    assert "waits" in page_shows["streams"] and "refused by r3" in page_shows["streams"]


def test_rates_are_those_of_the_last_second() -> None:
    """Also when the page had not looked for a while: not the mean of all that time."""
    states = [state_at(t, 1e6 * t, []) for t in (1.0, 1.5, 2.0, 2.5)]
    # Silence while nobody looks, then 2 MB a second; the HCA began anew and counts from 0.
    states += [state_at(t, 2e6 * (t - 100), []) for t in (100.0, 100.5, 101.0)]
    sends = [page_shows["nodes"].split("n0")[1].split("|")[2] for page_shows in shown(states)]
    assert sends == ["0.0", "8.0", "8.0", "8.0", "0.0", "16.0", "16.0"]


def with_real_time(state: dict[str, Any], one: ClassReport) -> dict[str, Any]:
    return state | {"classes": state["classes"] | {"real_time": one.__dict__}}


def test_latency_is_that_of_packets_that_were_measured() -> None:
    """What a node sends to itself is received, but has no latency: the fabric did not carry it."""
    ones = [ClassReport(packets=100_000, latency_count=100, latency_us_total=9000.0),
            ClassReport(packets=100_100, latency_count=200, latency_us_total=10_000.0),
            ClassReport(packets=900_000, latency_count=200, latency_us_total=10_000.0)]
    for one in ones:
        one.latency_us_mean = one.latency_us_total / one.latency_count
    states = [with_real_time(state_at(1.0 + i, 0, []), one) for i, one in enumerate(ones)]
    means = [page_shows["last latency"] for page_shows in shown(states)]
    assert means == ["null", "10", "null"]


def test_latency_of_hcas_that_began_anew_is_none() -> None:
    """Sums over all HCAs shrink where one of them dies: their difference is no latency."""

    def state(seconds: float, count: int, mean_us: float, counting: float) -> dict[str, Any]:
        made = state_at(seconds, 0, []) | {"counting": counting}
        return with_real_time(made, ClassReport(count, count, count * mean_us, mean_us))

    states = [state(1.0, 1000, 90.0, 3.0), state(1.5, 1100, 90.0, 3.0)]
    # One dies, of 900 slow packets; the other and its successor receive 950 quick ones.
    states += [state(2.0, 1150, 5.0, 4.0), state(2.6, 1250, 5.0, 4.0), state(3.2, 1350, 5.0, 4.0)]
    # Another in whose place nobody seems to have come.
    states += [state(3.8, 1400, 4.0, 4.0)]
    means = [page_shows["last latency"] for page_shows in shown(states)]
    assert means == ["null", "90", "null", "null", "5", "null"]


def test_where_packets_only_pass_nothing_has_a_rate_or_a_cap() -> None:
    def state(seconds: float, passes: bool, cap_w: float) -> dict[str, Any]:
        power = {"cap_w": cap_w, "mean_w": 0.0, "max_w": 0.0}
        made = state_at(seconds, 5e7 * seconds, [])
        return made | {"pass_through": passes, "power": power}

    network = shown([state(1.0, False, 0.5), state(2.0, False, 0.5)])[-1]
    assert "links 400 Mb/s" in network["heading"] and "n0 to 0:0: 100.0 %" in network["map"]
    assert "cap 500.000 mW" in network["power-note"] and "%" in network["lanes"]
    assert network["network-note"].endswith("colour: the busier direction")
    passing = shown([state(1.0, True, 0.0), state(2.0, True, 0.0)])[-1]
    assert "packets pass at once" in passing["heading"]
    assert "no cap" in passing["power-note"]
    assert passing["nodes"].split("n0")[1].split("|")[2] == "400.0", "what it sends is so, still"
    words = {id_: text for id_, text in passing.items() if id_ not in ("nodes", "scale")}
    assert not [id_ for id_, text in words.items() if re.search("Mb/s|%|colour", text)]


def test_what_a_node_elsewhere_counts_is_not_shown() -> None:
    state = state_at(1.0, 0, []) | {"part": True}
    state["nodes"]["n0"] |= {"qps": None, "programs": None, "scheme": None}
    page_shows = shown([state])[0]
    assert page_shows["nodes"].endswith("n0|attached|0.0|0.0|–|–|–")
    assert page_shows["latency-note"].endswith("; as HCAs of this host received")


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1", "example.org:80", ":9713", "::1:x",
                                    "127.0.0.1:70000", "127.0.0.1:-1"])  # fmt: skip
def test_wrong_addresses(listen: str) -> None:
    with pytest.raises(UsageError, match="127.0.0.1:9713"):
        addresses.parse("--listen", listen)


def test_a_port_that_is_taken(browse, tmp_path: Path) -> None:
    taken = browse(tmp_path).port
    done = subprocess.run(
        [str(paths.ROOT / "flitnet"), "page", "--listen", f"127.0.0.1:{taken}"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    ("topology", "routers", "pairs"),
    [
        ("single", 1, []),
        ("mesh:4x4", 16, [(0, 1), (0, 4)]),
        ("torus:3x3x3", 27, [(0, 1), (0, 9)]),
        ("fat_mesh:2x2", 4, [(0, 1), (0, 1)]),
        ("file:x", 5, [(i, (i + 1) % 5) for i in range(5)]),
        ("tree:2x2", 4, [(0, 2), (0, 3), (1, 2), (1, 3)]),
    ],
)
def test_everything_has_a_place_of_its_own(
    topology: str, routers: int, pairs: list[tuple[int, int]]
) -> None:
    with_nodes = 2 if topology.startswith("tree") else routers
    home = {f"n{i}": i // 2 % with_nodes for i in range(2 * with_nodes)}
    drawn = layout(topology, home, pairs)
    places = [*drawn.routers.values(), *drawn.nodes.values()]
    assert len(drawn.routers) == routers and len(drawn.nodes) == len(home)
    assert len({(round(p.x), round(p.y)) for p in places}) == len(places)
    assert all(0 < p.x < WIDTH and 0 < p.y < HEIGHT for p in places)


def grid_pairs(sizes: tuple[int, ...], around: bool) -> list[tuple[int, int]]:
    """The routers that the links of a grid join; `around`: a torus."""
    pairs = []
    for router in range(math.prod(sizes)):
        stride = 1
        for size in sizes:
            at = router // stride % size
            if at + 1 < size:
                pairs.append((router, router + stride))
            elif around and size > 2:
                pairs.append((router, router - (size - 1) * stride))
            stride *= size
    return pairs


def curve(a: Place, b: Place, bend: float, steps: int = 32) -> list[tuple[float, float]]:
    """As live.js draws a link, without its ends, which are below the routers."""
    mx = (a.x + b.x) / 2 - (b.y - a.y) * bend
    my = (a.y + b.y) / 2 + (b.x - a.x) * bend
    parts = [i / steps for i in range(4, steps - 3)]
    return [((1 - t) ** 2 * a.x + 2 * t * (1 - t) * mx + t * t * b.x,
             (1 - t) ** 2 * a.y + 2 * t * (1 - t) * my + t * t * b.y) for t in parts]  # fmt: skip


@pytest.mark.parametrize("sizes", [(4, 4), (8, 8), (3, 3, 3), (8,), (3, 5), (4, 4, 4)])
@pytest.mark.parametrize("around", [False, True])
def test_every_link_of_a_grid_is_seen(sizes: tuple[int, ...], around: bool) -> None:
    """None leads through the box of another router, nor for the most part along another link."""
    pairs = grid_pairs(sizes, around)
    home = {f"n{i}": i for i in range(math.prod(sizes))}
    shape = "x".join(map(str, sizes))
    routers = layout(f"{'torus' if around else 'mesh'}:{shape}", home, pairs).routers
    curves = [curve(routers[a], routers[b], bend)
              for (a, b), bend in zip(pairs, bends(routers, pairs))]  # fmt: skip
    w, h = (11, 8) if len(routers) > 40 else (19, 14)
    for (a, b), points in zip(pairs, curves):
        assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in points), (a, b)
        others = [at for router, at in routers.items() if router not in (a, b)]
        for x, y in points:
            assert not any(abs(x - o.x) < w and abs(y - o.y) < h for o in others), (a, b)
    for i, points in enumerate(curves):
        for other in curves[:i]:
            along = [p for p in points if any(math.dist(p, q) < 3 for q in other)]
            assert len(along) < len(points) / 2, (pairs[i], pairs[curves.index(other)])


def test_parallel_links_are_drawn_beside_each_other() -> None:
    routers = layout("fat_mesh:2x2", {f"n{i}": i for i in range(4)}, []).routers
    assert bends(routers, [(0, 1), (0, 1), (0, 2), (0, 1)]) == [0, 0.12, 0, -0.12]


def test_metrics_of_a_large_fabric_are_all_there() -> None:
    """64 nodes on 40 routers have more series than a page holds by default."""
    run = Run()
    try:
        run.fabricd('[network]\ntopology = "fat_tree"\n')
        snapshot = pages.read(run.dir)
        assert snapshot.total("flitnet_process_series_dropped_total") == 0
        assert snapshot.one("flitnet_power_cap_watts", -1.0) >= 0
        assert len(list(snapshot.series("flitnet_switch_transmitted_flits_total"))) > 4000
        assert [labels["mode"] for labels, _ in snapshot.series("flitnet_clock_mode")]
    finally:
        run.close()


def test_lanes_are_counted_in_one_look() -> None:
    """A mesh of 64 routers has 5000 of their series: once for each lane was half of the page's
    work, twice a second beside a fabric that wants the core."""
    flits = {
        (("switch", str(switch)), ("port", str(port)), ("vl", str(vl))): float(vl)
        for switch in range(64) for port in range(5) for vl in range(16)
    }  # fmt: skip
    looked = 0

    class Counting(pages.Snapshot):
        def series(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
            nonlocal looked
            for one in super().series(name):
                looked += 1
                yield one

    made = report(Counting({"flitnet_switch_transmitted_flits_total": flits}), {})
    assert made.lanes == [320 * vl for vl in range(16)] and made.links == 320
    assert looked == len(flits)
