"""Choose the adapters and wire the services. The one place that knows all parts."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.services.fleet import Fleet

if TYPE_CHECKING:
    from fleet.adapters.stores.salvage import Salvaged
    from fleet.config.settings import Settings
    from fleet.domain.process import ProcessId, ProcessTotals
    from fleet.domain.run import Run
    from fleet.domain.spawn import Ancestry, Mark, Process
    from fleet.engine.repair import Rebuilt
    from fleet.engine.supervisor import Supervisor
    from fleet.engine.supervisor_link import HomeSupervisorLink
    from fleet.ports.boundary import Boundary
    from fleet.ports.coder import Coder
    from fleet.ports.forge import Forge
    from fleet.ports.merging import Merging
    from fleet.ports.repository import Repositories, Repository
    from fleet.ports.store import Store
    from fleet.ports.supervisor_link import SupervisorLink
    from fleet.services.clients import Launch, Scope
    from fleet.services.demo import Demo
    from fleet.services.installing import Installer


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return fleet's home: $FLEET_HOME, or ~/.fleet."""
    named = environ.get("FLEET_HOME") or "~/.fleet"
    if named.startswith("~/") and "HOME" in environ:
        named = environ["HOME"] + named[1:]
    return Path(named).expanduser().absolute()


def host_name() -> str:
    """Return $FLEET_HOST, or a name for this machine that stays, whatever its network calls it today."""
    if named := os.environ.get("FLEET_HOST"):
        return named
    try:
        return Path("/etc/machine-id").read_text().strip()[:12] or os.uname().nodename
    except OSError:
        return os.uname().nodename or "localhost"


class HomeFleet(Fleet):
    """The fleet of a home. Nothing is read or made before it is needed."""

    def __init__(
        self,
        home: Path | None = None,
        folder: str | None = ".",
        environ: Mapping[str, str] = os.environ,
        *,
        make_store: Callable[[], Store] | None = None,
    ) -> None:
        self.home = home = home or home_folder()
        self.host = host_name()
        self._folder = folder
        self._environ = environ
        self._make_store = make_store or partial(open_store, home)

    @cached_property
    def settings(self) -> Settings:
        return load_settings(self.home, self.project, self._environ)

    @property
    def strict_settings(self) -> Settings:
        return load_settings(self.home, self.project, self._environ, strict=True)

    @property
    def home_settings(self) -> Settings:
        return load_settings(self.home, environ={})

    @cached_property
    def project(self) -> Path | None:
        return project_of(self._folder, self.home) if self._folder else None

    @cached_property
    def store(self) -> Store:
        return self._make_store()

    @cached_property
    def link(self) -> SupervisorLink:
        return supervisor_link_of(self.home)

    @cached_property
    def repositories(self) -> Repositories:
        from fleet.adapters.workspaces.repository import GitRepositories

        return GitRepositories(self._require_own_repository)

    def _require_own_repository(self, folder: str, top: str) -> None:
        from fleet.records.runs import Runs
        from fleet.services.folders import may_be_workspace, require_own_repository

        if may_be_workspace(os.path.realpath(folder)):
            require_own_repository(Runs(self.store), folder, top)

    @cached_property
    def merging(self) -> Merging:
        from fleet.adapters.workspaces.merging import GitMerging

        return GitMerging()

    @property
    def forge(self) -> Forge:
        """What opens pull requests: as the settings say, else `gh` where it is installed, else the API."""
        from shutil import which

        from fleet.adapters.forges.gh import GhForge
        from fleet.adapters.forges.github import GithubForge
        from fleet.errors import Unavailable

        settings = self.settings
        variable = settings.merge_token_variable
        if settings.merge_forge == "gh" or (not settings.merge_forge and which("gh")):
            return GhForge()
        if token := os.environ.get(variable):
            return GithubForge(api_url=settings.merge_api_url, token=token)
        raise Unavailable(
            f"nothing is there to open pull requests with: no `gh` on PATH, and ${variable} is not set",
            hint=f"install `gh` and run `gh auth login`, or set {variable}",
        )

    @cached_property
    def guard(self) -> Boundary:
        from fleet.adapters.workspaces.boundary import GitBoundary

        return GitBoundary(self.home)

    def measure_processes(self, agents: Sequence[ProcessId]) -> Mapping[ProcessId, ProcessTotals]:
        from fleet.adapters.process_usage import measure_processes

        return measure_processes(agents)

    def coder(self, name: str, settings: Settings | None = None) -> Coder:
        from fleet import plugins

        return plugins.coder_named(name, settings or self.settings)

    def coder_names(self, settings: Settings | None = None) -> Sequence[str]:
        from fleet import plugins

        return plugins.coder_names(settings or self.settings)

    def live_agents(self, run: Run) -> Sequence[Process] | None:
        from fleet.adapters.ancestry import live_agents

        if sys.platform != "linux":  # nothing tells where processes come from
            return None
        return live_agents(self.home / "runs" / run.id, run.agent)


