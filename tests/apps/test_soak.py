"""The soaks of `flitnet soak` for a moment each; `./flitnet soak` runs them for hours."""

from __future__ import annotations

from tools.flitnet import soak_verbs
from tools.flitnet.cluster import Cluster


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
