"""The pages say what the code does: commands, codes, modules and links are compared, and examples are run."""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tensormorph import cli, errors
from tensormorph.readers import READERS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FORMATS = sorted((ROOT / "docs" / "formats").glob("*.md"))
_CODE = re.compile(r"[a-z]+(-[a-z]+)*")


# ---------------------------------------------------------------- commands and examples


def test_the_readme_names_every_command() -> None:
    for name in cli._program.list_commands(click.Context(cli._program)):
        assert f"`tensormorph {name}" in README, name


def test_the_readme_names_the_system_libraries_that_make_installs() -> None:
    def packages(text: str) -> set[str]:
        listed = text.partition("install -y --no-install-recommends ")[2]
        return set(re.match(r"(?:[\w.+-]+|\\\n|[ \t])+", listed)[0].replace("\\\n", " ").split())  # type: ignore[index]

    assert packages(README) == packages((ROOT / "Makefile").read_text(encoding="utf-8"))


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def _sessions() -> Iterator[tuple[str, str]]:
    for block in _blocks(README, "console"):
        for session in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = session.partition("\n")
            yield command, output


@pytest.mark.parametrize(("command", "output"), list(_sessions()))
def test_the_shell_examples_of_the_readme_print_what_stands_there(
    command: str, output: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    program, *arguments = shlex.split(command)
    assert program == "tensormorph"
    assert cli.run(arguments) == 0
    assert capsys.readouterr() == (output, "")


def test_the_python_lines_of_the_readme_give_what_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    blocks = _blocks(README, "python")
    assert blocks
    for block in blocks:
        example = doctest.DocTestParser().get_doctest(block, {}, "README.md", "README.md", 0)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            result = doctest.DocTestRunner().run(example, clear_globs=False)
        assert (result.failed, result.attempted > 2) == (0, True), said.getvalue()
        example.globs["ck"].close()


# ---------------------------------------------------------------- codes


def _imported(module: str) -> set[Path]:
    """Return the files of a reader and of the readers' modules that it imports, directly or not."""
    found: set[Path] = set()
    waiting = [module]
    while waiting:
        path = ROOT / "tensormorph" / "readers" / f"{waiting.pop()}.py"
        if path in found:
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "tensormorph.readers":
                waiting += [alias.name for alias in node.names if (path.parent / f"{alias.name}.py").exists()]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tensormorph.readers."):
                waiting.append((node.module or "").rpartition(".")[2])
    return found


def _codes(path: Path) -> set[tuple[str, str]]:
    """Return code and severity of every problem that a module makes with a literal code; severity may be empty."""
    found: set[tuple[str, str]] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            for argument, default in zip(node.args.args[::-1], node.args.defaults[::-1], strict=False):
                if argument.arg == "code" and isinstance(default, ast.Constant):
                    found.add((str(default.value), ""))
        if not isinstance(node, ast.Call):
            continue
        function = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        texts = [a.value if isinstance(a, ast.Constant) and isinstance(a.value, str) else "" for a in node.args]
        if function in ("Problem", "problem", "tell", "note", "reason") and texts and texts[0]:
            found.add((texts[0], texts[1] if len(texts) > 1 else ""))
        elif function == "_lost" and len(texts) > 5:
            found.add((texts[5], "error"))
    return found


def _rows() -> dict[str, str]:
    """Return, for each code that begins a row of a table of the formats' pages, what its rows say after it."""
    rows: dict[str, str] = {}
    for page in FORMATS:
        for line in page.read_text(encoding="utf-8").splitlines():
            cells = line.split(" | ")
            if line.startswith("| `"):
                for code in re.findall(r"`([^`]+)`", cells[0]):
                    rows[code] = rows.get(code, "") + " | ".join(cells[1:])
    return rows


@pytest.mark.parametrize("reader", [module.NAME for module in READERS])
def test_every_problem_of_a_reader_stands_in_the_formats_pages_with_its_severity(reader: str) -> None:
    assert (ROOT / "docs" / "formats" / f"{reader}.md").exists()
    codes = set().union(*map(_codes, _imported(reader)), _codes(ROOT / "tensormorph" / "readers" / "__init__.py"))
    assert len(codes) > 20
    rows = _rows()
    assert {code for code, _ in codes} <= rows.keys()
    assert [(code, severity) for code, severity in sorted(codes) if severity not in rows[code]] == []


def test_every_problem_of_check_stands_there_too() -> None:
    found = _codes(ROOT / "tensormorph" / "checks.py") | _codes(ROOT / "tensormorph" / "audit.py")
    codes = {code for code, _ in found if _CODE.fullmatch(code)} - {"error", "warning", "info"}
    assert len(codes) > 7
    assert codes <= _rows().keys()


def test_every_error_stands_there_with_its_code() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 15
    text = "\n".join(page.read_text(encoding="utf-8") for page in FORMATS)
    for kind in kinds:
        if issubclass(kind, errors.TensormorphError):
            assert f"`{kind.code}`" in text, kind
            assert f"`{kind.__name__}`" in text, kind


def test_every_setting_of_the_readers_stands_there() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in FORMATS)
    source = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "tensormorph" / "readers").glob("*.py"))
    settings = set(re.findall(r"TENSORMORPH_[A-Z_]+", source))
    assert settings
    assert {name for name in settings if f"`{name}`" not in text} == set()


# ---------------------------------------------------------------- pages


def test_the_architecture_page_places_every_module() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for path in (ROOT / "tensormorph").glob("*.py"):
        if path.stem != "__init__":
            assert re.search(rf"\b{path.stem}\b", text), path.stem
    for path in set().union(*(_imported(module.NAME) for module in READERS)):
        assert f"`{path.stem}`" in text, path.stem


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_inside_the_project_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target.partition("#")[0]).exists(), f"{page.name} links {target}"