open_fleet = HomeFleet


def load_settings(
    home: Path, project: Path | None = None, environ: Mapping[str, str] = os.environ, *, strict: bool = False
) -> Settings:
    from fleet.config.loading import load

    return load(home, project=project, environ=environ, strict=strict)


def project_of(folder: str, home: Path | None = None) -> Path | None:
    """Return the folder whose `.fleet/config.toml` holds for a folder, if any.

    It is the nearest one upwards that has such a file or is a repository. From inside a workspace it is the
    main checkout of its repository: an agent does not decide by which settings its work is judged.
    """
    from fleet.services.folders import is_for_agents

    home = home or home_folder()
    try:
        here = os.path.realpath(folder)
    except FileNotFoundError:  # the folder that this process is in is gone
        return None
    if owner := _repository_of_workspace(home, here):
        return Path(owner)
    return None if is_for_agents(home, here) else _nearest_project(Path(here))


def _repository_of_workspace(home: Path, folder: str) -> str:
    """Return the main checkout that the workspace around a folder was made from; "" if there is none."""
    from fleet.records.runs import Runs
    from fleet.services.folders import may_be_workspace, run_at

    if not may_be_workspace(folder) or not has_store(home):
        return ""
    store = open_store(home)
    try:
        run = run_at(Runs(store), folder)
    finally:
        store.close()
    return run.project if run else ""


def _nearest_project(here: Path) -> Path | None:
    for place in (here, *here.parents):
        git = place / ".git"  # a file in a linked worktree; an empty folder of that name is nothing
        is_checkout = git.is_file() or os.path.lexists(git / "HEAD")
        if is_checkout or (place / ".fleet" / "config.toml").is_file():
            return place
    return None


def has_store(home: Path) -> bool:
    return (home / "fleet.db").exists() or bool(database_url(home))


def open_store(home: Path, url: str | None = None) -> Store:
    """Open the store of a home; its database is named by a URL, if that is known already."""
    if url := database_url(home) if url is None else url:
        from fleet.adapters.stores.postgres import PostgresStore

        return PostgresStore(url)
    from fleet.adapters.stores.sqlite import SqliteStore

    return SqliteStore(home / "fleet.db")


def repair_store(home: Path) -> tuple[Salvaged, Rebuilt] | None:
    """Rebuild a damaged store with the supervisor stopped; return what was done, None if it is sound."""
    if database_url(home):
        return None  # whoever keeps that database repairs it
    from fleet.adapters.stores.salvage import is_repairable, rebuilding, what_is_wrong

    file = home / "fleet.db"
    if what_is_wrong(file) is None:
        return None
    import asyncio

    from fleet.adapters.transports.local import LocalTransport
    from fleet.adapters.workspaces.traces import find_traces
    from fleet.engine.repair import Rebuilder
    from fleet.shim import script_path
    from fleet.shim.local import LocalShim
    from fleet.version import __version__

    link = supervisor_link_of(home)
    link.stop()
    lock = link.take(is_background=False, version=__version__)  # no supervisor starts meanwhile
    try:
        # One that had a -wal file open which somebody deleted has brought all of it into the database.
        problem = what_is_wrong(file)
        if problem is None:
            return None
        if not is_repairable(problem):
            raise problem
        shim = LocalShim(LocalTransport(), script_path(str(home)))
        with rebuilding(file, problem) as (store, salvaged):
            rebuilder = Rebuilder(
                home=home, host=host_name(), store=store, shim=shim, find_traces=find_traces
            )
            rebuilt = asyncio.run(rebuilder.rebuild())
        return salvaged, rebuilt
    finally:
        os.close(lock)


