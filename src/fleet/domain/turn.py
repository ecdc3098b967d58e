"""What a run's events add up to, and the verdict on a turn that has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleet.domain.event import Event, Json, Kind
from fleet.domain.meter import Meter
from fleet.domain.process import AgentProcess, Phase
from fleet.domain.run import RunState

LONGEST_LINE = 500
LONGEST_SUMMARY = 64_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The events of a run so far, folded. Fold the same events again and you get the same story."""

    session: str = ""
    model: str = ""
    meter: Meter = Meter()
    context_tokens: int = 0
    said: str = ""  # the agent's words since its last tool call
    last_line: str = ""
    ended_well: bool | None = None  # what the stream itself said of the turn's end; None: nothing
    reason: str = ""
    is_over: bool = False  # the turn was broken off for good: no later word of success undoes that
    last_error: str = ""
    question: str = ""
    resets_at: float | None = None
    is_taken: bool = True  # tmux: the agent has confirmed the turn's prompt (or there was none)
    is_ready: bool = False  # tmux: it waits for input
    needs_approval: str = ""

    def take(self, event: Event) -> Story:
        """Return the story with one more event in it."""
        match event.kind:
            case Kind.TURN_START:
                return self._start_turn(event)
            case Kind.SESSION:
                session = _text(event.data, "session_id")
                return replace(
                    self,
                    session=session or self.session,
                    model=_text(event.data, "model") or self.model,
                    meter=self.meter.enter(session),
                )
            case Kind.SAID:
                return self._say(event)
            case Kind.TOOL:
                return replace(self, said="", last_line=_tool_line(event), needs_approval="", is_ready=False)
            case Kind.USAGE:
                return self._count(event)
            case Kind.TURN_END:
                return self._end_turn(event)
            case Kind.ERROR:
                return replace(self, last_error=event.text)
            case Kind.LIMIT:
                return self._limit(event)
            case Kind.ASKED:
                return replace(self, question=event.text)
            case Kind.PROMPTED:
                return replace(self, is_taken=True, is_ready=False, needs_approval="")
            case Kind.READY:
                return replace(self, is_ready=True, needs_approval="")
            case Kind.NEEDS_APPROVAL:
                return replace(self, needs_approval=event.text or "an answer")
            case _:
                return self

    def _start_turn(self, event: Event) -> Story:
        return replace(
            self,
            meter=self.meter.next_turn(),
            is_taken=not event.text,
            is_ready=self.is_ready and event.data.get("fresh") is False,
            needs_approval="",
            said="",
            ended_well=None,
            reason="",
            is_over=False,
            last_error="",
            question="",
            resets_at=None,
        )

    def _say(self, event: Event) -> Story:
        said = self.said + event.text if event.data.get("delta") is True else event.text
        said = said[-LONGEST_SUMMARY:]
        return replace(self, said=said, last_line=_last_line(said) or self.last_line)

    def _count(self, event: Event) -> Story:
        context = event.data.get("context")
        known = context if isinstance(context, int) and not isinstance(context, bool) else 0
        return replace(self, meter=self.meter.count(event.data), context_tokens=known or self.context_tokens)

    def _end_turn(self, event: Event) -> Story:
        said = event.text or self.said
        told = replace(
            self, said=said, last_line=_last_line(said) or self.last_line, is_ready=True, needs_approval=""
        )
        if self.is_over:
            return told
        return replace(
            told,
            ended_well=event.data.get("ok") is True,
            reason=_text(event.data, "reason"),
            is_over=event.data.get("final") is True,
        )

    def _limit(self, event: Event) -> Story:
        resets_at = event.data.get("resets_at")
        if isinstance(resets_at, bool) or not isinstance(resets_at, int | float) or abs(resets_at) > 1e12:
            return self
        return replace(self, resets_at=float(resets_at))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    status: RunState
    reason: str = ""


def judge_turn(story: Story, process: AgentProcess, *, has_changes: bool, closes_stream: bool) -> Verdict:
    """Decide how a turn ended, from its stream, its process and git; never from the agent's word alone.

    Exit codes lie (some CLIs exit with 0 after a failure), so the stream's own closing event
    counts first, the code second.
    """
    if story.question:
        return Verdict(status=RunState.BLOCKED, reason=f"it asks: {story.question}")
    if failure := _failure(story, process, closes_stream=closes_stream):
        return Verdict(status=RunState.FAILED, reason=failure)
    return Verdict(status=RunState.COMPLETED if has_changes else RunState.COMPLETED_NO_CHANGES)


def _failure(story: Story, process: AgentProcess, *, closes_stream: bool) -> str:
    if story.ended_well is False:
        return story.reason or story.last_error or "the agent reported a failure"
    if process.phase is Phase.NEVER:
        return "the agent was never started"
    if story.ended_well is True and process.code in (0, None):
        return ""  # it closed its stream well; that its exit code was not seen changes nothing
    if process.phase is Phase.LOST:
        return f"the agent is gone and nobody saw how it ended ({process.reason or 'unknown'})"
    if process.code != 0:
        return _with_cause(describe_exit(process.code), story)
    if closes_stream and story.ended_well is None:
        return _with_cause("the agent ended without closing its turn", story)
    return ""


def _with_cause(what: str, story: Story) -> str:
    return f"{what}: {story.last_error}" if story.last_error else what


def describe_exit(code: int | None) -> str:
    """Put an exit code into words."""
    match code:
        case None:
            return "the agent ended with an unknown exit code"
        case 126 | 127:
            return (
                f"the agent could not be started (exit code {code}); if its program was installed, or PATH"
                " changed, after the supervisor came up: `fleet run --stop`, then again"
            )
        case _ if code > 128:
            return f"the agent was ended by signal {code - 128}"
        case _:
            return f"the agent ended with exit code {code}"


def _text(data: Mapping[str, Json], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _tool_line(event: Event) -> str:
    summary = _text(event.data, "summary")
    return _last_line(f"{event.text}: {summary}" if summary else event.text)


def _last_line(text: str) -> str:
    for line in reversed(text.splitlines()):
        if line.strip():
            return line.strip()[:LONGEST_LINE]
    return ""
