"""Names and numbers as figures print them."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.plot._style import text as _text


@given(st.text())
def test_a_safe_name_cannot_start_a_tag_or_an_entity_of_its_own(name):
    made = _text.safe(name)
    assert "<" not in made
    assert ">" not in made
    assert "$" not in made
    assert re.fullmatch(r"(?:[^&]|&(?:amp|lt|gt|#36);)*", made)


@given(st.text(alphabet=st.characters(exclude_categories=("Cc", "Cf", "Cs"))))
def test_a_safe_name_still_reads_the_same(name):
    assert html.unescape(_text.safe(name)) == name


def test_line_ends_and_direction_marks_become_blanks():
    assert _text.safe("a\nb\u202ec") == "a b c"


@given(st.text(max_size=300), st.integers(min_value=3, max_value=80))
def test_a_short_name_fits_its_place(name, width):
    assert len(_text.short(name, width)) <= width


@given(st.text(alphabet="abc_ ", min_size=3, max_size=300), st.integers(3, 80))
def test_a_short_name_keeps_both_its_ends(name, width):
    made = _text.short(name, width)
    if len(name) > width:
        head, tail = made.split("…")
        assert name.startswith(head)
        assert name.endswith(tail)
    else:
        assert made == name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("aten::mm", "aten::mm"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, "
            "at::detail::Array<char*, 3> >(int, at::native::AddFunctor<float>)",
            "vectorized_elementwise_kernel<4, AddFunctor<float>, Array<char*, 3> >",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<float>"
            "(TensorListMetadata<4>, float, float, float, float, float, float, float)",
            "multi_tensor_apply_kernel<float>",
        ),
        (
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem, and, more, arguments, of, it, x)",
            "ncclKernel_AllReduce_RING_LL_Sum_float",
        ),
    ],
)
def test_a_kernel_name_loses_arguments_and_namespaces_before_its_middle(name, words):
    assert _text.short(name, 75) == words


def test_shortening_a_huge_hostile_name_takes_no_time():
    for name in ("a" * 200_000, "a::" * 50_000, "(" * 100_000 + ")" * 100_000):
        assert len(_text.short(name)) <= 44


@pytest.mark.parametrize(
    ("ns", "words"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1 µs"),
        (1_234, "1.23 µs"),
        (12_345_678, "12.3 ms"),
        (345_678_901, "346 ms"),
        (61_000_000_000, "61 s"),
        (-1_500, "-1.50 µs"),
    ],
)
def test_durations_have_three_digits_and_a_fitting_unit(ns, words):
    assert _text.duration(ns) == words


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0, "0 %"),
        (0.0004, "< 0.1 %"),
        (0.0123, "1.2 %"),
        (0.344, "34 %"),
        (0.996, "99.6 %"),
        (0.99991, "> 99.9 %"),
        (1, "100 %"),
    ],
)
def test_a_share_reads_as_all_or_nothing_only_if_it_is(share, words):
    assert _text.percent(share) == words


def test_small_numbers_never_read_as_nought():
    assert [_text.digits(x) for x in (0, 0.0046, 0.5, 1_048)] == ["0", "0.0046", "0.5", "1,048"]


def test_sizes_are_decimal():
    assert [_text.size(n) for n in (0, 999, 1_500, 2_000_000_000)] == [
        "0 B",
        "999 B",
        "1.50 kB",
        "2 GB",
    ]


def test_a_long_claim_is_broken_at_blanks_and_nothing_is_lost():
    claim = "one &lt;two&gt; three four"
    assert _text.wrapped(claim, 10) == "one &lt;two&gt;<br>three four"
    assert _text.wrapped("a rank waits for 4.98 ms", 22) == "a rank waits<br>for 4.98 ms"
    assert _text.wrapped("a rank waits", 22) == "a rank waits"
    assert _text.wrapped("", 10) == ""


@given(st.floats(-1e15, 1e15, allow_nan=False))
def test_a_number_has_no_exponent_and_keeps_its_sign_and_size(value):
    words = _text.digits(value)
    assert "e" not in words
    bare = float(words.strip("<> ").replace(",", ""))
    assert bare == pytest.approx(value, rel=0.01, abs=1e-4)
    assert words.startswith(("<", ">")) == (0 < abs(value) < 1e-4)
