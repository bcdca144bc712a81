"""Nothing is read from a graph that does not know why its trace took the time it took."""

import pytest

from workbench import analyze
from workbench.errors import PerformanceModelError
from workbench.tables import REPLAY_FIDELITY


@pytest.fixture
def dark(make_events, script):
    """Give a kernel that comes 100 ms after its launch, and no word of what it waited for."""
    trace = script()
    trace.launch(0, (10, 20, 7))
    trace.launch(100, (100_000, 20, 7))
    events = make_events(*trace.rows)
    graph = analyze.execution_graph(events)
    return graph, analyze.replay_fidelity(events, graph)


def test_a_graph_that_explains_little_is_refused_with_its_reason(dark):
    graph, fidelity = dark
    assert not fidelity["is_usable"].iloc[0]
    with pytest.raises(PerformanceModelError, match=r"the graph is refused, rank 0: .*unexplained"):
        analyze.usable_graph(graph, fidelity)


def test_a_graph_that_is_usable_passes_unchanged(dark):
    graph, fidelity = dark
    assert analyze.usable_graph(graph, fidelity.assign(is_usable=True)) is graph


def test_one_rank_that_is_not_usable_refuses_the_graph_of_all(dark):
    graph, fidelity = dark
    fidelity_of_two = (
        fidelity.loc[[0, 0]].reset_index(drop=True).assign(rank=[0, 1], is_usable=[True, False])
    )
    with pytest.raises(PerformanceModelError, match="refused, rank 1: "):
        analyze.usable_graph(graph, REPLAY_FIDELITY.cast(fidelity_of_two))


def test_no_replay_is_no_permission(dark):
    with pytest.raises(PerformanceModelError, match="no rank was replayed"):
        analyze.usable_graph(dark[0], REPLAY_FIDELITY.empty())
