"""Setting a project up, taking over older configuration, and changing single values."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fleet.compat.aifleet import read_older_files
from fleet.config.files import project_file, user_file
from fleet.config.loading import check_text, load
from fleet.config.settings import SETTINGS
from fleet.errors import BadConfig, Conflict, InvalidInput, NotFound
from fleet.services.presets import PROJECT_TYPES, detect_type
from fleet.services.setup import InitPlan, apply_init, plan_init, set_value


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "home" / "config.toml"


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")


def planned(plan: InitPlan) -> dict[str, object]:
    """Apply the plan; return what it sets beyond the defaults."""
    apply_init(plan)
    repository = plan.file.parents[1]
    settings = load(repository.parent / "home", repository, environ={})
    set_values = {key: value for key, value in settings.shown().items() if settings.origin(key) != "default"}
    return {key: value for key, value in set_values.items() if value != ()}


# Types and presets


@pytest.mark.parametrize(
    ("names", "type_"),
    [
        (["Gemfile"], "rails"),
        (["Gemfile", "package.json"], "rails"),
        (["package.json", "pyproject.toml"], "node"),
        (["pyproject.toml"], "python"),
        (["requirements.txt"], "python"),
        (["setup.py"], "python"),
        (["README.md"], "generic"),
        (["deep/down/Gemfile", "vendor/package.json"], "generic"),
        ([], "generic"),
    ],
)
def test_the_type_is_told_by_the_files_at_the_top(repository: Path, names: list[str], type_: str) -> None:
    touch(repository, *names)
    assert detect_type(repository) == type_
    assert plan_init(repository).type == type_


def test_a_folder_of_that_name_is_no_sign(repository: Path) -> None:
    (repository / "Gemfile").mkdir()
    assert detect_type(repository) == "generic"


@pytest.mark.parametrize(
    ("type_", "names", "files", "commands"),
    [
        ("minimal", [".env", "package.json"], (), ()),
        ("generic", [".env.test", ".env.example", ".envrc"], (".env", ".env.test"), ()),
        ("node", ["package.json"], (".env", ".env.local"), ("npm install",)),
        ("node", ["package.json", "package-lock.json"], (".env", ".env.local"), ("npm ci",)),
        ("node", ["yarn.lock"], (".env", ".env.local"), ("yarn install --frozen-lockfile",)),
        ("node", ["yarn.lock", ".yarnrc.yml"], (".env", ".env.local"), ("yarn install --immutable",)),
        ("node", ["pnpm-lock.yaml"], (".env", ".env.local"), ("pnpm install --frozen-lockfile",)),
        ("node", [], (".env", ".env.local"), ("npm install",)),
        ("python", ["pyproject.toml", "uv.lock"], (".env",), ("uv sync",)),
        ("python", [], (".env",), ()),
        ("rails", ["Gemfile"], ("config/master.key", ".env", ".env.local"), ("bundle install",)),
        (
            "rails",
            ["Gemfile", "bin/rails", "yarn.lock"],
            ("config/master.key", ".env", ".env.local"),
            ("bundle install", "yarn install --frozen-lockfile", "bin/rails db:prepare"),
        ),
    ],
)
def test_a_preset_fits_the_tools_that_are_used(
    repository: Path, type_: str, names: list[str], files: tuple[str, ...], commands: tuple[str, ...]
) -> None:
    touch(repository, *names)
    values = planned(plan_init(repository, type_))
    assert values.get("setup.credential_files", ()) == files
    assert values.get("setup.commands", ()) == commands


def test_pip_installs_into_an_environment_that_git_does_not_see(repository: Path) -> None:
    touch(repository, "requirements.txt")
    (command,) = planned(plan_init(repository))["setup.commands"]  # type: ignore[misc]
    assert ".venv/.gitignore" in command
    assert command.endswith("install -r requirements.txt")


def test_an_unknown_type_is_refused(repository: Path) -> None:
    with pytest.raises(InvalidInput, match="'cobol'") as caught:
        plan_init(repository, "cobol")
    assert "rails" in caught.value.hint


# Init


@pytest.mark.parametrize("type_", PROJECT_TYPES)
def test_the_planned_file_is_valid_and_names_every_setting_of_a_project(repository: Path, type_: str) -> None:
    plan = plan_init(repository, type_)
    check_text("config.toml", plan.text)
    for key, setting in SETTINGS.items():
        if setting.is_of_home:
            assert key.partition(".")[2] not in plan.text
            continue
        assert setting.help in plan.text
        assert f"{key.partition('.')[2]} = " in plan.text


def test_planning_changes_nothing(repository: Path) -> None:
    touch(repository, ".env")
    plan_init(repository)
    assert [path.name for path in repository.iterdir()] == [".env"]


def test_an_existing_configuration_is_kept_unless_forced(repository: Path) -> None:
    plan = plan_init(repository)
    project_file(repository).parent.mkdir()
    project_file(repository).write_text("# mine\n")
    for refused in (lambda: plan_init(repository), lambda: apply_init(plan)):
        with pytest.raises(Conflict, match="already there"):
            refused()
    assert project_file(repository).read_text() == "# mine\n"
    forced = plan_init(repository, force=True)
    assert forced.overwrites
    apply_init(forced)
    assert project_file(repository).read_text() == forced.text


def test_the_projects_file_is_readable_for_those_who_share_the_checkout(repository: Path) -> None:
    apply_init(plan_init(repository))
    assert stat.S_IMODE(project_file(repository).stat().st_mode) == 0o644
    assert sorted(path.name for path in project_file(repository).parent.iterdir()) == ["config.toml"]


def test_credential_files_that_git_would_take_for_work_are_ignored(repository: Path) -> None:
    touch(repository, ".env", ".env.local", "Gemfile", "config/master.key")
    (repository / ".gitignore").write_text("*.local\nnode_modules")
    plan = plan_init(repository)
    assert plan.gitignore_lines == ("/config/master.key", "/.env")
    apply_init(plan)
    assert (repository / ".gitignore").read_text() == "*.local\nnode_modules\n/config/master.key\n/.env\n"
    assert plan_init(repository, force=True).gitignore_lines == ()


def test_without_credential_files_no_gitignore_is_written(repository: Path) -> None:
    apply_init(plan_init(repository))
    assert not (repository / ".gitignore").exists()


# Older configuration

OLDER = """
[project]
name = "my-awesome-project"
worktree_root = "~/.aifleet/worktrees/my-awesome-project"

