"""Four numbers at once, for loops over short rows.

Numba turns a loop over many environments into instructions that handle several of them at a time. Where the loop is
short (the entries of one row), or numbers change places, it does not. The few operations that are needed there are
spelled out here. LLVM has vectors on every processor, and splits them where registers are smaller.

Each function is there twice: as what it means, in NumPy, and as what is compiled. The former runs where nothing is
compiled (``NUMBA_DISABLE_JIT``), and the tests hold the latter against it. Sums, differences and products are written
with their signs, between two fours or a four and a number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numba.extending
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature

#: Four doubles; an array of four where nothing is compiled.
Four = Any

_DOUBLE, _WORD = ir.DoubleType(), ir.IntType(64)
_VECTOR, _WORDS = ir.VectorType(_DOUBLE, 4), ir.VectorType(_WORD, 4)


class FourType(types.Type):
    """Numba's type of four doubles in a register."""

    def __init__(self) -> None:
        super().__init__(name="Four")  # type: ignore[no-untyped-call]


FOUR = FourType()


@numba.extending.register_model(FourType)
class _FourModel(numba.extending.models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)  # type: ignore[no-untyped-call]


def _compiled(plain: Callable[..., Any], result: Any, *kinds: Any) -> Callable[[Callable[..., Any]], None]:
    """Say which types a plain function takes and returns in compiled code, and how its instructions are built."""

    class Template(AbstractTemplate):  # type: ignore[misc]
        def generic(self, given: Any, _: Any) -> Any:
            fits = len(given) == len(kinds) and all(map(_is, given, kinds))
            return signature(result, *given) if fits else None  # type: ignore[no-untyped-call]

    def bind(build: Callable[..., Any]) -> None:
        infer_global(plain)(Template)  # type: ignore[no-untyped-call]
        numba.extending.lower_builtin(plain, *kinds)(build)  # type: ignore[no-untyped-call]

    return bind


def _is(given: Any, wanted: Any) -> bool:
    return isinstance(given, wanted) if isinstance(wanted, type) else bool(given == wanted)


def _spread(builder: Any, number: Any) -> Any:
    """Return a vector of four times the same number."""
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.IntType(32)(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), 4), [0] * 4))


def _arithmetic(sign: Callable[..., Any], name: str) -> None:
    def build(context: Any, builder: Any, form: Any, values: Any) -> Any:
        a, b = (x if kind == FOUR else _spread(builder, x) for x, kind in zip(values, form.args, strict=True))
        return getattr(builder, name)(a, b, flags=("contract",))

    for kinds in ((FOUR, FOUR), (FOUR, types.float64), (types.float64, FOUR)):
        _compiled(sign, FOUR, *kinds)(build)


for _sign, _name in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul")):
    _arithmetic(_sign, _name)


# ------------------------------------------------------------------ memory
def _address(context: Any, builder: Any, kind: Any, array: Any, place: Any) -> tuple[Any, Any, int]:
    """Return where four numbers of a flat array are, as a vector, the vector's type and the bytes of a number."""
    number = context.get_data_type(kind.dtype)
    start = builder.gep(context.make_array(kind)(context, builder, array).data, [place])
    vector = ir.VectorType(number, 4)
    return builder.bitcast(start, vector.as_pointer()), vector, kind.dtype.bitwidth // 8


def load(array: Any, place: int) -> Four:
    """Read four neighbours of a flat array, of either precision."""
    return array[int(place) : int(place) + 4].astype(float)


@_compiled(load, FOUR, types.Array, types.uint64)
def _(context: Any, builder: Any, form: Any, values: Any) -> Any:
    pointer, _, size = _address(context, builder, form.args[0], *values)
    found = builder.load(pointer)
    found.align = size
    return found if size == 8 else builder.fpext(found, _VECTOR)


def gather(array: Any, start: int, places: Any, place: int) -> Four:
    """Read four numbers of a flat array, at those distances from `start` that are neighbours in `places`."""
    return array[int(start) + places[int(place) : int(place) + 4]].astype(float)


