"""What holds for every scenario: instances, splits, the box of actions, cards, refusals, couplings."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dp_ensemble_env import scenarios
from dp_ensemble_env.control.coupled import solve_coupled
from dp_ensemble_env.control.policies import solve_standard, tilted_policy
from dp_ensemble_env.control.returns import shares
from dp_ensemble_env.envs import actions
from dp_ensemble_env.reporting.score import event_outcome, start_values

COUPLED = ("feeder", "tracking")


@pytest.fixture(params=scenarios.BUILT_IN)
def name(request):
    return request.param


def test_instances_repeat_and_differ_and_splits_share_none(name):
    first, again, other = (scenarios.make(name, instance=i) for i in (1, 1, 2))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    splits = [scenarios.make(name, split=split) for split in scenarios.SPLITS]
    assert len({model.fingerprint for model in splits}) == len(splits)
    assert len({model.default.tobytes() for model in splits}) == len(splits)  # behaviour, not prices alone
    assert all(model.default.shape == first.default.shape for model in splits)  # so a policy can carry over
    if first.guess is not None and name != "campus-day":  # whose textbook knows the hours of the day drawn
        assert_array_equal(splits[0].guess, splits[-1].guess)


@pytest.mark.parametrize("instance", range(4))
def test_the_optimum_fits_the_box_of_tilts(name, instance):
    """And the box is no wilder than it must be."""
    model = scenarios.make(name, instance=instance, split=scenarios.SPLITS[instance % len(scenarios.SPLITS)])
    if model.tilt_scale is None:
        return  # a bound that no optimum passes
    numbers = actions.centred_actions(model, solve_standard(model).tilt, strict=False)
    policy = tilted_policy(model, actions.tilts_of(actions.TILT, model, numbers))
    assert event_outcome(model, policy).score == pytest.approx(100.0, abs=1e-4)
    assert np.abs(numbers).max() > 0.2


def test_scale_and_start_tell_nothing_of_the_behaviour(name):
    """They are public: another behaviour leaves them as they are."""
    model = scenarios.make(name, instance=2)
    swapped = model.default[..., ::-1, :] if model.nature is None else model.default
    other = scenarios.make(name, instance=2, default=np.ascontiguousarray(swapped))
    if "initial" in model.public_fields:
        assert_array_equal(model.initial, other.initial)
    assert_array_equal(np.array(model.tilt_scale), np.array(other.tilt_scale))


def test_settings_are_taken_misspelt_ones_refused_and_the_card_says_everything(name):
    assert scenarios.make(name, discomfort_penalty=3.0).discomfort_penalty == 3.0
    with pytest.raises(ValueError, match="discomfort_penality"):
        scenarios.make(name, discomfort_penality=3.0)
    card = scenarios.card(name)
    assert all((card.title, card.story, card.states, card.sources, card.private)) and card.version == 1
    words = "".join(word.title() for word in name.split("-"))
    assert scenarios.environment_id(name) == f"dp_ensemble/{words}-v1"


def test_what_no_scenario_has_is_refused_with_a_guess():
    with pytest.raises(ValueError, match="did you mean 'spot'"):
        scenarios.make("spott")
    with pytest.raises(ValueError, match="split"):
        scenarios.make("spot", split="exam")


# ------------------------------------------------------------------ scenarios with a coupling
@pytest.fixture(scope="module", params=COUPLED)
def coupled(request):
    return scenarios.make(request.param)


def test_the_optimum_is_certified_and_pays(coupled):
    solution = solve_coupled(coupled)
    idle, best = start_values(coupled)
    assert solution.gap <= 1e-9 and solution.primal == best > idle
    assert event_outcome(coupled, solution.policy).score == pytest.approx(100.0, abs=1e-6)
    uncontrolled = coupled.coupling.violation(slice(None), shares(coupled, coupled.default_policy) @ coupled.power_kw)
    assert coupled.coupling.violation(slice(None), solution.power_kw).sum() < 0.2 * uncontrolled.sum()
    assert np.abs(solution.shadow_price).max() > 0.01
