"""Registers: values that only grow, whose differences are the energy."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter.clocks import is_repeated_hour, is_sunday_in_march, skipped_hours
from dp_ensemble_env.meter.origin import Readings, join, plural

_HOUR, _DAY = 3600, 86400
_REGISTER = re.compile(r"cumul|accumul|register|odometer|totali[sz]er|z(?:ä|ae)hlerstand|lifetime|meter[ _]?reading")
#: Unasked, values are taken for a register only when so many of them, over two days or more, never fall, and
#: when they grow by so many different amounts: a load that only rises does not exist, a straight line may be a test.
_LEAST, _AMOUNTS = 24, 5


def names_register(names: list[str]) -> bool | None:
    """Tell whether column names state that a register was read; None when they do not."""
    return all(_REGISTER.search(name.lower()) for name in names) or None


def is_register(readings: Readings, cumulative: str) -> bool:
    """Tell whether the values are states of a register."""
    if cumulative != "auto":
        return cumulative == "yes"
    if readings.register:
        return True
    if not str(readings.unit).endswith("h") or readings.register is False or not len(readings.seconds):
        return False
    span = abs(int(readings.seconds[-1]) - int(readings.seconds[0]))
    return span >= 2 * _DAY and all(_only_grows(values) for values in readings.values.T)


def _only_grows(values: NDArray[np.float64]) -> bool:
    known = values[~np.isnan(values)]
    growth = np.diff(known)
    if len(known) < _LEAST or (growth > 0).sum() < len(growth) / 4:
        return False
    if len(np.unique(np.round(growth, 6))) < _AMOUNTS:
        return False
    falls = np.flatnonzero(growth < 0)
    return len(falls) <= len(known) // 1000 + 1 and all(_rolled(known[i], known[i + 1]) for i in falls)


def _rolled(before: float, after: float) -> float:
    """Return the size of a register that passed its end and began again, 0 when it did not."""
    size = 10.0 ** np.ceil(np.log10(max(before, 1.0)))
    return float(size) if before > 0.9 * size and after < 0.1 * size else 0.0


def difference(readings: Readings) -> Readings:
    """Turn the states of registers into the energy of the intervals between them.

    A state holds at its stamp, so that an interval lasts from one stamp to the
    next. Where states are missing, the energy of the whole gap is known: its
    intervals get equal shares and are marked as lumped.
    """
    parts = [_difference(readings.part(slice(None), [i])) for i in range(len(readings.names))]
    energy = parts[0] if len(parts) == 1 else join(parts)
    energy.notes.append("The values are states of a register; the energy is their differences.")
    return energy


def _difference(readings: Readings) -> Readings:
    known = ~np.isnan(readings.values[:, 0])
    line = readings.part(known)
    if line.instants is not None or (np.diff(line.seconds) < 0).sum() > 2 + len(line.seconds) // 1000:
        # Sorted by the true instant where it is known, so that the autumn hour keeps its order.
        line = line.part(np.argsort(line.seconds if line.instants is None else line.instants, kind="stable"))
    true = line.seconds if line.instants is None else line.instants
    same = np.concatenate(([False], (np.diff(true) == 0) & (np.diff(line.values[:, 0]) == 0)))
    line, true = line.part(~same), true[~same]
    values, lengths = line.values[:, 0], np.diff(true)
    if not (lengths > 0).any():
        raise readings.origin.error("all readings carry one timestamp; a series needs two.")
    sizes, counts = np.unique(lengths[lengths > 0], return_counts=True)
    step = int(sizes[np.argmax(counts)])
    if line.instants is None:
        lengths = lengths + _clock_changes(line, lengths, step)
    energy = np.diff(values)
    resets = _wrap(energy, values, readings)
    shares = np.maximum(lengths // step, 1)
    off = np.flatnonzero((lengths <= 0) | (lengths % step != 0))
    if len(off):
        stamp = str(np.datetime64(int(line.seconds[off[0] + 1]), "s")).replace("T", " ")
        raise readings.origin.error(
            f"{stamp} does not lie on the {step / 60:g}-minute grid of the other readings; correct it, or resample "
            "the file to even intervals.",
            line.lines[off[0] + 1],
        )
    turn = np.arange(int(shares.sum())) - np.repeat(np.cumsum(shares) - shares, shares)
    energies = replace(
        line,
        seconds=np.repeat(line.seconds[:-1], shares) + step * turn,
        values=np.repeat(energy / shares, shares)[:, None],
        lines=np.repeat(line.lines[1:], shares),
        lumped=np.repeat(shares > 1, shares) if (shares > 1).any() else None,
        instants=None,
        register=False,
        stamp="start",
        step=step,
    )
    if resets:
        energies.notes.append(
            f"The register was set back {plural(resets, 'time')}; the energy of those intervals is missing."
        )
    return energies


def _wrap(energy: NDArray[np.float64], values: NDArray[np.float64], readings: Readings) -> int:
    """Correct differences across the end of a register; return how often it was set back otherwise."""
    falls = np.flatnonzero(energy < 0)
    if len(falls) > 2 + len(values) // 100:
        raise readings.origin.error(
            f"{readings.names[0]!r} should be a register, but it falls {plural(len(falls), 'time')}, first to "
            f"{values[falls[0] + 1]:g}; pass cumulative='no' if it holds the energy of each interval.",
            readings.lines[min(falls[0] + 1, len(readings.lines) - 1)],
        )
    resets = 0
    for i in falls.tolist():
        size = _rolled(values[i], values[i + 1])
        energy[i] = energy[i] + size if size else np.nan
        resets += not size
    return resets


def _clock_changes(line: Readings, lengths: NDArray[np.int64], step: int) -> NDArray[np.int64]:
    """Return what clock changes took from, or added to, the differences of wall-clock stamps."""
    shift = np.zeros_like(lengths)
    back = np.flatnonzero(lengths == step - _HOUR)
    if len(back):
        at = line.seconds[back + 1]
        shift[back[is_repeated_hour(at, np.full(len(at), 2), line.zone, "start")]] = _HOUR
    for i in np.flatnonzero(lengths == step + _HOUR).tolist():
        low, high = int(line.seconds[i]), int(line.seconds[i + 1])
        spans = [] if line.zone is None else skipped_hours(line.zone, low, high)
        sunday = is_sunday_in_march(high) and low % _DAY < 3 * _HOUR
        if any(low < end and start < high for start, end in spans) or (line.zone is None and sunday):
            shift[i] = -_HOUR
    return shift
