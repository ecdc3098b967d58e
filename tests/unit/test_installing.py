"""fleet comes into the files of other programs and out of them, and leaves no trace."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from fleet.errors import Conflict, InvalidInput, NotFound, Unavailable
from fleet.services import config_edits, toml_edits
from fleet.services.clients import CLIENTS, Launch, Places, Scope
from fleet.services.config_edits import Change
from fleet.services.installing import SKILLS, Installer

LAUNCH = Launch(command="/opt/fleet", args=("mcp",), env={"FLEET_HOME": "/data/fleet"})

USER_FILES = {
    ".claude.json": '{\n  "numStartups": 7, // mine\n  "projects": {"/x": {}},\n}\n',
    ".claude/settings.json": '{\n\t"theme": "dark",\n\t"unknown": [1, 2]\n}',
    ".codex/config.toml": '# as I like it\nmodel = "o9"   # the best\n\n[mcp_servers.other]\ncommand = "x"\n',
    ".gemini/settings.json": '{ /* keep */ "mcpServers": { "other": { "command": "x" } } }',
    ".copilot/mcp-config.json": '{\r\n    "mcpServers": {\r\n    }\r\n}\r\n',
    ".config/opencode/opencode.jsonc": '{\n  // "mcp": {},\n  "$schema": "https://opencode.ai/config.json"\n}\n',
    ".cursor/mcp.json": '\ufeff{"mcpServers":{}}',
    ".config/Code/User/mcp.json": '{\n  "inputs": [],\n  "servers": {\n    // one day\n  }\n}\n',
    ".agents/skills/own/SKILL.md": "---\nname: own\ndescription: mine\n---\n",
}


@dataclass
class Setting:
    """A user's home with files, and an installer that works in it."""

    user: Path
    home: Path
    project: Path
    launch: Launch = LAUNCH
    environ: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def installer(self) -> Installer:
        places = Places(home=self.user, project=self.project, environ=self.environ)
        return Installer(
            home=self.home, places=places, launch=lambda scope: self.launch, is_found=lambda name: False
        )

    def install(self, *clients: str, scope: Scope = Scope.USER) -> dict[str, str]:
        done = self.installer.install(clients or tuple(CLIENTS), scope, SKILLS)
        return {os.path.relpath(change.piece.file, self.user): change.verb for change in done}

    def uninstall(self, *clients: str) -> dict[str, str]:
        done = self.installer.uninstall(clients, None)
        return {os.path.relpath(change.piece.file, self.user): change.verb for change in done}

    def everything(self) -> dict[str, bytes | None]:
        return {
            str(path.relative_to(self.user.parent)): path.read_bytes() if path.is_file() else None
            for top in (self.user, self.project)
            for path in sorted(top.rglob("*"))
        }


@pytest.fixture
def empty(tmp_path: Path) -> Setting:
    for name in ("user", "project"):
        (tmp_path / name).mkdir()
    return Setting(tmp_path / "user", tmp_path / "home", tmp_path / "project")


@pytest.fixture
def setting(empty: Setting) -> Setting:
    for name, text in USER_FILES.items():
        path = empty.user / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return empty


def test_installed_twice_and_uninstalled_everything_is_as_it_was_to_the_byte(setting: Setting) -> None:
    before = setting.everything()
    assert set(setting.install().values()) == {"add"}
    once = setting.everything()
    assert once != before
    assert set(setting.install().values()) == {"same"}
    assert setting.everything() == once
    assert set(setting.uninstall().values()) == {"remove"}
    assert setting.everything() == before
    assert not (setting.home / "install").exists()


def test_where_there_was_nothing_there_is_nothing_again(empty: Setting) -> None:
    before = empty.everything()
    empty.install()
    empty.install(scope=Scope.PROJECT)
    assert (empty.project / ".mcp.json").is_file()
    assert (empty.project / ".claude/skills/pm/SKILL.md").is_file()
    empty.uninstall()
    assert empty.everything() == before


