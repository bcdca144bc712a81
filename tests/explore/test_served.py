"""The explorers of serving and of fast multiplication: move a control, read the screen."""

import itertools
import time

import pytest

from workbench import analyze, explore, plot
from workbench.errors import WorkbenchError


@pytest.fixture(scope="module")
def products():
    shape = analyze.model_shape("Llama 3 8B")
    layout = analyze.Layout(sequence=8192)
    return analyze.matrix_products(analyze.configurations(shape, layout))


def states(explorer):
    offered = [
        [value[1] if isinstance(value, tuple) else value for value in control.options]
        for control in explorer.controls.values()
    ]
    return [
        dict(zip(explorer.controls, state, strict=True)) for state in itertools.product(*offered)
    ]


def test_products_of_a_model_do_not_pay_on_tensor_cores_but_in_single_precision(products, title):
    board = explore.fast_matmul(products, source="own plan")
    assert title(board).startswith("No product gains by fast multiplication on H100 in bfloat16")
    assert "model from data-sheet peaks" in board.figure().layout.title.subtitle.text
    board.controls["peak"].value = ("A100", "float32")
    assert "products gain by fast multiplication on A100" in title(board)
    board.controls["peak"].value = "all"
    assert title(board).startswith("With sums in memory fast multiplication pays from 1,721")
    board.controls["levels"].value = 2
    assert "pays from 3,443" in title(board)


def test_the_binding_resource_moves_with_the_efficiencies(title):
    board = explore.inference_node()
    board.controls["model"].value = "DLRM v2"
    # The memory of one card is a range, and the bandwidths are not the makers' own.
    assert title(board).startswith("In doubt: Binding resource of 4 settings: ")
    assert board.message.value == ""
    board.controls["compute_share"].value = 0.25
    board.controls["memory_share"].value = 1.0
    assert "compute in" in title(board)
    board.controls["count"].value = 1
    assert "does not fit into memory" in board.figure().layout.title.subtitle.text


def test_a_node_too_small_for_the_tables_binds_on_nothing():
    node = analyze.InferenceNode(analyze.inference_card("T4"), cards=1)
    table = analyze.inference_node(analyze.recommendation_model("DLRM v2"), [node])
    shown = plot.inference_node(table).layout.title.text.replace("<br>", " ")
    assert shown.endswith("does not fit: it needs 27.8 GB of 16 GB of memory")


def test_nodes_follow_the_rate(title):
    board = explore.inference_capacity()
    before = title(board)
    board.controls["rate"].value = 1_000_000
    assert title(board) != before
    assert "nodes with batches of" in title(board)


def test_no_model_is_refused():
    with pytest.raises(WorkbenchError, match="no models to explore"):
        explore.inference_node([])
    with pytest.raises(WorkbenchError, match="no model 'GPT'"):
        explore.inference_capacity(["GPT"])


@pytest.mark.slow
@pytest.mark.parametrize("noun", ["fast_matmul", "inference_node", "inference_capacity"])
def test_every_state_is_possible_and_quick(noun, products):
    board = getattr(explore, noun)(*([products] if noun == "fast_matmul" else []))
    every = states(board)
    assert len(every) <= 400
    taken = []
    for state in every:
        start = time.process_time()
        board.draw(**state)
        taken.append(time.process_time() - start)
    assert sorted(taken)[len(taken) // 2] < 0.1


@pytest.mark.parametrize("noun", ["fast_matmul", "inference_node", "inference_capacity"])
def test_every_control_has_a_label_and_answers_while_it_moves(noun, products):
    board = getattr(explore, noun)(*([products] if noun == "fast_matmul" else []))
    for control in board.controls.values():
        assert control.description
        assert getattr(control, "continuous_update", True)
