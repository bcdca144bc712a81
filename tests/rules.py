"""One test per rule: it looks at every subject and names each one that breaks the rule."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pytest

Test = Callable[..., None]
Item = TypeVar("Item")
# How many subjects a rule looks at: all, unless only a first look was asked for.
subjects_at_most: int | None = None


def spread(items: Sequence[Item], at_most: int | None) -> list[Item]:
    """Choose some items, evenly from the first to the last."""
    if at_most is None or len(items) <= at_most:
        return list(items)
    return [items[at * (len(items) - 1) // (at_most - 1)] for at in range(at_most)]


def for_every(**subjects_of_argument: Mapping[str, Any]) -> Callable[[Test], Test]:
    """Turn a test of one subject into one test of all subjects.

    A parametrised test costs a set-up, a report and a line of collection per subject, which
    for a thousand subjects is most of its time. This one looks at every subject, goes on after
    one has failed, and lists all that break the rule with the reason. The other arguments of
    the test stay fixtures; all subjects share them.

    Parameters
    ----------
    subjects_of_argument
        The argument of the test that takes a subject, with the subjects by name.
    """
    ((argument, subjects),) = subjects_of_argument.items()
    if not subjects:
        msg = f"no {argument}: a rule about nothing cannot fail"
        raise ValueError(msg)

    def decorate(rule: Test) -> Test:
        @functools.wraps(rule)
        def look_at_all(**fixtures: Any) -> None:
            broken: dict[str, BaseException] = {}
            looked_at = spread([*subjects.items()], subjects_at_most)
            for name, subject in looked_at:
                try:
                    rule(**{argument: subject}, **fixtures)
                # pytest.fail, also by pytest.raises, is not an Exception.
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001
                    broken[name] = error
            if broken:
                first = next(iter(broken.values()))
                raise AssertionError(_message(broken, of=len(looked_at))) from first

        # pytest reads the names of the fixtures from the signature.
        signature = inspect.signature(rule)
        fixtures = [name for name in signature.parameters if name != argument]
        look_at_all.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[signature.parameters[name] for name in fixtures]
        )
        return look_at_all

    return decorate


def _message(broken: Mapping[str, BaseException], *, of: int) -> str:
    """List the subjects that break a rule, each with the reason."""
    lines = [f"{len(broken)} of {of} break the rule:"]
    lines += [f"  - {name}: {_reason(error)}" for name, error in broken.items()]
    return "\n".join(lines)


def _reason(error: BaseException) -> str:
    """Give the reason: an assertion is its text; any other error has its type before it."""
    text = str(error)
    if not isinstance(error, AssertionError | pytest.fail.Exception):
        text = f"{type(error).__name__}: {text}"
    return text.replace("\n", "\n    ")