def test_each_client_finds_the_server_as_it_expects_it(setting: Setting) -> None:
    setting.install()
    claude = json.loads((setting.user / ".cursor/mcp.json").read_text(encoding="utf-8-sig"))
    assert claude["mcpServers"]["fleet"] == {
        "command": "/opt/fleet",
        "args": ["mcp"],
        "env": {"FLEET_HOME": "/data/fleet"},
    }
    codex = tomllib.loads((setting.user / ".codex/config.toml").read_text())
    assert codex["mcp_servers"]["fleet"]["env"] == {"FLEET_HOME": "/data/fleet"}
    assert codex["mcp_servers"]["other"] == {"command": "x"}
    text = (setting.user / ".config/opencode/opencode.jsonc").read_text()
    assert '// "mcp": {},' in text
    assert '"environment": {' in text
    assert not (setting.user / ".config/opencode/opencode.json").exists()
    vscode = (setting.user / ".config/Code/User/mcp.json").read_text()
    assert "// one day" in vscode


def test_what_the_user_wrote_meanwhile_stays_and_only_ours_is_taken_out(setting: Setting) -> None:
    setting.install()
    edits = {
        ".claude.json": ('"numStartups": 7', '"numStartups": 8'),
        ".codex/config.toml": ("the best", "the very best"),
        ".gemini/settings.json": ("keep", "keep it"),
        ".config/Code/User/mcp.json": ("one day", "some day"),
    }
    for name, (old, new) in edits.items():
        path = setting.user / name
        path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
    setting.uninstall()
    for name, (old, new) in edits.items():
        assert (setting.user / name).read_bytes() == USER_FILES[name].replace(old, new).encode()


def test_a_file_that_was_ours_alone_goes_also_if_its_client_wrote_it_anew(empty: Setting) -> None:
    before = empty.everything()
    empty.install("gemini")
    file = empty.user / ".gemini/settings.json"
    file.write_text(json.dumps(json.loads(file.read_text()), indent=7))
    empty.uninstall()
    assert empty.everything() == before


def test_a_table_that_the_user_added_behind_ours_in_toml_stays(setting: Setting) -> None:
    setting.install("codex")
    file = setting.user / ".codex/config.toml"
    changed = file.read_text().replace('args = ["mcp"]', "args = [ 'mcp' ]")
    file.write_text(f"{changed}\n[new]\na = 1\n")
    setting.uninstall()
    left = file.read_text()
    assert "fleet" not in left
    assert left.startswith(USER_FILES[".codex/config.toml"])
    assert tomllib.loads(left)["new"] == {"a": 1}


def test_what_was_there_before_is_neither_changed_nor_taken_out(setting: Setting) -> None:
    own = {
        ".cursor/mcp.json": '{"mcpServers": {"fleet": {"command": "mine"}}}',
        ".claude/settings.json": '{"statusLine": {"type": "command", "command": "date"}}',
        ".claude/skills/pm/SKILL.md": "my own way\n",
    }
    for name, text in own.items():
        (setting.user / name).parent.mkdir(parents=True, exist_ok=True)
        (setting.user / name).write_text(text)
    before = setting.everything()
    done = setting.install()
    assert {name: done[name] for name in own} == dict.fromkeys(own, "keep")
    setting.uninstall()
    assert setting.everything() == before


@pytest.mark.parametrize(
    ("name", "path", "own"),
    [
        (".claude/settings.json", ("statusLine",), {"type": "command", "command": "~/my-own-line.sh"}),
        (".claude.json", ("mcpServers", "fleet"), {"command": "my-own-fleet"}),
        (".claude.json", ("mcpServers", "fleet"), None),
    ],
)
def test_what_the_user_has_put_in_the_place_of_ours_is_theirs(
    empty: Setting, name: str, path: tuple[str, ...], own: object
) -> None:
    empty.install("claude")
    file = empty.user / name
    document = json.loads(file.read_text())
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = own
    file.write_text(json.dumps(document))
    changed = file.read_bytes()
    assert empty.install("claude")[name] == "keep"
    assert empty.uninstall()[name] == "keep"
    assert file.read_bytes() == changed


def test_keys_that_the_user_added_to_our_table_move_to_no_other(setting: Setting) -> None:
    file = setting.user / ".codex/config.toml"
    setting.install("codex")
    with file.open("a") as opened:
        opened.write("startup_timeout_sec = 20\n")
    changed = file.read_bytes()
    setting.launch = Launch(command="/usr/bin/fleet", args=("mcp",), env={})
    assert setting.install("codex")[".codex/config.toml"] == "keep"
    assert setting.uninstall()[".codex/config.toml"] == "keep"
    assert file.read_bytes() == changed


def without_ours(text: str) -> dict[str, Any]:
    document = tomllib.loads(text)
    document["mcp_servers"].pop("fleet", None)
    return document


