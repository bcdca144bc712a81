"""A file that is cut anywhere gives readings of the whole one, or says that it is cut."""

import pytest

from tests.load.power.formats.nvidia.test_console_table import HEAD, RULE, gpu
from tests.load.power.formats.test_hl_smi import BARE
from tests.load.power.formats.test_hl_smi import HEADER as HL_HEADER
from tests.load.power.formats.test_hl_smi import row as hl_row
from tests.load.power.formats.test_ptdaemon import line as ptdaemon_line
from tests.load.power.power_files import loaded
from workbench import load
from workbench.errors import LoadError
from workbench.tables import HARMLESS

POLLS, GPUS = 3, 2


def query(header, row):
    """Write polls of two GPUs as nvidia-smi --query-gpu does."""
    rows = [
        row.format(
            p=poll,
            s=f"2026/03/02 10:00:{poll:02d}.00{number}",
            n=number,
            w=600 + 10 * number + poll,
        )
        for poll in range(POLLS)
        for number in range(GPUS)
    ]
    return "".join(f"{line}\n" for line in (header, *rows))


def snapshots():
    """Write polls as nvidia-smi -q does."""
    text = ""
    for poll in range(POLLS):
        text += "\n==============NVSMI LOG==============\n\n"
        text += f"Timestamp                      : Mon Mar  2 10:00:{poll:02d} 2026\n"
        text += f"Attached GPUs                  : {GPUS}\n"
        for number in range(GPUS):
            text += f"GPU 00000000:0{number + 1}:00.0\n    GPU Power Readings\n"
            text += f"        Average Power Draw     : {600 + 10 * number + poll}.50 W\n"
            text += "        Current Power Limit    : 700.00 W\n"
    return text


def tables():
    """Write polls as nvidia-smi without options does."""
    return "".join(
        f"Mon Mar  2 10:00:{poll:02d} 2026\n{HEAD}"
        + "".join(gpu(n, f"{600 + 10 * n + poll}W", bus=f"1{n}") + RULE for n in range(GPUS))
        for poll in range(POLLS)
    )


def rows_of(row, header=""):
    lines = [row.format(t=1_700_000_000 + n, w=4096 + n, s=n) for n in range(5)]
    return "".join(f"{line}\n" for line in ([header] if header else []) + lines)


SAMPLES = {
    "query": query("timestamp, index, power.draw [W]", "{s}, {n}, {w}.50 W"),
    "query without units": query("timestamp, index, power.draw [W]", "{s}, {n}, {w}.50"),
    "query by bus": query(
        "timestamp, power.draw [W], pci.bus_id", "{s}, {w} W, 00000000:0{n}:00.0"
    ),
    "query without names": query("timestamp, power.draw [W]", "{s}, {w}.50 W"),
    "dmon": query("# Date Time gpu pwr", "20260302 10:00:{p:02d} {n} {w}"),
    "snapshots": snapshots(),
    "tables": tables(),
    "hl-smi": HL_HEADER + "".join(hl_row(s, n, 4096 + n) for s in range(3) for n in range(2)),
    "hl-smi without header": "".join(f"{1_700_000_000 + n}\n{BARE}" for n in range(3)),
    "table": rows_of("{t},node1,{w}", "time,node,power_w"),
    "wide table": rows_of("{t},{w},{w}", "time,node1_w,node2_w"),
    "table with units": rows_of("{t},{w} W,20 C", "time,power,temperature"),
    "JSON lines": rows_of('{{"time": {t}, "node": "a", "power_w": {w}}}'),
    "power analyser": "".join(ptdaemon_line(n, f"{4096 + n}.25") for n in range(4)),
    "MLLOG": rows_of(
        ':::MLLOG {{"namespace": "", "time_ms": {t}000, "event_type": "POINT_IN_TIME", "key": '
        '"power_reading", "value": {w}, "metadata": ""}}'
    ),
    "Prometheus text": rows_of('DCGM_FI_DEV_POWER_USAGE{{gpu="0",Hostname="n"}} {w} {t}000'),
    "IPMI": rows_of(
        "Instantaneous power reading: {w} Watts\nIPMI timestamp: Tue Apr 23 12:00:0{s} 2024"
    ),
    "dcgmi dmon": "#Entity   POWER\nID        W\n" + rows_of("GPU 0     {w}"),
    "Zeus": rows_of("{s},train,1.0,{w}", "start_time,window_name,elapsed_time,gpu0_energy"),
}


