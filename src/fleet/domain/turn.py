"""What a run's events add up to, and the verdict on a turn that has ended."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleet.domain.cause import Cause
from fleet.domain.event import Event, EventKind, count_in, number_in
from fleet.domain.process import AgentProcess, Phase
from fleet.domain.run import RunState
from fleet.domain.usage import Meter

LONGEST_LINE = 500
LONGEST_SUMMARY = 64_000
LONGEST_CALL_ID = 200
MOST_OPEN_TOOLS = 256
MOST_OVERFLOWS = 3  # without a tool call or a prompt in between: a CLI may make room by itself once, or twice
LARGEST_WINDOW = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The events of a run so far, folded. Fold the same events again and you get the same story."""

    session: str = ""
    model: str = ""
    meter: Meter = Meter()
    context_tokens: int = 0
    context_window: int = 0  # how many the model takes, where the CLI says so
    said: str = ""  # the agent's words since its last tool call
    last_line: str = ""
    ended_well: bool | None = None  # what the stream itself said of the turn's end; None: nothing
    reason: str = ""
    cause: Cause = Cause.NONE  # why the turn failed, as far as its stream has told
    is_broken_off: bool = False  # its agent was alive when we ended it, for it to go on in another mode
    is_over: bool = False  # the turn was broken off for good: no later word of success undoes that
    last_error: str = ""
    question: str = ""
    limited: bool = False  # the provider's limit has refused it something in this turn
    resets_at: float | None = None  # when that limit is over
    overflows: int = 0  # how often the context was full since its last tool call
    open_tools: frozenset[str] = frozenset()  # ids of calls that have begun and not ended
    is_taken: bool = True  # tmux: the agent has confirmed the turn's prompt (or there was none)
    is_ready: bool = False  # tmux: it waits for input
    needs_approval: str = ""

    def take(self, event: Event) -> Story:
        match event.kind:
            case EventKind.TURN_START:
                return Story(
                    session=self.session,
                    model=self.model,
                    meter=self.meter.next_turn(),
                    context_tokens=self.context_tokens,
                    context_window=self.context_window,
                    last_line=self.last_line,
                    is_taken=not event.text,
                    is_ready=self.is_ready and event.data.get("fresh") is False,
                )
            case EventKind.SESSION:
                session = _text(event, "session_id")
                model = _text(event, "model") or self.model
                meter = self.meter.enter(session)
                return replace(self, session=session or self.session, model=model, meter=meter)
            case EventKind.SAID:
                said = self.said + event.text if event.data.get("delta") is True else event.text
                return self._saying(said[-LONGEST_SUMMARY:])
            case EventKind.TOOL:
                return self._call(event)
            case EventKind.TOOL_DONE:
                return replace(self, open_tools=self.open_tools - {_call_id(event)})
            case EventKind.USAGE:
                window = count_in(event.data.get("window"))
                return replace(
                    self,
                    meter=self.meter.count(event.data),
                    context_tokens=count_in(event.data.get("context")) or self.context_tokens,
                    context_window=window if 0 < window <= LARGEST_WINDOW else self.context_window,
                )
            case EventKind.TURN_END:
                return self._end_turn(event)
            case EventKind.ERROR:
                return replace(self, last_error=event.text, cause=_cause_in(event) or self.cause)
            case EventKind.LIMIT if event.data.get("rejected") is True:
                # One that is merely near says nothing of this turn.
                resets_at = number_in(event.data.get("resets_at"))
                if resets_at is None or not abs(resets_at) <= 1e12:
                    return replace(self, limited=True)
                return replace(self, limited=True, resets_at=float(resets_at))
            case EventKind.ASKED:
                return replace(self, question=event.text)
            case EventKind.PROMPTED:
                return replace(self, is_taken=True, is_ready=False, needs_approval="", overflows=0)
            case EventKind.READY:
                return replace(self, is_ready=True, needs_approval="")
            case EventKind.NEEDS_APPROVAL:
                return replace(self, needs_approval=event.text or "an answer")
            case EventKind.NOTE if event.data.get("broken_off") is True:
                return replace(self, is_broken_off=True)
            case _:
                return self

    def _saying(self, said: str) -> Story:
        return replace(self, said=said, last_line=_last_line(said) or self.last_line)

    def _call(self, event: Event) -> Story:
        call, summary = _call_id(event), _text(event, "summary")
        opened = {call} if call and len(self.open_tools) < MOST_OPEN_TOOLS else set[str]()
        return replace(
            self,
            said="",
            last_line=_last_line(f"{event.text}: {summary}" if summary else event.text),
            needs_approval="",
            is_ready=False,
            overflows=0,
            open_tools=self.open_tools | opened,
        )

    def _end_turn(self, event: Event) -> Story:
        said = self._saying(event.text or self.said)
        told = replace(said, is_ready=True, needs_approval="", open_tools=frozenset[str]())
        if self.is_over:
            return told
        is_good = event.data.get("ok") is True
        cause = Cause.NONE if is_good else _cause_in(event)
        if cause is None:
            cause = self.cause or (Cause.LIMIT if self.limited else Cause.CRASH)
        overflows = self.overflows + (cause is Cause.CONTEXT)
        return replace(
            told,
            ended_well=is_good,
            reason=_text(event, "reason"),
            cause=cause,
            overflows=overflows,
            is_over=event.data.get("final") is True or overflows >= MOST_OVERFLOWS,
        )

    @property
    def ended_by_switch(self) -> bool:
        """Whether the turn has no bad end, and no question, of its own: only that we broke it off."""
        return self.is_broken_off and self.ended_well is not False and not self.question


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    status: RunState
    reason: str = ""
    cause: Cause = Cause.NONE


