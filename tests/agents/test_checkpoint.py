"""Run folders: nothing is lost, nothing is mixed, and nothing is believed that was changed."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import shutil

import pytest

importlib.import_module("stable_baselines3")

from dp_ensemble_env import DirichletMechanism  # noqa: E402
from dp_ensemble_env.agents.loading import load_agent  # noqa: E402
from dp_ensemble_env.agents.train import RunFolder, TrainingSettings, train  # noqa: E402
from dp_ensemble_env.agents.weights import load_weights, save_weights  # noqa: E402
from dp_ensemble_env.envs.ensemble import EnsembleEnv  # noqa: E402
from dp_ensemble_env.tools.files import sole_writer  # noqa: E402

PRIVATE = {"privacy": "dirichlet:k=50,floor=0.05"}
SETTINGS = {"steps": 720, "interval": 144, "hyperparams": {"n_envs": 8}}
NEWEST, OLDER = "checkpoint.safetensors", "checkpoint-older.safetensors"


class CrashError(Exception):
    pass


def run(folder, *, resume=False, crash=None, seed=0, **env):
    def progress(done, planned, score):
        if crash is not None and done > crash:
            raise CrashError

    settings = TrainingSettings(seed, **SETTINGS)
    return train(
        "a2c",
        EnsembleEnv("campus-event", action="price", **env),
        settings,
        keep=RunFolder(folder, resume),
        progress=progress,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that is finished; tests change copies of it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    run(folder)
    return folder


@pytest.fixture
def finished(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def cut(folder, **env):
    with pytest.raises(CrashError):
        run(folder, crash=450, **env)
    return folder


# ------------------------------------------------------------------ what belongs together
def test_a_checkpoint_without_its_configuration_is_not_taken_over(tmp_path):
    """What was trained on the true matrix must not come out as private."""
    folder = cut(tmp_path / "run")
    (folder / "config.json").unlink()
    for resume in (False, True):
        with pytest.raises(ValueError, match=r"holds checkpoint\.safetensors of a run whose config\.json is gone"):
            run(folder, resume=resume, **PRIVATE)


@pytest.mark.parametrize("also", [(), ("config.json",), ("config.json", "ledger.json")])
def test_a_checkpoint_of_another_run_is_refused(also, tmp_path):
    true, private = cut(tmp_path / "true"), cut(tmp_path / "private", **PRIVATE)
    words = {(): "configuration and another release and another ledger", ("config.json",): "release and another ledger"}
    if also:  # the configuration is made to fit, as somebody would who wants the run to look private
        weights = load_weights(true / NEWEST)
        own = load_weights(private / NEWEST).settings["binding"]
        for name in also:
            weights.settings["binding"][name.removesuffix(".json")] = own[name.removesuffix(".json")]
        save_weights(private / NEWEST, weights.arrays, weights.settings)
    else:
        shutil.copy(true / NEWEST, private / NEWEST)
    with pytest.raises(ValueError, match=f"belongs to another {words.get(also, 'release')} than this run"):
        run(private, resume=True, **PRIVATE)


def test_an_edited_configuration_or_ledger_is_refused(tmp_path):
    folder = cut(tmp_path / "run", **PRIVATE)
    ledger = json.loads((folder / "ledger.json").read_text())
    (folder / "ledger.json").write_text(json.dumps(ledger))  # other white space is the same ledger
    ledger["entries"] = []
    (folder / "ledger.json").write_text(json.dumps(ledger))
    with pytest.raises(ValueError, match="belongs to another ledger"):
        run(folder, resume=True, **PRIVATE)
    (folder / "ledger.json").unlink()
    with pytest.raises(ValueError, match=r"ledger\.json, is gone"):
        run(folder, resume=True, **PRIVATE)
    true = cut(tmp_path / "true")
    config = json.loads((true / "config.json").read_text())
    config["seed"] = 1
    (true / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="belongs to another configuration"):
        run(true, resume=True, seed=1)


def test_an_agent_beside_the_files_of_another_run_is_refused(tmp_path):
    run(tmp_path / "true")
    run(tmp_path / "private", **PRIVATE)
    assert load_agent(tmp_path / "private").privacy == "that of one release"
    shutil.copy(tmp_path / "true" / "policy.safetensors", tmp_path / "private")
    with pytest.raises(ValueError, match="belongs to another run"):
        load_agent(tmp_path / "private")
    alone = tmp_path / "alone.safetensors"  # away from all files it says itself where it comes from
    shutil.copy(tmp_path / "true" / "policy.safetensors", alone)
    assert load_agent(alone).privacy == "none: learned from the true dynamics"


def test_a_release_that_was_swapped_under_a_finished_run_is_refused(tmp_path, campus):
    one, other = (DirichletMechanism(50.0, 0.05).release(campus.default) for _ in range(2))
    run(tmp_path / "run", privacy=one)
    assert load_agent(tmp_path / "run").privacy == "that of one release"
    other.save(tmp_path / "run" / "release.json")
    with pytest.raises(ValueError, match=r"policy\.safetensors belongs to another run than .*release\.json"):
        load_agent(tmp_path / "run")


@pytest.mark.parametrize("name", ["config.json", "ledger.json"])
def test_a_fifo_in_the_place_of_a_file_is_not_waited_for(name, finished):
    (finished / name).unlink()
    os.mkfifo(finished / name)
    for read in (load_agent, lambda folder: run(folder, resume=True)):
        with pytest.raises(ValueError, match=f"{name} is a fifo"):
            read(finished)


def test_a_link_to_a_run_folder_is_the_folder(finished, tmp_path):
    agent = load_agent(finished)
    (tmp_path / "link").symlink_to(finished)
    assert load_agent(tmp_path / "link").curve == agent.curve == run(tmp_path / "link", resume=True).curve
    with sole_writer(finished), pytest.raises(ValueError, match=r"another process is training in .*link"):
        run(tmp_path / "link", resume=True)
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    with pytest.raises(ValueError, match=r"cannot write to .*nowhere"):
        run(tmp_path / "nowhere")


def test_a_folder_that_may_not_be_written_to_is_one_sentence(tmp_path, monkeypatch):
    """Whoever runs the tests may have the right to write everywhere."""
    monkeypatch.setattr(os, "open", lambda *a, **k: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with pytest.raises(ValueError, match=r"cannot write to .*run: Permission denied; choose another folder"):
        run(tmp_path / "run")


@pytest.mark.parametrize("moment", ["configuration", "policy", "results"])
def test_a_run_that_was_stopped_while_it_wrote_goes_on(moment, trained, tmp_path, monkeypatch):
    import dp_ensemble_env.agents.train as training

    def stopping(real, when):
        def write(*arguments):
            if not when(arguments):
                return real(*arguments)
            if moment == "configuration":  # the folder is there, the ledger is not
                real(*arguments)
            raise CrashError

        return write

    names = {"configuration": "open_folder", "policy": "_finish", "results": "write_json"}
    real = getattr(training, names[moment])
    with monkeypatch.context() as patch:
        patch.setattr(training, names[moment], stopping(real, lambda a: moment != "results" or "evaluation" in a[1]))
        with pytest.raises(CrashError):
            run(tmp_path / "run")
    assert run(tmp_path / "run", resume=True).curve == load_agent(trained).curve
    assert json.loads((tmp_path / "run" / "results.json").read_text())["finished"]


def test_a_configuration_that_is_a_list_is_one_sentence(tmp_path):
    folder = cut(tmp_path / "run")
    (folder / "config.json").write_text("[1, 2]")
    with pytest.raises(ValueError, match=r"config\.json holds a list, not the settings of a run"):
        run(folder, resume=True)


# ------------------------------------------------------------------ two generations
@pytest.mark.parametrize("damage", ["cut short", "one bit", "empty", "text"])
def test_a_damaged_checkpoint_costs_one_interval(damage, trained, tmp_path):
    folder = cut(tmp_path / "run")
    content = (folder / NEWEST).read_bytes()
    flipped = bytearray(content)
    flipped[-100] ^= 4
    damaged = {"cut short": content[: len(content) // 2], "one bit": bytes(flipped), "empty": b"", "text": b"half"}
    (folder / NEWEST).write_bytes(damaged[damage])
    with pytest.warns(
        UserWarning, match=r"checkpoint\.safetensors is .*; the run goes on from the one before it, at 2"
    ):
        resumed = run(folder, resume=True)
    assert resumed.curve == load_agent(trained).curve


def test_without_any_whole_checkpoint_the_run_says_so(tmp_path):
    folder = cut(tmp_path / "run")
    for name in (NEWEST, OLDER):
        (folder / name).write_bytes(b"nothing")
    with pytest.raises(ValueError, match=f"{NEWEST} is no file of weights.*there is no older checkpoint"):
        run(folder, resume=True)


def test_the_newest_is_there_while_the_next_is_written(tmp_path, monkeypatch):
    """A kill at any moment leaves a whole checkpoint under one of the two names."""
    import dp_ensemble_env.agents.runs as checkpoints

    folder, seen = tmp_path / "run", []

    def stop(path, arrays, settings):
        seen.append([load_weights(folder / name).settings["record"]["steps"] for name in (NEWEST, OLDER)])
        raise CrashError

    cut(folder)
    monkeypatch.setattr(checkpoints, "save_weights", stop)
    with pytest.raises(CrashError):
        run(folder, resume=True)
    assert seen == [[432, 432]]


# ------------------------------------------------------------------ one writer
def hold(folder, ready, done):
    with sole_writer(folder, "training"):
        ready.set()
        done.wait(120)


def test_one_process_at_a_time_trains_in_a_folder(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    process = context.Process(target=hold, args=(tmp_path / "run", ready, done))
    process.start()
    try:
        assert ready.wait(120)
        with pytest.raises(ValueError, match=r"another process is training in .*run; wait"):
            run(tmp_path / "run", seed=1)
        assert not (tmp_path / "run" / "config.json").exists()
    finally:
        process.kill()
        process.join()
    run(tmp_path / "run", seed=1)  # the lock went with the process
    assert json.loads((tmp_path / "run" / "config.json").read_text())["seed"] == 1


def test_what_a_killed_run_left_is_cleaned_up(tmp_path):
    folder = cut(tmp_path / "run")
    left, other = folder / ".checkpoint.safetensors.dp-ensemble-abcd1234", folder / ".bashrc.original"
    for path in (left, other):
        path.write_bytes(b"half")
    run(folder, resume=True)
    assert not left.exists() and other.exists()
