"""The tokenizer alone says what the loaded model says, and needs no weights."""

import json
import shutil

import pytest
from tiny import save

import longseal
from longseal.errors import LongsealError
from longseal.models.tokenizer import load_tokenizer
from longseal.tasks.prompt import Prompts


@pytest.fixture
def folder(tmp_path):
    return save(tmp_path / "model")


def without_weights(folder):
    bare = folder.with_name("bare")
    shutil.copytree(folder, bare, ignore=shutil.ignore_patterns("*.safetensors*"))
    return bare


@pytest.mark.parametrize("eos", [None, 1, [1, 3]])
def test_it_says_what_the_loaded_model_says(folder, eos):
    settings = folder / "generation_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"eos_token_id": eos}))
    model, alone = longseal.load(folder, device="cpu"), load_tokenizer(without_weights(folder))
    assert (
        alone.eos_token_ids == model.eos_token_ids == {1, *(eos if isinstance(eos, list) else [])}
    )
    assert alone.window == model.window == 4096
    assert Prompts(alone).stop_tokens == Prompts(model).stop_tokens
    assert Prompts(alone).ids("a b") == Prompts(model).ids("a b")


def test_without_generation_settings_the_model_s_own_stop_token_counts(folder):
    (folder / "generation_config.json").unlink()
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"eos_token_id": [1, 2]}))
    model, alone = longseal.load(folder, device="cpu"), load_tokenizer(without_weights(folder))
    assert alone.eos_token_ids == model.eos_token_ids == {1, 2}


def test_a_folder_without_a_tokenizer_is_refused(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(LongsealError, match="model cannot be loaded"):
        load_tokenizer(folder)


@pytest.mark.parametrize("source", ["./nothing", "./nothing.gguf"])
def test_a_path_that_is_not_there_is_refused(source):
    with pytest.raises(LongsealError, match="does not exist: check the path"):
        load_tokenizer(source)
