"""A copy of a trace that may be shared: nothing of the source but its behaviour."""

import gzip
import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.load.conftest import event, launched
from tests.load.traces.chakra.chakra_files import attributes_of, nodes_of
from tests.plot.conftest import build
from workbench import analyze, load
from workbench._shared.collective_names import OPERATIONS, operation_of
from workbench._shared.kernel_kinds import classify, shipped_rules
from workbench.errors import LoadError
from workbench.load._traces.obfuscation import KERNEL_WORDS, kernel_name, obfuscated_trace
from workbench.tables import (
    DEPENDENCIES,
    DEVICES,
    EVENTS,
    NODES,
    PROCESS_GROUPS,
    QUALITY,
    RANKS,
    SAYS_OBFUSCATED,
    STEPS,
    VISIBLE,
    Trace,
)

# What a copy may say: the format's own keys, public calls, and words for kinds.
ALLOWED = {
    "schemaVersion", "displayTimeUnit", "baseTimeNanoseconds", "distributedInfo", "rank",
    "world_size", "pg_config", "pg_name", "pg_size", "ranks", "obfuscated", "synthetic", "true",
    "traceEvents", "name", "args", "device", "stream", "correlation", "External", "bytes",
    "Collective", "Process", "Group", "size", "nelems", "dtype", "wait_on_stream",
    "wait_on_cuda_event_record_corr_id", "cpu_op", "user_annotation", "python_function",
    "cuda_runtime", "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation",
    "cuda_sync", "overhead", "uncategorised", "operator", "annotation", "runtime_call", "event",
    "ProfilerStep", "DataLoader___next__", "Memcpy", "Memset", "Device", "Pageable", "Pinned",
    "HtoD", "DtoH", "DtoD", "Float", "BFloat16", "Half", "Long", "Wait", "Event", "Stream",
    "Sync", "Context", "Name", "cudaLaunchKernel", "allreduce",
}  # fmt: skip
SECRETS = ["AcmeLM", "acme", "zebra_attention", "gpu-node-17", "tenant42", "proprietary_loss"]