def database_url(home: Path) -> str:
    """Return the URL of the database that a home shares with others; "" if it keeps files of its own."""
    file = home / "config.toml"
    is_named = bool(os.environ.get("FLEET_DATABASE_URL"))
    if not is_named and file.exists():  # to load the settings takes longer than most commands
        try:
            # Where the file is broken, its last good version counts.
            files = (file, *(home / "last-good").glob("*.toml"))
            is_named = any(b"database" in one.read_bytes() for one in files)
        except OSError:
            is_named = True  # who loads the settings says what is wrong with it
    return load_settings(home).database_url if is_named else ""


def supervisor_link_of(home: Path) -> HomeSupervisorLink:
    from fleet.engine.supervisor_link import HomeSupervisorLink

    return HomeSupervisorLink(home, host_name(), is_of_agent=is_of_agent)


def make_supervisor(home: Path, fifo: int, *, stops_when_idle: bool) -> Supervisor:
    """Make the engine's end of a home, in its own process. Raises `StoreUnusable` for a damaged store."""
    url = database_url(home)
    store = open_store(home, url)
    require_integrity = _start_check(store)
    from fleet import plugins
    from fleet.adapters.coders.launching import resolve_model
    from fleet.adapters.coders.prices import price
    from fleet.adapters.transports.local import LocalTransport
    from fleet.adapters.workspaces.boundary import GitBoundary
    from fleet.adapters.workspaces.checkouts import GitCheckouts
    from fleet.adapters.workspaces.git import GitWorkspaces, UserCheckout
    from fleet.adapters.workspaces.history import GitHistory
    from fleet.adapters.workspaces.merging import GitMerging
    from fleet.adapters.workspaces.repository import GitRepositories
    from fleet.engine.context import EngineContext, Member
    from fleet.engine.supervisor import Supervisor
    from fleet.shim import HOOK, script_path
    from fleet.shim.local import LocalShim

    wishes = None  # of other hosts
    if url:
        from fleet.adapters.stores.postgres import listen

        wishes = partial(listen, url)
    settings = SettingsCache(home)
    transport = LocalTransport()
    # Agents inherit this environment; what they print is kept, and sent to their provider.
    os.environ.pop("FLEET_DATABASE_URL", None)
    context = EngineContext(
        home=home,
        host=host_name(),
        store=store,
        member=Member(
            root=home,
            transport=transport,
            shim=LocalShim(transport, script_path(str(home))),
            hook_script=HOOK,
            workspaces=GitWorkspaces(),
            checkout=UserCheckout(),
            checkouts=GitCheckouts(),
            repositories=GitRepositories(),
            boundary=GitBoundary(home),
        ),
        merging=GitMerging(),
        history=GitHistory(),
        settings_for=settings.of_project,
        coder_for=lambda name, project: plugins.coder_named(name, settings.of_project(project)),
        wishes=wishes,
        lease_seconds=load_settings(home).host_lease_seconds if url else 0.0,
        host_labels=frozenset({host_name(), os.uname().nodename, *load_settings(home).host_labels}),
        price=lambda model, facts, usage: price(resolve_model(model, facts.tiers), usage),
    )
    idle_seconds = load_settings(home).supervisor_idle_seconds if stops_when_idle else None
    require_integrity()
    return Supervisor(context, supervisor_link_of(home), fifo, idle_seconds=idle_seconds)


def _start_check(store: Store) -> Callable[[], None]:
    """Begin to read all of a store, beside what else there is to do; return what waits for the answer."""
    from concurrent.futures import ThreadPoolExecutor

    from fleet.adapters.stores.sqlite import SqliteStore

    if not isinstance(store, SqliteStore):
        return lambda: None
    pool = ThreadPoolExecutor(1, thread_name_prefix="integrity")
    checked = pool.submit(store.check_integrity)
    pool.shutdown(wait=False)
    return checked.result


SAME_SECONDS = 0.02  # for so long files of settings count as unchanged: they are asked for dozens of times


