"""A failure log that ends in the middle of a line says so, whichever program wrote it."""

import pytest

from tests.load.failures.formats.test_goodput_events import example
from tests.load.failures.formats.test_megatron import line as megatron_line
from tests.load.failures.formats.test_nccl_log import caught
from tests.load.failures.formats.test_nvrx import RESTART
from tests.load.failures.formats.test_slurm import HEADER as SACCT
from tests.load.failures.formats.test_torchelastic import BLOCK
from tests.load.failures.test_failures import line as kernel_line
from tests.load.failures.test_slurm_output import RAS, STEP
from workbench import load
from workbench.errors import LoadError
from workbench.tables import HARMLESS

GIVEN = {"tz": "UTC", "year": 2025, "node": "n1", "progress": False}
FABRIC = "[Feb 25 2025 14:01:{:02d}] [{}] [tid 71] {}\n"
NO_END = "last line without a line end, which may be cut"

SAMPLES = {
    "kernel": "".join(kernel_line(second, code=79) for second in (10, 11)),
    "fabric manager": FABRIC.format(1, "INFO", "Successfully configured all the NVSwitches")
    + FABRIC.format(
        2, "ERROR", "detected NVSwitch fatal error 20034 on pci bus id 00000000:05:00.0"
    ),
    "sacct": SACCT
    + "".join(
        f"\n{job}|train|NODE_FAIL|0:0|2025-03-01T10:00:00|2025-03-01T10:00:00|2025-03-01T11:00:00|"
        f"01:00:00|1|n{job}|cpu=8"
        for job in (11, 12)
    )
    + "\n",
    "job output": STEP.format(what="JOB 1", why=" DUE TO TIME LIMIT")
    + "srun: error: Node failure on node07\n",
    "RAS": RAS.format(errors="", warnings="", status="OK"),
    "NCCL": caught("E207 19:04:38.123186550") + caught("E207 19:04:39.123186550", rank=3),
    "torchrun": BLOCK,
    "NVRx": RESTART,
    "Megatron": "".join(
        megatron_line(step, stamp=f"[2025-01-31 08:00:{step:02d}]") + "\n" for step in (5, 6, 3, 4)
    ),
    "goodput": "".join(f"{event}\n" for event in example()),
    "dcgm": "# TYPE DCGM_FI_DEV_XID_ERRORS gauge\n"
    'DCGM_FI_DEV_XID_ERRORS{gpu="0",Hostname="n1"} 79 1700000000000\n'
    'DCGM_FI_DEV_XID_ERRORS{gpu="1",Hostname="n1"} 79 1700000000000\n',
}


def cuts(text):
    """Cut a file here and there in its last line and before, and behind its last bytes."""
    size, last = len(text), text.rstrip("\n").rfind("\n") + 1
    ends = {last // 2, last + 1, (2 * last + size) // 3, (last + size) // 2, size - 3, size - 1}
    return [text[:end] for end in sorted(ends) if not text[:end].endswith("\n")]


def is_told(log):
    return bool(set(log.quality["finding"].astype(str)) - {*HARMLESS})


@pytest.mark.long
@pytest.mark.parametrize("name", SAMPLES)
def test_a_cut_in_a_line_of_a_failure_log_is_told(name, tmp_path):
    path = tmp_path / "some.log"
    path.write_text(SAMPLES[name])
    whole = load.failures(path, **GIVEN)
    assert NO_END not in set(whole.quality["what"])
    silent = []
    for text in cuts(SAMPLES[name]):
        path.write_text(text)
        try:
            log = load.failures(path, **GIVEN)
        except LoadError:
            continue
        # An object that lacks nothing but its line end is whole.
        if not is_told(log) and not (text.endswith("}") and f"{text}\n" in SAMPLES[name]):
            silent.append(text[-60:])
    assert silent == []


def test_a_last_line_without_an_end_is_read_and_told_once(tmp_path):
    path = tmp_path / "kern.log"
    path.write_text(SAMPLES["kernel"][:-1])
    log = load.failures(path, **GIVEN)
    assert log.failures["line_count"].sum() == 2
    (row,) = log.quality[log.quality["finding"] == "truncated"].to_dict("records")
    assert (row["what"], row["count"], row["where"]) == (NO_END, 1, "line 2")


@pytest.mark.parametrize("ending", ["", "\n", "\n\n", "\r\n", "\n  \t"])
def test_json_and_blanks_at_the_end_of_a_log_lack_nothing(ending, tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(example()) + ending)
    assert NO_END not in set(load.failures(path, **GIVEN).quality["what"])
