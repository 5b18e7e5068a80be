"""Several threads on one batch, without Python's lock: the compiled part of `threads`.

One batch at a time is *posted*: where its arrays are, which compiled step moves it, and in how many pieces. Whoever is
awake, the caller among them, takes one piece after the other until none is left; the caller then waits for what others
have taken. So nobody is waited for who has not begun, and a thread that is held up costs the time of one piece. A
thread that finds nothing to do goes on looking for a tenth of a millisecond, since to fall asleep and be woken takes as
long as stepping a thousand environments; after a large batch, up to a millisecond, since handing out its results takes
longer than that tenth.

A piece is taken by an atomic exchange of the numbers of the first piece left and of the one after the last. What is
posted is read only after that, and replaced only when every piece taken is done. The caller takes pieces from the
beginning, the others from the end, so that an environment is mostly stepped by the thread that has it in its cache.
"""
# ruff: noqa: D103 - the arguments are those of the description in `dynamics`

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import Any

import numba
import numba.extending
import numpy as np
from llvmlite import ir
from numba.core import cgutils as _utilities
from numba.core import types

from dp_ensemble_env.envs._numeric import Floats, Ints
from dp_ensemble_env.envs._parts import check_rows
from dp_ensemble_env.envs._single import take_back
from dp_ensemble_env.tools.compile import njit

cgutils: Any = _utilities  # untyped
carray = numba.carray  # type: ignore[attr-defined]

#: Places of the post. What several threads write to has a line of the cache of its own (eight numbers).
LEFT, DONE, AWAKE, WRONG, PATIENCE = 0, 8, 16, 17, 18
#: Address of the compiled step (0: the actions are looked at), bytes of a number of the action, pieces, their size.
STEP, BYTES, PIECES, LENGTH = 24, 25, 26, 27
#: Then, of each of the nine arrays: address, rows, columns.
ARRAYS = 28
#: Then, of each piece, whether it has been stepped; large batches are cut into about `MOST` of them.
STEPPED, MOST = ARRAYS + 9 * 3, 64
POST = STEPPED + 2 * MOST + 2
#: What `lead` returns if a step failed, for want of memory.
FAILURE = -(2**62)


# ------------------------------------------------------------------ what Numba lacks
def intrinsic(function: Callable[..., Any]) -> Any:
    """Use a function that describes the code of a call; callers leave out its first argument."""
    return numba.extending.intrinsic(function)


def _place(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, values[0])
    return cgutils.get_item_pointer(context, builder, signature.args[0], array, [values[1]])


@intrinsic
def look(typing: Any, post: Any, place: Any) -> Any:
    """Read a number of the post that other threads may change."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load_atomic(_place(context, builder, signature, values), "seq_cst", 8)

    return types.int64(post, types.int64), code


@intrinsic
def put(typing: Any, post: Any, place: Any, value: Any) -> Any:
    """Write a number after everything that was written before."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.store_atomic(values[2], _place(context, builder, signature, values), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(post, types.int64, types.int64), code


@intrinsic
def add(typing: Any, post: Any, place: Any, value: Any) -> Any:
    """Add to a number that other threads add to as well."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.atomic_rmw("add", _place(context, builder, signature, values), values[2], "seq_cst")

    return types.int64(post, types.int64, types.int64), code


@intrinsic
def exchange(typing: Any, post: Any, place: Any, old: Any, new: Any) -> Any:
    """Replace `old` by `new`; say whether it still was `old`."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = _place(context, builder, signature, values)
        return builder.extract_value(builder.cmpxchg(place, values[2], values[3], "seq_cst", "seq_cst"), 1)

    return types.boolean(post, types.int64, types.int64, types.int64), code


@intrinsic
def _pointer(typing: Any, address: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), code


@intrinsic
def _call(typing: Any, address: Any, *arguments: Any) -> Any:
    """Call a compiled step by its address; return what it returns, or `FAILURE` if it did not come to its end."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = signature.args[1].types
        kind = context.call_conv.get_function_type(types.int64, kinds)
        step = builder.inttoptr(values[0], ir.PointerType(kind))
        given = [builder.extract_value(values[1], k) for k in range(len(kinds))]
        status, result = context.call_conv.call_function(builder, step, types.int64, kinds, given)
        return builder.select(status.is_ok, result, result.type(FAILURE))

    return types.int64(types.int64, types.StarArgTuple(arguments)), code  # type: ignore[no-untyped-call]


@intrinsic
def _rest(typing: Any) -> Any:
    """Tell the processor that this thread only waits, so that another one on the same core has it for itself."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if platform.machine() in ("x86_64", "AMD64"):
            nothing = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, nothing, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), code