class SettingsCache:
    """Settings by project, read again soon after a file of theirs has changed: no restart is needed."""

    def __init__(self, home: Path) -> None:
        import logging  # only the supervisor has one of these

        self._home = home
        self._kept: dict[str, tuple[Settings, object, float]] = {}  # with its stamp, and when that was read
        self._tops: dict[str, str] = {}
        self._log = logging.getLogger(__name__)

    def of_project(self, project: str) -> Settings:
        from fleet.config.files import project_file, user_file

        settings, before, read_at = self._kept.get(project, (None, None, 0.0))
        now = time.monotonic()
        if settings and now - read_at < SAME_SECONDS:
            return settings
        if project not in self._tops:
            self._tops[project] = _repository_of_workspace(self._home, project) or project
        top = self._tops[project]
        stamp = [_stamp(file) for file in (user_file(self._home), project_file(Path(top)))]
        if settings is None or stamp != before:
            settings = self._load(top, settings)
            for warning in settings.warnings:
                self._log.error("config.broken", extra={"reason": warning})
        self._kept[project] = (settings, stamp, now)
        return settings

    def _load(self, project: str, before: Settings | None) -> Settings:
        """Load a project's settings; of a file that never was good, nothing counts.

        Its agents must be followed and stopped all the same, and nobody is there to be told but the log.
        """
        from fleet.errors import BadConfig

        try:
            return load_settings(self._home, Path(project) if project else None)
        except BadConfig as problem:
            if not project:
                raise
            self._log.error("config.broken", extra={"reason": problem.message})
            return before or self.of_project("")


def _stamp(file: Path) -> object:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


@cache  # a parent that ends later must not take its marks along
def own_ancestry() -> Ancestry:
    """Return this process, as it was started, and those above it."""
    from fleet.adapters.ancestry import ancestry_of

    return ancestry_of(os.getpid())


def own_mark() -> Mark:
    from fleet.domain.spawn import RUN, TOKEN, Mark

    return Mark(os.environ.get(RUN, ""), os.environ.get(TOKEN, ""))


def is_of_agent() -> bool:
    """Whether this process, or one that it comes from, has the mark of a run, of whichever home."""
    return any(own_mark()) or bool(own_ancestry().marks)


def ancestries_behind(client: tuple[str, int], server: tuple[str, int]) -> list[Ancestry]:
    from fleet.adapters.ancestry import ancestries_behind

    return ancestries_behind(client, server)


def repository_at(folder: str) -> Repository:
    from fleet.adapters.workspaces.repository import GitRepositories

    return GitRepositories().inspect(folder, "HEAD", ())


def installer() -> Installer:
    """Make what registers fleet with other programs, as seen from this folder."""
    from fleet.services.clients import Places
    from fleet.services.installing import Installer
    from fleet.services.machine import is_installed

    user = Path(os.environ.get("HOME") or Path.home())
    places = Places(home=user, project=_nearest_project(Path.cwd()), environ=os.environ)
    return Installer(home=home_folder(), places=places, launch=_launch, is_found=is_installed)


def _launch(scope: Scope) -> Launch:
    """Return how a client starts our server: for one's own files this very program, for a project's any."""
    from shutil import which

    from fleet.services.clients import Launch, Scope

    if scope is Scope.PROJECT:
        return Launch(command="fleet", args=("mcp",), env={})
    # Some clients hand nothing of the environment on.
    env = {"FLEET_HOME": str(home_folder())} if os.environ.get("FLEET_HOME") else {}
    own = Path(sys.argv[0]).absolute()
    found = str(own) if own.name in ("fleet", "flt") and os.access(own, os.X_OK) else which("fleet")
    if found:
        return Launch(command=found, args=("mcp",), env=env)
    return Launch(command=sys.executable, args=("-m", "fleet", "mcp"), env=env)


def require_purgeable() -> Path:
    """Return the home, if it may be deleted."""
    from fleet.services.purging import require_purgeable

    with open_fleet() as fleet:
        require_purgeable(fleet)
        return fleet.home


def purge_home() -> Sequence[Path]:
    """Stop the supervisor, and delete what fleet has made in its home; return what is left there."""
    from fleet.services.purging import purge

    home = home_folder()
    supervisor_link_of(home).stop()
    return purge(require_purgeable())


def activity() -> str:
    """Return the fleet in a line; "" if nothing goes on. Nothing is made or started for it."""
    from fleet.services.run_summaries import activity_of

    home = home_folder()
    if not has_store(home):
        return ""
    with open_fleet(home) as fleet:
        return activity_of(fleet)


def demo_in(folder: Path, agents: int) -> Demo:
    """Make a demo with a home of its own inside a scratch folder."""
    from fleet.services.demo import Demo, parts

    # It is to be alone. What it starts inherits this.
    os.environ.pop("FLEET_DATABASE_URL", None)
    return Demo(folder, open_fleet(folder / "home", str(folder / "garden")), parts(agents))
