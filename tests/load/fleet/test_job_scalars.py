"""Event files of TensorBoard, metrics of MLflow and histories of W&B, written by plain struct."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import load
from workbench.errors import LoadError
from workbench.load._fleet import job_scalars
from workbench.load.kinds import kinds_of
from workbench.tables import LOGGED_STEPS

T0 = 1_700_000_000


def crc32c(data):
    """Bit by bit, as RFC 3720 has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15) | (crc << 17) & 0xFFFFFFFF) + 0xA282EAD8 & 0xFFFFFFFF


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def event(step, seconds, *, tensor=False, **scalars):
    """Write one event; names are tags, with __ for a slash."""
    values = b""
    for name, number in scalars.items():
        value = field(1, name.replace("__", "/").encode())
        if tensor:
            value += field(8, b"\x08\x01" + field(4, struct.pack("<f", number)))
        else:
            value += b"\x15" + struct.pack("<f", number)
        values += field(1, value)
    message = b"\x09" + struct.pack("<d", T0 + seconds) + b"\x10" + varint(step)
    return message + (field(5, values) if values else b"")


def records(*payloads):
    return b"".join(
        (head := struct.pack("<Q", len(p))) + struct.pack("<I", masked(head)) + p
        + struct.pack("<I", masked(p))
        for p in payloads
    )  # fmt: skip


VERSION = b"\x09" + struct.pack("<d", T0) + field(3, b"brain.Event:2")


def run(count, first=0, **more):
    return [
        event(n, 10 + n, train__loss=4 - n / 8, **{"iteration-time": 0.5}, **more)
        for n in range(first, first + count)
    ]