def texts_of(document):
    """Give every text of a JSON document, keys and values."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            yield from texts_of(value)
    elif isinstance(document, list):
        for value in document:
            yield from texts_of(value)
    elif isinstance(document, str):
        yield document


def words_of(texts):
    return {word for text in texts for word in re.findall(r"\w{4,}", text) if not word.isdigit()}


def raw_texts(folder):
    """Read the copies apart from the package."""
    return {path: gzip.decompress(path.read_bytes()).decode() for path in folder.rglob("*.gz")}


def rank_events(late_us, base):
    return [
        event("ProfilerStep#7", base, 900, cat="user_annotation", pid=4242, tid="AcmeLM-main"),
        event("acme::zebra_attention", base + 1, 90, pid=4242, **{"External id": 91}),
        event("train/AcmeLM.py(12): forward", base + 2, 60, cat="python_function", pid=4242),
        *launched(501, base + 3, kernel="void zebra_attention_fwd<acme::Tile>(float*)"),
        *launched(502, base + 5 + late_us, dur=30, kernel="proprietary_loss_kernel", gap=20),
        event("ncclDevKernel_AllReduce_Sum_bf16_RING", base + 60 + late_us, 100 - late_us,
              cat="kernel", pid=0, tid=20, correlation=503, stream=20, device=0,
              **{"Collective name": "allreduce", "Process Group Name": "tenant42_dp", "Seq": 77,
                 "Group size": 2, "In msg nelems": 12_345_678, "Out msg nelems": 12_345_678,
                 "dtype": "BFloat16", "Input Dims": [[5120, 17]]}),
        event("mark", base + 200, 1, cat="acme_category", pid=4242),
        {"ph": "M", "name": "process_name", "pid": 4242, "args": {"name": "gpu-node-17"}},
    ]  # fmt: skip


@pytest.fixture
def job(trace_file, tmp_path):
    """Two ranks, the second 40 us late; returns their folder."""
    for rank, late_us in enumerate((0, 40)):
        about = {"rank": rank, "world_size": 2, "backend": "nccl", "pg_config": [
            {"pg_name": "tenant42_dp", "pg_desc": "acme", "pg_size": 2, "ranks": [0, 1]}]}  # fmt: skip
        trace_file(
            rank_events(late_us, 1_700_000_000_000_000), name=f"acme/gpu-node-17_{rank}.json",
            distributedInfo=about, host="gpu-node-17", deviceProperties=[{"name": "AcmeLM chip"}],
        )  # fmt: skip
    return tmp_path / "acme"


def test_no_name_of_the_source_is_left(job, tmp_path):
    load.write_obfuscated(job, tmp_path / "out", factor=1.3)
    copies = raw_texts(tmp_path / "out")
    assert [path.name for path in sorted(copies)] == ["rank_0.json.gz", "rank_1.json.gz"]
    source = words_of(t for p in job.iterdir() for t in texts_of(json.loads(p.read_text())))
    assert {"AcmeLM", "proprietary_loss_kernel", "tenant42_dp"} <= source
    for text in copies.values():
        assert not [secret for secret in SECRETS if secret.lower() in text.lower()]
        written = words_of(texts_of(json.loads(text)))
        assert not (source & written) - ALLOWED
        assert not re.findall(r"\b(?:12345678|5120|4242|501|91|1700000000\d*)\b", text)
        document = json.loads(text)
        assert document["obfuscated"] is True
        assert "host" not in document
        assert "deviceProperties" not in document


@pytest.mark.long
@pytest.mark.oracle
@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("kineto-dlrm-8rank", "dlrm_kineto.tar.gz"),
        ("kineto-hta", "nccl_parser_config/nccl_data.json.gz"),
        ("kineto-resnet", "resnet_kineto.json.gz"),
    ],
)
def test_no_name_of_a_real_trace_is_left(real_data, tmp_path, dataset, name):
    source = real_data(dataset) / name
    trace = load.traces(source, progress=False)
    load.write_obfuscated(source, tmp_path / "out", factor=1.5)
    named = {str(text) for text in trace.events["name"].cat.categories}
    public = {text for text in named if re.match("(cuda|hip|Mem|ProfilerStep)", text)}
    for text in raw_texts(tmp_path / "out").values():
        written = set(texts_of(json.loads(text)))
        assert not (written & named) - public - ALLOWED - {"Stream Wait Event", "Context Sync"}
        assert not [word for word in ("aten::", "void ", "autograd", ".py", "(") if any(
            word in name for name in written - public)]  # fmt: skip


@pytest.mark.long
@given(factor=st.floats(0.4, 3), late_us=st.integers(-30, 30))
def test_behaviour_stays_though_every_time_and_name_changes(tmp_path_factory, factor, late_us):
    folder = tmp_path_factory.mktemp("job")
    for rank, late in enumerate((0, late_us)):
        rows = rank_events(max(late, 0) - min(late_us, 0) * (1 - rank), 1_700_000_000_000_000)
        text = json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": rows})
        (folder / f"rank_{rank}.json").write_text(text)
    trace = load.traces(folder, progress=False)
    load.write_obfuscated(folder, folder.parent / f"{folder.name}-copy", factor=factor)
    copy = load.traces(folder.parent / f"{folder.name}-copy", progress=False)
    before, after = (analyze.time_breakdown(t.events) for t in (trace, copy))
    for name in ("span_ns", "compute_ns", "communication_ns", "idle_ns"):
        assert after[name].tolist() == pytest.approx((before[name] * factor).tolist(), abs=4)
    waits, later = (analyze.collective_waits(t.events) for t in (trace, copy))
    assert later["wait_ns"].tolist() == pytest.approx((waits["wait_ns"] * factor).tolist(), abs=4)
    assert (copy.events["kind"].astype(object).fillna("")
            == trace.events["kind"].astype(object).fillna("")).all()  # fmt: skip


def test_who_was_late_stays_where_ranks_scaled_alone_would_look_punctual(job, tmp_path):
    load.write_obfuscated(job, tmp_path / "out", factor=2)
    copy = load.traces(tmp_path / "out", progress=False)
    starts = copy.events[copy.events["kind"] == "communication"].set_index("rank")["start_ns"]
    assert starts[1] - starts[0] == 2 * 40_000
    # Counted from the first event of each rank, the launch that was late hides in its own rank:
    # only one origin for all keeps a clock that is behind behind.
    shifted = load.traces(job, progress=False)
    events = shifted.events.assign(
        start_ns=shifted.events["start_ns"] + 5_000 * shifted.events["rank"].astype("int64")
    )
    scaled = obfuscated_trace(
        type(shifted)(**{**vars(shifted), "events": EVENTS.check(events)}), factor=2
    ).events
    first = scaled.groupby("rank")["start_ns"].min()
    assert first[1] - first[0] == 10_000
    assert load.quality(tmp_path / "out")["what"].eq(SAYS_OBFUSCATED).sum() == 2


def test_the_secret_factor_is_drawn_away_from_1_and_written_nowhere(job, tmp_path):
    spans = []
    for number in range(6):
        load.write_obfuscated(job, tmp_path / f"out{number}")
        events = load.traces(tmp_path / f"out{number}", progress=False).events
        spans.append((events["start_ns"] + events["dur_ns"]).max() - events["start_ns"].min())
        for text in raw_texts(tmp_path / f"out{number}").values():
            assert "factor" not in text
    source = load.traces(job, progress=False).events
    factors = np.array(spans) / ((source["start_ns"] + source["dur_ns"]).max()
                                 - source["start_ns"].min())  # fmt: skip
    assert len(set(spans)) == 6
    assert all(1.2 < factor < 2.6 or 0.39 < factor < 0.83 for factor in factors)


@pytest.mark.parametrize("rule", sorted(set(shipped_rules()["rule"])))
def test_the_name_for_a_rule_is_of_that_rule(rule):
    kind = shipped_rules().set_index("rule").loc[[rule], "kind"].iloc[0]
    if kind != "communication":
        made = classify([f"{KERNEL_WORDS[rule]}_{number}" for number in (1, 2, 16, 217)])
        assert made["rule"].tolist() == [rule] * 4


@pytest.mark.parametrize("operation", OPERATIONS)
def test_kernels_that_communicate_still_tell_their_operation(operation):
    name = f"{kernel_name(operation)}_12"
    assert operation_of(name) == operation
    assert classify([name])["kind"].tolist() == ["communication"]


def test_sizes_keep_two_digits_and_ids_their_relations(job, tmp_path):
    trace = load.traces(job, progress=False)
    copy = obfuscated_trace(trace, factor=0.5)
    talk = copy.events[copy.events["kind"] == "communication"]
    assert talk["in_count"].tolist() == [12_000_000] * 2
    assert talk["seq"].tolist() == [0, 0]
    assert talk["group"].tolist() == ["1", "1"]
    assert copy.events["launch"].equals(trace.events["launch"])
    assert sorted(set(copy.events["step"].dropna())) == [0]
    # External id 91 and correlations 501 to 503 are counted together: equal ones stay equal.
    assert sorted(set(copy.events["correlation"].dropna())) == [2, 3, 4]
    assert copy.devices.empty


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1))
def test_sizes_are_rounded_to_two_digits(sizes):
    from workbench.load._traces.obfuscation import _rounded

    for size, rounded in zip(sizes, _rounded(pd.Series(sizes, dtype="Int64")), strict=True):
        assert len(str(rounded).rstrip("0")) <= 2
        assert abs(int(rounded) - size) <= size / 20


NAMES = st.text(max_size=12) | st.sampled_from(
    ["Unknown" * 60 + "x", "dataloader" * 20_000, "cuda" + "Ex" * 60 + "!", "ProfilerStep#9x", "->"]
)


@pytest.mark.long
@given(
    st.lists(st.tuples(NAMES, st.sampled_from(["cpu_op", "kernel", "acme", "ac2g"])), min_size=1)
)
def test_whatever_a_name_is_only_words_of_the_copy_are_written(pairs):
    rows = [
        {"rank": 0, "start_ns": at, "dur_ns": 1, "name": name, "category": category,
         "kind": "compute" if category == "kernel" else None}
        for at, (name, category) in enumerate(pairs)
    ]  # fmt: skip
    trace = obfuscated_trace(_trace_of(build(EVENTS, rows)), 1.5)
    words = {*KERNEL_WORDS.values(), "kernel", "operator", "event", "DataLoader___next__"}
    assert set(trace.events["category"]) <= {"cpu_op", "kernel", "uncategorised"}
    for (name, _), new in zip(pairs, trace.events["name"], strict=True):
        assert re.sub(r"_\d+$", "", new) in words or (new == name and not set(new) - set("->() "))


def _trace_of(events):
    tables = {"ranks": RANKS, "devices": DEVICES, "process_groups": PROCESS_GROUPS, "steps": STEPS,
              "nodes": NODES, "dependencies": DEPENDENCIES, "quality": QUALITY}  # fmt: skip
    return Trace(events=events, **{name: table.empty() for name, table in tables.items()})


def test_execution_traces_are_copied_without_their_names(tmp_path):
    rows = [
        {"id": 7, "name": "acme::zebra_attention", "type": "COMP_NODE", "durationMicros": 100,
         "attr": [{"name": "is_cpu_op", "boolVal": False}]},
        {"id": 900, "name": "tenant42", "type": "COMM_COLL_NODE", "dataDeps": [7],
         "durationMicros": 50, "attr": [{"name": "comm_type", "int64Val": 0},
         {"name": "comm_size", "int64Val": 123456}, {"name": "pg_name", "stringVal": "acme_dp"},
         {"name": "is_cpu_op", "boolVal": False}]},
    ]  # fmt: skip
    source = tmp_path / "acme.0.et"
    source.write_text("\n".join(map(json.dumps, rows)))
    files = load.write_obfuscated(source, tmp_path / "out", factor=2)
    assert [file.name for file in files] == ["job.0.et"]
    assert not [secret for secret in SECRETS if secret.encode() in files[0].read_bytes()]
    first, second = nodes_of(files[0])
    assert (first.id, first.name, first.duration_micros) == (1, "attention_1", 200)
    assert (second.id, list(second.data_deps), second.name) == (2, [1], "all_reduce_1")
    assert attributes_of(second)["comm_size"] == 120_000
    assert attributes_of(second)["pg_name"] == "1"
    assert load.traces(files, progress=False).quality["what"].eq(SAYS_OBFUSCATED).sum() == 1


def test_what_stays_visible_is_told(job, tmp_path):
    files = load.write_obfuscated(job, tmp_path / "out")
    visible = VISIBLE.check(files.visible).set_index("what")["value"]
    assert visible["ranks"] == "2"
    assert visible["process groups"] == "1 x 2 ranks"
    assert visible["elements of messages, 2 digits"] == "12,000,000 BFloat16"
    assert visible["GPU work per step"] == "3"


def test_files_that_cannot_be_read_are_named(job, tmp_path):
    (job / "gpu-node-17_2.json").write_bytes(gzip.compress(b'{"traceEvents": [')[:9])
    files = load.write_obfuscated(job, tmp_path / "out")
    assert len(files) == 2
    assert files.quality["source"].str.endswith("gpu-node-17_2.json").tolist() == [True]


def test_nothing_is_overwritten_and_nothing_goes_into_the_source(job, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("mine")
    with pytest.raises(FileExistsError, match="full exists and is not an empty folder"):
        load.write_obfuscated(job, tmp_path / "full")
    for inside in (job / "copy", job / ".." / "acme" / "copy"):
        with pytest.raises(LoadError, match=r"lies in .*, which is read; name a folder outside"):
            load.write_obfuscated(job, inside)
    assert not (job / "copy").exists()


@pytest.mark.parametrize("factor", [0, -1, 0.01, 11, float("nan"), float("inf")])
def test_a_factor_that_hides_or_breaks_is_refused(job, tmp_path, factor):
    with pytest.raises(LoadError, match=r"factor must be from 0\.1 to 10, not"):
        load.write_obfuscated(job, tmp_path / "out", factor=factor)
    assert not (tmp_path / "out").exists()


def test_a_trace_without_content_is_refused(trace_file, tmp_path):
    with pytest.raises(LoadError, match="no events and no nodes, so there is nothing to share"):
        load.write_obfuscated(trace_file([]), tmp_path / "out")


def test_a_parquet_of_traces_is_copied_too(job, tmp_path):
    load.write(load.traces(job, progress=False), tmp_path / "job.parquet")
    files = load.write_obfuscated(tmp_path / "job.parquet", tmp_path / "out")
    assert [file.name for file in files] == ["rank_0.json.gz", "rank_1.json.gz"]


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("factor", [0.45, 2.3])
def test_replay_of_eight_real_ranks_stays_within_2_percent(dlrm, tmp_path, factor):
    totals = []
    load.write_obfuscated(dlrm, tmp_path / "out", factor=factor)
    for path in (dlrm, tmp_path / "out"):
        events = load.traces(path, progress=False).events
        replayed = analyze.replay(analyze.execution_graph(events))
        totals.append(int(replayed.max() - replayed.min()))
    assert totals[1] / factor / totals[0] == pytest.approx(1, abs=0.02)
