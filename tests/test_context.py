"""Contexts that are shown in part: what an agent with memory can tell; contexts that form a tree."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dp_ensemble_env.context import Context
from dp_ensemble_env.model import EnsembleModel

#: Three doors, of which the last two look alike; from each of them the next step shows which one it was.
HIDDEN = [[0.0], [1.0], [1.0]]


def model(context, horizon=3):
    return EnsembleModel(np.full((2, 2), 0.5), [0.0, 1.0], np.zeros((horizon + 1, 2)), 1.0, context=context)


def test_groups_are_numbered_as_they_come():
    context = Context(np.eye(4), features=[[0.2, 0], [0.7, 1], [0.2, 0], [0.1, 0]], start=[0])
    assert context.shown.tolist() == [0, 1, 0, 2] and not context.is_shown
    assert Context(np.eye(4)).is_shown
    with pytest.raises(ValueError, match="in \\[0, 1\\]"):
        Context(np.eye(2), features=[[0.5], [1.5]])
    with pytest.raises(ValueError, match="2 different names"):
        Context(np.eye(2), names=["hot", "hot"])


@pytest.mark.parametrize(
    ("transition", "start", "words"),
    [
        (np.eye(3), [1, 2], "at the start the contexts 'b' and 'c' are both possible"),
        ([[0, 0.5, 0.5], [0, 1, 0], [0, 0, 1]], [0], "at time 1, after 'a', the contexts 'b' and 'c'"),
        ([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]], [0], "at time 2, after 'b', the contexts 'b' and 'c'"),
    ],
)
def test_contexts_that_nobody_could_tell_apart_are_refused(transition, start, words):
    context = Context(transition, list("abc"), start=start, features=HIDDEN)
    with pytest.raises(ValueError, match=words):
        model(context)


def test_contexts_that_cannot_be_reached_do_not_matter():
    """From the third context the next one could not be told, but nobody gets there; and not within one step."""
    context = Context([[0.5, 0.5, 0], [1, 0, 0], [0, 0.5, 0.5]], list("abc"), start=[0], features=HIDDEN)
    assert model(context).n_contexts == 3
    late = Context([[0, 1, 0], [0, 0.5, 0.5], [0, 0, 1]], list("abc"), start=[0], features=HIDDEN)
    assert model(late, horizon=1).horizon == 1
    with pytest.raises(ValueError, match="at time 2, after 'b'"):
        model(late, horizon=2)


def test_what_is_shown_is_followed_along_every_path():
    """Count modulo three of steps up, of which the direction alone is shown: six contexts, two signs."""
    moves = np.zeros((6, 6))
    for count, sign in itertools.product(range(3), range(2)):
        moves[2 * count + sign, [2 * ((count + 1) % 3) + 1, 2 * count]] = 0.3, 0.7
    context = Context(moves, start=[2 * 1 + 1, 2 * 0], features=np.eye(2)[[0, 1] * 3])
    context.check(5)
    paths = [p for p in itertools.product(range(6), repeat=5) if context.start[p[0]] * moves[p[:-1], p[1:]].prod() > 0]
    assert len(paths) == 2**5
    known = np.zeros(len(paths), dtype=int)
    for t in range(5):
        now = np.array([path[t] for path in paths])
        known = context.follow(t, known, context.shown[now])
        assert_array_equal(known, now)
    # Episodes side by side may be at different times: one begins anew, whatever was known of it before.
    assert context.follow(np.array([0, 2]), np.array([5, 1]), np.array([1, 0])).tolist() == [3, 0]


def test_a_tree_is_told_from_a_context_that_forgets():
    tree = np.zeros((7, 7))
    tree[0, [1, 2]] = tree[1, [3, 4]] = tree[2, [5, 6]] = 0.5
    tree[range(3, 7), range(3, 7)] = 1.0
    assert Context(tree, start=[0]).branching(4) is None
    assert Context(tree, start=[0, 1]).branching(4) == (2, 3)  # from two starts, at different times
    tree[2] = np.eye(7)[[4, 6]].mean(axis=0)
    assert Context(tree, start=[0]).branching(2) == (2, 4)
    assert Context(tree, start=[0]).branching(1) is None