@pytest.fixture
def write(tmp_path):
    def put(content, name="run/events.out.tfevents.1700000000.gpu7.12.0"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return put


def said(log, finding):
    return log.quality.loc[log.quality["finding"] == finding, "what"].tolist()


def test_the_checksum_is_that_of_the_standard():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA


@given(st.binary(max_size=40))
def test_the_fast_checksum_is_that_of_every_bit(data):
    assert job_scalars._masked(data) == masked(data)


@pytest.mark.parametrize("tensor", [False, True])
def test_steps_losses_and_durations_come_from_the_scalars(write, tensor):
    payloads = [
        event(n, 10 + n, tensor=tensor, train__loss=4 - n / 8, **{"iteration-time": 0.5})
        for n in range(6)
    ]
    path = write(records(VERSION, *payloads))
    log = load.job_log(path)
    steps = LOGGED_STEPS.check(log.steps)
    assert steps["step"].tolist() == list(range(6))
    assert steps["loss"].tolist() == [4 - n / 8 for n in range(6)]
    assert steps["end_ns"].tolist() == [(T0 + 10 + n) * 10**9 for n in range(6)]
    assert (steps["end_ns"] - steps["start_ns"]).eq(5 * 10**8).all()
    assert kinds_of(path.parent) == {"job logs"}


def test_a_step_ends_with_its_first_scalar_not_when_the_last_was_written(write):
    """Validation is logged under the same step minutes later: naively the step lasts as long."""
    late = [event(n, 10 + n + 0.4, grad_norm=1.0, val__loss=9.0) for n in range(4)]
    log = load.job_log(write(records(VERSION, *run(4), *late)))
    assert log.steps["end_ns"].tolist() == [(T0 + 10 + n) * 10**9 for n in range(4)]
    assert log.steps["loss"].max() == 4.0
    assert "scalars that are not read" in said(log, "noted")


def test_files_of_one_run_are_joined_by_time_and_a_fall_back_is_a_restart(write):
    name = "run/events.out.tfevents.{}.gpu7.1.0"
    write(records(VERSION, *run(6)), name.format(2))
    # It goes on from a checkpoint at step 4, an hour later; the file sorts first by name.
    again = [event(n, 3600 + n, train__loss=1.0, **{"iteration-time": 0.5}) for n in range(4, 8)]
    path = write(records(VERSION, *again), name.format(1))
    steps = load.job_log(path.parent).steps
    assert steps["attempt"].tolist() == [1] * 6 + [2] * 4
    assert steps["step"].tolist() == [*range(6), *range(4, 8)]


def test_a_duration_without_a_unit_is_not_guessed(write):
    payloads = [event(n, 10 + n, loss=1.0, perf__step_time=500.0) for n in range(4)]
    path = write(records(VERSION, *payloads))
    log = load.job_log(path)
    assert any("does not state its unit" in text for text in said(log, "noted"))
    log = load.job_log(path, columns={"duration_ms": "perf/step_time"})
    assert (log.steps["end_ns"] - log.steps["start_ns"]).eq(5 * 10**8).all()


def test_throughput_of_all_ranks_becomes_tokens_of_the_step(write):
    payloads = [
        event(n, 10 + n, tps=4096.0, **{"iteration-time": 0.5}) for n in range(3)
    ]  # fmt: skip
    log = load.job_log(write(records(VERSION, *payloads)), columns={"tokens_per_s": "tps"})
    assert log.steps["token_count"].tolist() == [2048] * 3


def test_columns_name_only_scalars_that_there_are_and_only_what_a_step_has(write):
    path = write(records(VERSION, *run(2)))
    for columns in ({"loss": "nothing"}, {"attempt": "train/loss"}):
        with pytest.raises(LoadError, match="which it lacks; it has iteration-time, train/loss"):
            load.job_log(path, columns=columns)


def test_scalars_over_samples_are_no_steps(write):
    payloads = [event(8 * n, 10 + n, **{"lm loss vs samples": 2.0}) for n in range(3)]
    with pytest.raises(LoadError, match="no step and no span"):
        load.job_log(write(records(VERSION, *payloads)))


def test_images_are_passed_over_and_a_cut_last_record_is_told(write):
    image = event(1, 11) + field(5, field(1, field(1, b"a") + field(4, bytes(40_000))))
    whole = records(VERSION, run(3)[0], image, *run(2, first=1))
    log = load.job_log(write(whole))
    assert len(log.steps) == 3
    assert said(log, "skipped by design") == ["records of images, graphs and the like"]
    log = load.job_log(write(whole[:-5]))
    assert len(log.steps) == 2
    assert said(log, "truncated") == ["the file ends inside a record"]


def test_a_damaged_record_is_dropped_and_a_damaged_length_ends_the_file(write):
    first = len(records(VERSION))
    whole = bytearray(records(VERSION, *run(4)))
    whole[first + 20] ^= 1
    log = load.job_log(write(bytes(whole)))
    assert len(log.steps) == 3
    assert "records whose checksum does not fit" in said(log, "dropped")
    whole = bytearray(records(VERSION, *run(4)))
    whole[-len(records(run(4)[-1])) + 7] = 255
    log = load.job_log(write(bytes(whole)))
    assert len(log.steps) == 3
    assert said(log, "truncated") == ["a length is damaged or cut off: the rest is dropped"]


@pytest.mark.long
@given(st.lists(st.tuples(
    st.integers(0, 5), st.integers(0, 100),
    st.sampled_from(["loss", "iteration-time", "batch_size", "x"]),
    st.floats(width=32),
), min_size=1, max_size=30))  # fmt: skip
def test_any_scalars_give_a_table_or_our_error(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("odd") / "events.out.tfevents.1.a"
    path.write_bytes(records(VERSION, *(event(s, at, **{name: v}) for s, at, name, v in rows)))
    try:
        steps = load.job_log(path).steps
    except LoadError:
        return
    assert (LOGGED_STEPS.check(steps)["end_ns"] >= steps["start_ns"]).all()


def test_metrics_of_mlflow_are_one_log(write):
    ends = [T0 * 1000 + 1000 * n for n in range(5)]
    base = "mlruns/0/0123abc/metrics/"
    write(
        b"".join(b"%d %f %d\n" % (ms, 0.25, n) for n, ms in enumerate(ends)), base + "step_time_s"
    )
    path = write(
        b"".join(b"%d %f %d\n" % (ms, 3 - n, n) for n, ms in enumerate(ends)) + b"x y z\n",
        base + "train/loss",
    )  # fmt: skip
    folder = path.parents[4]
    log = load.job_log(folder)
    assert log.steps["loss"].tolist() == [3.0, 2.0, 1.0, 0.0, -1.0]
    assert (log.steps["end_ns"] - log.steps["start_ns"]).eq(25 * 10**7).all()
    assert "lines without time, value and step" in said(log, "dropped")
    assert kinds_of(folder) == {"job logs"}


def test_a_history_of_wandb_is_read_as_lines_and_as_csv(write):
    rows = [{"_step": n, "_timestamp": T0 + n + 0.5, "loss": 2.0 - n, "lr": 1e-4} for n in range(4)]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    csv = b"_step,_timestamp,loss\n" + b"".join(
        b"%d,%.1f,%f\n" % (row["_step"], row["_timestamp"], row["loss"]) for row in rows
    )
    for name, content in (("wandb-history.jsonl", lines), ("history.csv", csv)):
        steps = load.job_log(write(content, name)).steps
        assert steps["loss"].tolist() == [1.0, 0.0, -1.0]
        assert steps["end_ns"].tolist() == [int((T0 + n + 0.5) * 10**9) for n in (1, 2, 3)]


def test_an_offline_run_of_wandb_is_refused_with_the_way_to_export_it(write):
    path = write(b":W&B\xe1\xbe\x00" + bytes(64), "run-1a2b.wandb")
    with pytest.raises(LoadError, match=r"wandb sync .*history\(pandas=True\)"):
        load.job_log(path)


@pytest.mark.parametrize(
    "names", [("train", "validation"), ("loss/train", "loss/val"), (".", "eval")]
)
def test_the_folder_of_validation_is_no_other_attempt_of_the_job(write, names):
    """Keras and ``add_scalars`` give training and validation a folder each, with equal names."""
    train, other = (f"run/{name}/events.out.tfevents.1.a.v2" for name in names)
    write(records(VERSION, *run(5)), train)
    path = write(records(VERSION, *[event(n, 11 + n, loss=9.0) for n in range(5)]), other)
    log = load.job_log(path.parents[len(names[1].split("/"))])
    assert log.steps["loss"].max() == 4.0
    assert set(log.steps["attempt"]) == {1}
    assert any("scalars of validation" in text for text in said(log, "skipped by design"))
    # Named alone, or with nothing beside it, it is what the caller wants.
    assert load.job_log(path.parent).steps["loss"].eq(9.0).all()


def test_names_of_scalars_that_mean_nothing_here_are_told_where_no_step_is_found(write):
    path = write(records(VERSION, *[event(n, n, perf__odd=1.0) for n in range(3)]))
    with pytest.raises(LoadError, match=r"scalars that are not read \(perf/odd\)"):
        load.job_log(path)


def test_losses_of_batches_are_those_of_keras(write):
    payloads = [event(n, n, batch_loss=4.0 - n, epoch_loss=9.0) for n in range(3)]
    assert load.job_log(write(records(VERSION, *payloads))).steps["loss"].tolist() == [3.0, 2.0]


def test_stamps_several_steps_apart_are_divided_among_them(write):
    payloads = [event(50 * n, 10 * n, loss=1.0) for n in range(4)]
    log = load.job_log(write(records(VERSION, *payloads)))
    assert len(log.steps) == 150
    assert set(log.steps["end_ns"] - log.steps["start_ns"]) == {200_000_000}
    assert said(log, "suspicious") == []


def test_steps_of_a_second_event_file_keep_its_name(write):
    write(records(VERSION, *run(6)))
    path = write(records(VERSION, *run(4, first=6)), "run/events.out.tfevents.1700000009.gpu7.13.0")
    log = load.job_log(path.parent)
    assert log.steps["source"].str[-6:].tolist() == ["7.12.0"] * 6 + ["7.13.0"] * 4
    assert set(log.quality[log.quality["what"] == "scalars"]["source"]) == set(log.steps["source"])


def test_the_largest_float_of_mlflow_is_infinity(write):
    text = "".join(
        f"{1000 * (T0 + n)} {v!r} {n}\n" for n, v in enumerate([2.5, 1.7976931348623157e308])
    )
    path = write(text.encode(), "mlruns/0/abc/metrics/loss")
    assert load.job_log(path).steps["loss"].tolist() == [float("inf")]
