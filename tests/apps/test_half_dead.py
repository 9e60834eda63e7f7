"""A cluster of which a part is dead or deaf: what status, page and set say of it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.flitnet import ctl, logs, operate, page, paths, traffic
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import EXIT_ERROR, EXIT_OK, FlitnetError


@pytest.fixture
def cluster3(make_cluster: Callable[..., Cluster]) -> Cluster:
    return make_cluster({"network": {"nodes": 3}})


def until(holds: Callable[[], bool]) -> None:
    for _ in range(1000):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError("it never came to be")


def said(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:
    code = operate.status(cluster.run, as_json=True)
    return code, json.loads(capsys.readouterr().out)


def test_status_names_a_node_that_hangs(cluster3: Cluster, capsys) -> None:
    assert operate.status(cluster3.run, as_json=False) == EXIT_OK
    cluster3.process("hcad:n1").signal(signal.SIGSTOP)
    until(lambda: list(cluster3.absent()) == ["n1"])
    assert operate.status(cluster3.run, as_json=False) == EXIT_ERROR
    assert "n1 is not attached: it does not answer" in capsys.readouterr().out
    code, value = said(cluster3, capsys)
    assert (code, value["dead"], value["absent"]) == (EXIT_ERROR, [], ["n1"])
    cluster3.process("hcad:n1").signal(signal.SIGCONT)
    until(lambda: cluster3.absent() == {})
    assert operate.status(cluster3.run, as_json=True) == EXIT_OK


def test_status_names_what_was_never_started(cluster3: Cluster, capsys) -> None:
    cluster3.kill("hcad:n2")
    cluster3.forget("hcad:n2")
    until(lambda: list(cluster3.absent()) == ["n2"])
    code, value = said(cluster3, capsys)
    assert (code, value["dead"], value["absent"]) == (EXIT_ERROR, ["hcad:n2"], ["n2"])
    cluster3.kill("fabricd")
    code, value = said(cluster3, capsys)
    assert (code, value["dead"]) == (EXIT_ERROR, ["fabricd", "hcad:n2"])
    assert value["absent"] == ["n0", "n1", "n2"]


def test_a_cable_that_was_pulled_is_no_death(cluster3: Cluster) -> None:
    operate.set_link(cluster3.run, "n1", "down")
    until(lambda: cluster3.node_status("n1")["state"] == "down")
    assert operate.status(cluster3.run, as_json=True) == EXIT_OK


def test_the_page_shows_a_dead_node_as_down(cluster3: Cluster) -> None:
    def up() -> list[str]:
        return [name for name, node in page.look(cluster3.run)["nodes"].items() if node["up"]]

    until(lambda: up() == ["n0", "n1", "n2"])
    cluster3.kill("hcad:n1")
    until(lambda: up() == ["n0", "n2"])
    cluster3.start_node("n1")
    until(lambda: up() == ["n0", "n1", "n2"])


def test_set_changes_nothing_where_a_node_is_dead(cluster3: Cluster) -> None:
    cluster3.kill("hcad:n1")
    with pytest.raises(FlitnetError, match="^n1: dead, start it with.*; nothing") as failed:
        operate.set_control(cluster3.run, "congestion", "none")
    assert failed.value.exit_code == EXIT_ERROR
    for node in ("n0", "n2"):
        assert cluster3.node_status(node)["congestion"] == "credit"


def test_set_says_what_was_changed_before_one_refused(
    cluster3: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ctl.ask

    def ask(path: Path, request: dict) -> dict:
        if request["cmd"] == "set" and path.parent.name == "n1":
            raise FlitnetError("it died meanwhile")
        return real(path, request)

    monkeypatch.setattr(ctl, "ask", ask)
    with pytest.raises(FlitnetError) as failed:
        operate.set_control(cluster3.run, "congestion", "none")
    assert str(failed.value) == "n1: it died meanwhile; changed before that: fabricd, n0"
    assert failed.value.exit_code == EXIT_ERROR


def test_a_run_directory_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of another user; root may read it, so the refusal is made here."""

    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    assert "cannot be read: Permission denied" in page.look(Path("/somewhere"))["away"]


def test_what_needs_a_dead_node_says_how_it_is_started(cluster3: Cluster, tmp_path: Path) -> None:
    cluster3.kill("hcad:n2")
    words = "^n2 is dead; start it with: flitnet node n2 start$"
    rest = {"seconds": 1.0, "as_json": False}
    with pytest.raises(FlitnetError, match=words):
        traffic.load(cluster3.run, "control", "1M", seed=1, **rest)
    clip = paths.ROOT / "traces/t2_city.ts"
    for pair in (("n0", "n2"), ("n2", "n0")):
        with pytest.raises(FlitnetError, match=words):
            traffic.replay(cluster3.run, clip, *pair, copies=1, trace={}, **rest)
    file = tmp_path / "load.toml"
    file.write_text("[workload]\nload = 0.1\n")
    with pytest.raises(FlitnetError, match=words):
        traffic.load_workload(cluster3.run, file, seed=1, **rest)
    assert not list((cluster3.run / "plans").iterdir())
    assert traffic.replay(cluster3.run, clip, "n0", "n1", copies=1, trace={}, **rest) == EXIT_OK


def test_a_node_may_have_the_name_of_the_fabrics_daemon(
    make_cluster: Callable[..., Cluster], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = make_cluster({"node": [{"name": "fabricd"}, {"name": "n1"}]}, owned=False)
    scheme = ctl.ask(cluster.run / "fabricd.ctl", {"cmd": "status"})["congestion"]
    assert scheme != "none"
    operate.set_control(cluster.run, "congestion", "none")
    assert ctl.ask(cluster.run / "fabricd.ctl", {"cmd": "status"})["congestion"] == "none"
    logs.show(cluster.run, None)
    who = {line.split()[2] for line in capsys.readouterr().out.splitlines()}
    assert {"fabricd", "hcad:fabricd"} <= who
    cluster.kill("hcad:fabricd")
    assert operate.status(cluster.run, as_json=False) == EXIT_ERROR
    how = "; fabricd is dead; use: flitnet node fabricd start, or"
    with pytest.raises(FlitnetError, match=how):
        Cluster({"network": {"nodes": 2}}, run=cluster.run, owned=False).up()


def test_top_shows_what_lives_and_names_who_is_dead(cluster3: Cluster) -> None:
    """On a terminal of its own; Ctrl-C is how one leaves."""
    terminal, side = pty.openpty()
    env = dict(os.environ) | {"FLITNET_RUN": str(cluster3.run), "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        [paths.ROOT / "flitnet", "top"], env=env, stdin=side, stdout=side, stderr=side,
        start_new_session=True,
    ) as top:  # fmt: skip
        os.close(side)
        shown = bytearray()

        def shows(text: bytes) -> None:
            while text not in shown:
                assert top.poll() is None, shown.decode(errors="replace")
                shown.extend(os.read(terminal, 65536))

        shows(b"3 nodes")
        cluster3.kill("hcad:n1")
        shows(b"hcad:n1 is dead")
        top.send_signal(signal.SIGINT)
        assert top.wait(timeout=20) == 0
    os.close(terminal)
