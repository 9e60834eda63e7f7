"""Tree saturation control in the GigaNet interconnect (GN)."""

from __future__ import annotations

from tools.flitnet.lab.experiment import Experiment

EXPERIMENTS = (
    Experiment(
        id="gn.base",
        title="Base latency and rate of the switch",
        paper=(
            "10 µs base latency, +1 µs a hop, ~114 MB/s, 266 000 4-byte messages/s."
        ),
        missing="the GigaNet cell switch",
    ),
    Experiment(
        id="gn.slow",
        title="Streams into one node",
        paper=(
            "Up to 7 streams into one node: fair shares; background streams ≥ 110 of 112 MB/s."
        ),
        missing="the GigaNet cell switch",
    ),
    Experiment(
        id="gn.port",
        title="Background and congesting streams",
        paper=(
            "7 background + 7 congesting streams: background 98, congesting 15 MB/s each from "
            "20 % on, 780 MB/s in all. Link-level only: background falls to 15 %."
        ),
        missing="the GigaNet cell switch",
    ),
    Experiment(
        id="gn.t1",
        title="Multi-stage throughput",
        paper=(
            "Multi-stage: table 1 of the paper (node 18 total 115 115 84 91 114 114 116 114; "
            "node 10: 0 114 0 0 0 30 64 114 MB/s)."
        ),
        missing="the GigaNet cell switch",
    ),
    Experiment(
        id="gn.ftb",
        title="Front-to-back streams",
        paper=(
            "Front-to-back, 32 streams: link-level only loses 27 % on average (42 % at the "
            "largest message) against per-stream flow control; the stream that shares no link "
            "keeps 112 MB/s."
        ),
        missing="the GigaNet cell switch",
    ),
)
