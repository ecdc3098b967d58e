"""An agent's output by offset: lines to events to the run's record, until the agent has ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import replace

from fleet.domain.cause import Cause
from fleet.domain.event import Event, EventKind, Json
from fleet.domain.ids import RunId
from fleet.domain.process import AgentProcess, Phase
from fleet.domain.run import Diff, Mode, Run, RunState, Wanted
from fleet.domain.turn import Story
from fleet.domain.watch import Halt, Watch
from fleet.engine.clock import Stopwatch
from fleet.engine.context import RETRY_SECONDS, EngineContext
from fleet.engine.log import LineReader, Position, RunLog, shorten
from fleet.errors import FleetError, Unavailable
from fleet.ports.workspace import Place

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 300.0  # a safety net: changes are noticed by themselves
END_SECONDS = 0.02  # within this a shim has usually written down that its agent ended
LOOK_BUSY_SECONDS = 5.0  # how long an agent may talk before it is asked whether it is still there
BREATH_SECONDS = 0.2  # between two looks at a talkative agent
RECORD_EVERY_SECONDS = 1.0
MEASURE_EVERY_SECONDS = 10.0
CONFIRM_SECONDS = 2.0  # how long a pasted prompt may stay unconfirmed before Enter is pressed again …
MOST_ENTERS = 3  # … and how often
SESSION_SECONDS = 10.0  # after this a CLI that was told its session's id has made the session, silent or not
BLANK_START_SECONDS = 5.0  # a CLI without a prompt that says nothing for so long is taken to be up
MOST_BEHIND, TAIL = 64 << 20, 8 << 20  # unread bytes beyond which only the last ones are read
MOST_EVENTS = 200  # per look; the rest is in the raw output
PROMPT_SHOWN = 200  # characters of a prompt that the log repeats


def turn_start(turn: int, prompt: str, *, fresh: bool, is_pasted: bool = False) -> Event:
    """The event that opens a turn; `fresh`: with a process of its own, where its prompt may be pasted."""
    data: dict[str, Json] = {"turn": turn, "fresh": fresh}
    if is_pasted:
        data["pasted"] = True
    return Event(kind=EventKind.TURN_START, text=prompt[:PROMPT_SHOWN], data=data)


async def await_end(
    context: EngineContext, run_id: RunId, folder: str, *, timeout_seconds: float
) -> AgentProcess:
    """Wait for a helper process of a run (its setup) to end; stop it when asked to, or out of time."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        process = await context.member.shim.state(folder)
        if process.has_ended:
            return process
        run = await context.get(run_id)
        if run.wanted is not Wanted.RUN or time.monotonic() > deadline:
            return await context.member.shim.stop(folder, grace_seconds=context.grace_seconds(run))
        await wait_for_change(context, run_id, folder, {"exit": 0}, process, deadline - time.monotonic())


