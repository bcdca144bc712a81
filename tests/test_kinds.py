"""One table of kinds: every command that takes data knows each of them, and in one language."""

import inspect
import json
import pickle
import re
import resource
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from data.make import MemoryAllocator
from workbench import analyze, cli, datasets, load, plot, share
from workbench.cli import _notebooks
from workbench.cli._app import _ONLY_PYTHON, _OPTIONS, say
from workbench.errors import LoadError
from workbench.load.kinds import KINDS, NAMES, by_kind, kind_named, kinds_of

KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10, "dur": 5}
TRACE = {
    "schemaVersion": 1,
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
    "baseTimeNanoseconds": 0,
    "traceEvents": [KERNEL | {"args": {"device": 0, "stream": 7}}],
}
GROUP = {"name": "0", "desc": "default_pg", "ranks": "[0]"}
DUMP = {
    "version": "2.4", "nccl_version": "2.20.5", "pg_config": {"0": GROUP}, "pg_status": {},
    "entries": [],
}  # fmt: skip
OPERATIONS = (
    "step,dp_rank,stage,optype,seq_id,mb_id,gmc,start_ts,duration\n"
    "0,0,0,forward-compute,0,0,0,0.0,1.0\n0,0,0,backward-compute,0,0,0,1.0,2.0\n"
)
MEGATRON = "".join(
    f"[2024-05-01 10:00:{10 * n:02d}] iteration {n}/ 1000 | elapsed time per iteration (ms): "
    "10000.0 | global batch size: 8 |\n"
    for n in range(1, 4)
)
XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus."
MLLOG = "".join(
    ':::MLLOG {"namespace": "", "time_ms": '
    f'{1_700_000_000_000 + 1000 * n}, "event_type": "{event}", "key": "{key}", "value": null, '
    '"metadata": {"samples_count": 8, "file": "a.py", "lineno": 1}}\n'
    for n, (event, key) in enumerate(
        [("INTERVAL_START", "run_start"), ("INTERVAL_START", "block_start"),
         ("INTERVAL_END", "block_stop"), ("INTERVAL_END", "run_stop")]
    )
)  # fmt: skip
MEMORY = MemoryAllocator(1 << 30)
MEMORY.alloc(5 << 20)
GPU = "timestamp, index, power.draw [W]\n2025/01/31 08:00:00.000, 0, 70.00 W\n"
GPU += "2025/01/31 08:00:01.000, 0, 71.00 W\n"

# Name of the file, its content, the options it needs, its kinds, the notebooks that show it.
SAMPLES = {
    "operations": ("job.csv", OPERATIONS, [], {"job operations"}, ["02"]),
    "dump": ("nccl_trace_rank_0", pickle.dumps(DUMP, 2), [], {"flight-recorder dumps"}, ["03"]),
    "JSON dump": ("dump_0.json", json.dumps(DUMP), [], {"flight-recorder dumps"}, ["03"]),
    "memory": ("rank0.pickle", pickle.dumps(MEMORY.snapshot(), 4), [], {"memory snapshots"}, []),
    "Megatron": ("out.log", MEGATRON, ["--tz", "UTC"], {"failure logs", "job logs"}, ["03"]),
    "lengths": ("lengths.txt", "512\n8192\n77\n", [], {"document lengths"}, ["02"]),
    "list": ("lengths.json", "[512, 8192, 77]", [], {"document lengths"}, ["02"]),
    "requests": ("requests.csv", "TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,374\n", [],
                 {"document lengths"}, ["02"]),
    "kernel log": ("kern.log", f"2025-02-23T16:24:18+00:00 gpu7 kernel: {XID}\n", [],
                   {"failure logs"}, ["03"]),
    "old kernel log": ("messages", f"Feb 23 16:24:18 gpu7 kernel: {XID}\n",
                       ["--year", "2025", "--tz", "UTC"], {"failure logs"}, ["03"]),
    "dmesg": ("dmesg", f"[ 1234.500000] {XID}\n",
              ["--boot-time", "2025-02-23 16:00:00+00:00", "--node", "gpu7"],
              {"failure logs"}, ["03"]),
    "power": ("gpu.csv", GPU, ["--tz", "UTC"], {"power logs"}, ["06", "07"]),
    "power without a unit": ("servers.csv", "Time,10.0.0.1\n2023-05-15T00:00:00Z,1200\n"
                             "2023-05-15T00:01:00Z,1300\n", ["--unit", "W"],
                             {"power logs"}, ["06", "07"]),
    "trace": ("rank0.json", json.dumps(TRACE), [], {"traces"}, ["00", "01", "05", "08", "10"]),
    "MLPerf result": ("result_0.txt", MLLOG, [], {"job logs"}, []),
    # A cause may be the line of a kernel log; the names of the columns count.
    "failure table": ("failures.csv", f'time,node,cause\n2025-01-31 08:00,gpu7,"{XID}"\n',
                      ["--tz", "UTC"], {"failure tables"}, ["03"]),
    "records": ("faults.jsonl", '{"exp_id": 0, "layer": "fc", "bit": 30, "input_count": 9, '
                '"sdc_count": 4}\n', [], {"injection records"}, []),
}  # fmt: skip
PYTHON = re.compile(r"\b(?:tz|year|boot_time|node|unit)=")
EXAMPLE_DATE = re.compile(r"\b(?:19|20)\d\d-\d\d-\d\d|--year \d|year=\d")