@pytest.mark.parametrize(
    ("read", "text", "column"),
    [
        (load.document_lengths, "512\n1024\n4096", "length_tokens"),
        (load.document_lengths, "id,length\n1,512\n2,1024\n3,4096", "length_tokens"),
        (
            load.job_operations,
            "step,dp_rank,stage,optype,seq_id,mb_id,gmc,start_ts,duration\n"
            "0,0,0,forward-compute,0,0,0,1.0,4096\n0,0,0,forward-compute,1,1,0,9000.0,4096",
            "dur_ns",
        ),
    ],
    ids=["numbers", "lengths", "job operations"],
)
def test_a_number_at_the_end_of_a_cut_file_is_left_out_and_told(read, text, column, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(text + "\n")
    whole = read(path)
    assert not whole.attrs.get("left_out")
    for cut in range(4):
        path.write_text(text[: len(text) - cut])
        table = read(path)
        assert table[column].tolist() == whole[column].tolist()[:-1]
        assert any("without a line end" in what for what in table.attrs["left_out"])


def test_a_number_that_a_cell_follows_is_whole_without_a_line_end(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\na,4096,10\nb,1024,1")
    table = load.document_lengths(path)
    assert table["length_tokens"].tolist() == [4096, 1024]
    assert list(table.attrs["left_out"].values()) == [1], "more may have followed"
    both = load.document_lengths(path, column=["ContextTokens", "GeneratedTokens"])
    assert both["length_tokens"].tolist() == [4106]


def powers(log):
    """Return the readings that have a power, with their times and names."""
    known = log.power.dropna(subset="power_w")
    return set(known[["time_ns", "entity", "power_w"]].itertuples(index=False, name=None))


def doubts(log):
    return log.quality.loc[~log.quality["finding"].isin(HARMLESS), "what"].tolist()


def cuts(text):
    """Cut a file at every byte of its last 24, and here and there in its second half."""
    whole = len(text)
    return [*range(whole // 2, whole - 24, max((whole - 24) // 24, 1)), *range(whole - 24, whole)]


@pytest.mark.long
@pytest.mark.parametrize("name", SAMPLES)
def test_a_cut_never_makes_another_number_without_a_finding(name, tmp_path):
    given = {"period_s": 1.0} if name == "dcgmi dmon" else {}
    text, path = SAMPLES[name].encode(), tmp_path / "power.txt"
    path.write_bytes(text)
    whole = loaded(path, **given)
    usual = set(doubts(whole))
    known = powers(whole)
    assert len(known) >= 4
    silent = []
    for end in cuts(text):
        path.write_bytes(text[:end])
        try:
            log = loaded(path, **given)
        except LoadError:
            continue
        if not powers(log) <= known and set(doubts(log)) <= usual:
            silent.append(text[:end][-50:])
    assert silent == []


@pytest.mark.parametrize("name", ["query", "query by bus", "dmon", "snapshots", "tables"])
def test_a_poll_that_lacks_a_gpu_at_the_end_is_told(name, tmp_path):
    path = tmp_path / "power.txt"
    lines = SAMPLES[name].splitlines(keepends=True)
    per_gpu = {"snapshots": 4, "tables": 5}.get(name, 1)
    path.write_text("".join(lines[:-per_gpu]))
    log = loaded(path)
    assert len(powers(log)) == POLLS * GPUS - 1
    assert any("lack" in doubt or "fewer GPUs" in doubt for doubt in doubts(log))


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("query by bus", "0000#000:01:00.0"),
        ("query by bus", "00000000:07:00.0"),
        ("snapshots", "0000#000:02:00.0"),
        ("tables", "0000#000:11:00.0"),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_damaged_address_of_a_gpu_is_told_and_costs_no_power_unseen(name, damaged, at, tmp_path):
    whole = {"query by bus": "00000000:01:00.0", "snapshots": "00000000:02:00.0"}
    parts = SAMPLES[name].split(whole.get(name, "00000000:11:00.0"))
    assert len(parts) == POLLS + 1
    addresses = [damaged if n == at else whole.get(name, "00000000:11:00.0") for n in range(POLLS)]
    text = parts[0] + "".join(a + part for a, part in zip(addresses, parts[1:], strict=True))
    path = tmp_path / "power.txt"
    path.write_text(text)
    log = loaded(path)
    assert doubts(log)
    if name == "snapshots":
        path.write_text(SAMPLES[name])
        assert powers(log) == powers(loaded(path))


@pytest.mark.parametrize("damaged", [False, True])
def test_one_snapshot_with_a_damaged_address_keeps_its_power(damaged, tmp_path):
    text = snapshots().split("\n==============NVSMI LOG")[1]
    text = "\n==============NVSMI LOG" + text
    path = tmp_path / "power.txt"
    path.write_text(text.replace("GPU 00000000:02", "GPU 0000?000:02") if damaged else text)
    log = loaded(path)
    assert log.power["power_w"].sum() == 600.5 + 610.5
    assert bool(doubts(log)) == damaged
