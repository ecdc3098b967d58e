"""What the doer and the reviewer of a pair are told; what others wrote is in it as data (untrusted_text)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from fleet.domain.untrusted_text import RULE, mark_for, quote_untrusted, shorten
from fleet.work.pair.model import Pair
from fleet.work.pair.review import Finding, FindingState, open_in

# All together stay below what a CLI can be given as an argument; the reviewer sees the rest in its worktree.
LONGEST_TASK = 20_000
LONGEST_DIFF = 40_000
LONGEST_TEXT = 8_000
LONGEST_FINDINGS = 60_000

DO = """{prompt}

---
You work alone in a git worktree of your own. Commit your work there; do not push. {gates}When you end your
turn, another agent reviews what is on your branch."""

GATES = """These commands must succeed in
your worktree when your turn ends:
{commands}
"""

FIX = """Another agent has reviewed your work (round {round} of {bound}). {rule}

{findings}

See to each of these findings: change what is wrong, or say why nothing is. Commit your work, and end your
turn with a line for each of them: its id, and the commit that sees to it or the reason why none does."""

GO_ON = "Go on with your work where you stopped. Commit it, and end your turn when it is done."

START_OVER = """{prompt}

---
An agent before you has begun this; its work is on your branch. Go on from there.

{more}"""

PERSON_SAYS = """A person has looked at it and says:
{word}

"""

REVIEW = """You review a piece of work of another agent. You are in a git worktree that stands at the commit
to be judged. Look at whatever you need; change nothing: whatever you write here is thrown away.

{rule}

This is review {round} of at most {bound}. The work begins after commit {base} and ends at commit {head}.
{advice}
{blocks}

Judge whether the work does what was asked for, and does it well. Say for each finding where it is, what is
wrong, and how you know: quote the code, or tell the input and what comes out. Severities:
- blocker: it must not be merged so: it is wrong, loses data, opens a hole, or does not do what was asked for
- major: it must be fixed, yet it would do for a day
- minor: it should be better
- nit: a matter of taste
{later}
End your turn with one JSON object of this shape, written on a single line of its own, and nothing after it:

{{"review": "{ticket}",
 "verdict": "APPROVED" or "CHANGES_NEEDED",
 "findings": [{{"id": "1", "severity": "blocker|major|minor|nit", "file": "path", "line": 12 or null,
               "claim": "what is wrong", "evidence": "how you know"}}],
 "resolved": ["ids of listed findings that are seen to by now"]}}

The verdict is APPROVED only if nothing of severity blocker or major is left."""

LATER = """
Findings of earlier reviews are listed above with their ids. Name in "resolved" those that are seen to; those
that are not, and that you do not name, stay open. Raise something new only on lines that were changed since
the last review (commit {seen}), with file and line, or if it is a blocker; anything else is only noted.
"""

ASK_AGAIN = """Your answer could not be read: {reason}.
Answer once more, with nothing but the JSON object that you were asked for. It begins with
{{"review": "{ticket}"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What a reviewer is shown."""

    diff: str
    since: str = ""  # what was changed since the last review
    gates: str = ""  # what they said
    summary: str = ""  # the doer's last words


def doer_prompt(pair: Pair) -> str:
    """Return the first prompt of a pair's doer, or the first of a step."""
    prompt = pair.steps[pair.step].prompt if pair.steps else pair.prompt
    commands = "\n".join(f"    {command}" for command in pair.gates)
    return DO.format(prompt=prompt, gates=GATES.format(commands=commands) if commands else "")


def more_prompt(pair: Pair) -> str:
    """Return what a doer is asked for that has worked before, in the same session."""
    if pair.steps and not open_in(pair.findings) and not pair.word_of_person:
        return doer_prompt(pair)
    return _what_is_left(pair)


def _what_is_left(pair: Pair) -> str:
    person = PERSON_SAYS.format(word=pair.word_of_person) if pair.word_of_person else ""
    found = open_in(pair.findings)
    if not found:
        return person + GO_ON
    listed = shorten("\n\n".join(map(_told, found)), LONGEST_FINDINGS, f"see `fleet pair show {pair.id}`")
    block = quote_untrusted("findings", listed, mark_for(pair.secret, f"fix {pair.asked}"))
    return person + FIX.format(round=pair.round - 1, bound=pair.bound, rule=RULE, findings=block)


def anew_prompt(pair: Pair) -> str:
    """Return the same for an agent that knows nothing of what was before."""
    prompt = pair.steps[pair.step].prompt if pair.steps else pair.prompt
    return START_OVER.format(prompt=prompt, more=_what_is_left(pair))


def ticket_of(pair: Pair) -> str:
    """Return what an answer to this round's review must have in it; nobody else can know it."""
    return mark_for(pair.secret, f"ticket {pair.review_task}")[:12]


def review_prompt(pair: Pair, material: Material) -> str:
    secret, base = mark_for(pair.secret, pair.review_task), pair.review_base or pair.base
    wide, narrow = f"git diff {base} {pair.head}", f"git diff {pair.seen} {pair.head}"
    asked_for = "\n\n".join([pair.prompt, *(step.prompt for step in pair.steps)])
    blocks = [
        quote_untrusted("what was asked for", shorten(asked_for, LONGEST_TASK, "it goes on alike"), secret),
        quote_untrusted(
            f"the work, as `{wide}` shows it",
            shorten(material.diff, LONGEST_DIFF, f"see `{wide}`") or "(no line was changed)",
            secret,
        ),
        _shown("what was changed since the last review", material.since, f"see `{narrow}`", secret),
        _shown("what the gates said", material.gates, "they go on", secret),
        _shown("what the doer said last", material.summary, "it goes on", secret),
        _shown("findings of earlier reviews", _as_json(pair.findings), "there are more", secret),
    ]
    return REVIEW.format(
        rule=RULE,
        round=pair.round,
        bound=pair.bound,
        base=base,
        head=pair.head,
        advice=f"\n{pair.advice}\n" if pair.advice else "",
        blocks="\n\n".join(block for block in blocks if block),
        later=LATER.format(seen=pair.seen) if pair.seen else "",
        ticket=ticket_of(pair),
    )


def ask_again_prompt(pair: Pair, reason: str) -> str:
    return ASK_AGAIN.format(reason=reason, ticket=ticket_of(pair))


def _shown(title: str, text: str, hint: str, secret: str) -> str:
    return quote_untrusted(title, shorten(text, LONGEST_TEXT, hint), secret) if text.strip() else ""


def _told(finding: Finding) -> str:
    place = f" ({finding.place})" if finding.place else ""
    evidence = f"\n    evidence: {finding.evidence}" if finding.evidence else ""
    return f"{finding.id} [{finding.severity}]{place}: {finding.claim}{evidence}"


def _as_json(findings: Iterable[Finding]) -> str:
    names = ("id", "severity", "file", "line", "claim", "standing")
    shown = [
        {name: getattr(finding, name) for name in names}
        for finding in findings
        if finding.standing is not FindingState.RESOLVED
    ]
    return json.dumps(shown, indent=1, ensure_ascii=False) if shown else ""