@intrinsic
def _give_way(typing: Any) -> Any:
    """Let other threads of this processor run."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if sys.platform != "win32":
            kind = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), code


def address(step: Any, number: str) -> int:
    """Return where the compiled step for actions of that kind of number is."""
    floats, ints = types.Array(types.float64, 2, "C"), types.Array(types.int64, 2, "C")
    action, seen = types.Array(getattr(types, number), 2, "C"), types.Array(types.float32, 2, "C")
    flat = types.Array(types.int64, 1, "C"), types.Array(types.float64, 1, "C")
    kinds = (*flat, floats, ints, floats, floats, action, seen, floats, types.int64, types.int64)
    step.compile(kinds)
    compiled = step.overloads[kinds]
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))


# ------------------------------------------------------------------ the work
@njit(inline="always", error_model="numpy")
def _matrix(post: Ints, k: int, kind: Any) -> Any:
    at = ARRAYS + 3 * k
    return carray(_pointer(post[at]), (post[at + 1], post[at + 2]), kind)


@njit(inline="always", error_model="numpy")
def _line(post: Ints, k: int, kind: Any) -> Any:
    return carray(_pointer(post[ARRAYS + 3 * k]), (post[ARRAYS + 3 * k + 1],), kind)


@njit(cache=True, nogil=True, error_model="numpy")
def _piece(post: Ints, k: int) -> None:
    """Do piece `k` of what is posted."""
    ints, common, kernels = _line(post, 0, np.int64), _line(post, 1, np.float64), _matrix(post, 2, np.float64)
    counters, traces = _matrix(post, 3, np.int64), _matrix(post, 4, np.float64)
    occupancy, obs, values = _matrix(post, 5, np.float64), _matrix(post, 7, np.float32), _matrix(post, 8, np.float64)
    start = k * post[LENGTH]
    stop = min(start + post[LENGTH], counters.shape[1])
    step = post[STEP]
    if post[BYTES] == 4:
        short = _matrix(post, 6, np.float32)
        if step == 0:
            fault = check_rows(ints, counters, short, start, stop)
        else:
            fault = _call(step, ints, common, kernels, counters, traces, occupancy, short, obs, values, start, stop)
    else:
        long = _matrix(post, 6, np.float64)
        if step == 0:
            fault = check_rows(ints, counters, long, start, stop)
        else:
            fault = _call(step, ints, common, kernels, counters, traces, occupancy, long, obs, values, start, stop)
    post[STEPPED + k] = step != 0 and fault == 0
    if fault != 0:
        put(post, WRONG, 1)


@njit(inline="always", error_model="numpy")
def _wait(looks: int) -> None:
    """Wait for a moment; from time to time let others run, who may need this very processor to go on."""
    _rest()
    if looks % 64 == 0:
        _give_way()


@njit(cache=True, nogil=True, error_model="numpy")
def _take(post: Ints, leads: bool) -> int:
    """Take the first piece that is left, or the last one; return its number, or -1 if none is left."""
    while True:
        left: int = look(post, LEFT)
        first, last = left >> 32, left & 0xFFFFFFFF
        if first == last:
            return -1
        if exchange(post, LEFT, left, left + (1 << 32) if leads else left - 1):
            return first if leads else last - 1


@njit(cache=True, nogil=True, error_model="numpy")
def serve(post: Ints) -> None:
    """Help with whatever is posted, until there was nothing to do for as many looks as the post says."""
    add(post, AWAKE, 1)
    idle = 0
    while idle < look(post, PATIENCE):
        k = _take(post, False)
        if k < 0:
            idle += 1
            _wait(idle)
        else:
            _piece(post, k)
            add(post, DONE, 1)
            idle = 0
    add(post, AWAKE, -1)


@njit(cache=True, nogil=True, error_model="numpy")
def _together(post: Ints, step: int) -> bool:
    """Have all pieces done, and return whether all went well."""
    post[STEP] = step
    post[WRONG] = 0
    post[DONE] = 0
    put(post, LEFT, post[PIECES])
    own = 0
    k = _take(post, True)
    while k >= 0:
        _piece(post, k)
        own += 1
        k = _take(post, True)
    looks = 0
    while look(post, DONE) + own < post[PIECES]:
        looks += 1
        _wait(looks)
    return bool(look(post, WRONG) == 0)


@njit(inline="always", error_model="numpy")
def _note(post: Ints, k: int, array: Any) -> None:
    post[ARRAYS + 3 * k] = array.ctypes.data
    post[ARRAYS + 3 * k + 1] = array.shape[0]
    post[ARRAYS + 3 * k + 2] = array.shape[array.ndim - 1]


@njit(cache=True, nogil=True, error_model="numpy")
def lead(
    post: Ints,
    step: int,
    alone: bool,
    length: int,
    ints: Ints,
    common: Floats,
    kernels: Floats,
    counters: Ints,
    traces: Floats,
    occupancy: Floats,
    action: Floats,
    obs: Floats,
    values: Floats,
) -> int:
    """Look at all actions and, if they are admissible, step all environments; return what the steps return.

    Steps of one load look for themselves, and are taken back if another piece was refused. (Not so where episodes began
    in a distribution: what `traces` holds of it would be lost.)
    """
    _note(post, 0, ints)
    _note(post, 1, common)
    _note(post, 2, kernels)
    _note(post, 3, counters)
    _note(post, 4, traces)
    _note(post, 5, occupancy)
    _note(post, 6, action)
    _note(post, 7, obs)
    _note(post, 8, values)
    size = counters.shape[1]
    post[BYTES], post[LENGTH], post[PIECES] = action.itemsize, length, (size + length - 1) // length
    looks, fault = bool(alone and traces.shape[0] == 1), 0
    if not looks and not _together(post, 0):
        return check_rows(ints, counters, action, 0, size)  # which is the first that is not?
    if not _together(post, step):
        fault = FAILURE
        if looks:
            for k in range(post[PIECES]):
                if post[STEPPED + k]:
                    take_back(ints, kernels, counters, traces, k * length, min((k + 1) * length, size))
            found = check_rows(ints, counters, action, 0, size)
            fault = found if found != 0 else FAILURE
    return fault
