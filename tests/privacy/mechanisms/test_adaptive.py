"""Adaptive queries: price, sensitivity, what they may see, what is made of the answers, and what it is worth."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import null_space

from dp_ensemble_env import scenarios
from dp_ensemble_env.context import Context
from dp_ensemble_env.control.policies import as_tilt
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy import Event, Fleet, PrivacyLedger, Release, mechanism
from dp_ensemble_env.privacy.accounting.losses import GaussianLoss, Losses
from dp_ensemble_env.privacy.mechanisms import adaptive
from dp_ensemble_env.privacy.mechanisms.adaptive import (
    GRID,
    STEPS,
    VISITS,
    Evidence,
    Posterior,
    add_clipped,
    choose,
    mean_trust,
    norms,
    possible,
    shaped,
)
from dp_ensemble_env.privacy.mechanisms.curvature import Problem
from dp_ensemble_env.privacy.mechanisms.gaussian import multiplier
from dp_ensemble_env.privacy.mechanisms.public import public_guess
from dp_ensemble_env.reporting.score import event_outcome

ADAPTIVE = mechanism("adaptive:epsilon=1")
REAL = adaptive.add_noise
SIGMA = multiplier(1.0, 1e-6, "seed")
SHARES = [share for pair in (VISITS, *STEPS) for share in pair]


@pytest.fixture(scope="module")
def model() -> EnsembleModel:
    """A small model with contexts, a guess and a declared support."""
    rng, n, horizon = np.random.default_rng(0), 6, 8
    support = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) < 3
    default, guess = (np.where(support, rng.dirichlet(np.full(n, 2.0), n), 0.0) for _ in range(2))
    return EnsembleModel(
        default / default.sum(axis=1, keepdims=True),
        np.arange(n) + 1.0,
        rng.normal(size=(horizon + 1, 2, n)),
        0.5,
        initial=np.eye(n)[2],
        context=Context([[0.8, 0.2], [0.4, 0.6]], ("low", "high")),
        spread_start=True,
        public_fields=("levels", "utility", "penalty", "initial"),
        guess=guess / guess.sum(axis=1, keepdims=True),
        support=support,
    )


@pytest.fixture(scope="module")
def fleet(model) -> Fleet:
    return scenarios.participants(model, 120, seed=3, days=20, heterogeneity=30.0)


def release(fleet: Fleet, model, seed: int = 0, made=ADAPTIVE) -> Release:
    """Draw from a generator, whose stream does not depend on the data; trouble in the estimate is an error here."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return PrivacyLedger().release(made, fleet, np.random.default_rng(seed), model=model)


class Tape:
    """Stands for the noise: keeps the true sums of all queries and the answers, or gives recorded answers."""

    def __init__(self, answers: list[np.ndarray] | None = None) -> None:
        self.recorded, self.answers, self.sums, self.scales = answers, [], [], []

    def __call__(self, sums, kind, scale, rng, seeding):
        self.sums.append(sums.copy())
        self.scales.append(scale)
        answer = REAL(sums, kind, scale, rng, seeding) if self.recorded is None else self.recorded[len(self.sums) - 1]
        self.answers.append(answer)
        return answer


@pytest.fixture
def recorded(model, fleet, monkeypatch):
    """Sums and answers of one release, and a function that asks the same queries of other fleets."""
    tape = Tape()
    monkeypatch.setattr(adaptive, "add_noise", tape)
    monkeypatch.setattr(adaptive, "choose", lambda problem, p, belief: p)  # which asks nothing, and takes long
    release(fleet, model)

    def replay(other: Fleet, of=model) -> list[np.ndarray]:
        again = Tape(tape.answers)
        monkeypatch.setattr(adaptive, "add_noise", again)
        release(other, of)
        return again.sums

    return tape, replay


def joined(fleet: Fleet, counts: np.ndarray) -> Fleet:
    return Fleet(np.concatenate([fleet.counts, counts.astype(np.int64)]))


