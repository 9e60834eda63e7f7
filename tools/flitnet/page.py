"""`flitnet page`: the running cluster in a browser. Serves dashboards/live and, as state.json, what
the counter pages and fabricd say. It only reads; it finds clusters that come and go by itself.
"""

from __future__ import annotations

import functools
import json
import math
import socket
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tools.flitnet import addresses, ctl, operate, pages, paths
from tools.flitnet.errors import FlitnetError, UsageError
from tools.flitnet.layout import Layout, bends, layout, router_of
from tools.flitnet.pages import Snapshot
from tools.flitnet.part import Part
from tools.flitnet.report import report

FRESH_S = 0.2  # several browsers share a look
CLIENT_TIMEOUT_S = 10
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/live.js": ("live.js", "text/javascript; charset=utf-8"),
    "/live.css": ("live.css", "text/css; charset=utf-8"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src data:",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}  # fmt: skip


def serve(run: Path, listen: str) -> None:
    """Until Ctrl-C."""
    server = Server(run, addresses.parse("--listen", listen))
    host, port = server.server_address[:2]
    shown = f"[{host}]" if ":" in str(host) else host
    print(f"http://{shown}:{port}/ shows the cluster in {run}; Ctrl-C ends", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, run: Path, listen: tuple[str, int]) -> None:
        self.watch = Watch(run)
        if ":" in listen[0]:
            self.address_family = socket.AF_INET6
        try:
            super().__init__(listen, Handler)
        except OSError as error:
            raise FlitnetError(f"--listen {listen[0]}:{listen[1]}: {error.strerror}") from None


    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went in the middle of an answer is no error of ours."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    timeout = CLIENT_TIMEOUT_S
    protocol_version = "HTTP/1.1"
    server_version = "flitnet"
    sys_version = ""
    server: Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/state.json":
            return self._answer(self.server.watch.state(), "application/json")
        if path not in FILES:
            return self.send_error(HTTPStatus.NOT_FOUND)
        name, kind = FILES[path]
        self._answer((paths.ROOT / "dashboards" / "live" / name).read_bytes(), kind)

    do_HEAD = do_GET

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        headers = {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Somebody looks: not worth a line."""


@dataclass
class Watch:
    """The last look at a run directory, as JSON."""

    run: Path
    made_at: float = 0.0
    made: bytes = b""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def state(self) -> bytes:
        with self.lock:
            if time.monotonic() - self.made_at > FRESH_S:
                self.made = json.dumps(_finite(look(self.run)), allow_nan=False).encode()
                self.made_at = time.monotonic()
            return self.made


def look(run: Path) -> dict[str, Any]:
    """What the page draws; or, as `away`, why there is nothing."""
    try:
        if not (run / "processes.json").exists():
            start = f"{paths.call('up')}, or {paths.call('demo')}"
            return {"away": f"No cluster runs in {run}. Start one: {start}"}
        if not Part.read(run).fabric:
            return {"away": "The fabric runs on another host: look there. This one has nodes of it"
                    f" ({paths.call('status')})."}  # fmt: skip
        links = ctl.ask(run / "fabricd.ctl", {"cmd": "links"})["links"]
        return _state(run, pages.read(run), operate.tables_of(run), links)
    except FlitnetError as error:
        return {"away": f"The fabric does not answer: {error}"}
    except (ValueError, OverflowError) as error:  # of a page that is garbage
        return {"away": f"What {run / 'metrics'} holds makes no sense: {error}"}
    except OSError as error:  # it went while we looked, or is another user's
        return {"away": f"The cluster in {run} cannot be read: {error.strerror}"}


def _state(
    run: Path, snapshot: Snapshot, tables: dict[str, Any], links: list[dict[str, Any]]
) -> dict[str, Any]:
    value = report(snapshot, tables).to_dict()
    topology = str(tables.get("network", {}).get("topology", "single"))
    nodes = {link["link"]: link for link in links if ":" not in link["link"]}
    between = [link for link in links if ":" in link["link"]]
    pairs = [(router_of(link["link"]), router_of(link["to"])) for link in between]
    home = {name: router_of(link["to"]) for name, link in nodes.items()}
    drawn, bent = _drawn(topology, tuple(home.items()), tuple(pairs))
    for link, bend in zip(between, bent):
        link["bend"] = bend
    power_now = snapshot.one("flitnet_power_last_watts")
    flits = _port_flits(snapshot)
    here = Part.read(run).of(tuple(nodes))
    sent, received = _bytes(snapshot, nodes, flits, value["flit_bits"], here)
    return value | {
        "nodes": _nodes(snapshot, nodes, drawn, here),
        "routers": {router: {"x": at.x, "y": at.y} for router, at in drawn.routers.items()},
        "topology": topology,
        "links": links,
        "power_now_w": power_now,
        "started": snapshot.total("flitnet_process_start_time_seconds", process="fabricd"),
        "counting": _hcads(snapshot),
        "part": len(here) < len(nodes),  # the classes are those of this host's HCAs
        "port_flits": flits,
        "sent_bytes": sent,
        "received_bytes": received,
    }


@functools.lru_cache(maxsize=1)
def _drawn(
    topology: str, home: tuple[tuple[str, int], ...], pairs: tuple[tuple[int, int], ...]
) -> tuple[Layout, list[float]]:
    """Links that go out of service stay in the picture: it is the same until another cluster's."""
    found = layout(topology, dict(home), list(pairs))
    return found, bends(found.routers, list(pairs))


def _nodes(
    snapshot: Snapshot, links: dict[str, Any], drawn: Layout, here: tuple[str, ...]
) -> dict[str, Any]:
    """What an HCA says of itself is on its host: of those elsewhere, None."""
    qps = _by(snapshot, "flitnet_device_queue_pairs", "node")
    programs = _by(snapshot, "flitnet_device_clients", "node")
    up = _by(snapshot, "flitnet_device_port_up", "node")
    # An HCA that was killed says nothing any more; the fabric knows.
    there = {
        labels.get("node")
        for labels, on in snapshot.series("flitnet_attach_up")
        if on and labels.get("side") == "fabric"
    }
    scheme = {
        labels.get("node"): labels.get("scheme")
        for labels, on in snapshot.series("flitnet_congestion_scheme") if on
    }  # fmt: skip

    def one(name: str) -> dict[str, Any]:
        place = {"x": drawn.nodes[name].x, "y": drawn.nodes[name].y}
        if name not in here:
            on = name in there and links[name]["up"]
            return place | {"up": on, "qps": None, "programs": None, "scheme": None}
        return place | {
            "up": name in there and bool(up.get(name, 0)),
            "qps": round(qps.get(name, 0)) if name in there else 0,
            "programs": round(programs.get(name, 0)) if name in there else 0,
            "scheme": scheme.get(name, "none"),
        }

    return {name: one(name) for name in links}


def _bytes(
    snapshot: Snapshot, links: dict[str, Any], flits: dict[str, float], flit_bits: int,
    here: tuple[str, ...],
) -> tuple[dict[str, float], dict[str, float]]:
    """What each node sent and received. Of nodes elsewhere by what the fabric sees: bytes of their
    frames, and flits of the port that leads to them. Not of an HCA of this host that died: what the
    fabric counted over all its sessions would look like a burst."""
    sent = _by(snapshot, "flitnet_device_port_data_transmitted_bytes_total", "node")
    received = _by(snapshot, "flitnet_device_port_data_received_bytes_total", "node")
    elsewhere = {name: link for name, link in links.items() if name not in here}
    for labels, count in snapshot.series("flitnet_attach_received_bytes_total"):
        if labels.get("side") == "fabric" and labels.get("node", "") in elsewhere:
            sent[labels["node"]] = count
    for name, link in elsewhere.items():
        received[name] = flits.get(link["to"], 0.0) * flit_bits / 8
    return sent, received


def _hcads(snapshot: Snapshot) -> float:
    """Another number when other HCAs count: sums over them may have shrunk."""
    started = snapshot.series("flitnet_process_start_time_seconds")
    return sum(at for labels, at in started if labels.get("process", "").startswith("hcad-"))


def _finite(value: Any) -> Any:
    """JSON has no infinity, and a browser refuses all of a text that has one: 0 instead."""
    match value:
        case dict():
            return {key: _finite(one) for key, one in value.items()}
        case list():
            return [_finite(one) for one in value]
        case float():
            return value if math.isfinite(value) else 0.0
    return value


def _by(snapshot: Snapshot, name: str, label: str) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for labels, value in snapshot.series(name):
        sums[labels.get(label, "")] += value
    return dict(sums)


def _port_flits(snapshot: Snapshot) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for labels, flits in snapshot.series("flitnet_switch_transmitted_flits_total"):
        sums[f"{labels.get('switch')}:{labels.get('port')}"] += flits
    return dict(sums)