[agent]
default = "codex"
claude_flags = "--dangerously-skip-permissions --append-system-prompt 'be \\"brief\\"'"

[setup]
credential_files = ["config/master.key", ".env"]
commands = ["bundle install", "echo 'it''s'"]
quick = true

[tmux]
prefix = "ai_"
color = "red"
"""


def plan_with_older(repository: Path, home: Path | None = None) -> InitPlan:
    """Plan with AI Fleet's files of the repository and of a user's home."""
    environ = {"HOME": str(home)}
    return plan_init(
        repository, older=read_older_files(repository, with_global=home is not None, environ=environ)
    )


def test_an_older_project_file_is_taken_over_always(repository: Path) -> None:
    touch(repository, ".aifleet/state.json", ".env")
    (repository / ".aifleet" / "config.toml").write_text(OLDER)
    plan = plan_with_older(repository)
    assert planned(plan) == {
        "project.name": "my-awesome-project",
        "project.workspaces": "~/.aifleet/worktrees/my-awesome-project",
        "coder.default": "codex",
        "setup.credential_files": ("config/master.key", ".env"),
        "setup.commands": ("bundle install", "echo 'it''s'"),
        "setup.quick": True,
        "tmux.prefix": "ai_",
        "coders.claude.flags": ["--append-system-prompt", 'be "brief"'],
        "coders.claude.skip_permissions": True,
    }
    assert any(line.startswith("coder.default from ") for line in plan.imports)
    assert plan.notes == (f"tmux.color in {repository / '.aifleet' / 'config.toml'} is not needed",)
    assert plan.gitignore_lines == ("/.env", "/.aifleet/state.json")
    assert (repository / ".aifleet" / "config.toml").read_text() == OLDER
    settings = load(repository.parent / "home", repository, environ={"HOME": "/me"})
    assert settings.workspaces_root(repository) == Path("/me/.aifleet/worktrees/my-awesome-project")
    assert settings.skips_permissions("claude")
    assert not settings.skips_permissions("codex")


def test_the_older_global_file_is_taken_over_when_asked_and_the_projects_file_wins(
    repository: Path, tmp_path: Path
) -> None:
    touch(tmp_path, ".ai_fleet/config.toml")
    (tmp_path / ".ai_fleet" / "config.toml").write_text(
        'repo_root = "~/code/shop"\nworktree_root = "~/trees"\n'
        'tmux_prefix = "ai_"\ndefault_agent = "claude"\n'
        'claude_flags = ""\ncredential_files = [".env"]\nsetup_commands = ["make"]\nquick_setup = true\n'
    )
    touch(repository, ".aifleet/config.toml")
    (repository / ".aifleet" / "config.toml").write_text('[setup]\ncommands = ["just"]\n')
    plan = plan_with_older(repository, home=tmp_path)
    assert planned(plan) == {
        "project.workspaces": "~/trees",
        "tmux.prefix": "ai_",
        "setup.credential_files": (".env",),
        "setup.commands": ("just",),
        "setup.quick": True,
    }
    assert any("repo_root" in line for line in plan.notes)


def test_migrating_a_global_file_that_is_not_there_is_refused(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="to migrate"):
        plan_with_older(repository, home=tmp_path)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[agent]\ndefault = 3", ":2: agent.default must be text"),
        ('\n[agent]\nclaude_flags = "--x \'open"', ":3: agent.claude_flags No closing quotation"),
        ("[agent]\nclaude_flags = 7", ":2: agent.claude_flags must be a list"),
        ("[agent", ":1: is no valid TOML"),
    ],
)
def test_a_broken_older_file_is_refused_with_line_and_reason(repository: Path, text: str, place: str) -> None:
    touch(repository, ".aifleet/config.toml")
    (repository / ".aifleet" / "config.toml").write_text(text)
    with pytest.raises(BadConfig) as caught:
        plan_with_older(repository)
    assert place in caught.value.message


# Show


def test_every_value_is_shown_with_its_origin(file: Path) -> None:
    set_value(file, "coders.mine.command", '["mine"]')
    settings = load(file.parent, environ={"FLEET_UI_LOG_LINES": "9"})
    rows = {key: (value, settings.origin(key)) for key, value in settings.shown().items()}
    assert list(rows) == [*SETTINGS, "coders.mine.command"]
    assert rows["ui.log_lines"] == (9, "environment FLEET_UI_LOG_LINES")
    assert rows["coders.mine.command"] == (["mine"], f"{file}:2")
    assert rows["tmux.prefix"] == ("fleet", "default")


# Set


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_that_is_set_is_loaded_again(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    home = tmp_path_factory.mktemp("home")
    for _ in range(2):  # once into nothing, once over an older value
        set_value(user_file(home), "coder.model", text)
        assert load(home, environ={}).coder_model == text


@given(
    entries=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), min_size=1))
)
def test_any_list_that_is_set_is_loaded_again(
    tmp_path_factory: pytest.TempPathFactory, entries: list[str]
) -> None:
    home = tmp_path_factory.mktemp("home")
    text = "\n".join(entries)
    assume(not text.lstrip().startswith("["))  # that would be a TOML array
    set_value(user_file(home), "setup.commands", text)
    assert load(home, environ={}).setup_commands == tuple(entries)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("setup.quick", "true", True),
        ("limits.min_free_mb", "10", 10),
        ("stop.grace_seconds", "1.5", 1.5),
        ("setup.commands", '["a", "b"]', ["a", "b"]),
        ("coders.claude.flags", "--x", ["--x"]),
        ("coders.mine.output.field", "a.b", "a.b"),
        ("coders.mine.window", "5", 5),
        ("coders.mine.window", "5\nx = 1", "5\nx = 1"),
    ],
)
def test_a_value_is_set_by_the_type_of_its_setting(file: Path, key: str, text: str, value: object) -> None:
    assert set_value(file, key, text) == value
    rows = load(file.parent, environ={}).shown()
    found = rows[key]
    assert (list(found) if isinstance(found, tuple) else found) == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("setup.quick", "maybe"),
        ("coder.defualt", "x"),
        ("coder.mode", "screen"),
        ("coder", "x"),
        ("coder.model", "\ud800"),
        ("limits.min_free_mb", "-1"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_nothing_written(file: Path, key: str, text: str) -> None:
    with pytest.raises(InvalidInput):
        set_value(file, key, text)
    assert not file.exists()


COMMENTED = """\
# mine
[coder]   # the coder
default = 'claude'   # the default
  model='opus'  # odd layout