def extremes(model, fleet: Fleet) -> np.ndarray:
    """Participants who do one thing in every state, seen once or a million times, and some random ones."""
    rng, (n, m) = np.random.default_rng(0), fleet.shape
    allowed = model.declared_support
    counts = np.zeros((16, n, m), dtype=np.int64)
    for i in range(16):
        for s in range(n):
            options = np.flatnonzero(allowed[s])
            chosen = options[[0, -1][i % 2]] if i < 4 else rng.choice(options)
            counts[i, s, chosen] = (1, 10**6, 40, 10**6)[i % 4] if i < 12 or rng.random() < 0.1 else 0
    return counts


# ------------------------------------------------------------------ price
def test_costs_one_gaussian_draw_and_its_event_is_data(model, fleet):
    assert math.isclose(sum(SHARES), 1.0, rel_tol=1e-15) and len(SHARES) == 10
    event = ADAPTIVE.event(fleet, seeding="seed", model=model)
    assert event.losses() == Losses.of({GaussianLoss(SIGMA): 1})
    assert Event.from_json(json.loads(json.dumps(event.to_json()))) == event
    ledger = PrivacyLedger()
    ledger.release(ADAPTIVE, fleet, 0, model=model)
    assert ledger.declared == (*model.public_fields, "guess", "support")
    assert ledger.releases == 1 and math.isclose(ledger.spent(1e-6), 1.0, rel_tol=1e-6)
    assert "10 adaptive queries" in str(ledger.statement())


def test_the_stream_depends_on_epsilon_and_on_what_is_public(model, fleet, monkeypatch):
    def noise_of(made, of=model) -> np.ndarray:
        tape = Tape()
        monkeypatch.setattr(adaptive, "add_noise", tape)
        PrivacyLedger().release(made, fleet, 5, model=of)
        return (tape.answers[0] - tape.sums[0] / GRID) / tape.scales[0]

    first = noise_of(ADAPTIVE)
    assert_array_equal(first, noise_of(ADAPTIVE))
    others = noise_of(mechanism("adaptive:epsilon=2")), noise_of(ADAPTIVE, model.override(discomfort_penalty=0.2))
    assert all(np.abs(first - other).min() > 1e-6 for other in others)
    assert_array_equal(first, noise_of(ADAPTIVE, model.with_default(model.guess)))  # the truth is not in it


# ------------------------------------------------------------------ sensitivity
def test_nobody_moves_the_answers_by_more_than_was_charged(model, fleet, recorded):
    """Participants who do one thing everywhere, and the worst of them improved step by step against the answers."""
    tape, replay = recorded
    bound = 1.0 / SIGMA**2

    def spent(one: np.ndarray) -> float:
        moved = [after - before for after, before in zip(replay(joined(fleet, one[None])), tape.sums, strict=True)]
        lengths = [sum(int(value) ** 2 for value in change) for change in moved]  # whole numbers: to the last bit
        assert max(lengths) <= GRID**2
        return sum(x / GRID**2 / scale**2 for x, scale in zip(lengths, tape.scales, strict=True))

    known = [(spent(one), one) for one in extremes(model, fleet)]
    most, worst = max(known, key=lambda pair: pair[0])
    rng = np.random.default_rng(4)
    for _ in range(25):
        changed, row = worst.copy(), rng.integers(len(worst))
        changed[row] = 0
        changed[row, rng.choice(np.flatnonzero(model.declared_support[row]))] = rng.choice([1, 30, 1000, 10**6])
        if (now := spent(changed)) > most:
            most, worst = now, changed
    assert 0.9 * bound < most <= bound * (1 + 1e-12)  # little is wasted


def test_the_likelihood_ratio_of_the_whole_transcript_is_that_of_one_gaussian_draw(model, fleet, monkeypatch):
    """The real noise, and the best test there is, which knows all participants but one and every answer."""
    monkeypatch.setattr(adaptive, "choose", lambda problem, p, belief: p)  # which asks nothing, and takes long
    made, sigma = mechanism("adaptive:epsilon=4"), multiplier(4.0, 1e-6, "seed")
    fleets, standard = (joined(fleet, extremes(model, fleet)[3:4]), fleet), []
    for draw in range(40):
        side, told = draw % 2, [Tape(), Tape()]
        monkeypatch.setattr(adaptive, "add_noise", told[side])
        release(fleets[side], model, draw, made)
        told[1 - side] = Tape(told[side].answers)
        monkeypatch.setattr(adaptive, "add_noise", told[1 - side])
        release(fleets[1 - side], model, draw, made)
        ratio = squares = 0.0
        for share, answer, present, absent in zip(SHARES, told[0].answers, told[0].sums, told[1].sums, strict=True):
            variance = sigma**2 / share
            ratio += float((((answer - absent / GRID) ** 2) - ((answer - present / GRID) ** 2)).sum()) / (2 * variance)
            squares += float((((present - absent) / GRID) ** 2).sum()) / variance
        assert squares <= (1 + 1e-12) / sigma**2
        standard.append((ratio - (0.5 - side) * squares) / math.sqrt(squares))
    assert abs(np.mean(standard)) < 5 / math.sqrt(40) and 0.2 < np.var(standard) < 2.5


