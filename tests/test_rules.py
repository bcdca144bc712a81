"""A rule looks at every subject, and its failure names each one that breaks it."""

import pytest

from tests.rules import for_every, spread

NUMBERS = {"one": 1, "two": 2, "three": 3}


def test_a_rule_that_all_keep_says_nothing():
    @for_every(number=NUMBERS)
    def is_counted(number):
        counted.append(number)

    counted = []
    is_counted()
    assert counted == [1, 2, 3]


def test_the_failure_names_each_offender_with_the_reason():
    @for_every(number=NUMBERS)
    def is_two(number):
        assert number == 2, f"{number} is not 2"

    with pytest.raises(AssertionError) as caught:
        is_two()
    heading, *offenders = str(caught.value).split("\n  - ")
    assert heading == "2 of 3 break the rule:"
    assert [line.splitlines()[0] for line in offenders] == [
        "one: 1 is not 2",
        "three: 3 is not 2",
    ]


def test_an_error_of_one_subject_does_not_hide_the_others():
    @for_every(number=NUMBERS)
    def divides(number):
        assert 6 / (number - 1) > 5
        with pytest.raises(ValueError, match="nothing raises this"):
            pass

    with pytest.raises(AssertionError) as caught:
        divides()
    text = str(caught.value)
    assert "3 of 3 break the rule" in text
    assert "one: ZeroDivisionError: division by zero" in text
    assert "two: DID NOT RAISE" in text
    assert "three: assert (6 / (3 - 1)) > 5" in text


@for_every(number=NUMBERS)
def test_the_other_arguments_stay_fixtures(tmp_path, number):
    assert tmp_path.is_dir()
    assert number in {1, 2, 3}


@pytest.mark.parametrize(
    ("count", "at_most", "chosen"),
    [(3, None, [0, 1, 2]), (3, 4, [0, 1, 2]), (5, 4, [0, 1, 2, 4]), (10, 4, [0, 3, 6, 9])],
)
def test_a_first_look_is_spread_over_all_subjects(count, at_most, chosen):
    assert spread(range(count), at_most) == chosen


def test_a_rule_about_nothing_is_refused():
    with pytest.raises(ValueError, match="no number: a rule about nothing cannot fail"):
        for_every(number={})
