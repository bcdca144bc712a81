"""Kernel names are sorted by rules that anybody can read, extend and check."""

import re
import string
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench._shared import kernel_kinds
from workbench._shared.kernel_kinds import classify, read_rules, shipped_rules
from workbench.errors import LoadError

# Names from traces, from public repositories that print some, and from sources of libraries;
# what each is for was written down before the rules. A part was not looked at meanwhile.
CORPUS = pd.read_csv(Path(__file__).with_name("kernel_names.csv"), keep_default_na=False)
# Two at least: one letter makes another word of a rule of some, such as bmm of mm.
LETTERS = st.text(string.ascii_lowercase, min_size=2, max_size=4)


def spelled(pattern):
    """Give the texts that a pattern of groups, alternatives and `?` stands for."""
    group = re.search(r"\(\?:([^()]*)\)(\??)|(\w)\?", pattern)
    if group is None:
        return [pattern] if re.fullmatch("[a-z0-9_]+", pattern) else []
    inside, is_optional, letter = group.groups()
    choices = [letter, ""] if letter else inside.split("|") + [""] * bool(is_optional)
    return [
        text
        for choice in choices
        for text in spelled(pattern[: group.start()] + choice + pattern[group.end() :])
    ]


@cache
def words_of_rules():
    """Give the words of the shipped rules with their rule; none has another one inside."""
    rows = shipped_rules()
    rows = rows[rows["pattern"].str.startswith("words:")]
    words = [
        (rule, word)
        for rule, pattern in zip(rows["rule"], rows["pattern"], strict=True)
        for alternative in re.split(r"\|(?![^()]*\))", pattern.removeprefix("words:"))
        for word in spelled(alternative)
    ]
    inside = classify(["_".join(word.split("_")[1:-1]) for _, word in words])["rule"]
    return [pair for pair, found in zip(words, inside, strict=True) if pair[0] != found]


@pytest.mark.oracle
@pytest.mark.parametrize("part", ["tuned", "held out"])
def test_every_name_of_the_corpus_is_what_it_is_for(part):
    corpus = CORPUS[CORPUS["part"] == part].reset_index(drop=True)
    found = classify(corpus["name"])
    is_wrong = (found["kind"] != corpus["kind"]) | (found["rule"] != corpus["rule"])
    assert found.assign(expected=corpus["rule"])[is_wrong].to_dict("records") == []


def test_the_corpus_is_large_and_covers_every_rule():
    assert CORPUS["name"].is_unique
    assert len(CORPUS) >= 900
    assert (CORPUS["part"] == "held out").mean() > 0.15
    assert set(shipped_rules()["rule"]) - set(CORPUS["rule"]) <= {"dma"}


@settings(max_examples=20)
@given(before=LETTERS, after=LETTERS)
def test_no_rule_is_triggered_inside_a_longer_word(before, after):
    words = words_of_rules()
    assert len(words) > 400
    found = classify([f"my_{before}{word}{after}_stage" for _, word in words])
    triggered = [
        (rule, name)
        for (rule, _), name, other in zip(words, found["name"], found["rule"], strict=True)
        if rule == other
    ]
    assert triggered == []


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, f()::{lambda(float)#1}>",
            "elementwise",
        ),
        ("void my_kernel<f()::{lambda(float)#1}>(float*)", "default"),
        ("multi_step<LAMBStage1Functor<float>>", "optimiser"),
        ("bmm_Bfloat16_rM_TN_transOut_schedS_biasM_bN_tma_clmp_sm100f", "matrix-multiply"),
        ("type vllm::_typeConvert<T1>::exists, void>::type vllm::scale_rows", "default"),
        ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(int)", "kv-cache"),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<int>>(int)", "attention"),
        ("attn_fwd", "attention"),
        ("sage_fwd", "attention"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc", "convolution"),
        ("triton_poi_fused_add_all_reduce_0", "elementwise"),
    ],
)
def test_words_end_at_signs_digits_and_changes_of_case(name, rule):
    assert classify([name])["rule"].tolist() == [rule]


# Codes of the Itanium C++ ABI whose letters are words of rules, or whose digits look like lengths.
SHORT = st.sampled_from(["nsa", "dsa", "mla", "mha", "ssd", "gdr", "moe", "cub", "sgd", "Pad"])
CODES = st.one_of(
    SHORT.map(lambda word: f"S1{word.upper()}_"),
    SHORT.map(lambda word: f"B{len(word) + 10}cw51cX{word}XL64"),
    st.integers(0, 1_000).map(lambda value: f"Li{value}E"),
    st.integers(0, 1_000).map(lambda value: f"LN4cute5MajorE{value}E"),
    st.sampled_from(["T_", "T12_", "DF16b", "Dv4_f", "A32_f", "UlvE12_", "C2E", "fp_", "v", "J"]),
)
IDENTIFIERS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,30}", fullmatch=True)


@pytest.mark.long
@settings(max_examples=200)
@given(st.lists(st.tuples(IDENTIFIERS, st.lists(CODES, max_size=4)), min_size=1, max_size=5))
def test_of_a_mangled_name_only_the_identifiers_are_words(parts):
    mangled = "".join(f"{len(name)}{name}{''.join(codes)}" for name, codes in parts)
    plain = "::".join(name for name, _ in parts)
    assert classify([f"_ZN{mangled}Evv", plain])["rule"].nunique() == 1


@pytest.mark.parametrize("word", ["nsa", "dsa", "mla", "mha", "ssd", "gdr", "moe", "cub", "pad"])
def test_short_words_are_not_found_in_substitutions_and_hashes(word):
    code = f"S1{word.upper()}_"
    names = [
        f"_ZN2ck24kernel_gemm_xdl_cshuffleIS1C_N{code}IJLi9EEEEEvv",
        f"_ZTSN2ck24kernel_gemm_xdl_cshuffleIN{code}EEE",
        f"__omp_offloading_10_a1b2__ZN2ck24kernel_gemm_xdl_cshuffleIN{code}EEvv_l12",
        f"_ZN8__main__7my_gemmB2v1B14cw51cX{word.title()}W64E5ArrayIfLi1EE",
        f"__main__::my_gemm[abi:v1][abi:cw51cX{word.title()}W64](Array<float, 1>)",
    ]
    assert classify(names)["rule"].tolist() == ["matrix-multiply"] * len(names)


def test_a_word_of_a_mangled_name_counts_where_it_is_an_identifier():
    names = [
        "_ZN2ck12nsa_gemm_fwdIS1C_NSA_IJLi9EEEEEvv",
        "_ZN7ck_tile6kentryILi1ENS_13FmhaFwdKernelEEEvv",
        "_ZN2ck22kernel_gemm_xdl_cshuffleIS1C_NSA_IJLi9EEEEEvv",  # its length says 2 too few
        "_ZN2ck40kernel_gemm_xdl_cshuf",  # cut
        "layer_ZNorm_softmax",  # not mangled
    ]
    rules = ["attention", "attention", "matrix-multiply", "matrix-multiply", "reduction"]
    assert classify(names)["rule"].tolist() == rules


def test_own_rules_can_ask_for_words(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("kind,rule,pattern\nother,mine,words:warm_up|idle\n")
    names = ["void WarmUpKernel<4>()", "gpu::idle(int)", "swarm_up", "idler"]
    assert classify(names, rules=path)["rule"].tolist() == ["mine", "mine", "default", "default"]


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
        ("kind,rule,pattern\ncompute,a,words:(\n", r"line 2: 'words:\(' is not a regular"),
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