def test_a_participant_contributes_the_same_in_any_company_and_the_empty_ones_nothing(model, fleet, recorded):
    tape, replay = recorded
    order = np.random.default_rng(1).permutation(fleet.participants)
    for other in (Fleet(fleet.counts[order]), joined(fleet, np.zeros((300, *fleet.shape)))):
        for before, after in zip(tape.sums, replay(other), strict=True):
            assert_array_equal(before, after)
    rng = np.random.default_rng(2)
    x, V = rng.normal(size=(7, 33)), np.ascontiguousarray(np.linalg.qr(rng.normal(size=(33, 20)))[0])
    gain, across = rng.random(20), np.ascontiguousarray(V.T)
    alone = np.concatenate([shaped(one[None], 0.3, gain, V, across) for one in x])
    assert_array_equal(shaped(x, 0.3, gain, V, across), alone)
    assert_allclose(alone, x @ (0.3 * np.eye(33) + (V * gain) @ V.T), rtol=1e-12)


@pytest.mark.parametrize("length", [1e-200, 0.7, 1.0 + 1e-15, 1e200, np.inf, np.nan])
@pytest.mark.parametrize("size", [1, 3, 3000])
def test_a_clipped_vector_has_at_most_norm_one_to_the_last_bit(length, size):
    vector = np.random.default_rng(size).normal(size=(1, size)) ** 3
    vector *= length / np.linalg.norm(vector)
    total = np.zeros(size, dtype=np.int64)
    add_clipped(vector, 1.0, total)
    assert sum(int(value) ** 2 for value in total) <= GRID**2 and norms(vector)[0] >= 0.0
    if length == 0.7:
        assert_allclose(total / GRID, vector[0], atol=1 / GRID)


# ------------------------------------------------------------------ what it may see
def test_no_query_moves_with_what_is_not_declared(model, fleet, recorded):
    tape, replay = recorded
    hidden = model.override(
        default=np.roll(model.default, 1, axis=0), notes=("secret",), loads=7, event=None, tilt_scale=None
    )
    for before, after in zip(tape.sums, replay(fleet, hidden), strict=True):
        assert_array_equal(before, after)


def test_an_undeclared_start_is_not_seen(model, fleet):
    hidden = model.override(public_fields=("levels", "utility", "penalty"))
    first, second = (release(fleet, one) for one in (hidden, hidden.override(initial=[3])))
    assert_array_equal(first.matrix, second.matrix)
    assert (first.matrix != release(fleet, model).matrix).any()


def test_needs_a_fleet_and_a_model(model, fleet):
    with pytest.raises(ValueError, match="gaussian:epsilon=1"):
        ADAPTIVE.release(fleet, 0)
    with pytest.raises(ValueError, match="Fleet"):
        ADAPTIVE.release(model.default, 0, model=model)
    with pytest.raises(ValueError, match="shape"):
        ADAPTIVE.release(fleet, 0, model=scenarios.make("call"))


# ------------------------------------------------------------------ nothing fails after the charge
@pytest.mark.parametrize("participants", [0, 5])
def test_few_participants_release_about_the_guess(model, fleet, participants):
    score = event_outcome(model, as_tilt(release(fleet.first(participants), model), model)).score
    assert score >= event_outcome(model, as_tilt(public_guess(model), model)).score - 0.1


def test_nothing_to_draw_is_answered(model, fleet):
    matrix = np.roll(np.eye(6), 1, axis=1)
    assert_array_equal(release(fleet, model.override(guess=matrix, support=matrix > 0)).matrix, matrix)


