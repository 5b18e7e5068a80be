"""Private numbers are planted in a model; nothing that leaves a private environment may hold one of them.

Every artefact is searched byte by byte, for the numbers as text and for floats and integers at every offset, after
compressed and encoded parts were opened. Two data sets with one release must leave equal bytes.
"""

from __future__ import annotations

import base64
import copy
import io
import json
import pickle
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from dp_ensemble_env.agents import make_agent
from dp_ensemble_env.chain.event import DemandResponseEvent
from dp_ensemble_env.context import Context
from dp_ensemble_env.control.policies import as_tilt
from dp_ensemble_env.envs import EnsembleEnv, EnsembleVectorEnv, functional
from dp_ensemble_env.envs.spec import portable_spec
from dp_ensemble_env.experiments import datasets
from dp_ensemble_env.model import ALWAYS_PUBLIC, DECLARABLE, EnsembleModel
from dp_ensemble_env.privacy import Fleet, PrivacyLedger, adjacency_from_counts, mechanism
from dp_ensemble_env.privacy import ledger as ledger_module
from dp_ensemble_env.privacy.mechanisms import dirichlet
from dp_ensemble_env.scenarios.metered import DaySettings, metered_day

#: An id that takes a model.
ID = "canary/Model-v1"
gymnasium.register(ID, entry_point=EnsembleEnv, vector_entry_point=EnsembleVectorEnv)
SPEC = "dirichlet:k=50,floor=0.02"
NOTE = "The meter of Wren Street 17 was read on 4,217 days."
# ------------------------------------------------------------------ what is planted
COUNTS = np.array(
    [
        [912_305_677, 120_406_791, 20_406_789, 0],
        [320_406_807, 710_305_693, 86_019_753, 30_507_891],
        [0, 230_507_899, 810_305_681, 190_705_431],
        [40_608_901, 0, 340_608_907, 610_305_659],
    ]
)
INITIAL = np.array([0.123456789012345, 0.234567890123457, 0.345678901234567, 0.296296419629631])
#: The adjacency that these counts give.
H = adjacency_from_counts(COUNTS, 100_000_000)
BASELINE = 1234.56789012345 + 17.0987654321 * np.arange(19)


def private_model(seen: NDArray[Any] = COUNTS, **changes: Any) -> EnsembleModel:
    """Everything that comes from data is a canary; the levels are declared public."""
    event, power = DemandResponseEvent().timeline(BASELINE), np.array([1.0, 2.0, 3.0, 4.0])
    fields = {"default": seen / seen.sum(axis=1, keepdims=True), "power_kw": power, "utility": event.utility(power)}
    fields |= {"discomfort_penalty": 5.0, "loads": 30, "initial": INITIAL, "event": event, "counts": seen}
    fields |= {"notes": [NOTE]}
    return EnsembleModel(**{**fields, **changes})


#: Decisions of a model with nature and contexts, as distinctive as the counts above.
DECISIONS = np.array(
    [
        [[512_305_679, 120_406_793, 367_287_531], [320_406_809, 610_305_697, 69_287_497]],
        [[230_507_903, 710_305_691, 59_186_409], [540_608_909, 190_705_433, 268_685_661]],
        [[40_608_903, 340_608_911, 618_782_189], [86_019_761, 30_507_893, 883_472_353]],
        [[912_305_681, 20_406_791, 67_287_531], [150_608_917, 420_705_439, 428_685_647]],
    ]
).swapaxes(0, 1)[None]


def general_model() -> EnsembleModel:
    """Behaviour that depends on a context, where nature decides with the loads."""
    rng = np.random.default_rng(5)
    return private_model(
        default=DECISIONS / DECISIONS.sum(axis=-1, keepdims=True),
        utility=rng.normal(size=(19, 2, 4)),
        event=None,
        counts=None,
        nature=rng.dirichlet(np.ones(4), 3),
        context=Context([[0.9, 0.1], [0.3, 0.7]]),
        guess=np.full(DECISIONS.shape, 1.0 / 3.0),
        tilt_scale=np.full(18, 2.0),
    )


