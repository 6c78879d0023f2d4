"""An extension through the house: windows, adapters, results, folding, the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

import longseal
from longseal.config import EvaluateConfig, TuneConfig
from longseal.errors import LongsealError
from longseal.evaluation import evaluate
from longseal.files import Log
from longseal.models.context.choose import choices
from longseal.models.context.rope import window
from longseal.models.load import LanguageModel, load
from longseal.models.tokenizer import load_tokenizer

WINDOW = 600
SHORT = tiny.LLAMA | {"max_position_embeddings": WINDOW}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("model") / "base", SHORT)


@pytest.fixture(scope="module")
def models(source: Path) -> Callable[[str | None], LanguageModel]:
    kept: dict[str | None, LanguageModel] = {}

    def get(extend: str | None) -> LanguageModel:
        if extend not in kept:
            kept[extend] = load(source, device="cpu", extend=extend)
        return kept[extend]

    return get


def test_lengths_beyond_the_extended_window_are_refused(
    models: Callable[[str | None], LanguageModel],
) -> None:
    task = tiny.ShortLines()
    for extend, most in ((None, 600), ("ntk:2", 1200), ("self-extend:4:100", 2100)):
        model = models(extend)
        assert model.window == most
        with pytest.raises(LongsealError, match=f"beyond the model's window of {most} tokens"):
            evaluate(model, task, lengths=[most + 1])
        with pytest.raises(LongsealError, match=f"beyond the model's window of {most} tokens"):
            longseal.tune(model, task, length=most + 1)
    assert load_tokenizer(models(None).source, extend="ntk:2").window == 1200


def test_every_result_says_window_and_extension_and_none_is_taken_for_another(
    models: Callable[[str | None], LanguageModel], tmp_path: Path
) -> None:
    log, task = Log(tmp_path / "results.jsonl"), tiny.ShortLines()
    settings = EvaluateConfig(lengths=(580,), samples=2, questions=2)
    for extend in (None, "ntk:2", "self-extend:4:100"):
        evaluate(models(extend), task, settings, log=log)
    cases = log.read(event="case")
    assert len({case["key"] for case in cases}) == len(cases) == 6
    said = [(case["window"], case["extend"]) for case in cases]
    assert said == [(600, "")] * 2 + [(1200, "ntk:2")] * 2 + [(2100, "self-extend:4:100")] * 2


@pytest.mark.parametrize(("extend", "most"), [("self-extend:4:100", 2100), ("dynamic:2", 1200)])
def test_scales_are_tuned_and_probed_beyond_the_window(
    models: Callable[[str | None], LanguageModel], extend: str, most: int
) -> None:
    model = models(extend)
    task = tiny.Chance()
    config = TuneConfig(
        length=(800,), train_length=640, samples=8, held_out=4, steps=2, lr=0.05, guard=None
    )
    adapter = longseal.tune(model, task, config)
    assert (adapter.record["extend"], adapter.record["window"]) == (extend, most)
    found = longseal.probe(
        model, task, lengths=(700,), method="exact", prune=("L1H2",), samples=2, questions=2
    )
    assert found.influences


def test_an_adapter_is_refused_without_its_extension_with_the_command_that_is_right(
    models: Callable[[str | None], LanguageModel], tmp_path: Path
) -> None:
    for kind in ("channel", "head"):
        tiny.adapter_of(models("ntk:2"), 5, kind).save(tmp_path / kind)
        adapter = longseal.Adapter.load(tmp_path / kind)
        for other in (None, "self-extend:4:100"):
            with pytest.raises(LongsealError, match=r"use --extend ntk:2, or longseal\.load"):
                adapter.check_base(models(other))
        with adapter.attached(models("ntk:2")):
            pass
    plain = tiny.adapter_of(models(None), 6)
    with plain.attached(models("ntk:2")):  # tuned without: may be tried under any
        pass
    with pytest.raises(LongsealError, match="different extensions"):
        longseal.Adapter.product([(adapter, 1.0), (plain, 1.0)])
    assert longseal.Adapter.product([(adapter, 1.0), (adapter, 0.5)]).record["extend"] == "ntk:2"


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("extend", ["ntk:2", "linear:2", "yarn:2"])
def test_a_static_extension_is_folded_into_the_config(
    models: Callable[[str | None], LanguageModel],
    source: Path,
    tmp_path: Path,
    extend: str,
    old: bool,
) -> None:
    base = shutil.copytree(source, tmp_path / "base")
    if old:  # as checkpoints of transformers 4 say it
        settings = json.loads((base / "config.json").read_text())
        settings["rope_theta"] = settings.pop("rope_parameters")["rope_theta"]
        (base / "config.json").write_text(json.dumps(settings))
    model = models(extend)
    adapter = tiny.adapter_of(model, 5)
    folded = longseal.fold(base, adapter, tmp_path / "folded")
    assert folded.note is None
    plain = tiny.AutoModelForCausalLM.from_pretrained(tmp_path / "folded").eval()
    row = torch.tensor([tiny.tokens(900)])
    with adapter.attached(model), torch.no_grad():
        wanted = model.network(row).logits
        torch.testing.assert_close(plain(row).logits, wanted, atol=1e-4, rtol=1e-4)
    settings = json.loads((tmp_path / "folded" / "config.json").read_text())
    assert ("rope_parameters" in settings) != old
    served = load(tmp_path / "folded", device="cpu")
    assert (served.window, str(served.extension)) == (1200, extend)
    with pytest.raises(LongsealError, match=f"has {extend} in its config"):
        load(tmp_path / "folded", extend=extend)


@pytest.mark.parametrize("extend", ["dynamic:2", "self-extend:4:100"])
def test_what_no_config_can_say_is_noted_for_the_engine(
    models: Callable[[str | None], LanguageModel], source: Path, tmp_path: Path, extend: str
) -> None:
    adapter = tiny.adapter_of(models(extend), 5)
    adapter.save(tmp_path / "adapter")
    folded = longseal.fold(source, tmp_path / "adapter", tmp_path / "folded", check=True)
    assert folded.logit_difference is not None
    assert f"here, --extend {extend}" in str(folded.note)
    assert folded == type(folded).read(tmp_path / "folded")
    assert (tmp_path / "folded/config.json").read_bytes() == (source / "config.json").read_bytes()
    again = load(tmp_path / "folded", device="cpu", extend=extend)
    row = torch.tensor([tiny.tokens(900)])
    with adapter.attached(models(extend)), torch.no_grad():
        wanted = models(extend).network(row).logits
        torch.testing.assert_close(again.network(row).logits, wanted, atol=1e-4, rtol=1e-4)


def test_settings_are_chosen_from_the_models_own_window() -> None:
    config = tiny.AutoConfig.for_model(**tiny.LLAMA | {"vocab_size": 9})
    found = {each.extension.method: each for each in choices(config, 16_384)}
    assert str(found["yarn"].extension) == "yarn:4"
    assert not any(each.refused for each in found.values())
    grouped = found["self-extend"].extension
    near, group, own = grouped.neighbours, grouped.group, window(config)
    assert near + (16_384 - near) / group <= own / 2 < near + (16_384 - near) / (group - 1)
    assert all(each.window >= 16_384 for each in found.values())
    sliding = tiny.AutoConfig.for_model(**tiny.MISTRAL | {"vocab_size": 9})
    refused = [e.extension.method for e in choices(sliding, 16_384) if e.refused]
    assert refused == ["self-extend"]


def test_what_a_record_says_of_an_extension_is_checked(
    models: Callable[[str | None], LanguageModel], source: Path, tmp_path: Path
) -> None:
    tiny.adapter_of(models(None), 5, extend="rope:9").save(tmp_path / "adapter")
    with pytest.raises(LongsealError, match=r"longseal\.json is damaged: extend: 'rope:9'"):
        longseal.fold(source, tmp_path / "adapter", tmp_path / "folded")
    longseal.fold(source, tiny.adapter_of(models("ntk:2"), 5), tmp_path / "folded")
    path = tmp_path / "folded" / "longseal.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"window": "far"}))
    with pytest.raises(LongsealError, match=r"longseal\.json is damaged: window: 'far'"):
        load(tmp_path / "folded")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("extend", "{}", "--to", "1k"), "yarn:1.75"),
        (("extend", "{}", "--to", "500"), "reaches 600 tokens by itself"),
        (("extend", "{}", "--to", "far"), "--to: 'far' is not a length"),
        (("evaluate", "{}", "--extend", "rope:4"), "--extend: 'rope:4' is no extension"),
        (("evaluate", "{}", "--lengths", "601"), "see longseal extend MODEL --to 601"),
        (("evaluate", "{}", "--engine", "vllm", "--extend", "ntk:2"), "leave --extend out"),
        (
            ("tasks", "sample", "lines", "--model", "{}", "--extend", "ntk:2", "--length", "2k"),
            "1200",
        ),
    ],
)
def test_the_command_line_says_it_in_a_line(
    arguments: tuple[str, ...], said: str, source: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = tiny.outcome(capfd, *(word.format(source) for word in arguments))
    if "yarn" in said:
        assert (code, said in out) == (0, True)
    else:
        assert (code, err.count("\n")) == (2, 1)
        assert said in err


def test_every_command_that_takes_a_model_takes_an_extension(
    capfd: pytest.CaptureFixture[str],
) -> None:
    commands: list[tuple[str, ...]] = [
        (name,) for name in ("evaluate", "fold", "generate", "mmlu", "probe", "run", "tune")
    ]
    for command in [*commands, ("tasks", "sample")]:
        _, out, _ = tiny.outcome(capfd, *command, "--help")
        assert "--extend" in out, command


def test_the_command_line_evaluates_and_folds_under_an_extension(
    models: Callable[[str | None], LanguageModel],
    source: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def longseal_says(*words: Any) -> str:
        code, out, err = tiny.outcome(capfd, *map(str, words))
        assert not code, err
        return out

    tiny.adapter_of(models("self-extend:4:100"), 5).save(tmp_path / "adapter")
    where = tmp_path / "out"
    flags = ["--lengths", 700, "--samples", 1, "--device", "cpu"]
    out = longseal_says(
        *("evaluate", source, "--extend", "self-extend:4:100", "--adapter", tmp_path / "adapter"),
        *(*flags, "--out", where),
    )
    assert "window: 2,100 tokens, by self-extend:4:100" in out
    config = json.loads((where / "config.json").read_text())
    assert (config["window"], config["extend"]) == (2100, "self-extend:4:100")
    assert "here, --extend self-extend:4:100" in longseal_says(
        "fold", source, tmp_path / "adapter", tmp_path / "folded"
    )
    _, out, _ = tiny.outcome(capfd, "evaluate", str(tmp_path / "folded"), "--lengths", "700")
    assert "were learned under self-extend:4:100" in out


def test_folding_takes_an_extension_that_the_adapter_does_not_say(
    models: Callable[[str | None], LanguageModel],
    source: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, extend in (("plain", None), ("ntk", "ntk:2")):
        tiny.adapter_of(models(extend), 5).save(tmp_path / name)

    def fold(adapter: str, *words: str) -> tuple[int, str, str]:
        places = (str(tmp_path / adapter), str(tmp_path / f"{adapter}-folded"))
        return tiny.outcome(capfd, "fold", str(source), *places, "--device", "cpu", *words)

    assert fold("plain", "--extend", "linear:2")[0] == 0
    assert load(tmp_path / "plain-folded").window == 1200
    code, _, err = fold("ntk", "--extend", "yarn:2")
    assert (code, "use --extend ntk:2" in err) == (2, True)
    assert fold("ntk", "--extend", "ntk:2")[0] == 0
    for length in ("1k", "2k"):
        code, _, err = tiny.outcome(capfd, "extend", str(tmp_path / "ntk-folded"), "--to", length)
        assert (code, err.count("\n")) == (2, 1)
        assert "has ntk:2 in its config, and reaches 1200 tokens" in err


def test_what_is_chosen_by_force_is_shown_with_force(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    linear = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0}
    folder = str(tiny.save(tmp_path, SHORT | {"rope_parameters": linear}))
    wanted = {(): "--extend linear:1.75 --lengths", ("--force",): "--extend yarn:1.75 --force"}
    for words, said in wanted.items():
        _, out, _ = tiny.outcome(capfd, "extend", folder, "--to", "1k", *words)
        assert said in " ".join(out.split())
