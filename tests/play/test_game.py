"""The game itself, on a page and on the command line."""

import http.client
import json
import math
import threading

import numpy as np
import pytest
from helpers import refuses

from dp_ensemble_env import scenarios
from dp_ensemble_env.cli import main
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.play import Game
from dp_ensemble_env.play.server import PlayServer


# ------------------------------------------------------------------ the game
@pytest.mark.parametrize("name", ["campus-event", "spot", "thermostats", "tracking"])
def test_doing_nothing_scores_zero(name):
    """All three players live the same day, and the future stays hidden."""
    game = Game(name, seed=2)
    assert game.state()["power"]["optimum"] == game.state()["power"]["you"]
    while not game.done:
        state = game.step(0.0)
        assert {len(power) for power in state["power"].values()} == {game.time + 1}
        assert state["points"]["you"] == pytest.approx(0.0, abs=1e-6)
        json.dumps(state, allow_nan=False)
    assert game.score == pytest.approx(0.0, abs=1e-6) and game.points("optimum") == pytest.approx(100.0)
    np.testing.assert_allclose(game.days["you"].power, game.days["uncontrolled"].power)


def test_the_score_is_that_of_the_environment():
    """Returns of the environment itself, between doing nothing and the optimum that it states for this start."""
    game = Game("campus-event", seed=5)
    returns = []
    for price in (0.3, 0.0):
        env = EnsembleEnv(scenarios.make("campus-event"), action="price", reward="dollars")
        optimum, rewards, over = env.reset(seed=5)[1]["optimal_return"], [], False
        while not over:
            _, reward, over, _, _ = env.step(np.array([price], np.float32))
            rewards.append(reward)
        returns.append(sum(rewards))
    while not game.done:
        game.step(0.3)
    refuses("the day is over", game.step, 0.3)
    assert 0 < game.score < 100
    assert game.score == pytest.approx(100 * (returns[0] - returns[1]) / (optimum - returns[1]))
    assert game.words() == f"Your score is {game.score:.1f}. The optimum is 100, doing nothing is 0."


def test_a_bad_price_is_one_sentence_and_changes_nothing():
    game = Game("spot")
    for price, words in ((2, r"must lie in \[-1, 1\], got 2"), (math.nan, "a number"), (True, "a number")):
        refuses(words, game.step, price)
    assert game.time == 0 and "48 steps are left" in game.words()
    with pytest.raises(ValueError, match="not over"):
        _ = game.score


# ------------------------------------------------------------------ the page
@pytest.fixture(scope="module")
def server():
    with PlayServer("spot", seconds=2.0) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(server, method, path, body=None, host=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request(method, path, body, {} if host is None else {"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_page_and_prices(server):
    base = f"/{server.token}/"
    status, page = ask(server, "GET", base)
    assert status == 200 and "Set the price" in page and "%%" not in page and server.token not in page
    assert json.loads(ask(server, "POST", base + "new", "{}")[1])["time"] == 0 and server.game.seed == 1
    status, text = ask(server, "POST", base + "step", json.dumps({"price": 0.5}))
    assert status == 200 and json.loads(text)["prices"] == [0.5]
    assert json.loads(ask(server, "GET", base + "state")[1])["time"] == 1


def test_a_bad_request_is_one_sentence(server):
    before = server.game.time
    for body in ("", "{", "[]", "{}", '{"price": 7}', '{"price": "x"}', '{"price": NaN}', "x" * 2000):
        status, text = ask(server, "POST", f"/{server.token}/step", body)
        assert status == 400 and json.loads(text)["error"].endswith(".") and server.game.time == before


def test_nobody_enters_without_the_secret(server):
    for method, path in (("GET", "/"), ("GET", "/wrong/"), ("POST", "/wrong/step"), ("GET", f"/{server.token}")):
        assert ask(server, method, path, "{}")[0] == 404
    for host in ("evil.example", f"evil.example:{server.server_port}"):  # a name that was made to lead here
        assert ask(server, "GET", f"/{server.token}/", host=host)[0] == 404
    assert server.server_address[0] == "127.0.0.1" and len(server.token) > 20


# ------------------------------------------------------------------ the command
def test_prices_in_the_terminal(capsys):
    assert main(["play", "spot", "--prices", "0.2", "0.1"]) == 0
    assert capsys.readouterr().out.startswith("Your score is ")
    for words, said in (
        (["nowhere"], "unknown SCENARIO 'nowhere'"),
        (["--prices", "2"], "--prices must lie in [-1, 1], got 2"),
        (["spot", "--prices", *["0"] * 49], "the day has 48 steps"),
        (["--seconds", "-1"], "--seconds"),
    ):
        assert main(["play", *words]) == 2 and said in capsys.readouterr().err
