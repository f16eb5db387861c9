"""What `up` keeps in files: deployments, and measured profiles."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from estiba.profile_cache import ProfileCache
from estiba.up.deployment_book import DeploymentBook, Entry
from estiba_scheduler.domain import ModelProfile
from tests.builders import a_deployment, a_profile


def entry(name: str, **changes: object) -> Entry:
    return Entry(deployment=a_deployment(name, **changes))


def test_a_book_is_the_same_after_a_restart(tmp_path: Path) -> None:
    book = DeploymentBook(tmp_path / "deployments.json")
    book.put([entry("b"), entry("a")])
    book.put([entry("b", priority=9)])
    again = DeploymentBook(tmp_path / "deployments.json")
    assert again.entries() == book.entries()
    assert [(d.name, d.priority) for d in again.deployments()] == [("a", 0), ("b", 9)]
    again.delete(["default/a"])
    assert [d.name for d in DeploymentBook(tmp_path / "deployments.json").deployments()] == ["b"]


def test_a_name_finds_its_deployment_where_it_is_clear_which(tmp_path: Path) -> None:
    book = DeploymentBook(tmp_path / "d.json")
    book.put([entry("a"), entry("a", namespace="x"), entry("b", namespace="x"), entry("c", namespace="x")])
    book.put([entry("c", namespace="y")])
    found = {name: e.deployment.id if (e := book.get(name)) else None for name in ("a", "x/a", "b", "c", "zz")}
    assert found == {"a": "default/a", "x/a": "x/a", "b": "x/b", "c": None, "zz": None}


def test_a_book_that_can_not_be_read_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "deployments.json"
    file.write_text('{"entries": [{"depl')
    with caplog.at_level(logging.ERROR):
        book = DeploymentBook(file)
    assert book.entries() == ()
    assert (tmp_path / "deployments.unreadable").read_text() == '{"entries": [{"depl'
    assert "apply your files again" in caplog.text


def test_what_could_not_be_kept_was_not_done(tmp_path: Path) -> None:
    book = DeploymentBook(tmp_path / "d.json")
    book.put([entry("a")])
    broken = DeploymentBook(tmp_path / "d.json")
    broken._file = tmp_path / "no" / "such" / "folder" / "d.json"
    with pytest.raises(OSError, match="No such file"):
        broken.put([entry("b")])
    assert [d.name for d in broken.deployments()] == ["a"]


def test_profiles_go_from_one_run_to_the_next(tmp_path: Path) -> None:
    cache = ProfileCache(tmp_path / "cache", "n1")
    cache.keep(a_profile("a"))
    assert cache.seed(tmp_path / "agent") == 1
    (file,) = (tmp_path / "agent").iterdir()
    assert ModelProfile.model_validate_json(file.read_bytes()) == a_profile("a")


def test_what_the_agent_has_already_is_newer_and_stays(tmp_path: Path) -> None:
    cache = ProfileCache(tmp_path / "cache", "n1")
    cache.keep(a_profile("a"))
    cache.seed(tmp_path / "agent")
    (file,) = (tmp_path / "agent").iterdir()
    file.write_text("measured anew")
    assert cache.seed(tmp_path / "agent") == 0
    assert file.read_text() == "measured anew"


def test_profiles_of_other_machines_and_torn_files_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = ProfileCache(tmp_path / "cache", "n1")
    cache.keep(a_profile("a", measured_on="another"))
    (tmp_path / "cache" / "torn.json").write_text("{")
    assert cache.seed(tmp_path / "agent") == 0
    assert "torn.json is not a profile of this version and is left out" in caplog.text


def test_a_cache_that_can_not_be_written_is_said_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    ProfileCache(tmp_path / "file", "n1").keep(a_profile("a"))
    assert "can't be kept in" in caplog.text