def test_a_failure_after_the_charge_releases_the_guess(model, fleet, monkeypatch):
    def fails(*arguments):
        raise np.linalg.LinAlgError("no eigenvalues")

    monkeypatch.setattr(Problem, "curvature", fails)
    ledger = PrivacyLedger()
    with pytest.warns(UserWarning, match="no eigenvalues"):
        drawn = ledger.release(ADAPTIVE, fleet, 0, model=model)
    assert_allclose(drawn.matrix, model.guess, rtol=1e-12)
    assert ledger.releases == 1


# ------------------------------------------------------------------ publication
def test_publication_draws_discrete_noise_that_costs_what_was_charged(model, fleet, monkeypatch):
    dp = pytest.importorskip("opendp.prelude")
    made, spent = [], []
    plain = dp.m.make_gaussian

    def watched(*arguments, **settings):
        made.append(plain(*arguments, **settings))
        spent.append(made[-1].map(float(GRID)))
        return made[-1]

    monkeypatch.setattr(dp.m, "make_gaussian", watched)
    assert PrivacyLedger().release(ADAPTIVE, fleet, model=model).seeding == "os-entropy" and len(made) == 10
    assert sum(spent) <= 0.5 / SIGMA**2  # zero-concentrated, by OpenDP's own map


# ------------------------------------------------------------------ estimates
N, T = 4, 6


@pytest.fixture
def problem() -> Problem:
    rng = np.random.default_rng(0)
    model = EnsembleModel(rng.dirichlet(np.full(N, 4.0), N), np.arange(N), rng.normal(size=(T + 1, N)), 0.5)
    return Problem.of(model, Fleet.from_decisions([], (N, N)))


def declared(problem: Problem) -> Problem:
    return Problem(**{**vars(problem), "declared": True})


def test_the_posterior_is_that_of_a_linear_regression_with_rows_that_sum_to_one(problem):
    rng, size = np.random.default_rng(1), problem.size
    truth = rng.dirichlet(np.full(N, 4.0), N).ravel()
    evidence = Evidence(problem)
    assert_allclose(evidence.posterior().mean, problem.guess, atol=1e-9)  # without answers, the prior
    precision, vector = np.zeros((size, size)), np.zeros(size)
    for floor in (0.1, 0.01):
        shape = problem.shape(problem.guess, np.full(N, 0.6), floor)
        weight, variance, number = rng.uniform(50, 90, size), 40.0, 300.0
        G = shape.low * np.eye(size) + (shape.vectors * shape.gain) @ shape.vectors.T
        A = G * (weight / shape.units)
        noise = variance * np.eye(size) + number * G @ G
        answer = A @ (truth - problem.guess) + rng.multivariate_normal(np.zeros(size), noise)
        evidence.add(shape, problem.guess, weight, answer, variance, number)
        precision += A.T @ np.linalg.solve(noise, A)
        vector += A.T @ np.linalg.solve(noise, answer)
    # Directions in which rows keep their sums; the answers are about the difference from the guess.
    B = null_space(np.eye(N)[problem.row_of].T)
    prior = np.diag(1.0 / np.maximum(problem.guess, 0.01))
    fits = {}
    for t2 in 4.0 ** np.arange(-6.0, 3.0):
        K = B.T @ (precision + prior / t2) @ B
        moved = np.linalg.solve(K, B.T @ vector)
        likelihood = 0.5 * vector @ B @ moved - 0.5 * np.linalg.slogdet(K)[1] - 0.5 * B.shape[1] * math.log(t2)
        fits[likelihood] = problem.guess + B @ moved, B @ np.linalg.inv(K) @ B.T
    mean, covariance = fits[max(fits)]
    belief = evidence.posterior()
    assert_allclose(belief.mean, mean, atol=1e-5)
    assert_allclose(belief.root @ belief.root.T, covariance, atol=1e-5 * np.abs(covariance).max() + 1e-7)
    assert_allclose(belief.deviation**2, np.diag(covariance), rtol=1e-3, atol=1e-7)
    assert_allclose(problem.row_sums(belief.mean), 1.0, atol=1e-5)


