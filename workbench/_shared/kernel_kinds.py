"""Kinds of GPU kernels, recognized by name with an ordered list of rules.

The rules are data: ``kernel_kinds.csv`` beside this file, three columns. The first rule whose
pattern is found in a name decides. Bring your own rules as a file of the same shape; they go before
the shipped ones.

A pattern that begins with ``words:`` is not searched in the name itself but among its words: in
lower case, divided at every sign, digit and change of case, and joined by ``_``. So
``words:lamb|layer_norm`` finds ``LAMBStage1Functor`` and ``LayerNormForwardCUDAKernel``, and finds
no ``lamb`` in a C++ ``lambda``. Of a mangled C++ name only the identifiers are divided, so that no
word is found in a substitution such as ``NSA_`` or in the hash of an ABI tag.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from pathlib import Path

import pandas as pd

from workbench.errors import LoadError

KINDS = ("compute", "communication", "memory", "other")
UNCLASSIFIED = "default"
SHIPPED_RULES = Path(__file__).with_name("kernel_kinds.csv")
_COLUMNS = ["kind", "rule", "pattern"]
_WORDS = "words:"
_SIGNS = re.compile(r"[^A-Za-z0-9]+")
_WORD_EDGES = re.compile(
    r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])"
)
# Mangled names of the Itanium C++ ABI: https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling
_MANGLED = re.compile(r"(?<![A-Za-z0-9])_Z(?:T[ISV])?([A-Z0-9][\w$.]*)")
# An identifier behind its length; behind a B it is an ABI tag, in Numba a hash of the types.
_IDENTIFIER = re.compile(r"(B?)([1-9]\d{0,4})(?=[A-Za-z_])")
# Codes that hold digits or end in letters: substitutions, template and function parameters,
# literals, floats, vectors, arrays, constructors and destructors.
_CODE = re.compile(
    r"S[0-9A-Z]*_|T\d*_|f(?:L\d+)?p\d*_|L(?:[a-z]|S[0-9A-Z]*_|T\d*_)n?\d+E|DF\d+[bx_]?|D[vB]\d+_"
    r"|A\d+_|[CD][0-5](?=[BEI])"
)
# Literals of an enumeration and lambdas; their numbers stand behind the E that closes them.
_OPENED, _CLOSED = ("LN", "Ul"), re.compile(r"E(?:n?\d+E|\d*_)")
# As demanglers write it.
_ABI_TAG = re.compile(r"\[abi:[^]]*\]?")

# Kind and rule; whether words are searched; the search.
_Rule = tuple[tuple[str, str], bool, Callable[[str], object]]

# Categories whose rows occupy the GPU. Annotations and synchronisation records span
# or wait for such work but do none.
GPU_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events", "hpu_op"})
GPU_MEMORY = frozenset({"gpu_memcpy", "gpu_memset"})
# Findings about traces that lack what most analyses need, and what to do.
RECORD_GPU_WORK = (
    "record the trace with GPU activities switched on (ProfilerActivity.CUDA, XPU, HPU, MTIA or "
    "PrivateUse1, as the device is)"
)
SEVERAL_WINDOWS = "one window of several that its process recorded"
OVERFLOWED = (
    "history that begins late: the recorder was full and overwrote its first actions, so an "
    "earlier peak is not in it; record again with a larger max_entries"
)
NO_GPU_WORK = "no GPU work, events of the host only"
NOTHING_RECORDED = (
    "no event with a duration: the profiler was not recording when the file was written (with "
    "torch.profiler export it from on_trace_ready, after an active step)"
)
BOUNDED = (
    "GPU work that cannot have taken as long as the trace says; it ends here when the next work of "
    "its stream begins, or a call returns that waited for it"
)
DOUBTFUL = (
    "GPU work that ends long after the next work of its stream began, or after all else in the "
    "trace; it keeps its time, and may not have taken it"
)
CPU_COLLECTIVES = "collectives on the CPU (gloo, MPI or UCC), whose waits are not computed"


def read_rules(path: str | Path) -> pd.DataFrame:
    """Read kernel rules from a CSV file: ``kind``, ``rule`` and ``pattern``, in file order.

    ``kind`` is compute, communication, memory or other, ``rule`` a name for the rule,
    ``pattern`` a regular expression that is searched in the kernel name, or behind ``words:``
    among its words, as the module describes. Order matters: the first match decides. A LoadError
    names the column that is missing, or the line with an unknown kind or a bad expression.
    """
    try:
        rules = pd.read_csv(path, dtype=str, keep_default_na=False)
    except ValueError as error:  # of which pandas' and the codec's errors are kinds
        msg = (
            f"{path}: cannot be read as CSV in UTF-8 ({str(error).strip()}); "
            f"kernel rules need the columns {_COLUMNS}"
        )
        raise LoadError(msg) from error
    return _checked(rules, f"{path}, line ", first=2)


def _checked(rules: pd.DataFrame, where: str, *, first: int = 0) -> pd.DataFrame:
    """Return the columns of rules that can be used; errors name the place of the bad one."""
    if missing := [name for name in _COLUMNS if name not in rules]:
        msg = f"{where.rpartition(',')[0]}: no column {missing}; kernel rules need {_COLUMNS}"
        raise LoadError(msg)
    for number, (kind, _, pattern) in enumerate(
        rules[_COLUMNS].itertuples(index=False, name=None), start=first
    ):
        if kind not in KINDS:
            msg = f"{where}{number}: kind {kind!r} is not one of {KINDS}"
            raise LoadError(msg)
        try:
            _search(pattern)
        except (re.error, TypeError, AttributeError) as error:
            msg = f"{where}{number}: {pattern!r} is not a regular expression: {error}"
            raise LoadError(msg) from None
    return rules[_COLUMNS]


def _search(pattern: str) -> Callable[[str], object]:
    if not pattern.startswith(_WORDS):
        return re.compile(pattern).search
    return re.compile(rf"(?<![^_])(?:{pattern.removeprefix(_WORDS)})(?![^_])").search


def _in_words(name: str) -> str:
    """Divide a name into words, in lower case and joined by ``_``.

    Examples
    --------
    >>> _in_words("void cutlass::device_kernel<flash::FlashAttnFwdSm90>")
    'void_cutlass_device_kernel_flash_flash_attn_fwd_sm_90_'
    """
    plain = _ABI_TAG.sub("_", _MANGLED.sub(_identifiers, name))
    return _WORD_EDGES.sub("_", _SIGNS.sub("_", plain)).lower()


# Demanglers refuse names that were cut, as profilers and pages do; lengths can be read in those.
def _identifiers(mangled: re.Match[str]) -> str:
    """Return the identifiers of a mangled name; without any it is no mangled name."""
    text, position, opened = mangled[1], 0, 0
    identifiers = []
    while position < len(text):
        if code := _CODE.match(text, position) or (opened and _CLOSED.match(text, position)):
            opened -= code.re is _CLOSED
            position = code.end()
        elif length := _IDENTIFIER.match(text, position):
            position = length.end() + int(length[2])
            identifiers += [] if length[1] else [text[length.end() : position]]
        else:
            opened += text.startswith(_OPENED, position)
            position += 1
    return "::".join(identifiers) or mangled[0]


@cache
def shipped_rules() -> pd.DataFrame:
    """Return the rules that come with the workbench; do not change the frame."""
    return read_rules(SHIPPED_RULES)


def classify(
    names: Iterable[str],
    *,
    rules: pd.DataFrame | str | Path | None = None,
    default: str = "compute",
) -> pd.DataFrame:
    """Return for each kernel name what the kernel is for, and which rule said so.

    ``rules`` of the user's own, a frame or a CSV file like the shipped one, are asked before the
    shipped ones. A name that no rule matches gets the kind ``default`` and the rule ``"default"``,
    so that the share of such names can be shown. One row per name, in the order given: ``name``,
    ``kind``, ``rule``.

    Examples
    --------
    >>> classify(["ncclDevKernel_AllReduce_Sum_f32_RING_LL", "my_kernel"])["rule"].tolist()
    ['nccl', 'default']
    """
    if default not in KINDS:
        msg = f"default must be one of {KINDS}, not {default!r}"
        raise ValueError(msg)
    texts = [str(name) for name in names]
    answers = rules_of(texts, rules=rules)
    kinds = [kind or default for kind, _ in answers]
    return pd.DataFrame({"name": texts, "kind": kinds, "rule": [rule for _, rule in answers]})


def rules_of(
    names: Iterable[str], *, rules: pd.DataFrame | str | Path | None = None
) -> list[tuple[str, str]]:
    """Return kind and rule of each name, as :func:`classify` does; of none ``("", "default")``."""
    if rules is None:
        return [_shipped_rule_of(name) for name in names]
    own = _checked(rules, "rules, row ") if isinstance(rules, pd.DataFrame) else read_rules(rules)
    searches = _searches(own)
    return [_first(searches, name) or _shipped_rule_of(name) for name in names]


# The ranks of a job run the same kernels, and asking all rules takes longer than parsing.
@lru_cache(maxsize=1 << 16)
def _shipped_rule_of(name: str) -> tuple[str, str]:
    return _first(_shipped_searches(), name) or ("", UNCLASSIFIED)


@cache
def _shipped_searches() -> list[_Rule]:
    return _searches(shipped_rules())


def _searches(rules: pd.DataFrame) -> list[_Rule]:
    return [
        ((kind, rule), pattern.startswith(_WORDS), _search(pattern))
        for kind, rule, pattern in rules[_COLUMNS].itertuples(index=False, name=None)
    ]


def _first(searches: list[_Rule], name: str) -> tuple[str, str] | None:
    divided = _in_words(name)
    for answer, among_words, search in searches:
        if search(divided if among_words else name):
            return answer
    return None
