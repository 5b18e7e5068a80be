"""Run folders: nothing is lost, nothing is mixed, and nothing is believed that was changed."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from dp_ensemble_env import DirichletMechanism
from dp_ensemble_env.agents.loading import load_agent
from dp_ensemble_env.agents.weights import load_weights, save_weights
from dp_ensemble_env.tools.files import sole_writer

PRIVATE = {"privacy": "dirichlet:k=50,floor=0.05"}
NEWEST, OLDER = "checkpoint.safetensors", "checkpoint-older.safetensors"


def changed(path, change):
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content if change is None else change(content)))


# ------------------------------------------------------------------ what belongs together
def test_a_checkpoint_without_its_configuration_is_not_taken_over(tmp_path, run, cut):
    """What was trained on the true matrix must not come out as private."""
    folder = cut(tmp_path / "run")
    (folder / "config.json").unlink()
    for resume in (False, True):
        with pytest.raises(ValueError, match=r"holds checkpoint\.safetensors of a run whose config\.json is gone"):
            run(folder, resume=resume, **PRIVATE)


@pytest.mark.parametrize(
    ("fitting", "words"),
    [
        ((), "configuration and another release and another ledger"),
        (("config",), "release and another ledger"),
        (("config", "ledger"), "release"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(fitting, words, tmp_path, run, cut):
    """Also if parts are made to fit, as somebody would who wants the run to look private."""
    true, private = cut(tmp_path / "true"), cut(tmp_path / "private", **PRIVATE)
    own, weights = load_weights(private / NEWEST).settings["binding"], load_weights(true / NEWEST)
    weights.settings["binding"] |= {name: own[name] for name in fitting}
    save_weights(private / NEWEST, weights.arrays, weights.settings)
    with pytest.raises(ValueError, match=f"belongs to another {words} than this run"):
        run(private, resume=True, **PRIVATE)


def test_an_edited_configuration_or_ledger_is_refused(tmp_path, run, cut):
    private, true = cut(tmp_path / "run", **PRIVATE), cut(tmp_path / "true")
    changed(private / "ledger.json", None)  # other white space is the same ledger
    run(shutil.copytree(private, tmp_path / "copy"), resume=True, **PRIVATE)
    changed(private / "ledger.json", lambda found: {**found, "entries": []})
    with pytest.raises(ValueError, match="belongs to another ledger"):
        run(private, resume=True, **PRIVATE)
    (private / "ledger.json").unlink()
    with pytest.raises(ValueError, match=r"ledger\.json, is gone"):
        run(private, resume=True, **PRIVATE)
    changed(true / "config.json", lambda found: {**found, "seed": 1})
    with pytest.raises(ValueError, match="seed is 1, not 0"):
        run(true, resume=True)
    with pytest.raises(ValueError, match="belongs to another configuration"):
        run(true, resume=True, seed=1)
    changed(true / "config.json", lambda found: [1, 2])
    with pytest.raises(ValueError, match=r"config\.json holds a list, not the settings of a run"):
        run(true, resume=True)


def test_an_agent_beside_the_files_of_another_run_is_refused(finished, tmp_path, campus, run):
    one, other = (DirichletMechanism(50.0, 0.05).release(campus.default) for _ in range(2))
    run(tmp_path / "private", privacy=one)
    assert load_agent(tmp_path / "private").privacy == "that of one release"
    other.save(tmp_path / "private" / "release.json")
    with pytest.raises(ValueError, match=r"policy\.safetensors belongs to another run than .*release\.json"):
        load_agent(tmp_path / "private")
    shutil.copy(finished / "policy.safetensors", tmp_path / "private")
    with pytest.raises(ValueError, match=r"belongs to another run than .*config\.json"):
        load_agent(tmp_path / "private")
    alone = tmp_path / "alone.safetensors"  # away from all files it says itself where it comes from
    shutil.copy(finished / "policy.safetensors", alone)
    assert load_agent(alone).privacy == "none: learned from the true dynamics"


def test_folders_are_begun_or_resumed_and_never_overwritten(finished, tmp_path, run):
    with pytest.raises(ValueError, match="already holds a run"):
        run(finished)
    with pytest.raises(ValueError, match="there is no run in .* to resume"):
        run(tmp_path / "none", resume=True)
    with pytest.raises(ValueError, match="no policy file"):
        load_agent(tmp_path / "missing")


# ------------------------------------------------------------------ stopped at any moment
def test_a_run_that_was_stopped_at_any_file_goes_on(trained, tmp_path, run, monkeypatch):
    """Before or after a file takes its name, a kill leaves a folder that ends as the whole run did."""
    written, stop_at, real = 0, 0, os.replace

    def replace(source, target):
        nonlocal written
        if str(tmp_path) in str(target):
            written += 1
            if written == stop_at:
                raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    run(tmp_path / "whole")
    count, curve = written, load_agent(trained).curve
    assert count > 20
    for stop_at in (1, 3, 7, 10, count):  # at 7 and 10 the last checkpoint is the older one, and there is no newer one
        written, folder = 0, tmp_path / str(stop_at)
        with pytest.raises(KeyboardInterrupt):
            run(folder)
        stop_at = 0
        assert run(folder, resume=(folder / "config.json").exists()).curve == curve
        assert json.loads((folder / "results.json").read_text())["finished"]
        assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in trained.iterdir())


@pytest.mark.parametrize("damage", ["cut short", "one bit"])
def test_a_damaged_checkpoint_costs_one_interval_and_leftovers_go(damage, trained, tmp_path, run, cut):
    folder = cut(tmp_path / "run")
    left, other = folder / ".checkpoint.safetensors.dp-ensemble-abcd1234", folder / ".bashrc.original"
    for path in (left, other):
        path.write_bytes(b"half")
    content = (folder / NEWEST).read_bytes()
    flipped = bytearray(content)
    flipped[-100] ^= 4
    (folder / NEWEST).write_bytes(content[: len(content) // 2] if damage == "cut short" else flipped)
    words = r"checkpoint\.safetensors is .*; the run goes on from the one before it, at 2"
    with pytest.warns(UserWarning, match=words):
        resumed = run(folder, resume=True)
    assert resumed.curve == load_agent(trained).curve
    assert not left.exists() and other.exists()


def test_without_any_whole_checkpoint_the_run_says_so(tmp_path, run, cut):
    folder = cut(tmp_path / "run")
    for name in (NEWEST, OLDER):
        (folder / name).write_bytes(b"nothing")
    with pytest.raises(ValueError, match=f"{NEWEST} is not a weights file.*there is no older checkpoint"):
        run(folder, resume=True)


# ------------------------------------------------------------------ one writer
def test_one_process_at_a_time_trains_in_a_folder(tmp_path, run):
    with sole_writer(tmp_path / "run", "training"):
        with pytest.raises(ValueError, match=r"another process is training in .*run; wait"):
            run(tmp_path / "run", seed=1)
        assert not (tmp_path / "run" / "config.json").exists()
    run(tmp_path / "run", seed=1)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["seed"] == 1
