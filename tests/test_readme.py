"""What the README and `--help` say can be done is done here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from longseal.cli import app
from longseal.config import EvaluateConfig
from longseal.evaluation import evaluate
from longseal.models.load import load
from longseal.tasks import task

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def _commands() -> list[str]:
    lines = [line for block in _blocks("sh") for line in block.splitlines()]
    apps = [command for group in (app, app["adapter"], app["tasks"]) for command in group.subapps]
    examples = "\n".join(command.help for command in apps if command.help)
    lines += [line.strip() for line in examples.splitlines()]
    commands = (re.split(r"#|\s[>|]", line)[0].strip() for line in lines)
    return sorted({command for command in commands if command.startswith("longseal ")})


def test_there_are_commands_to_check() -> None:
    assert len(_commands()) > 12


@pytest.mark.parametrize("command", _commands())
def test_every_command_of_the_readme_and_of_help_parses(command: str) -> None:
    arguments = shlex.split(command)[1:]
    function, _, _ = app.parse_args(arguments, print_error=False, exit_on_error=False)
    assert function.__name__ in arguments[:2]


@pytest.mark.parametrize(
    "page", sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")]), ids=lambda page: page.name
)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_the_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = re.findall(r"^make ([\w-]+)", "\n".join(_blocks("sh")), re.MULTILINE)
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.slow
def test_the_readmes_python_example_runs_and_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example as it stands, on the real model; then what it left behind, loaded anew."""
    monkeypatch.chdir(tmp_path)
    (example,) = _blocks("python")
    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)
    right = {name: sum(case.correct for case in names[name].cases) for name in ("base", "tuned")}
    assert right["tuned"] > right["base"]
    assert names["folded"].logit_difference < 1e-4

    sealed = load(tmp_path / "model-sealed")
    found = evaluate(sealed, task("lines"), EvaluateConfig(lengths=(512,), samples=8))
    predictions = [case.prediction for case in names["tuned"].cases]
    assert [case.prediction for case in found.cases] == predictions
