"""The soaks of `flitnet soak` for a moment each; `./flitnet soak` runs them for hours."""

from __future__ import annotations

from tools.flitnet import soak_verbs


def test_random_verbs_calls_are_as_the_model_has_them() -> None:
    said = soak_verbs.verbs(seconds=4, seed=11)
    assert int(said.split()[0]) > 1000, said


def test_hostile_programs_disturb_nobody() -> None:
    assert "none disturbed" in soak_verbs.hostile(seconds=1, seed=21)


def test_killed_programs_leave_nothing() -> None:
    assert "60 programs killed" in soak_verbs.kill(count=60, seed=31)