@pytest.fixture
def run(monkeypatch):
    runner = CliRunner()
    return lambda *words: runner.invoke(cli.app, [str(word) for word in words])


@pytest.fixture
def routed(run, monkeypatch, tmp_path):
    """Give the notebooks that a report would run, and the parameters it would set."""
    calls = []
    monkeypatch.setattr(share, "report", lambda pages, **said: calls.append((pages, said)))

    def route(*words):
        calls.clear()
        result = run("report", *words, "--out", tmp_path / "site")
        pages = [path.name[:2] for path in calls[0][0]] if calls else []
        return result, pages, calls[0][1]["parameters"] if calls else {}

    return route


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("sample", SAMPLES)
def test_check_names_the_kind_of_every_kind_of_file(run, tmp_path, sample):
    name, content, words, kinds, _ = SAMPLES[sample]
    path = write(tmp_path, name, content)
    assert kinds_of(path) == kinds
    result = run("check", *words, path)
    assert result.exit_code in (0, 1), result.output
    assert f"{path}: {' and '.join(sorted(kinds))}\n" in result.stdout
    assert "\n  read " in result.stdout or "dump" in sample


@pytest.mark.parametrize("sample", SAMPLES)
def test_report_runs_the_notebooks_that_show_a_kind(routed, tmp_path, sample):
    name, content, words, kinds, pages = SAMPLES[sample]
    path = write(tmp_path, name, content)
    result, chosen, parameters = routed("--data", path, *words)
    assert chosen == pages
    if not pages and kinds & {*analyze.finding_rules()["needs"]}:
        assert result.exit_code == 0, "a page of findings needs no notebook"
    elif not pages:
        assert result.exit_code == 2
        assert f"holds {' and '.join(kinds)}, which no notebook shows on its own" in result.stderr
    for option, value in pairwise(words):
        if option.startswith("--"):
            assert str(parameters[option[2:].replace("-", "_")]) == value


def test_every_notebook_of_the_table_is_there_and_takes_the_options_of_its_kinds():
    folder = _notebooks.notebooks_folder()
    for kind in KINDS:
        for name in kind.notebooks:
            cells = json.loads((folder / f"{name}.ipynb").read_text())["cells"]
            tagged = [c for c in cells if "parameters" in c["metadata"].get("tags", [])]
            source = "".join(tagged[0]["source"])
            for option in ("data", *set(kind.options) & set(_OPTIONS)):
                assert re.search(rf"^{option} = None\b", source, re.MULTILINE), (name, option)


def test_every_kind_has_a_sample():
    # Injections are made by their own writers, and tested there.
    made = set().union(*(kinds for _, _, _, kinds, _ in SAMPLES.values()))
    assert made | {"injections", "exhaustive injections"} == set(NAMES)


def test_check_report_and_lab_share_the_options_that_say_what_files_do_not():
    wanted = {"tz", "year", "boot_time", "node", "unit"}
    for command in (cli.check, cli.report, cli.lab):
        assert wanted <= set(inspect.signature(command).parameters)
    assert wanted <= set(inspect.signature(load.quality).parameters)
    assert wanted <= set(inspect.signature(load.fleet).parameters)


