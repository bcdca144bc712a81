"""Operations and bytes of one call of an operator, in closed form from what was recorded of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

# What profilers call element types, in short, and their bytes. Without a float there is no peak.
ELEMENTS: Mapping[str, tuple[str, int]] = {
    "c10::BFloat16": ("bfloat16", 2), "c10::Half": ("float16", 2), "float": ("float32", 4),
    "double": ("float64", 8), "c10::Float8_e4m3fn": ("fp8", 1), "c10::Float8_e5m2": ("fp8", 1),
    "c10::Float8_e4m3fnuz": ("fp8", 1), "c10::Float8_e5m2fnuz": ("fp8", 1),
    "long int": ("int64", 8), "long": ("int64", 8), "int": ("int32", 4), "short int": ("int16", 2),
    "short": ("int16", 2), "signed char": ("int8", 1), "unsigned char": ("uint8", 1),
    "bool": ("bool", 1), "c10::complex<float>": ("complex64", 8),
    "c10::complex<double>": ("complex128", 16),
}  # fmt: skip
# Numbers of PyTorch's types, as operators get them for a result of another type.
_TYPE_BYTES = {"5": 2, "6": 4, "7": 8, "15": 2, "23": 1, "24": 1, "25": 1, "26": 1}
# From the type that gives way to the one that wins.
_PROMOTION = ("bool", "uint8", "int8", "int16", "int32", "int64", "fp8", "float16", "bfloat16",
              "float32", "float64", "complex64", "complex128")  # fmt: skip
_LARGEST_SIZE = 1 << 48

NO_FORM = "no closed form for this operator"
NO_SHAPES = "its shapes were not recorded"
NO_MASK = "whether its mask is causal was not recorded"
NO_LENGTHS = "lengths of its sequences were not recorded"
WINDOW = "it attends a window of its keys only"
NO_TYPE = "the type of its result was not recorded"


class Tensor(NamedTuple):
    """An input of an operator."""

    shape: tuple[int, ...]
    element: str
    element_bytes: int
    held: int  # elements in memory: those of an expanded dimension are one

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.held * self.element_bytes


class OperatorWork(NamedTuple):
    """Least work and traffic of one call; missing where unknown, with the reason."""

    family: str
    flop_count: float | None = None
    moved_bytes: float | None = None
    dtype: str | None = None
    note: str = ""


class Call:
    """The inputs of one call: tensors by position, and the numbers and flags that were recorded."""

    def __init__(self, shapes: Any, types: Any, strides: Any, values: Any) -> None:
        self.tensors = [
            _tensor(shape, _at(types, at), _at(strides, at)) for at, shape in enumerate(shapes)
        ]
        self._values = values
        self.has_values = isinstance(values, list)
        self.types = types

    def tensor(self, at: int, rank: int | None = None) -> Tensor:
        """Return an input that must be a tensor, and of so many dimensions."""
        found = self.tensors[at] if at < len(self.tensors) else None
        if found is None or (rank is not None and len(found.shape) != rank):
            raise _UntoldError(NO_SHAPES)
        return found

    def value(self, at: int) -> str:
        text = _at(self._values, at)
        return text if isinstance(text, str) else ""

    def numbers(self, at: int) -> list[int]:
        """Return a list of whole numbers, e.g. the strides of a convolution."""
        try:
            listed = json.loads(self.value(at))
            return [int(number) for number in (listed if isinstance(listed, list) else [listed])]
        except (ValueError, TypeError, RecursionError):
            raise _UntoldError(NO_SHAPES) from None

    def flag(self, at: int, note: str) -> bool:
        if (text := self.value(at)) not in ("True", "False"):
            raise _UntoldError(note)
        return text == "True"

    def all_told(self) -> None:
        """Refuse lists of tensors and unknown element types, whose bytes are not recorded."""
        types = self.types if isinstance(self.types, list) else []
        for at, text in enumerate(types):
            known = text in ELEMENTS or text in ("", "Scalar", "ScalarList")
            if not known or (text in ELEMENTS and self.tensors[at] is None):
                raise _UntoldError(NO_SHAPES)


class _UntoldError(Exception):
    """Something that a closed form needs was not recorded."""


def _at(values: Any, position: int) -> Any:
    is_there = isinstance(values, list) and position < len(values)
    return values[position] if is_there else None


def _tensor(shape: Any, element: Any, strides: Any) -> Tensor | None:
    if not isinstance(element, str) or element not in ELEMENTS or not isinstance(shape, list):
        return None
    if not all(type(size) is int and 0 <= size < _LARGEST_SIZE for size in shape):
        return None
    steps = (
        strides if isinstance(strides, list) and len(strides) == len(shape) else [1] * len(shape)
    )
    held = prod(size for size, step in zip(shape, steps, strict=True) if step != 0)
    return Tensor(tuple(shape), *ELEMENTS[element], held)


def family_of(name: str) -> str:
    """Describe what an operator does; ``unknown`` without a closed form."""
    return _FORMS.get(name, ("unknown", None))[0]


def operator_work(
    name: str, shapes: str | None, types: str | None, strides: str | None, values: str | None
) -> OperatorWork:
    """Compute the least work and traffic of an operator call, from its recorded inputs as JSON."""
    family, form = _FORMS.get(name, ("unknown", None))
    if form is None:
        return OperatorWork(family, note=NO_FORM)
    try:
        inputs = [_parsed(text) for text in (shapes, types, strides, values)]
        if not isinstance(inputs[0], list) or not isinstance(inputs[1], list):
            return OperatorWork(family, note=NO_SHAPES)
        call = Call(*inputs)
        flop_count, moved_bytes, dtype = form(call)
    except _UntoldError as error:
        return OperatorWork(family, note=str(error))
    return OperatorWork(family, float(flop_count), float(moved_bytes), dtype)


def _parsed(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


Form = Callable[[Call], tuple[int, int, str]]


# ---- matrix products ----


def _product(first: int, rank: int, bias: int | None = None) -> Form:
    def form(call: Call) -> tuple[int, int, str]:
        a, b = call.tensor(first, rank), call.tensor(first + 1, rank)
        (*batch, m, k), (*others, inner, n) = a.shape, b.shape
        if inner != k or batch != others:
            raise _UntoldError(NO_SHAPES)
        count = prod(batch)
        if "complex" in a.element:
            raise _UntoldError(NO_TYPE)
        added = 0 if bias is None else call.tensor(bias).bytes
        moved = a.bytes + b.bytes + count * m * n * a.element_bytes + added
        return 2 * count * m * n * k, moved, a.element

    return form


def _linear(call: Call) -> tuple[int, int, str]:
    a, weight = call.tensor(0), call.tensor(1, 2)
    n, k = weight.shape
    if not a.shape or a.shape[-1] != k:
        raise _UntoldError(NO_SHAPES)
    rows = a.size // max(k, 1)
    bias = call.tensors[2].bytes if len(call.tensors) > 2 and call.tensors[2] else 0
    moved = a.bytes + weight.bytes + rows * n * a.element_bytes + bias
    return 2 * rows * n * k, moved, a.element


def _scaled_product(call: Call) -> tuple[int, int, str]:
    flop_count, moved, element = _product(0, 2)(call)
    a, b = call.tensor(0, 2), call.tensor(1, 2)
    # Until PyTorch 2.4 the type of the result stood before the scales. Without one it is that of
    # the inputs, which is one byte wide; without any values it is unknown.
    text = call.value(6 if _at(call.tensors, 3) is not None else 3)
    result_bytes = {"": a.element_bytes, **_TYPE_BYTES}.get(text)
    if result_bytes is None or not call.has_values:
        raise _UntoldError(NO_TYPE)
    moved += sum(tensor.bytes for tensor in call.tensors[2:] if tensor is not None)
    return flop_count, moved + a.shape[0] * b.shape[1] * (result_bytes - a.element_bytes), element


# ---- convolutions ----


@dataclass(frozen=True)
class _Convolution:
    """Where the arguments of an operator stand; None for what it has not."""

    stride: int
    padding: int
    dilation: int | None
    transposed: int | None = None
    image: int = 0
    bias: int | None = None
    padding_of_result: int | None = None
    groups: int | None = None
    is_transposed: bool = False
    is_backward: bool = False

    def __call__(self, call: Call) -> tuple[int, int, str]:
        image, weight = call.tensor(self.image), call.tensor(self.image + 1)
        axes = len(image.shape) - 2
        if axes < 1 or len(weight.shape) != axes + 2:
            raise _UntoldError(NO_SHAPES)
        transposed = self.is_transposed
        if self.transposed is not None:
            transposed = call.flag(self.transposed, NO_SHAPES)
        if self.is_backward:
            gradient = call.tensor(0)
            # A transposed convolution visits each element of its input, others of their result.
            visited = prod((image if transposed else gradient).shape[2:])
            asked = _mask(call, 10)
            one = 2 * image.shape[0] * visited * weight.size
            read = gradient.bytes + image.bytes * asked[1] + weight.bytes * asked[0]
            written = image.bytes * asked[0] + weight.bytes * asked[1]
            return one * sum(asked[:2]), read + written, image.element
        result = _result_sizes(call, self, image.shape[2:], weight.shape[2:], transposed)
        visited = prod(image.shape[2:] if transposed else result)
        flop_count = 2 * image.shape[0] * visited * weight.size
        channels = weight.shape[0]
        if transposed and self.groups is not None:
            channels = weight.shape[1] * call.numbers(self.groups)[0]
        written = image.shape[0] * channels * prod(result) * image.element_bytes
        added = call.tensors[self.bias] if self.bias is not None else None
        moved = image.bytes + weight.bytes + written + (added.bytes if added else 0)
        return flop_count, moved, image.element


def _mask(call: Call, at: int) -> list[bool]:
    texts = [part.strip() for part in call.value(at).strip("[]").split(",")]
    if len(texts) != 3 or not set(texts) <= {"True", "False"}:
        raise _UntoldError(NO_SHAPES)
    return [text == "True" for text in texts]


def _result_sizes(
    call: Call,
    where: _Convolution,
    image: Sequence[int],
    kernel: Sequence[int],
    transposed: bool,
) -> list[int]:
    axes = len(image)
    stride, padding = call.numbers(where.stride), call.numbers(where.padding)
    dilation = [1] if where.dilation is None else call.numbers(where.dilation)
    extra = [0]
    if transposed and where.padding_of_result is not None:
        extra = call.numbers(where.padding_of_result)
    if min(stride + dilation, default=0) < 1:
        raise _UntoldError(NO_SHAPES)
    by_axis = [of * axes if len(of) == 1 else of for of in (stride, padding, dilation, extra)]
    if any(len(of) != axes for of in by_axis):
        raise _UntoldError(NO_SHAPES)
    sizes = []
    for size, width, s, p, d, more in zip(image, kernel, *by_axis, strict=True):
        if transposed:
            sizes.append((size - 1) * s - 2 * p + d * (width - 1) + more + 1)
        else:
            sizes.append((size + 2 * p - d * (width - 1) - 1) // s + 1)
    if min(sizes, default=0) < 0:
        raise _UntoldError(NO_SHAPES)
    return sizes


# ---- attention ----


@dataclass(frozen=True)
class _Attention:
    """Where the arguments of an operator stand, and in which order dimensions are."""

    causal: int
    query: int = 0
    heads_first: bool = True
    # A number: 0 without mask, 1 from the first query and key on, 2 from the last ones.
    is_number: bool = False
    # The package flash-attn aligns the last query with the last key, PyTorch the first with the
    # first.
    from_last: bool = False
    lengths: int | None = None
    window: int | None = None

    def __call__(self, call: Call) -> tuple[int, int, str]:
        tensors = [call.tensor(self.query + at) for at in range(3)]
        if self.lengths is not None and _at(call.tensors, self.lengths) is not None:
            raise _UntoldError(NO_LENGTHS)
        if any(len(tensor.shape) != 4 for tensor in tensors):
            raise _UntoldError(NO_LENGTHS)
        query, key, value = tensors
        at = (2, 1) if self.heads_first else (1, 2)
        sizes = (query.shape[at[0]], key.shape[at[0]])
        self._refuse_windows(call)
        pairs = _pairs(*sizes, *self._mask(call)) * query.shape[0] * query.shape[at[1]]
        depth, width = query.shape[3], value.shape[3]
        written = query.size // max(depth, 1) * width * query.element_bytes
        read = query.bytes + key.bytes + value.bytes
        if self.query == 0:
            return 2 * pairs * (depth + width), read + written, query.element
        # Scores again, then gradients of scores, values, queries and keys.
        return 2 * pairs * (3 * depth + 2 * width), 2 * read + 2 * written, query.element

    def _mask(self, call: Call) -> tuple[bool, bool]:
        if not self.is_number:
            return call.flag(self.causal, NO_MASK), self.from_last
        if (text := call.value(self.causal)) not in ("0", "1", "2"):
            raise _UntoldError(NO_MASK)
        return text != "0", text == "2"

    def _refuse_windows(self, call: Call) -> None:
        if self.window is not None:
            ends = {call.value(self.window), call.value(self.window + 1)}
            if not ends <= {"", "-1"}:
                raise _UntoldError(WINDOW)


def _pairs(queries: int, keys: int, is_causal: bool, from_last: bool) -> int:
    """Count pairs of a query and a key that are computed."""
    if not is_causal:
        return queries * keys
    if from_last:
        first = max(keys - queries, 0)
        seen = min(queries, keys)
        return seen * first + seen * (seen + 1) // 2
    seen = min(queries, keys)
    return seen * (seen + 1) // 2 + (queries - seen) * keys


# ---- operators that memory bounds: at least one operation per element ----


def _read(call: Call, inputs: int) -> list[Tensor]:
    """Return the inputs; a tensor behind them is where the result goes."""
    call.all_told()
    tensors = [tensor for tensor in call.tensors[:inputs] if tensor is not None]
    if not tensors:
        raise _UntoldError(NO_SHAPES)
    return tensors


def _broadcast(tensors: Sequence[Tensor]) -> tuple[int, Tensor]:
    """Return the elements of a result, and an input of its type."""
    axes = max(len(tensor.shape) for tensor in tensors)
    padded = [(1,) * (axes - len(tensor.shape)) + tensor.shape for tensor in tensors]
    sizes = [[size for size in of_axis if size != 1] for of_axis in zip(*padded, strict=True)]
    if any(len(set(of_axis)) > 1 for of_axis in sizes):
        raise _UntoldError(NO_SHAPES)
    # Numbers without dimensions do not decide on the type, as long as anything has some.
    deciding = [tensor for tensor in tensors if tensor.shape] or tensors
    widest = max(deciding, key=lambda tensor: _PROMOTION.index(tensor.element))
    return prod(of_axis[0] if of_axis else 1 for of_axis in sizes), widest


def _elementwise(inputs: int, *, mask_bytes: int = 0) -> Form:
    def form(call: Call) -> tuple[int, int, str]:
        tensors = _read(call, inputs)
        count, widest = _broadcast(tensors)
        # Of integers and a number with a fraction the result is a float.
        if "float" not in widest.element:
            raise _UntoldError(NO_TYPE)
        moved = sum(tensor.bytes for tensor in tensors)
        return count, moved + count * (widest.element_bytes + mask_bytes), widest.element

    return form


def _compared(call: Call) -> tuple[int, int, str]:
    tensors = _read(call, 2)
    count, widest = _broadcast(tensors)
    return count, sum(tensor.bytes for tensor in tensors) + count, widest.element


def _in_place(call: Call) -> tuple[int, int, str]:
    tensors, first = _read(call, 3), call.tensor(0)
    return first.size, sum(tensor.bytes for tensor in tensors) + first.bytes, first.element


def _copied(call: Call) -> tuple[int, int, str]:
    target, source = call.tensor(0), call.tensor(1)
    return 0, target.bytes + source.bytes, target.element


def _filled(call: Call) -> tuple[int, int, str]:
    target = call.tensor(0)
    return 0, target.bytes, target.element


def _like(at: int, type_at: int | None = None, *, inputs: int = 99) -> Form:
    """All inputs are read, and a result like one of them is written, perhaps in another type."""

    def form(call: Call) -> tuple[int, int, str]:
        tensors, model = _read(call, inputs), call.tensor(at)
        element_bytes = model.element_bytes
        if type_at is not None:
            known = {"True": 4, "False": element_bytes, **_TYPE_BYTES}
            if (text := call.value(type_at)) not in known:
                raise _UntoldError(NO_TYPE)
            element_bytes = known[text]
        moved = sum(tensor.bytes for tensor in tensors) + model.size * element_bytes
        return model.size, moved, model.element

    return form


def _reduced(call: Call) -> tuple[int, int, str]:
    source = call.tensor(0)
    removed = set(range(len(source.shape)))
    # Without a list of dimensions all of them go; a call that could have one says that it has none.
    if len(call.tensors) > 2:
        if call.value(2) not in ("True", "False"):
            raise _UntoldError(NO_SHAPES)
        if call.value(1) not in ("", "[]"):
            removed = {axis % max(len(source.shape), 1) for axis in call.numbers(1)}
    left = prod(size for axis, size in enumerate(source.shape) if axis not in removed)
    return source.size, source.bytes + left * source.element_bytes, source.element


def _gathered(picks: int, axis: str) -> Form:
    """Rows of a table are read and written, one per index."""

    def form(call: Call) -> tuple[int, int, str]:
        table, index = call.tensor(0), call.tensor(picks)
        if call.value(1) != axis or not table.shape:
            raise _UntoldError(NO_SHAPES)
        row_bytes = table.size // max(table.shape[0], 1) * table.element_bytes
        return 0, index.bytes + 2 * index.size * row_bytes, table.element

    return form


def _scattered(call: Call) -> tuple[int, int, str]:
    gradient, index = call.tensor(0), call.tensor(1)
    width = gradient.shape[-1] if gradient.shape else 0
    written = call.numbers(2)[0] * width * gradient.element_bytes
    return gradient.size, gradient.bytes + index.bytes + written, gradient.element


_CONVOLUTION = _Convolution(3, 4, 5, 6, bias=2, padding_of_result=7, groups=8)
_FLASH = _Attention(8, heads_first=False, lengths=3, window=11)
_FLASH_BACK = _Attention(11, query=1, heads_first=False, lengths=6, window=15)
_ATTENTION: Mapping[str, _Attention] = {
    "aten::_flash_attention_forward": _FLASH,
    "aten::_flash_attention_backward": _FLASH_BACK,
    "aten::_efficient_attention_forward": _Attention(
        9, heads_first=False, is_number=True, lengths=4, window=13
    ),
    "aten::_efficient_attention_backward": _Attention(
        14, query=1, heads_first=False, is_number=True, lengths=6, window=18
    ),
    "aten::_scaled_dot_product_flash_attention": _Attention(4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _Attention(4),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _Attention(7, query=1),
    "aten::_scaled_dot_product_flash_attention_backward": _Attention(11, query=1),
    "aten::_scaled_dot_product_efficient_attention": _Attention(6),
    "aten::_scaled_dot_product_efficient_attention_backward": _Attention(11, query=1),
    "aten::_scaled_dot_product_cudnn_attention": _Attention(6),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Attention(14, query=1),
    "aten::_cudnn_attention_forward": _Attention(10, lengths=4),
    "aten::scaled_dot_product_attention": _Attention(5),
    "flash_attn::_flash_attn_forward": _Attention(5, heads_first=False, from_last=True, window=6),
    "flash_attn::_flash_attn_backward": _Attention(
        11, query=1, heads_first=False, from_last=True, window=12
    ),
}
_FAMILIES: Mapping[str, Mapping[str, Form]] = {
    "matrix product": {
        "aten::mm": _product(0, 2), "aten::addmm": _product(1, 2, bias=0),
        "aten::_addmm_activation": _product(1, 2, bias=0), "aten::bmm": _product(0, 3),
        "aten::baddbmm": _product(1, 3, bias=0), "aten::linear": _linear,
        "aten::_scaled_mm": _scaled_product,
    },
    "convolution": {
        "aten::convolution": _CONVOLUTION,
        "aten::_convolution": _CONVOLUTION,
        "aten::cudnn_convolution": _Convolution(3, 2, 4),
        "aten::cudnn_convolution_transpose": _Convolution(
            4, 2, 5, padding_of_result=3, groups=6, is_transposed=True
        ),
        "aten::miopen_convolution": _Convolution(4, 3, 5, bias=2),
        "aten::mkldnn_convolution": _Convolution(4, 3, 5, bias=2),
        "aten::_slow_conv2d_forward": _Convolution(4, 5, None, bias=3),
        "aten::_conv_depthwise2d": _Convolution(4, 5, 6, bias=3),
        "aten::convolution_backward": _Convolution(4, 5, 6, 7, image=1, is_backward=True),
    },
    "attention": _ATTENTION,
    "normalisation": {
        "aten::native_layer_norm": _like(0), "aten::native_layer_norm_backward": _like(0),
        "aten::_fused_rms_norm": _like(0), "aten::_fused_rms_norm_backward": _like(0),
        "aten::native_group_norm": _like(0), "aten::native_group_norm_backward": _like(0),
        "aten::native_batch_norm": _like(0),
        "aten::native_batch_norm_backward": _like(0),
        "aten::cudnn_batch_norm": _like(0), "aten::cudnn_batch_norm_backward": _like(0),
        "aten::_softmax": _like(0, 2, inputs=1), "aten::_log_softmax": _like(0, 2, inputs=1),
        "aten::_softmax_backward_data": _like(0, 3, inputs=2),
        "aten::_log_softmax_backward_data": _like(0, 3, inputs=2),
    },
    "reduction": {
        f"aten::{name}": _reduced for name in ("sum", "mean", "amax", "amin", "all", "any")
    },
    "embedding": {
        "aten::embedding": _gathered(1, ""), "aten::index_select": _gathered(2, "0"),
        "aten::embedding_dense_backward": _scattered,
    },
    "elementwise": {
        **{
            f"aten::{name}": _elementwise(inputs)
            for inputs, names in (
                (1, ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos",
                     "tanh", "sigmoid", "erf", "relu", "gelu", "silu", "leaky_relu")),
                (2, ("add", "sub", "rsub", "mul", "div", "pow", "maximum", "minimum", "clamp_min",
                     "clamp_max", "gelu_backward", "silu_backward", "tanh_backward",
                     "sigmoid_backward", "threshold_backward", "native_dropout_backward")),
                (3, ("where", "masked_fill", "addcmul", "addcdiv", "lerp", "clamp")),
            )
            for name in names
        },
        **{
            f"aten::{name}": _compared
            for name in ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or")
        },
        **{
            f"aten::{name}_": _in_place
            for name in (
                "add", "sub", "mul", "div", "pow", "neg", "exp", "sqrt", "tanh", "sigmoid", "relu",
                "clamp", "clamp_min", "masked_fill", "addcmul", "addcdiv", "lerp", "leaky_relu",
            )
        },
        "aten::native_dropout": _elementwise(1, mask_bytes=1), "aten::copy_": _copied,
        "aten::fill_": _filled, "aten::zero_": _filled,
    },
}  # fmt: skip
_FORMS: Mapping[str, tuple[str, Form | None]] = {
    name: (family, form) for family, forms in _FAMILIES.items() for name, form in forms.items()
}
