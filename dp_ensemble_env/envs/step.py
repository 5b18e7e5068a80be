r"""One compiled step for every model, population and action mode.

A load in state `s` takes a decision by its row of the policy, :math:`\pi[s] \propto P_t[w, s]\,e^{\ell}` with the tilt
:math:`\ell`, or the row that the action gives. Nature takes the decision to the next state, :math:`N_t[w, a]`, and the
context `w` moves by itself. With :math:`e = \exp \ell` and :math:`g = P e` the mean field needs no (n, m) policy:

.. math::

    q[a] = e[a] \sum_s \frac{\rho[s]}{g[s]} P[s,a], \qquad \rho' = q N, \qquad
    \sum_s \rho[s]\,\mathrm{KL}_s = \sum_a q[a]\,\ell[a] - \sum_s \rho[s]\log g[s] .

**Rewards** are dollars, or points: `LeftAlone` in tables.py has the formula. Decisions are *expected* there, under
the action and for the same loads left alone, before any move is drawn and in every population.

Every table has a leading axis of *rows*, the instances or releases in play; ``State.row`` says which one each
environment plays. `Problem` and `State` come as plain tuples, a third of the cost of named ones at a call.

**Chance.** An episode's row, contexts and start come from a stream of their own that no action touches: the j-th
episode after a seed has the same ones in every population and action mode. Moves come from a second stream, derived at
each start. Random numbers are xoroshiro128++ (Blackman and Vigna, 2018), two words an environment. Numba's cache looks
at this file alone, so nothing compiled is imported here. What runs once a row takes arrays, not a whole `Problem`,
whose arrays Numba would count references to, one by one, at each call.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dp_ensemble_env.tools.compile import njit

#: What an action is: numbers times a basis of tilts, one number for each decision, or the policy itself.
BASIS, TILT, POLICY = 0, 1, 2
#: Couplings: a target that is missed by a square, a limit that is passed by a multiple.
TARGET, LIMIT = 1, 2
#: Rows of ``values``, and their number. A coupling's: the kW by which a limit is passed or a target missed, the cost.
REWARD, UTILITY, DISCOMFORT, POWER, MISS, CHARGE, VALUES = 0, 1, 2, 3, 4, 5, 6
CLIPPED = 1  #: returned by `step`: some action was clipped; below zero an environment needs a reset, above is a NaN
SAFE_NATS = 300.0  #: tilts no larger than this can be exponentiated as they are
NOISE = 1e-13  #: a divergence of fewer nats is rounding: the zero action costs exactly nothing
ROUNDING = 1e-6  #: how far outside the box an action may lie by rounding


class Problem(NamedTuple):
    """The tables of R rows: n states, m decisions, c contexts, T steps."""

    starts: Any  #: (n + 1,) where each state's decisions begin in `decisions`
    decisions: Any  #: (nnz,)
    behaviour: Any  #: (R, blocks, nnz) default probabilities
    block: Any  #: (T, c) the block in force
    nature_starts: Any  #: (m + 1,) where each decision's next states begin; of length 0 if a decision is a state
    nature_states: Any
    nature: Any  #: (R, blocks, nnz)
    nature_block: Any  #: (T, c)
    basis: Any  #: (R, T or 1, c or 1, d, m) in nats; for `TILT` the scale, (R, T, 1, 1, 1)
    utility: Any  #: (R, T + 1, c, n) dollars
    power: Any  #: (R, n) kW
    clock: Any  #: (R, T + 1, c, f) observations after the shares
    level: Any  #: (R, T + 1) of the coupling
    weight: Any  #: (R, T + 1); zero without a coupling
    initial: Any  #: (R, n) distribution at the start
    first: Any  #: (R, c) distribution of the first context
    moves: Any  #: (R, T or 1, c, c) of the context
    optimum: Any  #: (R, c, n, 2) optimal return in dollars and in points
    worth: Any  #: (R, T, c, m) dollars to expect after a decision if nobody interferes later, G
    later: Any  #: (R, L, m) kW to expect after a decision at the L times and contexts ahead of all of them, H
    later_time: Any  #: (R, L)
    later_chance: Any  #: (R, L)
    later_first: Any  #: (R, T c + 1) where those ahead of each time and context begin
    penalty: Any  #: (R,) dollars per nat
    point: Any  #: (R,) dollars that a reward of one stands for
    mode: int
    loads: int  #: 0 is the mean field
    coupling: int
    points: int  #: whether rewards are points, else dollars
    shown: int  #: whether observations show the shares
    spread: int  #: whether loads are spread over the states by `initial`, or all start in one state
    random_row: int  #: whether an episode draws its row
    autoreset: int  #: whether a step after the end begins the next episode


class State(NamedTuple):
    """B environments: where they are, and their random streams."""

    time: Any  #: (B,) decisions taken; -1 before the first reset
    row: Any  #: (B,)
    where: Any  #: (B,) state of a single load
    counts: Any  #: (B, n) loads in each state, or shares in the mean field
    start: Any  #: (B, n) shares at the start
    path: Any  #: (B, T + 1) contexts
    moves: Any  #: (B, 2) stream of the moves
    episodes: Any  #: (B, 2) stream of rows, contexts and starts
    best: Any  #: (B, 2) optimal return from the start, in dollars and in points


# ------------------------------------------------------------------ the step
@njit(cache=True, nogil=True, error_model="numpy")
def step(problem: Any, state: Any, action: Any, obs: Any, values: Any) -> int:
    """Step every environment by its row of `action`, and fill `obs` and `values`.

    All actions are looked at first, so a refusal changes nothing: ``-1 - i`` says that environment `i` needs a reset,
    ``2 + j`` that entry `j` of the flat action is NaN. Otherwise the result is 0, or `CLIPPED`.
    """
    p, s = Problem(*problem), State(*state)
    verdict: int = look(p, s, action)
    if verdict < 0 or verdict > CLIPPED:
        return verdict
    m = action.shape[1] if p.mode == TILT else p.basis.shape[4]
    tilt, pi, chosen, usual = np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    expected = chosen if p.loads == 0 else np.empty(m)  # the mean field does what is expected of it
    for i in range(s.time.size):
        t = s.time[i]
        if t == p.block.shape[0]:
            begin(p, s, i, -1, -1, obs, values)
            continue
        r, w = s.row[i], s.path[i, t]
        default, nature = p.behaviour[r, p.block[t, w]], p.nature[r, p.nature_block[t, w]]
        basis = p.basis[r, t if p.basis.shape[1] > 1 else 0, w if p.basis.shape[2] > 1 else 0]
        widest = 0.0 if p.loads == 0 and p.mode != POLICY else np.inf
        for a in range(m if widest == 0.0 else 0):
            tilt[a] = tilt_of(p.mode, basis, action, i, a)
            widest = max(widest, abs(tilt[a]))
        divergence, loads = 0.0, max(1, p.loads)
        if widest <= SAFE_NATS:
            divergence = decide_together(p, default, s.counts[i], tilt, pi, chosen, usual)
        else:  # row by row: policies, very wide tilts and finite populations, whose loads are counted
            for a in range(m):
                chosen[a], expected[a], usual[a] = 0.0, 0.0, 0.0
            low, high = span(p.loads, s.where[i], s.counts.shape[1])
            for b in range(low, high):
                here = s.counts[i, b]
                if here > 0.0:
                    first, last = p.starts[b], p.starts[b + 1]
                    divergence += here * policy_row(p.mode, p.starts, p.decisions, default, b, basis, action, i, pi)
                    for e in range(first, last if p.points == 1 or p.loads == 0 else first):
                        expected[p.decisions[e]] += here / loads * pi[e - first]
                        usual[p.decisions[e]] += here / loads * default[e]
                    for _ in range(int(here) if p.loads > 0 else 0):
                        s.where[i] = p.decisions[first + pick(pi, 0, last - first, uniform(s.moves, i))]
                        chosen[s.where[i]] += 1.0
            divergence /= loads
        if p.points == 1:
            values[REWARD, i] = advantage(p, r, t, w, expected, usual, divergence)
        by_nature(p, s, i, nature, chosen)
        report(p, s, i, t + 1, divergence, obs, values)
    return verdict


@njit(cache=True, nogil=True, error_model="numpy")
def look(p: Any, s: Any, action: Any) -> int:
    """Say whether every environment can move; the action of one that restarts is not looked at."""
    horizon, low, verdict = p.block.shape[0], 0.0 if p.mode == POLICY else -1.0, 0
    for i in range(s.time.size):
        if s.time[i] < 0 or (s.time[i] == horizon and p.autoreset == 0):
            return -1 - i
        for a in range(action.shape[1] if s.time[i] < horizon else 0):
            x = action[i, a]
            if math.isnan(x):
                return int(2 + i * action.shape[1] + a)
            if x < low - ROUNDING or x > 1.0 + ROUNDING:
                verdict = CLIPPED
    return verdict


@njit(inline="always", error_model="numpy")
def span(loads: int, where: int, size: int) -> tuple[int, int]:
    """Return where loads may be: anywhere, or the one place of a single load."""
    return (where, where + 1) if loads == 1 else (0, size)


# ------------------------------------------------------------------ decisions
@njit(inline="always", error_model="numpy")
def tilt_of(mode: int, basis: Any, action: Any, i: int, a: int) -> float:
    """Return the tilt of a decision in nats."""
    if mode == TILT:
        return float(min(max(action[i, a], -1.0), 1.0) * basis[0, 0])
    total = 0.0
    for j in range(basis.shape[0]):
        total += min(max(action[i, j], -1.0), 1.0) * basis[j, a]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def decide_together(p: Any, default: Any, shares: Any, tilt: Any, warm: Any, chosen: Any, usual: Any) -> float:
    """Send the mean field to decisions by exponentials that all rows share; return the divergence."""
    for a in range(tilt.size):
        warm[a] = math.exp(tilt[a])
        chosen[a], usual[a] = 0.0, 0.0
    divergence = 0.0
    for s in range(shares.size):
        here = shares[s]
        if here > 0.0:
            g, first, last = 0.0, np.uint64(p.starts[s]), np.uint64(p.starts[s + 1])  # unsigned: no check for negatives
            for e in range(first, last):
                g += default[e] * warm[p.decisions[e]]
            divergence -= here * math.log(g)
            warmed = here / g
            for e in range(first, last):
                chosen[p.decisions[e]] += default[e] * warmed
            for e in range(first, last if p.points == 1 else first):
                usual[p.decisions[e]] += default[e] * here
    for a in range(tilt.size):
        chosen[a] *= warm[a]
        divergence += chosen[a] * tilt[a]
    return divergence if divergence > NOISE else 0.0


@njit(inline="always", error_model="numpy")
def policy_row(
    mode: int, starts: Any, decisions: Any, default: Any, b: int, basis: Any, action: Any, i: int, pi: Any
) -> float:
    """Fill pi with row `b` of the policy on its nonzeros; return its divergence from the default."""
    first, width = starts[b], starts[b + 1] - starts[b]
    total, divergence, top = 0.0, 0.0, -np.inf
    if mode == POLICY:  # masked to the support and normalised; nothing at all is the default
        for e in range(width):
            given = action[i, b * basis.shape[1] + decisions[first + e]]
            pi[e] = min(max(given, 0.0), 1.0) if default[first + e] > 0.0 else 0.0
            total += pi[e]
        for e in range(width):
            pi[e] = pi[e] / total if total > 0.0 else default[first + e]
            if pi[e] > 0.0:
                divergence += pi[e] * math.log(pi[e] / default[first + e])
        return divergence if divergence > NOISE else 0.0
    for e in range(width):
        pi[e] = tilt_of(mode, basis, action, i, decisions[first + e])
        if default[first + e] > 0.0:  # zero: forbidden at this time or in this context only
            top = max(top, pi[e])
    for e in range(width):
        lift = min(pi[e] - top, 0.0)
        pi[e] = default[first + e] * math.exp(lift)
        total += pi[e]
        divergence += pi[e] * lift
    for e in range(width):
        pi[e] /= total
    divergence = divergence / total - math.log(total)
    return divergence if divergence > NOISE else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def advantage(p: Any, r: int, t: int, w: int, expected: Any, usual: Any, divergence: float) -> float:
    """Return what an action gains over leaving the loads alone from here on, in points."""
    gain, worth = -p.penalty[r] * divergence, p.worth[r, t, w]
    for a in range(expected.size):
        gain += (expected[a] - usual[a]) * worth[a]
    node = t * p.first.shape[1] + w
    for k in range(p.later_first[r, node], p.later_first[r, node + 1]):
        power, alone, u = 0.0, 0.0, p.later_time[r, k]
        for a in range(expected.size):
            power += expected[a] * p.later[r, k, a]
            alone += usual[a] * p.later[r, k, a]
        level, weight = p.level[r, u], p.weight[r, u]
        saved = coupled(p.coupling, level, weight, alone)[1] - coupled(p.coupling, level, weight, power)[1]
        gain += p.later_chance[r, k] * saved
    return float(gain / p.point[r])


@njit(inline="always", error_model="numpy")
def coupled(kind: int, level: float, weight: float, power: float) -> tuple[float, float]:
    """Return the kW by which a limit is passed or a target missed, and what is charged for it in dollars."""
    off = power - level if weight > 0.0 else 0.0
    miss = abs(off) if kind == TARGET else max(off, 0.0)
    return miss, weight * (miss * miss if kind == TARGET else miss)


# ------------------------------------------------------------------ arrivals
@njit(cache=True, nogil=True, error_model="numpy")
def by_nature(p: Any, s: Any, i: int, nature: Any, chosen: Any) -> None:
    """Take decisions to next states: loads by chance, the mean field by the mean."""
    moved = s.counts[i]
    plain = p.nature_starts.size == 0  # a decision is the next state
    for b in range(moved.size):
        moved[b] = chosen[b] if plain else 0.0
    low, high = span(p.loads, s.where[i], chosen.size)
    for a in range(low, low if plain else high):
        here = chosen[a]
        if here > 0.0:
            first, last = p.nature_starts[a], p.nature_starts[a + 1]
            for _ in range(int(here) if p.loads > 0 else 0):
                s.where[i] = p.nature_states[pick(nature, first, last, uniform(s.moves, i))]
                moved[s.where[i]] += 1.0
            for e in range(np.uint64(first), np.uint64(last if p.loads == 0 else first)):
                moved[p.nature_states[e]] += nature[e] * here


@njit(cache=True, nogil=True, error_model="numpy")
def report(p: Any, s: Any, i: int, t: int, divergence: float, obs: Any, values: Any) -> None:
    """Write the reward in dollars, its parts and the observation at time `t`."""
    r, w, share, n = s.row[i], s.path[i, t], 1.0 / max(1, p.loads), p.power.shape[1]
    for b in range(n):
        obs[i, b] = s.counts[i, b] * share if p.shown == 1 else 0.0
    for j in range(p.clock.shape[3]):
        obs[i, n + j] = p.clock[r, t, w, j]
    worth, level, utility, power = p.utility[r, t, w], p.power[r], 0.0, 0.0
    low, high = span(p.loads, s.where[i], n)
    for b in range(low, high):
        utility += s.counts[i, b] * share * worth[b]
        power += s.counts[i, b] * share * level[b]
    miss, charge = coupled(p.coupling, p.level[r, t], p.weight[r, t], power)
    discomfort = p.penalty[r] * divergence
    if p.points == 0:
        values[REWARD, i] = utility - charge - discomfort
    values[UTILITY, i], values[DISCOMFORT, i], values[POWER, i] = utility, discomfort, power
    values[MISS, i], values[CHARGE, i] = miss, charge
    s.time[i] = t


# ------------------------------------------------------------------ starts
@njit(cache=True, nogil=True, error_model="numpy")
def reset(problem: Any, state: Any, mask: Any, states: Any, given: Any, contexts: Any, obs: Any, values: Any) -> None:
    """Start new episodes where `mask` says so, in the first contexts given (-1: drawn).

    ``states[i]`` is a start state, -1 for the model's start, or -2 for the distribution ``given[i]``.
    """
    p, s = Problem(*problem), State(*state)
    for i in range(mask.size):
        if mask[i]:
            if states[i] == -2:
                s.start[i] = given[i]
            begin(p, s, i, states[i], contexts[i], obs, values)


@njit(cache=True, nogil=True, error_model="numpy")
def begin(p: Any, s: Any, i: int, state: int, context: int, obs: Any, values: Any) -> None:
    """Draw row, contexts and start, place the loads and report; a given distribution lies in `s.start`."""
    if p.random_row == 1:
        s.row[i] = int(uniform(s.episodes, i) * p.power.shape[0])
    r, shares, n, c = s.row[i], s.start[i], p.power.shape[1], p.first.shape[1]
    s.path[i] = 0
    if c > 1:
        w = pick(p.first[r], 0, c, uniform(s.episodes, i))  # drawn in any case, as the spot below
        s.path[i, 0] = w = context if context >= 0 else w
        for t in range(p.block.shape[0]):
            w = pick(p.moves[r, t if p.moves.shape[1] > 1 else 0, w], 0, c, uniform(s.episodes, i))
            s.path[i, t + 1] = w
    spot = uniform(s.episodes, i)  # in any case, so that the stream does not depend on how a start is chosen
    s.moves[i, 0] = mixed(s.episodes[i, 0])
    s.moves[i, 1] = mixed(s.episodes[i, 1] ^ s.moves[i, 0])
    if state == -1:
        shares[:] = p.initial[r]
        state = -1 if p.spread == 1 else pick(shares, 0, n, spot)
    if state >= 0:
        shares[:] = 0.0
        shares[state] = 1.0
    for b in range(n):
        s.counts[i, b] = 0.0 if p.loads > 0 else shares[b]
    for _ in range(p.loads):
        s.where[i] = state if state >= 0 else pick(shares, 0, n, uniform(s.moves, i))
        s.counts[i, s.where[i]] += 1.0
    power, best, points, w = 0.0, 0.0, 0.0, s.path[i, 0]
    for b in range(n):
        shares[b] = s.counts[i, b] / max(1, p.loads)
        power += shares[b] * p.power[r, b]
        best += shares[b] * p.optimum[r, w, b, 0]
        points += shares[b] * p.optimum[r, w, b, 1]
    s.best[i, 0], s.best[i, 1] = best, points
    report(p, s, i, 0, 0.0, obs, values)
    values[:, i] = 0.0  # nothing was earned yet
    values[POWER, i] = power


# ------------------------------------------------------------------ chance
@njit(cache=True, nogil=True, error_model="numpy")
def uniform(stream: Any, i: int) -> float:
    """Return a double in [0, 1) from the stream of environment `i`, advancing it."""
    a, b = stream[i, 0], stream[i, 1]
    total = a + b
    out = ((total << np.uint64(17)) | (total >> np.uint64(47))) + a
    b ^= a
    stream[i, 0] = ((a << np.uint64(49)) | (a >> np.uint64(15))) ^ b ^ (b << np.uint64(21))
    stream[i, 1] = (b << np.uint64(28)) | (b >> np.uint64(36))
    return np.float64(out >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True, nogil=True, error_model="numpy")
def mixed(word: Any) -> Any:
    """Scramble a word (the finaliser of splitmix64), so that the new stream has nothing in common with the old."""
    z = word + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True, error_model="numpy")
def pick(weights: Any, first: int, last: int, u: float) -> int:
    """Return the first index whose cumulated weight exceeds u; a weight of zero never comes up."""
    total = 0.0
    for e in range(first, last):
        total += weights[e]
        if u < total:
            return e
    e = last - 1  # the weights sum to one less a rounding error, and u is above that
    while e > first and weights[e] <= 0.0:
        e -= 1
    return e
