"""The soaks of `flitnet soak` for a moment each; `./flitnet soak` runs them for hours."""

from __future__ import annotations

import random

import pytest

from tools.flitnet import config, soak_clusters, soak_live, soak_verbs
from tools.flitnet.cluster import Cluster
from tools.flitnet.errors import FlitnetError
from tools.flitnet.process import free_port


def test_random_verbs_calls_are_as_the_model_has_them() -> None:
    said = soak_verbs.verbs(seconds=4, seed=11)
    assert int(said.split()[0]) > 1000, said


def test_hostile_programs_disturb_nobody() -> None:
    assert "none disturbed" in soak_verbs.hostile(seconds=1, seed=21)


def test_killed_programs_leave_nothing() -> None:
    assert "60 programs killed" in soak_verbs.kill(count=60, seed=31)


def test_looks_at_an_idle_node_are_alike() -> None:
    # A question that hcad had not hung up on yet was counted as a leak of one descriptor.
    soak_verbs.ready()
    with Cluster(soak_verbs.TABLES) as cluster:
        looks = [soak_verbs.footprint(cluster, "n0").descriptors for _ in range(100)]
    assert len(set(looks)) == 1, looks


@pytest.mark.parametrize("seed", [3, 7, 29])
def test_programs_on_random_clusters_succeed(seed: int) -> None:
    said = soak_live.live(seconds=0, seed=seed)
    assert said.startswith("1 clusters, ") and said.endswith("all succeeded")


def test_draws_are_of_all_kinds() -> None:
    drawn = [soak_clusters.draw(random.Random(seed)) for seed in range(40)]
    for table, key in (("network", "router"), ("qos", "scheduler"), ("controls", "congestion")):
        assert len({tables[table][key] for tables in drawn}) > 4, key
    assert {tables["hca"]["process"] for tables in drawn} == {"own", "fabric"}
    for tables in drawn:
        config.check(config.parse(config.to_toml(tables)))


def test_a_program_that_fails_ends_the_soak_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def pair(*_: object) -> soak_live.Pair:
        port = free_port()
        argv = ["ibv_rc_pingpong", "-g", "0", "-p", str(port)]
        return soak_live.Pair(argv, [*argv, "-m", "9", "127.0.0.1"], ("n0", "n1"), port)

    monkeypatch.setattr(soak_live, "draw_pair", pair)
    monkeypatch.setattr(soak_live, "TIMEOUT_S", 2.0)
    with pytest.raises(FlitnetError, match="n1: ibv_rc_pingpong .*: exit code 1") as failure:
        soak_live.live(seconds=0, seed=5)
    assert "again: ./flitnet soak live --minutes 0.01 --seed 5" in str(failure.value)
    assert "[network]" in str(failure.value)


def test_a_server_that_crashes_behind_its_client_ends_the_soak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pair(*_: object) -> soak_live.Pair:
        crashes = 'trap "kill -SEGV $$" TERM; echo ready; while :; do sleep 0.01; done'
        server = ["sh", "-c", crashes]
        return soak_live.Pair(server, ["true"], ("n0", "n1"), None, ready="ready", serves_on=True)

    monkeypatch.setattr(soak_live, "draw_pair", pair)
    with pytest.raises(FlitnetError, match="n0: sh .*: exit code -11"):
        soak_live.live(seconds=0, seed=5)
