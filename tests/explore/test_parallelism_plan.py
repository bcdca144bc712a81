"""The explorer of plans: it starts, answers, and refuses in words."""

from workbench import analyze, explore


def test_moves_from_one_plan_to_another(title):
    explorer = explore.parallelism_plan(analyze.assumed_model(), source="assumed", synthetic=True)
    assert explorer.message.value == ""
    assert title(explorer).startswith("In doubt: TP")
    assert "SYNTHETIC DATA" in explorer.figure().layout.title.subtitle.text
    before = title(explorer)
    explorer.controls["kind"].value = "A100"
    assert title(explorer) != before
    explorer.controls["shape"].value = "Llama 3 405B"
    explorer.controls["gpus"].value = 64
    assert title(explorer).startswith("No way to spread the model over 64 A100 fits")


def test_takes_own_shapes_and_every_control_has_a_label():
    shape = analyze.ModelShape(layers=4, hidden=512, heads=8)
    explorer = explore.parallelism_plan(analyze.assumed_model(), shapes=[shape])
    assert explorer.controls["shape"].options == ("model 1",)
    for control in explorer.controls.values():
        assert control.description
        assert getattr(control, "continuous_update", True)