@pytest.mark.parametrize(
    "line", ["a = 1", "[new]", "[[list]]", "[mcp_servers.fleet.more]", "mcp_servers.x.y = 1", "# mine", '"""']
)
def test_wherever_a_line_is_added_to_toml_the_rest_means_what_it_meant(setting: Setting, line: str) -> None:
    file = setting.user / ".codex/config.toml"
    setting.install("codex")
    installed = file.read_text().splitlines(keepends=True)
    for place in range(len(installed) + 1):
        file.write_text(USER_FILES[".codex/config.toml"])
        setting.install("codex")
        changed = "".join((*installed[:place], line + "\n", *installed[place:]))
        with suppress(tomllib.TOMLDecodeError):
            meant = without_ours(changed)
            file.write_text(changed)
            verb = setting.uninstall("codex")[".codex/config.toml"]
            assert without_ours(file.read_text()) == meant
            assert line in file.read_text()
            assert (file.read_text() == changed) == (verb == "keep")


def test_a_comment_that_the_user_put_into_our_piece_is_not_lost(setting: Setting) -> None:
    file = setting.user / ".config/Code/User/mcp.json"
    setting.install("vscode")
    changed = file.read_text().replace('"command"', '// http://mine\n"command"')
    file.write_text(changed)
    assert setting.uninstall()[".config/Code/User/mcp.json"] == "keep"
    assert file.read_text() == changed


def test_a_file_that_is_fleets_alone_goes_even_after_an_update(empty: Setting) -> None:
    before = empty.everything()
    empty.install("gemini")
    empty.launch = Launch(command="/usr/bin/fleet", args=("mcp",), env={})
    assert empty.install("gemini")[".gemini/settings.json"] == "update"
    empty.uninstall()
    assert empty.everything() == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (".claude/settings.json", '{"statusLine": null}\n'),
        (".claude.json", '{"mcpServers": {"fleet": null}}\n'),
    ],
)
def test_a_null_in_the_place_of_ours_is_the_users_and_stays(
    setting: Setting, name: str, content: str
) -> None:
    (setting.user / name).write_text(content)
    assert setting.install("claude")[name] == "keep"
    setting.uninstall()
    assert (setting.user / name).read_text() == content


def test_a_skill_that_the_user_has_changed_is_left_to_them(setting: Setting) -> None:
    setting.install("claude")
    skill = setting.user / ".claude/skills/fleet/SKILL.md"
    skill.write_text(skill.read_text() + "and say please\n")
    assert setting.install("claude")[".claude/skills/fleet/SKILL.md"] == "keep"
    assert setting.uninstall()[".claude/skills/fleet/SKILL.md"] == "keep"
    assert skill.read_text().endswith("and say please\n")


def test_a_fleet_that_has_moved_is_registered_anew(setting: Setting) -> None:
    before = setting.everything()
    setting.install("claude", "codex")
    setting.launch = Launch(command="/usr/bin/fleet", args=("mcp",), env={})
    done = setting.install("claude", "codex")
    assert (done[".claude.json"], done[".codex/config.toml"]) == ("update", "update")
    assert "/opt/fleet" not in (setting.user / ".codex/config.toml").read_text()
    setting.uninstall()
    assert setting.everything() == before


def test_skills_that_several_clients_read_stay_until_the_last_has_gone(setting: Setting) -> None:
    setting.install("codex", "gemini")
    skill = ".agents/skills/fleet/SKILL.md"
    assert setting.uninstall("codex")[skill] == "keep"
    assert (setting.user / skill).is_file()
    assert setting.uninstall("gemini")[skill] == "remove"
    assert not (setting.user / skill).exists()


def test_a_dry_run_tells_all_and_touches_nothing(setting: Setting) -> None:
    before = setting.everything()
    planned = setting.installer.install(("claude",), Scope.USER, SKILLS, is_dry=True)
    assert {change.verb for change in planned} == {"add"}
    assert setting.everything() == before
    assert not setting.home.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (".gemini/settings.json", b'{"mcpServers": {'),
        (".gemini/settings.json", b'{"mcpServers": "none"}'),
        (".gemini/settings.json", b"\xff\xfe{}"),
        (".codex/config.toml", b"model = \n"),
        (".codex/config.toml", b"mcp_servers = {}\n"),
    ],
)
def test_a_broken_file_is_refused_and_nothing_at_all_is_written(
    setting: Setting, name: str, content: bytes
) -> None:
    (setting.user / name).write_bytes(content)
    before = setting.everything()
    with pytest.raises(InvalidInput, match=name.rpartition("/")[2]) as caught:
        setting.install()
    assert caught.value.hint
    assert setting.everything() == before


