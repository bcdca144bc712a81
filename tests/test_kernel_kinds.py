"""Kernel names are sorted by rules that anybody can read, extend and check."""

import pandas as pd
import pytest

from workbench import kernel_kinds
from workbench.errors import LoadError
from workbench.kernel_kinds import classify, read_rules, shipped_rules


@pytest.mark.parametrize(
    "name",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_Generic(ncclDevComm*)",
        "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
        "hccl::allreduce",
        "void dpsk::ep::internode::dispatch<false>(int4*)",
        "void deep_ep::intranode::combine<nv_bfloat16, 8>(int4*)",
        "void nvshmemi_transfer_rma_put<1>(int)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
    ],
)
def test_communication_of_every_known_library_is_recognised(name):
    row = classify([name]).iloc[0]
    assert row["kind"] == "communication"
    assert row["rule"] != kernel_kinds.UNCLASSIFIED


@pytest.mark.parametrize("name", ["Memcpy HtoD (Pageable -> Device)", "Memset (Device)"])
def test_memory_operations_are_recognised_by_name(name):
    assert classify([name])["kind"].tolist() == ["memory"]


@pytest.mark.parametrize(
    "name", ["void dispatch_attention<8>(float*)", "combine_outputs", "volta_sgemm_128x64_nn"]
)
def test_common_words_do_not_make_a_kernel_communication(name):
    assert classify([name])["kind"].tolist() == ["compute"]


def test_a_name_without_a_rule_is_marked_so_that_its_share_can_be_shown():
    result = classify(["my_kernel"], default="other")
    assert result.to_dict("records") == [{"name": "my_kernel", "kind": "other", "rule": "default"}]


def test_order_and_repetition_of_the_names_are_kept():
    names = ["ncclKernel_A", "x", "ncclKernel_A"]
    assert classify(names)["name"].tolist() == names


def test_own_rules_go_before_the_shipped_ones(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("kind,rule,pattern\nother,mine,^ncclDevKernel_Debug\ncompute,tail,.\n")
    result = classify(["ncclDevKernel_Debug", "ncclDevKernel_AllReduce"], rules=path)
    assert result["rule"].tolist() == ["mine", "tail"]
    assert classify(["ncclDevKernel_Debug"], rules=read_rules(path))["kind"].tolist() == ["other"]


def test_shipped_rules_are_valid_and_named_once():
    rules = shipped_rules()
    assert len(rules) > 0
    assert set(rules["kind"]) <= set(kernel_kinds.KINDS)
    assert (rules["rule"] != kernel_kinds.UNCLASSIFIED).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind,pattern\ncompute,x\n", r"no column \['rule'\]"),
        ("kind,rule,pattern\nfast,a,x\n", r"mine\.csv, line 2: kind 'fast' is not one of"),
        ("kind,rule,pattern\ncompute,a,x\ncompute,b,(\n", r"line 3: '\(' is not a regular"),
    ],
)
def test_bad_rules_name_file_line_and_reason(tmp_path, text, message):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(LoadError, match=message):
        read_rules(path)


def test_bad_rules_given_as_a_frame_are_refused():
    with pytest.raises(LoadError, match=r"rules: no column \['pattern'\]"):
        classify(["x"], rules=pd.DataFrame({"kind": [], "rule": []}))
    wrong = pd.DataFrame({"kind": ["fast"], "rule": ["a"], "pattern": ["x"]})
    with pytest.raises(LoadError, match="rules, row 0: kind 'fast' is not one of"):
        classify(["x"], rules=wrong)


def test_an_unknown_default_is_refused():
    with pytest.raises(ValueError, match="default must be one of"):
        classify(["x"], default="unknown")


@pytest.mark.parametrize("raw", [b"", b"\xff\xfek\x00i\x00n\x00d\x00", b'kind,rule\n"a'])
def test_a_file_that_is_no_csv_is_named(tmp_path, raw):
    path = tmp_path / "rules.csv"
    path.write_bytes(raw)
    with pytest.raises(LoadError, match=r"rules\.csv: "):
        read_rules(path)


@pytest.mark.parametrize("pattern", ["(", None])
def test_bad_patterns_in_a_frame_are_named(pattern):
    rules = pd.DataFrame({"kind": ["compute"], "rule": ["mine"], "pattern": [pattern]})
    with pytest.raises(LoadError, match=r"rules, row 0: .* is not a regular expression"):
        classify(["x"], rules=rules)