@pytest.mark.parametrize(
    ("sample", "option"),
    [
        ("Megatron", "--tz"),
        ("old kernel log", "--year"),
        ("dmesg", "--boot-time"),
        ("power", "--tz"),
        ("failure table", "--tz"),
        ("power without a unit", "--unit"),
    ],
)
def test_advice_is_in_the_words_of_the_door_that_was_used(run, tmp_path, sample, option):
    path = write(tmp_path, *SAMPLES[sample][:2])
    result = run("check", path)
    assert result.exit_code == 2
    assert f"pass {option}" in result.stderr
    assert not PYTHON.search(result.stderr)
    quoted = re.sub(r"'[^']*'", "", result.stderr.replace(str(path), ""))
    assert not EXAMPLE_DATE.search(quoted)
    with pytest.raises(LoadError) as error:
        load.quality(path, progress=False)
    assert not re.search(r"--(?:tz|year|boot-time|node|unit)\b", str(error.value))


@pytest.mark.parametrize(
    ("python", "command"),
    [
        ("tz='Mars' is not a time zone", "--tz Mars is not a time zone"),
        ('boot_time="2025-01-01 00:00Z" is odd', '--boot-time "2025-01-01 00:00Z" is odd'),
        ("incidents on a device of an unknown host; pass node=",
         "incidents on a device of an unknown host; pass --node"),
        ("year must be a whole number", "--year must be a whole number"),
        ("a file of node=node001, unit=W", "a file of --node node001, --unit W"),
        ("my_tz=3 and unit 5 stay", "my_tz=3 and unit 5 stay"),
    ],
)  # fmt: skip
def test_arguments_of_python_become_options(python, command):
    assert say(python) == command


def test_every_argument_of_every_door_has_words_on_the_command_line():
    for kind in KINDS:
        named = set(inspect.signature(kind.door).parameters) - {"path", "source", "progress"}
        assert named <= {*_OPTIONS, *_ONLY_PYTHON}, kind.name
        assert set(kind.options) <= named
        for name in named:
            assert f"{name}=" not in say(f"it lacks something; pass {name}='x', or repair it")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--tz", "Mars"], "--tz must be a time zone"),
        (["--year", "1"], "--year must be a whole number from 1990"),
        (["--boot-time", "noon"], "--boot-time must be a stamp"),
        (["--node", "a=b", "--node", "c"], "several are given as PART=HOST"),
        (["--node", "node(\\d+"], "is not a pattern"),
    ],
)
@pytest.mark.parametrize("command", ["check", "report"])
def test_an_option_that_means_nothing_is_refused_before_anything_is_read(
    run, tmp_path, command, words, told
):
    path = write(tmp_path, *SAMPLES["power"][:2])
    result = run(command, *words, *(["--data"] if command == "report" else []), path)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


def test_hosts_are_given_by_name_by_pattern_or_by_part(run, routed, tmp_path):
    for name in ("node7_dmesg", "node8_dmesg"):
        write(tmp_path, name, SAMPLES["dmesg"][1])
    boot = ("--boot-time", "2025-02-23 16:00:00+00:00")
    _, _, one = routed("--data", tmp_path, *boot, "--node", "gpu7")
    _, _, by_part = routed("--data", tmp_path, *boot, "--node", "node7=a", "--node", "node8=b")
    _, _, by_pattern = routed("--data", tmp_path, *boot, "--node", r"node\d+")
    assert (one["node"], by_part["node"]) == ("gpu7", {"node7": "a", "node8": "b"})
    log = load.failures(tmp_path, boot_time=boot[1], node=by_pattern["node"], progress=False)
    assert sorted(log.failures["node"]) == ["node7", "node8"]


def test_a_folder_of_many_kinds_is_told_file_by_file(run, tmp_path):
    for sample in ("operations", "JSON dump", "lengths", "kernel log", "trace", "power"):
        write(tmp_path, *SAMPLES[sample][:2])
    write(tmp_path, "notes", "ask Ada about rank 3")
    result = run("check", "--tz", "UTC", tmp_path)
    lines = [line for line in result.stdout.splitlines() if line[0] not in " !" and ": " in line]
    told = dict(line.split(": ", 1) for line in lines)
    assert {Path(name).name: kind for name, kind in told.items()} == {
        "job.csv": "job operations",
        "dump_0.json": "flight-recorder dumps",
        "lengths.txt": "document lengths",
        "kern.log": "failure logs",
        "rank0.json": "traces",
        "gpu.csv": "power logs",
        "notes": "unrecognized kind",
    }
    assert result.exit_code == 1
    flagged = re.findall(r"^! .*", result.stdout, re.MULTILINE)
    (apart,) = [line for line in flagged if line.startswith("! suspicious")]
    assert "share no time: of one job?" in apart
    assert [line for line in flagged if line != apart] == [
        "! dropped                1  unrecognized kind "
        "(first: it begins with 'ask Ada about rank 3')"
    ]


