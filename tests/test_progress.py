"""What a run shows while it runs: a bar, lines, events, or nothing."""

import json
import time

import pytest

from rlvr_jax.progress import Mode, Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be set."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def shown(mode: Mode, clock: list[float], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What is shown of 400 cells, of which 100 had been there, and 200 take 20 seconds."""
    with Progress(mode, 400, 100) as progress:
        for _ in range(20):
            clock[0] += 1.0
            progress.advance(100, 10**8, 0.1)
        progress.event("task", task=3)
    return capsys.readouterr()


def test_lines_come_every_ten_seconds(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    out, err = shown("auto", clock, capsys)  # captured output is no terminal
    assert out == ""
    assert err.splitlines() == [
        "200 of 400 cells, 10 Msamples/s, 20 s left",
        "300 of 400 cells, 10 Msamples/s, 10 s left",
    ]


def test_events_are_lines_of_json(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    out, err = shown("json", clock, capsys)
    first, _, last = map(json.loads, out.splitlines())
    assert first == {"event": "progress", "cells": 200, "of": 400, "msamples_per_second": 10.0, "seconds_left": 20.0}
    assert last == {"event": "task", "task": 3}
    assert err == ""


def test_quiet_is_quiet_and_a_bar_counts_cells(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    assert shown("none", clock, capsys) == ("", "")
    with Progress("bar", 400, 100) as progress:
        progress.bar.delay = 0
        progress.advance(100, 10**8, 1.0)
        assert progress.bar.n == 200
        assert "200/400 cells" in str(progress.bar)


def test_nothing_is_known_before_anything_is_done(clock: list[float]) -> None:
    progress = Progress("none", 400, 100)
    assert progress.seconds_left == float("inf")
    assert progress.rate == 0