async def wait_for_change(
    context: EngineContext,
    key: str,
    folder: str,
    known: dict[str, int],
    process: AgentProcess,
    timeout_seconds: float,
) -> None:
    """Return when the folder or the process may have changed, or something is wanted of a run or trial."""
    watched = [one for one in (process.agent, process.shim) if one]
    nudge = context.nudge_of(key)
    changed = asyncio.ensure_future(
        context.member.transport.changed(folder, known, watched, timeout_seconds=max(0.1, timeout_seconds))
    )
    nudged = asyncio.ensure_future(nudge.wait())
    try:
        await asyncio.wait({changed, nudged}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        nudge.clear()
        nudged.cancel()
        if not changed.done():
            changed.cancel()
        await asyncio.gather(changed, nudged, return_exceptions=True)
    if not changed.cancelled() and (problem := changed.exception()):
        raise problem


async def follow(context: EngineContext, run_id: RunId) -> None:
    """Read the agent's output into events until it has ended."""
    run = await context.get(run_id)
    history = await context.log(run_id)
    prompt = await context.prompt(run_id, run.turn) or ""
    if history.turn < run.turn:  # the record was written and the log was not
        await history.add(turn_start(run.turn, prompt, fresh=False))
    is_blank = run.mode is Mode.TMUX and run.turn == history.opened and not prompt
    await Follower(context, run, history, is_blank=is_blank).until_ended()


class Follower:
    """Follows one process of a run. All it must remember is in the store; make a new one at any time."""

    def __init__(self, context: EngineContext, run: Run, history: RunLog, *, is_blank: bool) -> None:
        self._context = context
        self._coder = context.coder(run)
        self._run_id = run.id
        self._agent = run.agent
        self._folder = context.member.turn_folder(run.id, history.opened)
        self._history = history
        self._out, self._hooks = self._readers()
        self._recorded: Story = history.story
        self._recorded_at = 0.0
        # Anew with each supervisor: its restart is not the agent's fault.
        self._heard_at = time.monotonic()
        self._measured_at = time.monotonic()
        self._in_state = Stopwatch(context.clock)
        self._screen = _Screen(context, history, signals=self._coder.facts.signals_turns, is_blank=is_blank)

    def _readers(self) -> tuple[LineReader, LineReader]:
        """Return readers that stand where the log ends."""
        transport, position, coder = self._context.member.transport, self._history.position, self._coder
        out = LineReader(transport, f"{self._folder}/out", position.out, coder.read)
        return out, LineReader(transport, f"{self._folder}/hooks", position.hooks, coder.read_hook)

    @property
    def _story(self) -> Story:
        return self._history.story

    async def until_ended(self) -> None:
        """Follow the agent to its end. What cannot be seen for a while is tried again, never given up."""
        while True:
            try:
                return await self._follow()
            except Unavailable as problem:
                log.warning("follow.blind", extra={"run_id": self._run_id, "reason": problem.message})
                with contextlib.suppress(FleetError):
                    await self._context.become(self._run_id, RunState.UNKNOWN, reason=problem.message)
                await asyncio.sleep(RETRY_SECONDS)
                # What was read and could not be written down is read again.
                self._out, self._hooks = self._readers()

    async def _follow(self) -> None:
        context = self._context
        # As recorded at its start. If it has ended since, waiting for it returns at once.
        process = AgentProcess(phase=Phase.RUNNING, agent=self._agent)
        has_waited, looked_at = self._agent is None, time.monotonic()
        while True:
            grew = await self._read()
            if grew:
                self._heard_at = time.monotonic()
            run = await self._keep_record(await context.get(self._run_id))
            if process.has_ended:
                return await self._finish(run)
            if self._is_to_stop(run):
                process = await self._end(run)
            elif halt := await self._limit_reached(run):
                data: dict[str, Json] = {"ok": False, "reason": halt.reason, "cause": str(halt.cause)}
                await self._history.add(Event(kind=EventKind.TURN_END, data=data | {"final": True}))
                process = await self._stop(run)
            elif has_waited if not grew else time.monotonic() - looked_at > LOOK_BUSY_SECONDS:
                # Something happened, and it was not output; or there is so much of it, for so long, that
                # it may be another's than the agent's.
                process = await context.member.shim.state(self._folder, patience_seconds=END_SECONDS)
                looked_at, has_waited = time.monotonic(), False
            elif grew:
                if not self._out.is_behind:
                    await asyncio.sleep(BREATH_SECONDS)
                has_waited = False
            else:
                run = await self._keep_record(run, is_due=True)  # nothing more comes for now
                if run.mode is Mode.TMUX:
                    await self._screen.attend(run)
                await self._wait(run, process)
                has_waited = True

    def _is_to_stop(self, run: Run) -> bool:
        """Whether to end the agent now. To be taken over, it must have come to a session to go on in."""
        if run.wanted is not Wanted.RUN or run.mode is Mode.TMUX:
            return run.is_to_end
        if not run.is_to_switch or run.session or self._story.session:
            return run.is_to_switch
        return self._in_state.since(run.state_since) > SESSION_SECONDS and bool(
            self._context.told_session(run)
        )

    async def _end(self, run: Run) -> AgentProcess:
        """End the agent; that it is only to switch is noted first, if it lives: its exit code cannot tell."""
        if run.wanted is Wanted.RUN and not self._story.is_broken_off:
            process = await self._context.member.shim.state(self._folder)
            if process.has_ended:
                return process
            text = f"its agent is ended, to go on in mode {run.mode_wanted}"
            await self._add([Event(kind=EventKind.NOTE, text=text, data={"broken_off": True})])
        return await self._stop(run)

    async def _stop(self, run: Run) -> AgentProcess:
        grace = self._context.grace_seconds(run)
        return await self._context.member.shim.stop(self._folder, grace_seconds=grace)

    async def _wait(self, run: Run, process: AgentProcess) -> None:
        known = {"out": self._out.end, "hooks": self._hooks.end, "exit": 0}
        is_soon = self._screen.awaits_something or run.is_to_switch
        patience = CONFIRM_SECONDS if is_soon else LOOK_AGAIN_SECONDS
        if run.task is not None:
            due = self._watch(run).due_within()
            patience = min(patience, LOOK_AGAIN_SECONDS if due is None else due + 0.1)
        await wait_for_change(self._context, self._run_id, self._folder, known, process, patience)

    async def _finish(self, run: Run) -> None:
        """Read to the end, after ending whatever the agent left running: that could write for ever."""
        await self._stop(run)
        while await self._read():
            pass
        events = [*self._out.finish(), *self._hooks.finish()]
        if report := self._coder.facts.report:
            events += self._coder.read(await self._context.member.transport.read(f"{self._folder}/{report}"))
        if events:
            await self._add(events)
        await self._keep_record(run, is_due=True)

    async def _read(self) -> bool:
        """Read what is new, if anything. Of too much only the end is read: there the turn is closed."""
        size = await self._context.member.transport.size(f"{self._folder}/out")
        skipped = self._out.skip_to(size - TAIL) if size - self._out.end > MOST_BEHIND else []
        out_grew, said = await self._out.read()
        hooks_grew, signalled = await self._hooks.read()
        if events := [*skipped, *said, *signalled]:
            await self._add(events)
        return out_grew or hooks_grew

    async def _add(self, events: list[Event]) -> None:
        position = Position(out=self._out.offset, hooks=self._hooks.offset)
        await self._history.add(*shorten(events, MOST_EVENTS), position=position)

    async def _limit_reached(self, run: Run) -> Halt | None:
        """Return why an agent may not go on; the agents of people may be silent as long as they like."""
        if self._story.is_over and run.mode is Mode.HEADLESS:  # and yet it lives: some CLIs try for ever
            return Halt(cause=self._story.cause, reason=self._story.reason)
        if run.task is not None and run.mode is Mode.HEADLESS and (halt := self._watch(run).judge()):
            return halt
        most = self._context.settings_for(run.project).limits_max_output_mb << 20
        size = self._context.member.transport.size
        if not most or max(await size(f"{self._folder}/out"), await size(f"{self._folder}/err")) <= most:
            return None
        reason = f"it wrote more than limits.max_output_mb ({most >> 20} MB) and was stopped"
        return Halt(cause=Cause.OUTPUT, reason=reason)

    def _watch(self, run: Run) -> Watch:
        settings = self._context.settings_for(run.project)
        window = self._story.context_window or self._coder.facts.context_window
        return Watch(
            story=self._story,
            silent_for=time.monotonic() - self._heard_at,
            worked_for=self._in_state.since(run.state_since),
            spent_usd=self._context.priced(run, self._story).cost_usd or 0.0,
            silence_seconds=settings.tasks_silence_seconds,
            tool_seconds=settings.tasks_tool_seconds,
            turn_seconds=run.turn_seconds or settings.tasks_turn_seconds,
            context_tokens=window * settings.tasks_context_pct // 100,
            budget_usd=run.budget_usd,
        )

    async def _keep_record(self, run: Run, *, is_due: bool = False) -> Run:
        """Record the story so far, and the state: a live agent works, unless it signals that it waits."""
        story, now = self._story, time.monotonic()
        is_waiting = bool(story.needs_approval) or (story.is_ready and story.is_taken)
        state = RunState.WAITING if run.mode is Mode.TMUX and is_waiting else RunState.RUNNING
        is_due = is_due or now - self._recorded_at >= RECORD_EVERY_SECONDS
        if state is run.state and (story is self._recorded or not is_due):
            return run
        self._recorded, self._recorded_at = story, now
        diff = await self._measure(run, now, is_due=state is RunState.WAITING)
        reason = ""  # it merely waits for its next prompt
        if state is RunState.WAITING and story.needs_approval:
            reason = f"needs approval: {story.needs_approval}"
        elif state is RunState.WAITING and story.question:
            reason = f"it asks: {story.question}"

        def told(run: Run) -> Run:
            return replace(
                run,
                session=story.session or run.session,
                usage=story.meter.total,
                context_tokens=story.context_tokens,
                said=story.last_line,
                diff=diff,
            )

        return await self._context.become(self._run_id, state, reason=reason, also=told)

    async def _measure(self, run: Run, now: float, *, is_due: bool) -> Diff:
        """Ask git how much was changed, now and then: an agent that is silent costs nothing."""
        if not is_due and now - self._measured_at < MEASURE_EVERY_SECONDS:
            return run.diff
        self._measured_at = now
        try:
            measure = self._context.member.workspaces_of(run).measure
            return await self._context.git_threads.run(measure, Place.of(run))
        except FleetError as problem:
            log.info("measure.failed", extra={"run_id": self._run_id, "reason": problem.message})
            return run.diff


class _Screen:
    """Sends prompts into a live screen, each one once.

    A prompt's turn is recorded before it is pasted. Where the agent's hooks confirm prompts, one that
    an earlier supervisor may have pasted is sent off with Enter first, and pasted only if that brings
    no confirmation. For the other agents it is never sent twice.
    """

    def __init__(self, context: EngineContext, history: RunLog, *, signals: bool, is_blank: bool) -> None:
        self._context = context
        self._history = history
        self._signals = signals
        # Prompts before it came with the process itself.
        self._first_pasted = history.opened + (not history.is_opening_pasted)
        self._is_blank = is_blank  # started without a prompt, and some CLIs do not say when they are up
        self._begun_at = time.monotonic()
        self._inherited = history.turn  # its prompt may stand in the input box already
        self._sending = 0  # the turn that is being sent …
        self._has_pasted = False
        self._enters = 0  # … and how often Enter was pressed for it
        self._tried_at = 0.0

    @property
    def awaits_something(self) -> bool:
        """Whether to look again soon, though nothing changes."""
        return self._is_unconfirmed or (self._is_blank and not self._history.story.is_ready)

    @property
    def _is_unconfirmed(self) -> bool:
        by_paste = self._history.turn >= self._first_pasted
        return self._signals and by_paste and not self._history.story.is_taken

    async def attend(self, run: Run) -> None:
        """Send what is to be sent now, if the agent is ready for it."""
        story = self._history.story
        if run.is_to_end:
            return  # what is pasted now would be lost with the screen
        is_up_silently = self._is_blank and time.monotonic() - self._begun_at > BLANK_START_SECONDS
        if story.needs_approval or (self._signals and not story.is_ready and not is_up_silently):
            return  # it is at work, or in a dialog of its own; the prompt is sent when it asks for one
        if self._is_unconfirmed:
            await self._send(run)
        elif run.prompts > run.turn and (story.is_taken or not self._signals):
            await self._next_turn(run)

    async def _next_turn(self, run: Run) -> None:
        turn = run.turn + 1
        text = await self._context.prompt(run.id, turn)
        if text is None:
            return
        state = RunState.RUNNING if text else run.state

        def at_turn(run: Run) -> Run:
            """In one write with its state: it is not at rest for a moment in between."""
            return run if run.is_to_end else replace(run.become(state, now=time.time()), turn=turn)

        newest = await self._context.update(run.id, at_turn)
        if newest.turn != turn:
            return  # it is to end by now, and the prompt waits for what comes after
        told = () if state is run.state else (Event(kind=EventKind.STATE, text=state),)
        await self._history.add(turn_start(turn, text, fresh=False), *told)
        if text:  # else it was to bring the screen up, which it is
            await self._send(newest)

    async def _send(self, run: Run) -> None:
        """Do the next thing that may bring the turn's prompt to the agent."""
        if self._sending != run.turn:
            self._sending, self._has_pasted, self._enters = run.turn, False, 0
        elif time.monotonic() - self._tried_at < CONFIRM_SECONDS:
            return
        self._tried_at = time.monotonic()
        self._is_blank = False
        screen = self._context.tmux(run)
        if not self._has_pasted and (run.turn != self._inherited or self._enters or not self._signals):
            await screen.submit(await self._context.prompt(run.id, run.turn) or "")
            self._has_pasted, self._enters = True, 1
        elif self._enters < MOST_ENTERS:
            await screen.press_enter()
            self._enters += 1
        else:  # taken as taken: the agent never confirms it (a command of its own, say)
            text = f"prompt {run.turn} was sent and not confirmed; attach to {run.branch} to look at it"
            await self._history.add(Event(kind=EventKind.PROMPTED, text=text), Event(kind=EventKind.READY))