@pytest.mark.parametrize(
    ("header", "kinds"),
    [
        ("id,length", {"document lengths"}),
        ("seq_len,batch,heads,time_ms", set()),
        ("arrived_at,num_prefill_tokens,num_decode_tokens,priority,user", {"document lengths"}),
    ],
)
def test_a_column_that_measurements_have_too_makes_no_lengths(tmp_path, header, kinds):
    row = ",".join(str(n) for n in range(header.count(",") + 1))
    write(tmp_path, "table.csv", f"{header}\n{row}\n")
    assert kinds_of(tmp_path) == kinds


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "when,host,cause\n2025-01-31,gpu7,lost\n"),
        ("a.csv", "time,cause\n2025-01-31,lost\n"),
        ("a.csv", "time;node;cause\n2025-01-31;gpu7;lost\n"),
        ("a.jsonl", '{"time": "2025-01-31", "node": "gpu7", "cause": "lost"}\n'),
        ("a.jsonl", '{"exp_id": 0, "layer": "fc", "bit": 30}\n'),
        ("a.jsonl", '{"time": 1, "outcome": "ok"}\n'),
    ],
)
def test_a_table_is_known_only_by_all_the_names_that_its_reader_needs(tmp_path, name, content):
    path = write(tmp_path, name, content)
    assert kinds_of(path) == set()
    with pytest.raises(LoadError) as error:
        load.quality(path, progress=False)
    is_table = name.endswith(".csv")
    assert ("load.power and load.failure_table take" in str(error.value)) == is_table


def test_names_of_columns_tell_the_same_in_parquet(tmp_path):
    rows = {"time": pd.to_datetime(["2025-01-31"], utc=True), "node": ["a"], "cause": ["lost"]}
    pd.DataFrame(rows).to_parquet(tmp_path / "failed.parquet")
    pd.DataFrame({"a": ["x"], "b": ["y"]}).to_parquet(tmp_path / "other.parquet")
    assert kinds_of(tmp_path) == {"failure tables"}
    assert kinds_of(tmp_path / "other.parquet") == set()
    counts = load.quality(tmp_path, progress=False).set_index("what")["count"]
    assert counts["rows"] == 1


def test_a_table_of_failures_beside_power_is_not_passed_over_without_a_word(tmp_path):
    write(tmp_path, *SAMPLES["power"][:2])
    table = write(tmp_path, *SAMPLES["failure table"][:2])
    quality = load.fleet(tmp_path, tz="UTC", progress=False).quality
    (said,) = quality.loc[quality["source"].eq(str(table)), "what"]
    assert "load.failure_table" in said


def test_check_says_what_is_doubtful_in_a_recorded_job(run, tmp_path):
    rows = [f"0,0,0,forward-compute,{n},{n},0,{n}.0,{0 if 5 <= n < 14 else 1}" for n in range(30)]
    path = write(tmp_path, "job.csv", "\n".join([OPERATIONS.splitlines()[0], *rows, ""]))
    result = run("check", path)
    assert result.exit_code == 1
    assert "! suspicious             1  9 durations are exactly 0 in rows 5 to 13" in result.stdout
    path.write_text(path.read_text() + "0,0,0,forward-compute,30,30,0,30.0,1")
    assert "! truncated              1  a last line without a line end" in run("check", path).stdout


def test_what_no_notebook_shows_is_shown_by_functions_that_there_are(run, tmp_path):
    truth = datasets.path("pvf-truth") / "dlrm.parquet"
    result = run("report", "--data", truth, "--out", tmp_path / "site")
    assert result.exit_code == 2
    assert "analyze.pvf(load.exhaustive_injections(path), " in result.stderr
    assert "power logs" not in result.stderr
    for kind in KINDS:
        assert kind.notebooks or kind.advice, kind.name
        for module, name in re.findall(r"\b(load|analyze|plot|explore)\.(\w+)", kind.advice):
            assert hasattr(import_module(f"workbench.{module}"), name), kind.advice


