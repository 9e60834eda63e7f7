"""All controls while links fail (x.failures), on the fat tree of 64 hosts.

What is chosen here:
- Four leaf routers of sixteen, one in each pod, lose x of their four links up for three eighths of
  the run. Sixteen hosts send through what is left, and all others send to them through it.
- A link drains: what has begun goes on over it, what leaves from then on goes round. Streams whose
  ways change give back what they booked, hold their messages and ask again; who is refused is
  silent until links change once more.
- Frames of 1 ms and 64 Mb/s instead of 33.3 ms and 4 Mb/s: as many messages to a frame, and a run
  that has enough of them in seconds.
- "Before" leaves out the first half of the time before the failure.
"""

from __future__ import annotations

from typing import Any

from tools.flitnet.lab.claims import Above, AtMost, Below, Rising
from tools.flitnet.lab.experiment import Experiment, Length, Plot, Point, Tables, quick_length

OPEN = " ".join(line.strip("- ") for line in (__doc__ or "").split(":\n", 1)[1].split("\n"))
LEAVES = (0, 5, 10, 15)
FIRST_UP = 4  # of a leaf's ports
FROM, UNTIL = 0.375, 0.75
CAP_W = 2.557  # what emu/config computes for power_cap_load = 0.6 on this tree
LOST = (1, 2, 3)

CONTROLS: dict[str, dict[str, Any]] = {
    "none": {"admission": False, "congestion": "none", "power_control": False},
    "A,C,P": {"admission": True, "congestion": "credit", "power_control": True},
}  # fmt: skip


def failing(name: str, lost: int) -> Tables:
    return {
        "network": {"topology": "fat_tree", "link_mbps": 1600, "vc_buf_size": 10, "alloc_iters": 4},
        "qos": {"scheduler": "two_level"},
        "controls": {"reservable_share": 0.8, "power_cap_load": 0.6, "power_rt_share": 0.8}
        | CONTROLS[name],
        "workload": {
            "streams": "vbr", "stream_kbps": 64_000, "placement": "uniform", "load": 0.4,
            "real_time_share": 0.8, "message_flits": 40, "frame_ms": 1.0, "control_per_frame": 10,
            "control_flits": 10,
        },
        "run": {
            "hca": True, "batch_cycles": 12_500,
            "failures": [
                f"{leaf}:{FIRST_UP + n} {FROM:g} {UNTIL:g}" for leaf in LEAVES for n in range(lost)
            ],
        },
    }  # fmt: skip


EXPERIMENT = Experiment(
    id="x.failures", title="All controls while links fail, fat tree of 64 hosts",
    paper="Beyond the papers: while links are down, streams that were admitted anew keep their "
    "latency where without control everyone's grows; what does not fit is refused; power stays "
    "under the cap; and when the links are back, latency falls sooner than without.",
    x_label="links up that each of four leaves loses, of four",
    points=tuple(
        Point(name, lost, failing(name, lost), quick=lost == 2)
        for name in CONTROLS
        for lost in LOST
    ),
    quick=quick_length(8, 20), full=Length(16, 16), open=OPEN, relative=0.1,
    precision={"real_time_message_us_during": 0.5, "real_time_message_us_after": 0.5},
    plots=tuple(
        Plot(f"{measure}_{phase}", f"{label} {phase}", log=log)
        for measure, label, log in (
            ("real_time_message_us", "real time, µs,", True),
            ("dmp", "deadlines missed", False),
            ("late_us", "mean lateness of a frame, µs,", True),
            ("best_effort_load", "best effort, flits a cycle and node,", False),
            ("power_max_w", "largest 500 cycles, W,", False),
        )
        for phase in ("before", "during", "after")
    )
    + (Plot("asked_again", "streams that asked again"),
       Plot("refused_again", "of these refused"),
       Plot("asked_again_us", "from asking to the answer, µs")),
    claims=(
        Below("best_effort_load_during", LOST, "none", "A,C,P"),
        Below("real_time_message_us_during", (2, 3), "A,C,P", "none"),
        Below("late_us_during", (2, 3), "A,C,P", "none"),
        Below("real_time_message_us_after", (2, 3), "A,C,P", "none"),
        Above("refused_again", (2, 3), "A,C,P", 0),
        Rising("asked_again", LOST, "A,C,P"),
        AtMost("power_max_w_during", LOST, "A,C,P", CAP_W),
        AtMost("power_max_w_after", LOST, "A,C,P", CAP_W),
    ),
)  # fmt: skip
