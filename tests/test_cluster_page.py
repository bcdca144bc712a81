"""docs/cluster.md: its code runs on two processes of this machine in place of Slurm or Kubernetes."""

import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from tests import test_pages as pages
from workbench import analyze, load

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cluster.md"


def two_processes(**_):
    from distributed import LocalCluster

    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    scale = cluster.scale
    # A queue takes jobs=; closing a cluster scales it to nothing.
    cluster.scale = lambda n=None, *, jobs=None: scale(2 if n is None else n) if not jobs else None
    return cluster


def made_spec(*, name, image, n_workers):
    """Give what the page fills in of a DaskCluster resource."""
    pod = {"containers": [{"name": name, "image": image}]}
    return {"kind": "DaskCluster", "spec": {"worker": {"replicas": n_workers, "spec": pod}}}


@pytest.fixture(scope="module")
def ran(tmp_path_factory, absent):
    """Run the page from top to bottom; give its names and what it asked of the clusters."""
    try:
        import distributed  # noqa: F401
    except ImportError:
        absent("Dask is not installed; pip install 'ai-infra-workbench[cluster]'")
    asked = {}

    def stand_in(name, **members):
        module = ModuleType(name)
        vars(module).update(members)
        return module

    def cluster_named(name):
        def cluster(**options):
            asked[name] = options
            return two_processes()

        return cluster

    folder = tmp_path_factory.mktemp("page")
    pages.own_files(folder)
    names = {}
    kube = {"KubeCluster": cluster_named("kubernetes"), "make_cluster_spec": made_spec}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(
            sys.modules, "dask_jobqueue",
            stand_in("dask_jobqueue", SLURMCluster=cluster_named("slurm")),
        )  # fmt: skip
        patch.setitem(sys.modules, "dask_kubernetes", stand_in("dask_kubernetes"))
        patch.setitem(
            sys.modules, "dask_kubernetes.operator", stand_in("dask_kubernetes.operator", **kube)
        )
        patch.chdir(folder)
        results = []
        for block in pages.python_of(PAGE.read_text()):
            exec(compile(block, "cluster.md", "exec"), names)
            if "Client" in block:
                results.append(names["tables"])
        yield names, asked, results, folder


@pytest.mark.slow
def test_both_clusters_give_what_one_process_gives(ran, monkeypatch):
    _, asked, results, folder = ran
    monkeypatch.chdir(folder)
    assert set(asked) == {"slurm", "kubernetes"}
    assert len(results) == 2
    files = load.rank_files("runs/monday")
    analyses = [analyze.time_breakdown, analyze.idle_time, analyze.collective_waits]
    alone = analyze.by_rank(files, analyses, progress=False)
    for tables in results:
        assert set(tables) == set(alone)
        for name, table in alone.items():
            pd.testing.assert_frame_equal(tables[name], table)


@pytest.mark.slow
def test_the_page_fills_in_what_the_pods_mount(ran):
    _, asked, _, _ = ran
    pod = asked["kubernetes"]["custom_cluster_spec"]["spec"]["worker"]["spec"]
    (volume,), (container,) = pod["volumes"], pod["containers"]
    assert container["volumeMounts"][0]["name"] == volume["name"]


@pytest.mark.slow
def test_sql_on_the_stored_folder_is_what_the_analyses_say(ran):
    names, _, _, folder = ran
    events = load.traces(folder / "runs" / "monday", progress=False).events
    kinds = events[events["kind"].notna()]
    by_kind = kinds.groupby(["rank", kinds["kind"].astype(str)])["dur_ns"].sum() / 1e6
    assert names["by_kind"]["busy_ms"].tolist() == pytest.approx(by_kind.tolist())
    compute = events[events["kind"].eq("compute")].groupby("rank")["dur_ns"].max()
    assert names["longest"]["longest_ns"].to_list() == compute.tolist()
    nodes, rollup = names["nodes"], names["cells"]
    gpus = rollup[rollup["entity"].astype(str).str.contains("/gpu")]
    assert (nodes["mean_w"] * 60).sum() == pytest.approx(gpus["energy_j"].sum())
    assert set(nodes["node"]) == {"node001", "node002", "node003"}