def canaries(model: EnsembleModel) -> dict[str, NDArray[Any]]:
    """Name the numbers that must not leave."""
    return {
        "default": model.default[model.default > 0],
        "logs": np.log(model.default[model.default > 0]),
        "initial": np.concatenate([INITIAL, np.cumsum(INITIAL)[:-1] / INITIAL.sum()]),
        "baseline": np.concatenate([BASELINE, BASELINE / model.loads]),
        "counts": np.concatenate([COUNTS[COUNTS > 0], DECISIONS.ravel()]),
        "adjacency": np.unique(H.h),
    }


# ------------------------------------------------------------------ the search
def opened(data: bytes, depth: int = 4) -> Iterator[bytes]:
    """Yield the bytes, and those of every archive, compressed stream and base64 text in them."""
    yield data
    if depth == 0:
        return
    if data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                yield name.encode()
                yield from opened(archive.read(name), depth - 1)
    for start in (match.start() for match in re.finditer(rb"x[\x01\x5e\x9c\xda]", data)):
        try:
            inner = zlib.decompressobj().decompress(data[start:])
        except zlib.error:
            continue
        if len(inner) > 8:
            yield from opened(inner, depth - 1)
    for match in re.finditer(rb"[A-Za-z0-9+/]{24,}={0,2}", data):
        yield from opened(base64.b64decode(match[0][: len(match[0]) // 4 * 4]), depth - 1)


def texts(value: float) -> set[bytes]:
    """Return the ways in which a number may be written with at least nine digits."""
    found = {f"{value:.{digits}g}" for digits in range(9, 18)} | {repr(float(value))}
    if value == int(value):
        found |= {f"{int(value)}", f"{int(value):,}"}
    return {text.lstrip("-").encode() for text in found if len(text.lstrip("-0.")) >= 8}


def holds(data: bytes, values: NDArray[Any]) -> bool:
    """Whether the bytes hold one of the numbers, as text or in binary, at any offset."""
    if any(text in data for value in values for text in texts(value)):
        return True
    integers = values.dtype.kind == "i"
    for kind in ("<i8", ">i8", "<i4", ">i4") if integers else ("<f8", ">f8", "<f4", ">f4"):
        width = int(kind[-1])
        wanted = values.astype(kind)
        for offset in range(min(width, len(data))):
            if np.isin(np.frombuffer(data, kind, (len(data) - offset) // width, offset), wanted).any():
                return True
    return holds(data, values.astype(float)) if integers else False


def leaks(data: bytes, model: EnsembleModel) -> set[str]:
    found = set()
    for part in opened(data):
        found |= {name for name, values in canaries(model).items() if name not in found and holds(part, values)}
        if any(word in part for word in (b"Wren Street", b"4,217", model.fingerprint.encode())):
            found.add("notes")
    return found


# ------------------------------------------------------------------ what leaves
def play(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Play an episode and a half, so that there is something to remember."""
    for share in (1, 2):
        env.reset(seed=share)
        for _ in range(env.unwrapped.model.horizon // share):
            env.step(np.full(env.action_space.shape, 0.3, np.float32))
    return env


def objects(model: EnsembleModel, **privacy: Any) -> dict[str, Any]:
    """Make every object that can be handed out, by the ways in which users make it."""
    made = play(gymnasium.make(ID, model=model, infos="all", **privacy))
    crowd = play(EnsembleEnv(model, 30, "price", render_mode="ansi", **privacy))
    batch = gymnasium.make_vec(ID, 3, vectorization_mode="vector_entry_point", model=model, infos="all", **privacy)
    loads = EnsembleVectorEnv(3, model, "single", autoreset_mode="SAME_STEP", render_mode="ansi", **privacy)
    for envs in (batch, loads):
        envs.reset(seed=0)
        for _ in range(25):
            envs.step(np.full(envs.action_space.shape, 0.3, np.float32))
        for kind in ("action_space", "observation_space"):  # Gymnasium seeds them at random
            getattr(envs, kind).seed(0), getattr(envs, f"single_{kind}").seed(0)
    own, release, agent = made.unwrapped, made.unwrapped.release, make_agent("standard", made)
    steady = np.full(made.action_space.shape, 0.2)
    seen = [[made.reset(seed=seed), *(made.step(steady) for _ in range(3))] for seed in range(5)]
    found = {
        "environment": made,
        "unwrapped": own,
        "crowd": crowd,
        "vector": batch,
        "loads": loads,
        "spec": made.spec,
        "vector spec": batch.spec,
        "settings": own.settings,
        "model": own.model,
        "release": release,
        "batch": own._batch,
        "frames": (crowd.render(), loads.render()),
        "portable": portable_spec(model, release),
        "remade": gymnasium.make(portable_spec(model, release)),
        "agent": agent,
        "functions": (functional.make(own), functional.make(crowd), functional.make(batch)),
        "seen": seen,
        "plan": [agent.predict(step[0])[0] for step in seen[0]],
        "data set": datasets.play(made, agent, 0.01, 3),
    }
    if release is not None:
        public = model.public(release)
        texts = repr(own.settings) + repr(public) + own._batch.behaviour.line() + str(own.ledger.statement())
        found |= {"public": public, "tilt": as_tilt(release, public), "ledger": own.ledger.to_json(), "texts": texts}
    return found


def drawn_release(spec: str, data: Any, **terms: Any) -> dict[str, Any]:
    return {"privacy": PrivacyLedger.of_process().release(mechanism(spec), data, rng=7, **terms)}


#: Of participants whose decisions are planted, too.
FLEET = Fleet(np.repeat(DECISIONS[None], 50, axis=0))
WAYS = {
    "mechanism": lambda model: {"privacy": SPEC, "release_seed": 91},
    "charged release, h from counts": lambda model: drawn_release(SPEC, model.default, h=H),
    "redraw": lambda model: {"privacy": SPEC, "ledger": PrivacyLedger(), "redraw": "episode"},
    "public": lambda model: {"privacy": "public"},
    "participants": lambda model: drawn_release(
        "gaussian:epsilon=1", FLEET, guess=model.guess, support=model.guess > 0
    ),
}
CASES = [("plain", way) for way in WAYS if way != "participants"]
CASES += [("general", "mechanism"), ("general", "participants")]


@pytest.mark.parametrize(("kind", "way"), CASES)
def test_nothing_private_is_in_any_object_that_leaves(kind: str, way: str) -> None:
    model = private_model() if kind == "plain" else general_model()
    found = objects(model, **WAYS[way](model))
    shown = found["model"]
    assert (shown.nature is None) == (shown.context is None) == (kind == "plain")
    for name, value in found.items():
        data = pickle.dumps(value)
        assert leaks(data, model) == set(), f"{name}, pickled"
        assert leaks(pickle.dumps(pickle.loads(data)), model) == set(), f"{name}, pickled again"
    assert leaks(found["portable"].to_json().encode(), model) == set()


def office(seed: int) -> SimpleNamespace:
    """Return sixty days of hourly readings, with enough above the floor to spare."""
    rng, hour = np.random.default_rng(seed), np.arange(24 * 60)
    stamps = np.datetime64("2024-06-16T00:00", "s") + hour * np.timedelta64(3600, "s")
    scale = np.repeat(np.append(rng.uniform(0.7, 1.2, 59), 1.0 + 0.1 * seed), 24)
    kw = scale * (200.0 + 150.0 * np.exp(-0.5 * ((hour % 24 - 13) / 3.5) ** 2)) + rng.normal(0.0, 3.0, len(hour))
    return SimpleNamespace(times=stamps, kw=kw, step=np.timedelta64(3600, "s"), source="office", notes=())


def metered(seed: int) -> EnsembleModel:
    """Return a metered day on stated levels: utility, start, baseline and notes come from the readings."""
    event = DemandResponseEvent("2024-08-14", step_minutes=60, notice_minutes=60)
    day = metered_day(office(seed), event, DaySettings(levels=6, penalty=40.0))
    return day.model.override(power_kw=np.linspace(100.0, 450.0, 6))


@pytest.mark.parametrize("pair", ["drawn", "drawn again", "metered day"])
def test_two_data_sets_and_one_release_leave_equal_bytes(pair: str, monkeypatch: Any, tmp_path: Path) -> None:
    """Two fleets that happen to give the same release: what leaves holds no digest of the data and no seed."""

    def drawn(shape: NDArray[Any], rng: Any) -> NDArray[Any]:
        return np.linspace(-1.0, 1.0, shape.size).reshape(shape.shape)

    if pair == "metered day":
        models = (metered(0), metered(1))
        given = {"privacy": mechanism(SPEC).release(models[0].default, 0)}
        assert not np.array_equal(models[0].initial, models[1].initial)
    else:
        monkeypatch.setattr(dirichlet, "log_gamma_variates", drawn)
        other = private_model(COUNTS + 1_000_003 * (COUNTS > 0), initial=INITIAL[::-1].copy(), notes=["Other."])
        models, given = (private_model(), other), {"privacy": SPEC, "redraw": ["never", "episode"]["again" in pair]}
    assert not np.array_equal(models[0].default, models[1].default)
    sides = []
    for model, seed in zip(models, (912_345_678_912_345_671, 3), strict=True):
        ledger = PrivacyLedger()
        monkeypatch.setattr(ledger_module, "_OF_PROCESS", ledger)
        if pair == "metered day":
            ledger.record(given["privacy"])
        found = objects(model, **given, **({} if pair == "metered day" else {"release_seed": seed}))
        page, data = ledger.statement().save(tmp_path / "release.json")
        blank = {name: pickle.dumps(value) for name, value in found.items()} | {
            "card": page.read_bytes() + data.read_bytes()
        }
        # The name of a draw depends on the data, by a key that stays here.
        sides.append({name: re.sub(rb"(?<=environment release )[0-9a-f]{16}", b"", one) for name, one in blank.items()})
    assert {name for name in sides[0] if sides[0][name] != sides[1][name]} == set()


def test_the_search_finds_what_it_should_when_nothing_is_private() -> None:
    """The positive control: the same objects of an environment on the true dynamics hold what was planted."""
    model, general = private_model(), general_model()
    found = {name: leaks(pickle.dumps(value), model) for name, value in objects(model).items()}
    for name in ("environment", "crowd", "vector", "loads", "settings", "model", "batch", "spec"):
        assert found[name] >= {"default", "initial", "baseline", "counts", "notes"}, name
    for name in ("portable", "remade", "functions"):
        assert found[name] >= {"default", "initial"}, name
    assert found["release"] == set()
    assert {"default", "initial", "notes"} <= leaks(pickle.dumps(EnsembleEnv(general)), general)


def test_the_search_looks_everywhere() -> None:
    model, numbers, buffer = private_model(), np.array([0.5, INITIAL[1], 0.25]), io.BytesIO()
    np.savez_compressed(buffer, numbers=numbers)
    for data in (
        b"abc" + numbers.tobytes(),
        buffer.getvalue(),
        b'{"x": "' + base64.b64encode(zlib.compress(numbers.tobytes())) + b'"}',
        numbers.astype("f4").tobytes(),
        json.dumps([round(INITIAL[1], 10)]).encode(),
    ):
        assert leaks(data, model) == {"initial"}
    assert leaks(np.array([0.5, 0.25, 0.75]).tobytes(), model) == set()


# ------------------------------------------------------------------ files
def run_folder(env: EnsembleEnv, folder: Path) -> dict[str, bytes]:
    """Train for two rollouts, and return what the run folder holds."""
    from dp_ensemble_env.agents.train import RunFolder, TrainingSettings, train

    changes = {"n_envs": 4, "n_steps": 18, "batch_size": 24, "n_epochs": 1}
    train("ppo", env, TrainingSettings(seed=0, steps=144, interval=72, hyperparams=changes), keep=RunFolder(folder))
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.torch
def test_run_folder_and_checkpoint_are_clean(tmp_path: Path) -> None:
    model = private_model()
    files = run_folder(EnsembleEnv(model, action="price", privacy=SPEC, ledger=PrivacyLedger()), tmp_path / "private")
    assert {"config.json", "ledger.json", "results.json", "checkpoint.safetensors", "policy.safetensors"} <= set(files)
    for name, data in files.items():
        assert leaks(data, model) == set(), name
    # The control: without privacy the configuration names the model by a hash of the true numbers.
    files = run_folder(EnsembleEnv(model, action="price"), tmp_path / "true")
    assert "notes" in leaks(files["config.json"], model)


def test_saved_releases_and_ledgers_are_clean(tmp_path: Path) -> None:
    model = private_model()
    ledger = PrivacyLedger(tmp_path / "owner" / "ledger.jsonl")
    release = ledger.release(mechanism(SPEC), model.default, h=H)
    assert leaks(ledger.path.read_bytes(), model) == {"adjacency"}  # the owner's file keeps what was claimed
    for name in ("release.json", "release.npz"):
        assert leaks(release.save(tmp_path / name).read_bytes(), model) == set(), name
    for text in (ledger.to_json(), repr(ledger), str(release), repr(release)):
        assert leaks(text.encode(), model) == set()


# ------------------------------------------------------------------ declarations
def test_only_what_is_declared_public_is_kept() -> None:
    model = private_model()
    release = mechanism(SPEC).release(model.default)
    public = model.public(release)
    np.testing.assert_array_equal(public.default, release.matrix)
    np.testing.assert_array_equal(public.initial, np.full(4, 0.25))
    assert public.counts is None and public.notes == () and public.event.baseline_kw is None
    np.testing.assert_array_equal(public.utility, model.utility)
    np.testing.assert_array_equal(public.event.price, model.event.price)
    declared = private_model(public_fields=DECLARABLE).public(release)
    np.testing.assert_array_equal(declared.initial, INITIAL)
    np.testing.assert_array_equal(declared.event.baseline_kw, BASELINE)
    assert declared.notes == (NOTE,) and declared.counts is None
    named = {"power_kw", "utility", "discomfort_penalty", "initial", "event", "notes", "public_fields"}
    assert set(EnsembleModel.__dataclass_fields__) == {*ALWAYS_PUBLIC, *named, "default", "counts"}  # somebody decided


def test_private_levels_are_refused_with_the_remedy() -> None:
    model = private_model(public_fields=[])
    with pytest.raises(ValueError, match=r"power levels come from the private series.*public=\['levels'\]"):
        EnsembleEnv(model, privacy=SPEC)
    with pytest.raises(ValueError, match="power levels"):
        portable_spec(model, mechanism(SPEC).release(model.default))
    with pytest.raises(ValueError, match="did you mean 'levels'"):
        private_model(public_fields=["level"])


def test_an_unpickled_environment_cannot_draw_again_but_a_copy_in_the_process_can() -> None:
    env = EnsembleEnv(private_model(), privacy=SPEC, redraw="episode")
    env.reset(seed=0)
    away, twin = pickle.loads(pickle.dumps(env)), copy.deepcopy(env)
    np.testing.assert_array_equal(away.step(np.zeros(4))[0], env.step(np.zeros(4))[0])  # the episode goes on
    with pytest.raises(ValueError, match="the private data stayed where it was made"):
        away.reset()
    env.reset()
    twin.reset()
    np.testing.assert_array_equal(env.release.matrix, twin.release.matrix)