# about tmux
[tmux]
prefix = "x"
"""


def test_comments_and_layout_stay(file: Path) -> None:
    file.parent.mkdir()
    file.write_text(COMMENTED)
    set_value(file, "coder.default", "codex")
    assert file.read_text() == COMMENTED.replace("'claude'", '"codex"')
    set_value(file, "coder.mode", "tmux")
    set_value(file, "ui.log_lines", "7")
    for line in COMMENTED.replace("'claude'", '"codex"').splitlines():
        assert line in file.read_text().splitlines()
    settings = load(file.parent, environ={})
    assert (settings.coder_mode, settings.ui_log_lines, settings.coder_model) == ("tmux", 7, "opus")


@pytest.mark.parametrize(
    "text",
    [
        "coder.default = 'x'\ncoder.model = 'm'\n",
        "coder = { default = 'x', model = 'm' }\n",
        "[coder]\r\nmodel = 'm'\r\n",
        "[coders.claude]\nflags = []\n[coder]\nmodel = 'm'\n[coders.codex]\nflags = []\n",
        "[coder]\nmodel = 'm'",
        "\n\n# only a comment\n[coder]\nmodel = 'm'\n[ui]\n",
    ],
)
def test_a_value_is_set_in_any_layout(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_bytes(text.encode())
    for key, value in [("coder.default", "new"), ("coders.claude.model", "own"), ("tmux.prefix", "p")]:
        set_value(file, key, value)
    settings = load(file.parent, environ={})
    assert (settings.coder_default, settings.coder_model, settings.tmux_prefix) == ("new", "m", "p")
    assert settings.coder_model_for("claude") == "own"


def test_a_broken_file_is_not_touched(file: Path) -> None:
    file.parent.mkdir()
    for text in ("[coder\n", "[coder]\nwrong = 1\n"):
        file.write_text(text)
        with pytest.raises(BadConfig, match=r"config\.toml:"):
            set_value(file, "coder.model", "x")
        assert file.read_text() == text


def test_mode_and_link_of_the_file_stay_and_no_draft_is_left(tmp_path: Path, file: Path) -> None:
    real = tmp_path / "dotfiles" / "fleet.toml"
    touch(tmp_path, "dotfiles/fleet.toml")
    real.chmod(0o640)
    file.parent.mkdir()
    file.symlink_to(real)
    set_value(file, "coder.model", "x")
    assert file.is_symlink()
    assert "x" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert [path.name for path in real.parent.iterdir()] == ["fleet.toml"]


def test_a_new_file_is_for_the_owner_alone(file: Path) -> None:
    set_value(file, "coder.model", "x")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_values_set_at_the_same_time_are_all_kept(file: Path) -> None:
    keys = [
        "coder.model",
        "project.name",
        "tmux.prefix",
        "project.workspaces",
        "coders.a.model",
        "coders.b.model",
    ]
    threads = [threading.Thread(target=set_value, args=(file, key, key)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = load(file.parent, environ={}).shown()
    assert {key: rows.get(key) for key in keys} == {key: key for key in keys}