@_compiled(gather, FOUR, types.Array, types.uint64, types.Array, types.uint64)
def _(context: Any, builder: Any, form: Any, values: Any) -> Any:
    base = builder.gep(context.make_array(form.args[0])(context, builder, values[0]).data, [values[1]])
    found = ir.Constant(ir.VectorType(context.get_data_type(form.args[0].dtype), 4), ir.Undefined)
    listed = context.make_array(form.args[2])(context, builder, values[2]).data
    for k in range(4):
        distance = builder.load(builder.gep(listed, [builder.add(values[3], _WORD(k))]))
        found = builder.insert_element(found, builder.load(builder.gep(base, [distance])), ir.IntType(32)(k))
    return found if form.args[0].dtype == types.float64 else builder.fpext(found, _VECTOR)


def store(array: Any, place: int, four: Four) -> None:
    """Write four neighbours of a flat array, of either precision."""
    array[int(place) : int(place) + 4] = four


@_compiled(store, types.void, types.Array, types.uint64, FOUR)
def _(context: Any, builder: Any, form: Any, values: Any) -> Any:
    pointer, vector, size = _address(context, builder, form.args[0], *values[:2])
    four = values[2] if size == 8 else builder.fptrunc(values[2], vector)
    builder.store(four, pointer).align = size
    return context.get_dummy_value()


# ------------------------------------------------------------------ across the four
def ahead(four: Four) -> Four:
    """Return the sum of those before each: 0, a, a + b, (a + b) + c."""
    return np.concatenate([[0.0], np.cumsum(four[:3])])


@_compiled(ahead, FOUR, FOUR)
def _(context: Any, builder: Any, form: Any, values: Any) -> Any:
    at = [ir.IntType(32)(k) for k in range(4)]
    total = builder.extract_element(values[0], at[0])
    found = builder.insert_element(ir.Constant(_VECTOR, [0.0] * 4), total, at[1])
    for k in (1, 2):
        total = builder.fadd(total, builder.extract_element(values[0], at[k]))
        found = builder.insert_element(found, total, at[k + 1])
    return found


def last(four: Four) -> float:
    """Return the fourth."""
    return float(four[3])


@_compiled(last, types.float64, FOUR)
def _(context: Any, builder: Any, form: Any, values: Any) -> Any:
    return builder.extract_element(values[0], ir.IntType(32)(3))


def reached(four: Four, bound: float) -> int:
    """Return how many are no greater than the bound."""
    return int((four <= bound).sum())


@_compiled(reached, types.int64, FOUR, types.float64)
def _(context: Any, builder: Any, form: Any, values: Any) -> Any:
    bits = builder.bitcast(builder.fcmp_ordered("<=", values[0], _spread(builder, values[1])), ir.IntType(4))
    ones = ir.FunctionType(ir.IntType(4), [ir.IntType(4)])
    count = builder.module.globals.get("llvm.ctpop.i4") or ir.Function(builder.module, ones, "llvm.ctpop.i4")
    return builder.zext(builder.call(count, [bits]), _WORD)


def power_of_two(p: Any, shifted: Any) -> Any:
    """Return p times 2^k, where k stands in the low bits of `shifted`; of numbers, or four by four."""
    bits = np.asarray(p, float).view(np.int64) + (np.asarray(shifted, float).view(np.int64) << 52)
    return bits.view(np.float64)[()]


def _power_of_two(context: Any, builder: Any, form: Any, values: Any) -> Any:
    whole = _WORDS if form.return_type == FOUR else _WORD
    mantissa, exponent = (builder.bitcast(value, whole) for value in values)
    by = ir.Constant(whole, [52] * 4 if form.return_type == FOUR else 52)
    return builder.bitcast(builder.add(mantissa, builder.shl(exponent, by)), values[0].type)


_compiled(power_of_two, FOUR, FOUR, FOUR)(_power_of_two)
_compiled(power_of_two, types.float64, types.float64, types.float64)(_power_of_two)