def test_the_call_that_is_advised_draws_a_figure(tmp_path):
    name, content, _, (kind,), _ = SAMPLES["records"]
    call = re.search(r"plot\..*\)", kind_named(kind).advice)[0].replace("...", "'here'")
    names = {"plot": plot, "analyze": analyze, "load": load}
    figure = eval(call, names | {"path": write(tmp_path, name, content)})
    assert figure.to_plotly_json()["data"]


def test_a_page_on_several_kinds_gets_a_path_for_each_that_is_there(tmp_path):
    lengths = write(tmp_path, *SAMPLES["lengths"][:2])
    write(tmp_path, *SAMPLES["trace"][:2])
    assert by_kind(tmp_path, "traces", "document lengths", "power logs") == {
        "traces": tmp_path,
        "document lengths": lengths,
        "power logs": None,
    }
    with pytest.raises(LoadError, match="holds document lengths, but no traces"):
        by_kind(lengths, "traces")
    write(tmp_path, "more.txt", "1\n2\n3\n")
    with pytest.raises(LoadError, match="2 files of document lengths; name one file"):
        by_kind(tmp_path, "document lengths")


def test_convert_says_what_a_file_is_if_it_is_no_trace(run, tmp_path):
    path = write(tmp_path, *SAMPLES["lengths"][:2])
    result = run("convert", path, tmp_path / "out.parquet")
    assert result.exit_code == 2
    assert "holds document lengths, which become a folder of tables" in result.stderr
    result = run("convert", "--kind", "traces", path, tmp_path / "out.parquet")
    assert result.exit_code == 2
    assert "holds document lengths, but no traces" in result.stderr
    assert not (tmp_path / "out.parquet").exists()


def test_convert_stores_the_kind_that_is_chosen_and_names_the_others(run, fleet_demo, tmp_path):
    result = run("convert", "--kind", "power logs", "--tz", "UTC", fleet_demo, tmp_path / "power")
    assert result.exit_code == 0, result.output
    assert "not converted: traces, failure logs, job logs" in result.stderr
    assert kinds_of(tmp_path / "power") == {"power logs"}
    result = run("convert", "--tz", "UTC", fleet_demo / "failures", tmp_path / "failures")
    assert result.exit_code == 0, result.output
    assert kinds_of(tmp_path / "failures") == {"failure logs"}


def test_convert_asks_which_of_several_kinds(run, tmp_path):
    several = datasets.path("imbalance-demo")
    result = run("convert", several, tmp_path / "out")
    assert result.exit_code == 2
    assert "holds job operations and document lengths; choose one with --kind" in plain(result)
    result = run("convert", "--kind", "bogus", several, tmp_path / "out")
    assert result.exit_code == 2
    assert "--kind bogus: must be one of exhaustive injections, injections" in plain(result)


def plain(result):
    """Give what is on stderr in one line; help breaks it at the width of the screen."""
    return " ".join(result.stderr.split())


def test_a_notebook_that_cannot_show_the_data_is_refused_by_name(routed, tmp_path):
    path = write(tmp_path, *SAMPLES["lengths"][:2])
    folder = _notebooks.notebooks_folder()
    result, pages, _ = routed("--data", path, folder / "01_traces.ipynb")
    assert (result.exit_code, pages) == (2, [])
    assert "which 01_traces.ipynb cannot show; those that do: 02_workload" in result.stderr
    assert routed("--data", path, folder / "02_workload_imbalance.ipynb")[1] == ["02"]


UNFIT = {"letter.pdf": b"%PDF-1.4\n%\xe2\xe3\n1 0 obj", "note.txt": b"call Ada\n", "empty": None}


@pytest.mark.long
@pytest.mark.parametrize("name", UNFIT)
@pytest.mark.parametrize("command", ["report", "lab"])
def test_data_that_fits_no_notebook_is_refused_at_once(tmp_path, command, name):
    path = tmp_path / name
    path.mkdir() if UNFIT[name] is None else path.write_bytes(UNFIT[name])
    words = [sys.executable, "-m", "workbench.cli", command, "--data", path]
    # Its own time, so that other work on the machine does not count; a kernel takes longer.
    before = _children_s()
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert _children_s() - before < 4
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"workbench: {path}: ")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [name], "nothing was begun"


def _children_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
