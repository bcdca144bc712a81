"""The largest kernels by name, and the rest as one bar."""

from workbench import plot
from workbench.tables import KERNEL_KINDS, KERNELS


def kernel(name, total, *, rank=0, kind="compute"):
    return {"rank": rank, "name": name, "kind": kind, "kernel_count": 1, "total_ns": total}


def drawn(figure):
    return {trace.name: list(trace.x) for trace in figure.data}


def ticks(figure):
    return list(figure.layout.yaxis.ticktext)


def test_ranks_are_added_up_and_the_rest_is_one_bar(build):
    rows = [
        kernel("gemm", 40),
        kernel("gemm", 20, rank=1),
        kernel("nccl", 20, kind="communication"),
    ]
    rows += [kernel(f"small{n}", 4) for n in range(5)]
    figure = plot.kernels(build(KERNELS, rows), top=2)
    assert ticks(figure) == ["gemm", "nccl", "all others (5 names)"]
    assert drawn(figure) == {"compute": [60], "communication": [20], "all others": [20]}
    assert figure.layout.title.text == "gemm takes 60 % of the GPU work; 2 of 7 names take 80 %"


def test_one_name_too_many_is_shown_instead_of_called_others(build):
    figure = plot.kernels(build(KERNELS, [kernel(f"k{n}", 10 - n) for n in range(3)]), top=2)
    assert ticks(figure) == ["k0", "k1", "k2"]
    assert figure.layout.title.text == "k0 takes 37 % of the GPU work"


def test_names_that_read_the_same_once_short_keep_their_own_bars(build):
    rows = [kernel("void f<" + "x" * 30 + middle + "x" * 60 + ">", 10) for middle in "ab"]
    figure = plot.kernels(build(KERNELS, rows))
    assert ticks(figure)[0] == ticks(figure)[1]
    assert list(figure.data[0].y) == [0, 1]
    assert "a" + "x" in figure.data[0].hovertext[0].replace("<br>", "")
    assert "b" + "x" in figure.data[0].hovertext[1].replace("<br>", "")


def test_the_full_name_is_in_the_hover_text(build):
    name = "void very::long::kernel<" + ", ".join(f"Type{n}" for n in range(40)) + ">(int*)"
    figure = plot.kernels(build(KERNELS, [kernel(name, 10)]))
    hover = figure.data[0].hovertext[0].rpartition("<br>")[0].replace("<br>", "")
    assert hover == name.replace("<", "&lt;").replace(">", "&gt;")


def test_kinds_show_what_no_rule_recognised(build):
    rows = [
        {"rank": rank, "kind": "compute", "rule": rule, "is_unclassified": rule == "default",
         "total_ns": total, "name_count": 1, "kernel_count": 1}
        for rank in (0, 1)
        for rule, total in (("matrix-multiply", 45), ("default", 5))
    ]  # fmt: skip
    figure = plot.kernel_kinds(build(KERNEL_KINDS, rows))
    assert drawn(figure) == {"compute": [90], "unclassified": [10]}
    assert ticks(figure) == ["compute, by rule 'matrix-multiply'", "compute, by no rule"]
    assert figure.layout.title.text == "100 % of the GPU work is compute; 10 % is unlabelled"
