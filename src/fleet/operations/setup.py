"""The setup of this machine: configuration, health checks, the supervisor, entries in other programs."""

from __future__ import annotations

from fleet.operations.fields import choice, flag, integer, json, moment, shape, string, strings
from fleet.operations.spec import Next, Operation, Shape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from fleet.domain.event import Json
    from fleet.operations.call import Call
    from fleet.ports.supervisor_link import SupervisorLink


class OfProject(Operation):
    """An operation on the settings of a project, or on those for all projects."""

    repo_path: str = string("Folder in a git repository.", brief="of a project", default=".", cli=False)


# configuration


class Setting(Shape):
    """A setting in force."""

    key: str = string(key=True)
    value: Json = json(key=True)
    origin: str = string("Where the value comes from.", key=True)


class ConfigFile(Shape):
    path: str = string()
    exists: bool = flag()

    @classmethod
    def at(cls, file: Path) -> ConfigFile:
        return cls(path=str(file), exists=file.exists())


class ConfigFiles(Shape):
    user: ConfigFile = shape(ConfigFile, "For all projects.", key=True)
    project: ConfigFile | None = shape(
        ConfigFile, "For this project; null outside of one.", key=True, optional=True
    )


class ConfigCheck(Shape):
    is_valid: bool = flag(key=True)
    warnings: tuple[str, ...] = strings(key=True)


class SettingChange(Shape):
    key: str = string()
    file: str = string()


class ShowConfig(
    OfProject,
    op="config.show",
    items="settings",
    tool="list_settings",
    examples=("fleet config show --origin",),
):
    """Show every setting in force."""

    def __call__(self, call: Call) -> tuple[list[Setting], list[Next]]:
        settings = call.fleet.settings
        shown = settings.shown().items()
        return [Setting(key=key, value=value, origin=settings.origin(key)) for key, value in shown], []


class SetConfig(
    Operation,
    op="config.set",
    access="person",
    why_no_tool="settings decide what agents may do: a person changes them, in a shell",
    examples=(
        'fleet config set setup.commands \'["npm ci", "npm run build"]\'',
        "fleet config set limits.min_free_mb 2000 --user",
    ),
):
    """Set one value in the project's file.

    Everything else in the file stays as it is. A list is one entry, or a TOML array.
    """

    key: str = string("Setting.", position=1, complete="setting")
    value: str = string("Value.", position=2)
    user: bool = flag("In the file of fleet's home, for all projects.", default=False)

    def __call__(self, call: Call) -> tuple[SettingChange, list[Next]]:
        file = call.fleet.config.set(self.key, self.value, for_user=self.user, by=lambda: call.caller.name)
        return SettingChange(key=self.key, file=str(file)), []


class ValidateConfig(OfProject, op="config.validate", examples=("fleet config validate",)):
    """Check the configuration files."""

    def __call__(self, call: Call) -> tuple[ConfigCheck, list[Next]]:
        return ConfigCheck(is_valid=True, warnings=tuple(call.fleet.config.validate())), []


class ShowConfigFiles(OfProject, op="config.path", tool="get_config_files", examples=("fleet config path",)):
    """Show which files hold the configuration."""

    def __call__(self, call: Call) -> tuple[ConfigFiles, list[Next]]:
        user, project = call.fleet.config.files()
        return ConfigFiles(user=ConfigFile.at(user), project=project and ConfigFile.at(project)), []


# health


class Check(Shape):
    """Whether something that agents need is in place."""

    name: str = string(key=True)
    verdict: str = choice(("ok", "warn", "fail"), key=True)
    found: str = string(key=True)
    fix: str = string(key=True)
    is_needed: bool = flag("Nothing works without it.", key=True)

    @property
    def is_broken(self) -> bool:
        return self.is_needed and self.verdict == "fail"


class RunDoctor(OfProject, op="doctor.show", items="checks", tool="list_checks", examples=("fleet doctor",)):
    """Check that everything agents need is in place.

    The exit code is 1 only if something that nothing works without is broken: git, the store, the disk, the
    configuration.
    """

    def __call__(self, call: Call) -> tuple[list[Check], list[Next]]:
        return [Check.of(check) for check in call.fleet.doctor.examine()], []


# the supervisor


class SupervisorStatus(Shape):
    is_up: bool = flag("Its process is there.", default=False, key=True)
    pid: int | None = integer(optional=True, default=None)
    since: float | None = moment(key=True, default=None)
    is_background: bool | None = flag(optional=True, default=None)
    is_ready: bool = flag("It is past its start.", default=False)
    version: str | None = string(optional=True, default=None)
    is_draining: bool = flag("It starts no more tasks.", default=False, key=True)
    log: str = string(key=True)

    @classmethod
    def of_link(cls, link: SupervisorLink) -> SupervisorStatus:
        log = str(link.log_path)
        if holder := link.holder():
            return cls.of(holder, is_up=True, is_ready=holder.is_up, log=log)
        return cls(log=log)


class ShowSupervisor(Operation, op="supervisor.show", examples=("fleet run --status",)):
    """Show whether a supervisor is up."""

    def __call__(self, call: Call) -> tuple[SupervisorStatus, list[Next]]:
        return SupervisorStatus.of_link(call.fleet.link), []


class StartSupervisor(
    Operation,
    op="supervisor.start",
    why_no_tool="every call that has work for a supervisor starts one",
    examples=("fleet run --background",),
):
    """Start a supervisor that stops by itself when idle."""

    def __call__(self, call: Call) -> tuple[SupervisorStatus, list[Next]]:
        link = call.fleet.link
        link.ensure_up()
        return SupervisorStatus.of_link(link), []


# entries in other programs


class ConfigEditRow(Shape):
    """What installing or uninstalling does to a file of another program."""

    file: str = string()
    what: str = string()
    clients: tuple[str, ...] = strings()
    change: str = choice(("add", "update", "remove", "same", "keep"))
    note: str = string()
