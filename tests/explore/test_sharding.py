"""The explorers of sharding: move a control, read the screen."""

import itertools
import time

import pytest

from data import make
from workbench import explore, simulate
from workbench.analyze import ShardingAssumptions
from workbench.errors import WorkbenchError
from workbench.tables import EMBEDDING_TABLES


@pytest.fixture(scope="module")
def board():
    return explore.table_sharding(make.embedding_tables(), source="drawn", synthetic=True)


@pytest.fixture
def rows():
    tables = {f"Zipf {s}": simulate.row_popularity(50_000, s) for s in (1.05, 0.7)}
    return explore.row_sharding(tables, source="drawn", synthetic=True)


def choices(explorer):
    return [
        [value[1] if isinstance(value, tuple) else value for value in control.options]
        for control in explorer.controls.values()
    ]


def test_the_board_starts_where_one_table_is_the_bound(board, title):
    assert board.message.value == ""
    assert title(board) == "Rank 0 takes 46.1 ms, 1.62 × the mean of 256 ranks, for table_666 alone"
    subtitle = board.figure().layout.title.subtitle.text
    assert "SYNTHETIC DATA" in subtitle
    for measure in ("total variation", "total distance", "chi divergence", "KL divergence"):
        assert measure in subtitle.replace("<br>", " ")


def test_cutting_columns_and_fewer_ranks_take_the_bound_away(board, title):
    board.controls["scheme"].value = "auto-column"
    assert "1.11 × the mean" in title(board)
    board.controls["ranks"].value = 64
    assert title(board).startswith("64 ranks in balance")
    board.controls["planner"].value = "random"
    assert "in balance" not in title(board)


@pytest.mark.slow
def test_every_state_of_the_board_is_possible_and_quick(board):
    states = list(itertools.product(*choices(board)))
    assert len(states) <= 200
    taken = []
    for state in states:
        start = time.process_time()
        board.draw(**dict(zip(board.controls, state, strict=True)))
        taken.append(time.process_time() - start)
    assert sorted(taken)[len(taken) // 2] < 0.1


def test_what_does_not_fit_is_explained_above_the_last_figure(title):
    small = ShardingAssumptions(memory_gib=24)
    board = explore.table_sharding(make.embedding_tables(), assumptions=small)
    assert "GiB too little" in board.message.value
    assert title(board) == "These values cannot be shown together"
    board.controls["scheme"].value = "table-row"
    assert board.message.value == ""
    assert "ranks" in title(board)


def test_no_tables_are_explained(title):
    assert title(explore.table_sharding(EMBEDDING_TABLES.empty())) == "No shards to show"


def test_rows_start_with_a_cache_and_can_be_copied_instead(rows, title):
    assert title(rows).startswith(
        "A cache for the 256 most popular rows: at best the busiest of 256"
    )
    assert "Zipf 1.05" in str(rows.figure().layout.annotations)
    rows.controls["copies"].value = 8
    assert title(rows).startswith("8 copies of the 256 most popular rows")
    rows.controls["popularity"].value = "Zipf 0.7"
    rows.controls["units"].value = 1024
    assert "busiest of 1,024 units" in title(rows)
    assert len(list(itertools.product(*choices(rows)))) <= 200


def test_rows_need_a_popularity_to_choose():
    with pytest.raises(WorkbenchError, match="no popularities to choose from"):
        explore.row_sharding({})


def test_what_is_no_table_is_refused_before_anything_is_drawn():
    table = simulate.row_popularity(1_000, 1)
    with pytest.raises(WorkbenchError, match=r"pass \{name: simulate"):
        explore.row_sharding(table)
    with pytest.raises(WorkbenchError, match="Zipf is not a valid 'row_popularity' table"):
        explore.row_sharding({"Zipf": table.drop(columns="row_count")})
    with pytest.raises(WorkbenchError, match="is not a valid 'embedding_tables' table"):
        explore.table_sharding(table)


def test_every_control_has_a_label_and_answers_while_it_moves(board, rows):
    for control in (*board.controls.values(), *rows.controls.values()):
        assert control.description
        assert getattr(control, "continuous_update", True)
