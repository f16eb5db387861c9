from __future__ import annotations

import io
from pathlib import Path

import pytest

from estiba_operator.api import BadDocuments, load_documents
from estiba_operator.api import documents as reading

ROOT = Path(__file__).resolve().parents[3]
ONE = """
apiVersion: estiba.dev/v1alpha1
kind: ModelDeployment
metadata: {{name: {name}}}
spec: {{model: {{uri: file:///models/{name}}}}}
"""


def problems(text: str, tmp_path: Path) -> list[str]:
    file = tmp_path / "models.yaml"
    file.write_text(text)
    with pytest.raises(BadDocuments) as error:
        load_documents(file)
    return error.value.problems


def test_the_examples_are_three_models() -> None:
    read = load_documents(ROOT / "examples" / "three-models.yaml")
    assert [(d.metadata.name, d.spec.priority) for d in read] == [
        ("assistant", 100),
        ("assistant-half", 50),
        ("batch", 10),
    ]


def test_a_folder_a_list_and_standard_input_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b.yml").write_text(ONE.format(name="b"))
    (tmp_path / "a.yaml").write_text(f"---\n{ONE.format(name='a')}\n---\n")
    (tmp_path / "notes.txt").write_text("not: [yaml")
    assert {d.id for d in load_documents(tmp_path)} == {"default/a", "default/b"}
    inner = "".join(
        f"- {line}" if n == 0 else f"  {line}" for n, line in enumerate(ONE.format(name="c").lstrip().splitlines(True))
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(f"apiVersion: v1\nkind: List\nitems:\n{inner}"))
    assert [d.id for d in load_documents(Path("-"))] == ["default/c"]


def test_a_mistake_names_file_document_line_model_and_path(tmp_path: Path) -> None:
    text = ONE.format(name="a") + "---" + ONE.format(name="b").replace("spec: {", "spec: {prioritty: 1, ")
    (said,) = problems(text, tmp_path)
    assert said == (
        f"{tmp_path}/models.yaml: document 2 (line 7) b: spec.prioritty: there is no such field; "
        "did you mean 'priority'?"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1", "line 1, column 6: this is not YAML: "),
        ("a: b: c", "this is not YAML: mapping values are not allowed here"),
        ("\x00", "this is not YAML: "),
        ("- 1\n- 2\n", "a ModelDeployment is a mapping with apiVersion, kind, metadata and spec"),
        ("hello", "this is not one"),
        ("", "there is no ModelDeployment in it"),
        ("kind: Pod\napiVersion: v1\n", "is v1 Pod; write apiVersion: estiba.dev/v1alpha1 and kind: ModelDeployment"),
        (ONE.format(name="a") + "---" + ONE.format(name="a"), "default/a is given in "),
        (ONE.format(name="a") + "kind: ModelDeployment\n", "'kind' is given twice; remove one"),
        ("!!python/object/apply:os.system ['true']", "this is not YAML: could not determine a constructor"),
        ("x: &x [" + ", ".join(["*x"] * 100) + "]", "more than 64 YAML aliases"),
        ("[" * 20_000, "nested more than 32 levels deep"),
        ("- " * 20_000, "nested more than 32 levels deep"),
        ("\n".join(" " * n + "a:" for n in range(900)), "nested more than 32 levels deep"),
        ("a: 2026-99-99", "this YAML can't be read: ValueError"),
    ],
)
def test_what_can_not_be_read_is_told_in_words(text: str, said: str, tmp_path: Path) -> None:
    assert said in "\n".join(problems(text, tmp_path))


def test_paths_that_lead_nowhere_are_told(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff\xfe")
    (tmp_path / "empty").mkdir()
    for path, said in (
        (tmp_path / "nowhere.yaml", "can't be read: No such file or directory; check the path"),
        (tmp_path / "latin.yaml", "not UTF-8 text"),
        (tmp_path / "empty", "the folder has no .yaml file"),
    ):
        with pytest.raises(BadDocuments) as error:
            load_documents(path)
        assert said in str(error.value)
        assert str(path) in str(error.value)


def test_documents_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = "---".join(ONE.format(name=f"m{n}") for n in range(reading.MOST_DOCUMENTS + 1))
    assert "more than 256 documents; split it" in "\n".join(problems(many, tmp_path))
    large = "# " + "x" * reading.LARGEST_BYTES
    assert "larger than 1048576 bytes; split it" in "\n".join(problems(large, tmp_path))
    monkeypatch.setattr("sys.stdin", io.StringIO(large))
    with pytest.raises(BadDocuments, match="standard input: more than 1048576 characters"):
        load_documents(Path("-"))