class TestPossible:
    DEVIATION = np.full(N * N, 0.01)

    def test_without_noise_behaviour_stays_and_rows_always_sum_to_one(self, problem):
        p = np.random.default_rng(2).dirichlet(np.full(N, 4.0), N).ravel()
        for one in (problem, declared(problem)):
            assert_allclose(possible(one, p, np.full(len(p), 1e-9)), p, rtol=1e-6)
            for mean in (np.zeros(problem.size), np.full(problem.size, -1.0), np.random.default_rng(0).normal(size=16)):
                assert_allclose(one.row_sums(possible(one, mean, np.full(problem.size, 0.1))), 1.0)

    def test_empties_what_noise_could_have_made_and_the_guess_fills_what_is_missing(self, problem):
        mean = problem.guess.copy()
        for value, kept in ((0.02, False), (0.03, True)):  # sqrt(2 ln 16) = 2.35 standard deviations
            mean[:2] = 1.0 - value - mean[2:N].sum(), value
            assert (possible(problem, mean, self.DEVIATION)[1] > 0.0) == kept
        mean = np.where(problem.row_of == 0, 0.0, problem.guess)
        assert_allclose(possible(problem, mean, np.full(problem.size, 0.001))[:N], problem.guess[:N])

    @pytest.mark.parametrize(("mean", "kept"), [(-0.02, 0.0), (0.019, 0.0), (0.021, 0.021), (0.03, 0.03003)])
    def test_a_declared_support_keeps_its_cells_positive_but_unlikely_ones(self, problem, mean, kept):
        noisy = problem.guess.copy()
        noisy[:2] = 1.0 - kept - noisy[2:N].sum(), mean
        assert (possible(declared(problem), noisy, self.DEVIATION) > 0).all()
        guess = np.where(np.arange(16) == 1, 0.004, problem.guess)
        unlikely = Problem(**{**vars(declared(problem)), "guess": guess})
        assert_allclose(possible(unlikely, noisy, self.DEVIATION)[1], kept, rtol=0.02)


def test_trust_follows_an_exact_measurement_and_falls_back_on_the_forecast(problem):
    measured = np.array([0.9, 0.1, 0.4, 0.02])
    assert_allclose(mean_trust(problem, problem.guess, measured, 1e-6), measured, rtol=1e-3)
    (visits, _), days = problem.visits(problem.guess), 16.0
    forecast = visits * days / (visits * days + 31.0)
    noisy = forecast + np.array([0.3, -0.3, 0.3, -0.3])
    trust = mean_trust(problem, problem.guess, noisy, 0.3)
    assert np.abs(trust - forecast).max() < 0.6 * np.abs(noisy - forecast).max()


def test_visits_are_those_of_an_episode(problem):
    rho, total = problem.model.initial, np.zeros(N)
    for _ in range(T):
        total += rho
        rho = rho @ problem.matrix(problem.guess)
    episode, lasting = problem.visits(problem.guess)
    assert_allclose(episode, total)
    assert_allclose(lasting.sum(), 1.0)


def test_the_release_or_the_guess_is_chosen_where_it_is_right(problem):
    p, deviation = np.random.default_rng(2).dirichlet(np.full(N, 0.5), N).ravel(), np.full(problem.size, 1e-4)
    for right in (p, problem.guess):
        assert_array_equal(choose(problem, p, Posterior(right, deviation, np.diag(deviation))), right)


# ------------------------------------------------------------------ worth
@pytest.mark.parametrize(("name", "least"), [("call", 99.5), ("vehicles", 98.5)])
def test_a_release_pays(name, least):
    model = scenarios.make(name, instance=15, split="test")
    fleet = scenarios.participants(model, 1000, seed=1, heterogeneity=30.0)
    score = event_outcome(model, as_tilt(release(fleet, model), model)).score
    assert score >= least > 20 + event_outcome(model, as_tilt(public_guess(model), model)).score


@pytest.mark.slow
def test_one_hostile_participant_in_a_hundred_does_little_harm():
    model = scenarios.make("call", instance=15, split="test")
    counts = scenarios.participants(model, 1000, seed=1, heterogeneity=30.0).counts.astype(np.int64)
    counts[:10] = 0
    counts[:10, :, -1] = 10**6  # all say that every load goes to its last level, always
    assert event_outcome(model, as_tilt(release(Fleet(counts), model), model)).score > 98.0