def judge_turn(story: Story, process: AgentProcess, *, has_changes: bool, closes_stream: bool) -> Verdict:
    """Decide how a turn ended, from its stream, its process and git; never from the agent's word alone.

    Exit codes lie (some CLIs exit with 0 after a failure): the stream's own closing event counts first.
    """
    if story.question:
        return Verdict(status=RunState.BLOCKED, reason=f"it asks: {story.question}")
    if failure := _failure(story, process, closes_stream=closes_stream):
        return Verdict(status=RunState.FAILED, reason=failure, cause=_cause(story, process))
    return Verdict(status=RunState.COMPLETED if has_changes else RunState.COMPLETED_NO_CHANGES)


def _failure(story: Story, process: AgentProcess, *, closes_stream: bool) -> str:
    error = f": {story.last_error}" if story.last_error else ""
    if story.ended_well is False:
        return story.reason or story.last_error or "the agent reported a failure"
    if process.phase is Phase.NEVER:
        return "the agent was never started"
    if story.ended_well is True and process.code in (0, None):
        return ""  # it closed its stream well; that its exit code was not seen changes nothing
    if process.phase is Phase.LOST:
        return f"the agent is gone and nobody saw how it ended ({process.reason or 'unknown'})"
    if process.code != 0:
        return describe_exit(process.code) + error
    if closes_stream and story.ended_well is None:
        return f"the agent ended without closing its turn{error}"
    return ""


def _cause(story: Story, process: AgentProcess) -> Cause:
    """Why a turn failed: what its stream told apart counts first, for that is what can be acted on."""
    if story.ended_well is not True:
        if story.cause not in (Cause.NONE, Cause.CRASH):
            return story.cause
        if story.limited:
            return Cause.LIMIT
    if process.phase is Phase.NEVER:
        return Cause.SETUP
    if process.phase is Phase.LOST:
        return Cause.LOST
    return story.cause if story.ended_well is False else Cause.CRASH


def describe_exit(code: int | None) -> str:
    match code:
        case None:
            return "the agent ended with an unknown exit code"
        case 126 | 127:
            return (
                f"the agent could not be started (exit code {code}); if its program was installed, or PATH"
                " changed, after the supervisor came up, restart the supervisor"
            )
        case _ if code > 128:
            return f"the agent was ended by signal {code - 128}"
        case _:
            return f"the agent ended with exit code {code}"


def _text(event: Event, key: str) -> str:
    value = event.data.get(key)
    return value if isinstance(value, str) else ""


def _call_id(event: Event) -> str:
    return _text(event, "id")[:LONGEST_CALL_ID]


def _cause_in(event: Event) -> Cause | None:
    """The cause that an event states; None where it states none, or one that is unknown here."""
    stated = event.data.get("cause")
    try:
        return Cause(stated) if isinstance(stated, str) else None
    except ValueError:
        return None


def _last_line(text: str) -> str:
    lines = (line.strip() for line in reversed(text.splitlines()))
    return next((line[:LONGEST_LINE] for line in lines if line), "")