def test_a_linked_file_is_changed_where_it_really_is(setting: Setting, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "gemini.json"
    real.parent.mkdir()
    link = setting.user / ".gemini/settings.json"
    real.write_bytes(link.read_bytes())
    link.unlink()
    link.symlink_to(real)
    setting.install("gemini")
    assert link.is_symlink()
    assert b'"fleet"' in real.read_bytes()
    setting.uninstall()
    assert link.is_symlink()
    assert real.read_bytes() == USER_FILES[".gemini/settings.json"].encode()


def test_a_link_that_leads_nowhere_leads_there_again(empty: Setting, tmp_path: Path) -> None:
    link = empty.user / ".claude.json"
    link.symlink_to(tmp_path / "dotfiles" / "claude.json")
    empty.install("claude")
    assert link.is_file()
    empty.uninstall()
    assert link.is_symlink()
    assert not (tmp_path / "dotfiles").exists()


@pytest.mark.parametrize("name", [".claude/skills/fleet/SKILL.md", ".claude.json"])
def test_a_file_that_the_user_has_moved_and_linked_is_not_deleted(
    empty: Setting, tmp_path: Path, name: str
) -> None:
    empty.install("claude")
    link, own = empty.user / name, tmp_path / "own"
    own.write_bytes(link.read_bytes())
    link.unlink()
    link.symlink_to(own)
    empty.uninstall()
    assert link.is_symlink()
    assert own.is_file()
    if name == ".claude.json":
        assert json.loads(own.read_text()) == {}


def test_a_file_that_was_moved_linked_and_reformatted_is_not_deleted(empty: Setting, tmp_path: Path) -> None:
    empty.install("gemini")
    link, own = empty.user / ".gemini/settings.json", tmp_path / "own.json"
    own.write_text(json.dumps(json.loads(link.read_text()), indent=8))
    link.unlink()
    link.symlink_to(own)
    empty.uninstall()
    assert link.is_symlink()
    assert json.loads(own.read_text()) == {}


def linked_skills(setting: Setting) -> Path:
    shared = setting.user / ".agents/skills"
    shared.mkdir(parents=True)
    (setting.user / ".claude").mkdir()
    (setting.user / ".claude/skills").symlink_to(shared)
    return shared / "fleet/SKILL.md"


def test_a_skill_that_two_clients_read_through_a_link_stays_until_the_last_has_gone(empty: Setting) -> None:
    skill = linked_skills(empty)
    done = empty.install("claude", "codex")
    assert [name for name in done if name.endswith("fleet/SKILL.md")] == [".claude/skills/fleet/SKILL.md"]
    assert set(empty.install("codex", "claude").values()) == {"same"}
    empty.uninstall("claude")
    assert skill.is_file()
    empty.uninstall("codex")
    assert not skill.exists()


def test_a_skill_that_was_linked_to_another_since_stays_until_the_last_has_gone(empty: Setting) -> None:
    empty.install("claude", "codex")
    own = empty.user / ".claude/skills"
    shutil.rmtree(own)
    own.symlink_to(empty.user / ".agents/skills")
    empty.uninstall("claude")
    assert (empty.user / ".agents/skills/fleet/SKILL.md").is_file()
    empty.uninstall("codex")
    assert not (empty.user / ".agents/skills/fleet").exists()


def test_a_copy_goes_as_soon_as_nothing_of_ours_is_in_its_file(setting: Setting) -> None:
    copies = setting.home / "install/before"

    def kept() -> set[bytes]:
        return {path.read_bytes() for path in copies.iterdir()}

    setting.install("codex", "gemini")
    codex, gemini = (USER_FILES[name].encode() for name in (".codex/config.toml", ".gemini/settings.json"))
    assert kept() == {codex, gemini}
    own = setting.user / ".codex/config.toml"
    own.write_bytes(b"# first\n" + own.read_bytes())
    setting.launch = Launch(command="/opt/moved", args=("mcp",), env={})
    setting.install("codex")
    assert kept() == {b"# first\n" + codex, gemini}, "the one from before the update is of no use"
    setting.uninstall("codex")
    assert kept() == {gemini}


def test_a_table_that_cannot_be_taken_out_is_left_to_the_user() -> None:
    assert toml_edits.without("[a]\nb = 1\n", ("a", "b", "c")) is None
    assert toml_edits.without("[a]\n", ("x", "y")) is None


def test_an_inline_table_is_refused_with_what_to_put_into_it(setting: Setting) -> None:
    file = setting.user / ".codex/config.toml"
    file.write_text('mcp_servers = { other = { command = "x" } }\n')
    with pytest.raises(InvalidInput, match="is an inline table") as refused:
        setting.install("codex")
    entry = refused.value.hint.partition("by hand: ")[2].partition(", or name other")[0]
    file.write_text(f'mcp_servers = {{ other = {{ command = "x" }}, {entry} }}\n')
    assert setting.install("codex")[".codex/config.toml"] == "keep"
    assert tomllib.loads(file.read_text())["mcp_servers"]["fleet"]["command"] == "/opt/fleet"


def test_into_a_skill_of_the_users_own_nothing_is_put(empty: Setting) -> None:
    own = empty.user / ".agents/skills/pm/SKILL.md"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    empty.install("codex")
    assert [*own.parent.iterdir()] == [own]
    assert (empty.user / ".agents/skills/fleet/SKILL.md").is_file()


def test_a_program_that_is_not_found_by_its_name_is_told_of_where_that_matters(empty: Setting) -> None:
    advice = empty.installer.advice_on_path
    assert "ln -s /opt/fleet " in advice(Scope.USER, ("pm",))
    assert "a project's files name" in advice(Scope.PROJECT, ())
    assert advice(Scope.USER, ()) == "", "the server is named with its whole path"


def test_a_folder_that_is_named_from_here_is_found_from_everywhere(
    empty: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty.environ = {"CODEX_HOME": "mine"}
    monkeypatch.chdir(empty.user)
    empty.install("codex")
    assert (empty.user / "mine/config.toml").is_file()
    monkeypatch.chdir("/")
    empty.environ = {}
    empty.uninstall()
    assert not (empty.user / "mine").exists()


def test_the_status_line_tells_of_the_same_home_as_the_server(empty: Setting) -> None:
    empty.launch = Launch(command="/opt/my fleet", args=("mcp",), env={"FLEET_HOME": "/my data"})
    empty.install("claude")
    settings = json.loads((empty.user / ".claude/settings.json").read_text())
    words = shlex.split(settings["statusLine"]["command"])
    assert words == ["env", "FLEET_HOME=/my data", "/opt/my fleet", "statusline"]


def test_those_who_wait_while_the_last_piece_is_taken_out_still_come_one_by_one(empty: Setting) -> None:
    empty.install("gemini")
    empty.uninstall()
    with (empty.home / "install.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        is_done = Event()
        thread = Thread(target=lambda: (empty.install("gemini"), is_done.set()))
        thread.start()
        assert not is_done.wait(0.2)
    thread.join(10)
    assert is_done.is_set()


@contextmanager
def closed(path: Path) -> Iterator[None]:
    mode = path.stat().st_mode
    path.chmod(mode & ~0o222)
    try:
        yield
    finally:
        path.chmod(mode)


@pytest.mark.parametrize("name", [".codex", ".agents/skills"])
def test_a_folder_that_is_read_only_is_refused_and_nothing_is_written(setting: Setting, name: str) -> None:
    before = setting.everything()
    with closed(setting.user / name), pytest.raises(Unavailable, match="read-only") as caught:
        setting.install("claude", "codex")
    assert f"chmod u+w {setting.user / name}" in caught.value.hint
    assert setting.everything() == before


def test_a_file_that_is_read_only_is_refused_and_nothing_is_written(setting: Setting) -> None:
    before = setting.everything()
    file = setting.user / ".claude/settings.json"
    with closed(file), pytest.raises(Unavailable, match="read-only"):
        setting.install("claude", "codex")
    assert setting.everything() == before
    setting.install("claude")
    with closed(file), pytest.raises(Unavailable, match="read-only"):
        setting.uninstall()
    setting.uninstall()
    assert setting.everything() == before


def test_a_folder_that_is_read_only_is_refused_before_anything_is_written(setting: Setting) -> None:
    before = setting.everything()
    folder = setting.user / ".cursor"
    folder.chmod(0o555)
    try:
        with pytest.raises(Unavailable, match="read-only"):
            setting.install()
    finally:
        folder.chmod(0o755)
    assert setting.everything() == before


def test_the_mode_of_a_file_stays(setting: Setting) -> None:
    file = setting.user / ".claude.json"
    file.chmod(0o640)
    setting.install("claude")
    assert file.stat().st_mode & 0o777 == 0o640
    setting.uninstall()
    assert file.stat().st_mode & 0o777 == 0o640


def test_whoever_is_killed_between_writing_down_and_writing_can_do_it_again(setting: Setting) -> None:
    before = setting.everything()
    setting.install("gemini")
    file = setting.user / ".gemini/settings.json"
    file.write_bytes(USER_FILES[".gemini/settings.json"].encode())  # as if it had not got that far
    assert setting.install("gemini")[".gemini/settings.json"] == "add"
    setting.uninstall()
    assert setting.everything() == before


@contextmanager
def killed_at_write(number: int) -> Iterator[None]:
    """End an installation as it is about to put its file of that number in place."""
    real, calls = config_edits.write_change, count(1)

    def write(change: Change) -> bool:
        if next(calls) == number:
            raise KeyboardInterrupt
        return real(change)

    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(config_edits, "write_change", write)
        yield


@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("is_new", [True, False])
def test_an_update_that_was_killed_anywhere_can_be_repeated_or_taken_back(
    setting: Setting, number: int, is_new: bool
) -> None:
    before = setting.everything()
    setting.install("claude", "codex")
    setting.launch = Launch(command="/usr/bin/fleet", args=("mcp",), env={})
    with killed_at_write(number):
        setting.install("claude", "codex")
    if is_new:
        setting.install("claude", "codex")
        assert "/opt/fleet" not in (setting.user / ".claude.json").read_text()
        assert "/opt/fleet" not in (setting.user / ".codex/config.toml").read_text()
        assert set(setting.install("claude", "codex").values()) == {"same"}
    with killed_at_write(number):
        setting.uninstall()
    setting.uninstall()
    assert setting.everything() == before


@contextmanager
def written_meanwhile(file: Path, *contents: str) -> Iterator[None]:
    """Have a client write its file, again and again, just before fleet does."""
    real, left = config_edits.write_change, list(contents)

    def write(change: Change) -> bool:
        if change.piece.file == str(file) and left:
            file.write_text(left.pop(0))
        return real(change)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config_edits, "write_change", write)
        yield


def test_what_a_client_writes_while_fleet_is_at_it_stays(setting: Setting) -> None:
    file = setting.user / ".claude.json"
    with written_meanwhile(file, '{"numStartups": 8}\n', '{"numStartups": 9}\n'):
        setting.install("claude")
    installed = json.loads(file.read_text())
    assert (installed["numStartups"], "fleet" in installed["mcpServers"]) == (9, True)
    with written_meanwhile(file, file.read_text().replace("9", "10")):
        setting.uninstall()
    assert file.read_text() == '{"numStartups": 10}\n'


def test_an_own_server_that_came_while_fleet_was_at_it_stays(setting: Setting) -> None:
    file = setting.user / ".claude.json"
    own = '{"mcpServers": {"fleet": {"command": "mine"}}}\n'
    with written_meanwhile(file, own):
        assert setting.install("claude")[".claude.json"] == "keep"
    setting.uninstall()
    assert file.read_text() == own


def test_a_file_that_never_rests_is_left_alone(setting: Setting) -> None:
    file = setting.user / ".claude.json"
    contents = [f'{{"numStartups": {number}}}\n' for number in range(50)]
    with written_meanwhile(file, *contents), pytest.raises(Conflict, match=r"\.claude\.json") as caught:
        setting.install("claude")
    assert caught.value.hint
    assert file.read_text() in contents
    setting.install("claude")
    setting.uninstall()
    assert "fleet" not in file.read_text()


def test_clients_are_found_by_their_folder_and_without_any_there_is_a_hint(empty: Setting) -> None:
    with pytest.raises(NotFound, match="none of the clients"):
        empty.installer.install((), Scope.USER, ())
    (empty.user / ".cursor").mkdir()
    done = empty.installer.install((), Scope.USER, ())
    assert [change.piece.clients for change in done] == [("cursor",)]
