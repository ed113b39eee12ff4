"""Checks of trace lines: types and bounds of all fields, and consistency of the fields of a step.

Code that uses a trace relies on these checks. They raise ``InputError``, which names the invalid field.
"""

from __future__ import annotations

import re
from collections.abc import Sized
from itertools import chain, pairwise
from typing import Annotated, Any, TypeVar

import msgspec
import orjson

from d2sd.errors import InputError, require
from d2sd.trace.events import TEMPERATURES, Baseline, Draft, Event, PrefillDone, StepDone
from d2sd.trace.files import NOT_UTF_8, UTF_16
from d2sd.trace.text import escaped

Line = bytes | memoryview
Read = TypeVar("Read")
SCHEMA = 2
MAX_HEADER_DEPTH = 4
MAX_HEADER_ITEMS = 10_000
# This project writes the field ``event`` first, so the kind of most lines is read without parsing.
_START = re.compile(rb'\{"event":"(\w{1,40})"')


class _Kind(msgspec.Struct):
    event: str


class _HeaderFields(msgspec.Struct, tag_field="event", tag="Header"):
    """The fields of a header that are checked. A header may have other fields, too."""

    schema: Annotated[int, msgspec.Meta(ge=1)]
    run: Annotated[str, msgspec.Meta(max_length=200)]
    method: Annotated[str, msgspec.Meta(max_length=200)]
    config: dict[str, Any]
    models: dict[str, Any]
    versions: dict[str, Any]
    hardware: dict[str, Any]
    prompt: str | None
    parts: dict[str, dict[str, Any]] = {}


_kind = msgspec.json.Decoder(_Kind)
_header = msgspec.json.Decoder(_HeaderFields)
_header_fields = msgspec.json.Decoder(dict[str, Any])
_event = msgspec.json.Decoder(Event)
_baseline = msgspec.json.Decoder(Baseline)


def kind_of(line: Line) -> str:
    match = _START.match(line)
    return match[1].decode() if match else read_kind(line)


def read_kind(line: Line) -> str:
    """Returns the field ``event`` of a line. Raises ``InputError`` if the line is not JSON or lacks this field."""
    return _decoded(_kind, line).event


def read_event(line: Line) -> Event:
    """Returns the event in a line. Raises ``InputError`` if a field has the wrong type or is out of bounds."""
    return _decoded(_event, line)


def read_baseline(line: Line) -> Baseline | None:
    """Returns the ``Baseline`` in a line; None if the line is not a valid ``Baseline``."""
    try:
        return _decoded(_baseline, line)
    except InputError:
        return None


def read_header(line: Line) -> dict[str, Any]:
    """Returns the header in a line, including unknown fields. Raises ``InputError`` if it is invalid or its schema is too new."""
    _decoded(_header, line)
    header = _decoded(_header_fields, line)
    schema = header["schema"]
    require(schema <= SCHEMA, f"this trace has schema {schema}; this version reads up to {SCHEMA}")
    _check_size(header)
    return header


def is_json(line: Line) -> bool:
    """Returns whether a line is complete JSON. The last line of a killed run may be truncated."""
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def _check_size(header: dict[str, Any]) -> None:
    """Raises ``InputError`` if a header is too large or nested too deeply. The names of the fields are not checked."""
    level: list[Any] = [header]
    for _ in range(MAX_HEADER_DEPTH):
        level = [i for v in level if isinstance(v, dict | list) for i in (v.values() if isinstance(v, dict) else v)]
        require(len(level) <= MAX_HEADER_ITEMS, f"the header holds more than {MAX_HEADER_ITEMS} values at one level")
        fits = all(not isinstance(v, int) or -(2**63) <= v < 2**63 for v in level)
        require(fits, "the header holds a whole number that does not fit into 64 bits")
    require(not level, f"the header is nested more than {MAX_HEADER_DEPTH} levels deep")


def _decoded(decoder: msgspec.json.Decoder[Read], line: Line) -> Read:
    try:
        return decoder.decode(line)
    except msgspec.ValidationError as error:
        sentence, _, place = str(error).replace("`", "").partition(" - at $")
        sentence = escaped(f"{sentence[:1].lower()}{sentence[1:160]}")
        raise InputError(f"{escaped(place[:100].lstrip('.'))}: {sentence}" if place else sentence) from None
    except msgspec.DecodeError as error:
        raise InputError(NOT_UTF_8 if bytes(line[:2]) in UTF_16 else f"not JSON ({error})") from None
    except UnicodeDecodeError:
        raise InputError(NOT_UTF_8) from None
    except RecursionError:
        raise InputError("nested too deeply") from None


def check_step(step: StepDone) -> None:
    """Raises ``InputError`` if the tree, the drafts, the accepted path or the committed tokens of a step contradict each other."""
    parents = _check_tree(step)
    path = _check_path(step, parents)
    _check_committed(step, path)
    _check_drafts(step)
    _check_levels(step)
    for index, tops in enumerate(step.target_tops):
        require(tops.node < len(step.nodes), f"target_tops[{index}].node: there is no node {tops.node}")
    for index, draw in enumerate(step.draws):
        require(draw.node < len(step.nodes), f"draws[{index}].node: there is no node {draw.node}")
        require(len(draw.noise) == len(draw.tokens), f"draws[{index}].noise: one value for each of its tokens")


def check_prefill(prefill: PrefillDone) -> None:
    """Raises ``InputError`` unless prefill has one text per token and commits at most one token, which is the target's."""
    require(len(prefill.texts) == len(prefill.prompt_token_ids), "texts: one text per prompt token is needed")
    of_target = all(c.node is None and c.proposer == "target" for c in prefill.committed)
    require(of_target and len(prefill.committed) <= 1, "committed: prefill commits at most one token, from the target")


def check_order(step: StepDone, before: StepDone | None, prefill: PrefillDone | None, number: int) -> None:
    """Raises ``InputError`` if the number, the anchor or the time of a step does not follow from the events before it.

    before: the previous step; None for the first step.
    prefill: the event of prefill, or None. The first step's anchor is the last token that prefill read or committed.
    number: index of the step among the steps read so far.
    """
    require(step.step == number, f"step: steps are numbered from 0; this is step {number}")
    if before is not None:
        position, token = before.anchor_position + len(before.committed), before.committed[-1].token
        require(step.elapsed >= before.elapsed, "elapsed: it must not be less than in the previous step")
    elif prefill is not None and prefill.prompt_token_ids:
        read = [*prefill.prompt_token_ids, *(c.token for c in prefill.committed)]
        position, token = len(read) - 1, read[-1]
    else:
        return
    require(step.anchor_position == position, f"anchor_position: the step follows the token at position {position}")
    require(step.anchor == token, f"anchor: the step follows the token with id {token}")


def _need_all_or_none(items: Sized, count: int, field: str, each: str) -> None:
    require(len(items) in (0, count), f"{field}: empty, or {each}")


def _check_tree(step: StepDone) -> list[int]:
    """Checks that node 0 is the root and that every parent precedes its children. Returns the parent of each node."""
    nodes = step.nodes
    require(nodes, "nodes: the anchor, node 0, is missing")
    if wrong := [n for n, node in enumerate(nodes) if node.id != n]:
        raise InputError(f"nodes[{wrong[0]}].id: the nodes are numbered from 0 in order; this is number {wrong[0]}")
    root = nodes[0]
    require(root.parent == -1 and root.depth == 0, "nodes[0]: the anchor has parent -1 and depth 0")
    require(root.state == "root", 'nodes[0].state: the anchor\'s state is "root"')
    require(root.token == step.anchor, "nodes[0].token: node 0 is the anchor and has its token")
    parents, depths = [n.parent for n in nodes], [n.depth for n in nodes]
    if wrong := [n for n, parent in enumerate(parents[1:], 1) if not 0 <= parent < n]:
        raise InputError(f"nodes[{wrong[0]}].parent: it must be an earlier node, 0 to {wrong[0] - 1}")
    below = [0, *(depths[parent] + 1 for parent in parents[1:])]
    if wrong := [n for n, depth in enumerate(depths) if depth != below[n]]:
        raise InputError(f"nodes[{wrong[0]}].depth: it must be {below[wrong[0]]}, one more than its parent's depth")
    drafts = len(step.branches)
    if max(chain.from_iterable([n.candidates for n in nodes]), default=0) > drafts:
        first = next(n.id for n in nodes if max(n.candidates, default=0) > drafts)
        raise InputError(f"nodes[{first}].candidates: the drafts of this step are numbered 0 to {drafts}")
    return parents


def _check_path(step: StepDone, parents: list[int]) -> list[int]:
    """Checks that the accepted nodes form a path from the anchor. Returns the ids of the path's nodes, the anchor first."""
    states, path = [n.state for n in step.nodes], [0, *step.accepted]
    for index, (before, node) in enumerate(pairwise(path)):
        require(node < len(parents), f"accepted[{index}]: there is no node {node}")
        require(parents[node] == before, f"accepted[{index}]: node {node} is not a child of node {before}")
        fits = states[node] == "accepted"
        require(fits, f'nodes[{node}].state: it must be "accepted", since the node is in accepted')
    require(states.count("accepted") == len(path) - 1, "accepted: it must list every node whose state is accepted")
    require(states.count("root") == 1, 'nodes: only node 0 has the state "root"')
    reached = set(path)
    for node, state in enumerate(states):
        if state == "rejected" and parents[node] not in reached:
            raise InputError(f"nodes[{node}].state: only children of nodes on the accepted path can be rejected")
    return path


def _check_committed(step: StepDone, path: list[int]) -> None:
    """Checks that the committed tokens are the accepted ones and at most one bonus token, and that ``choices`` agree with them."""
    committed = step.committed
    require(committed, "committed: a step commits at least one token")
    drafted = [c for c in committed if c.node is not None]
    require([c.node for c in drafted] == path[1:], "committed: their nodes must be the accepted ones, in order")
    bonus = len(committed) - len(drafted)
    require(bonus <= 1 and (not bonus or committed[-1].node is None), "committed: only the last token may have no node")
    for index, (c, node) in enumerate(zip(drafted, path[1:], strict=True)):
        fits = c.token == step.nodes[node].token
        require(fits, f"committed[{index}].token: it must be the token of node {node}")
    choices = step.choices
    require([c.node for c in choices] == path[: len(choices)], "choices: their nodes must be the accepted path")
    for index, (choice, token) in enumerate(zip(choices, committed, strict=False)):
        require(choice.token == token.token, f"choices[{index}].token: it must be the committed token")
    require(len(choices) <= len(committed), "choices: there are more choices than committed tokens")


def _check_drafts(step: StepDone) -> None:
    """Checks that the lists of each draft have equal lengths, and that no index is out of range."""
    first = step.first_draft
    if first is not None:
        _check_draft(first, "first_draft")
        require(first.prefix == 0 and first.base == 0, "first_draft: it starts at the anchor: prefix 0, base 0")
    drafted = len(first.ids) if first else 0
    lengths = [drafted]
    for number, branch in enumerate(step.branches, 1):
        field = f"branches[{number - 1}]"
        _check_draft(branch, field)
        require(branch.base < number, f"{field}.base: it must be an earlier draft, 0 to {number - 1}")
        longest = lengths[branch.base]
        require(branch.prefix <= longest, f"{field}.prefix: draft {branch.base} has only {longest} tokens")
        lengths.append(branch.prefix + len(branch.ids))
    each = f"one value for each of {drafted} drafted tokens"
    _need_all_or_none(step.boundary_posterior, drafted, "boundary_posterior", each)
    require(max(step.selected_prefixes, default=0) <= drafted, f"selected_prefixes: only {drafted} tokens were drafted")
    fits = step.actual_boundary is None or (first is not None and step.actual_boundary <= drafted)
    require(fits, f"actual_boundary: only {drafted} tokens were drafted")
    drafts = [] if first is None else [first, *step.branches]
    _need_all_or_none(step.trained, len(drafts), "trained", f"one list for each of {len(drafts)} drafts")
    for index, (confidences, draft) in enumerate(zip(step.trained, drafts, strict=False)):
        _need_all_or_none(confidences, len(draft.ids), f"trained[{index}]", f"one for each of the {len(draft.ids)} ids")
    _need_all_or_none(step.tempered, drafted, "tempered", f"one list for each of the {drafted} drafted tokens")
    for index, row in enumerate(step.tempered):
        fits = len(row) == len(TEMPERATURES)
        require(fits, f"tempered[{index}]: one value for each of {len(TEMPERATURES)} temperatures")


def _check_levels(step: StepDone) -> None:
    """Checks that the lists of each level have equal lengths, and that the parents and nodes that they name exist."""
    previous = 1  # number of entries of the previous level
    for number, level in enumerate(step.levels):
        field, count = f"levels[{number}]", len(level.ids)
        fits = {len(level.texts), len(level.parents), len(level.scores), len(level.nodes)} == {count}
        require(fits, f"{field}: every list needs one entry for each of the {count} ids")
        fits = max(level.parents, default=0) < previous
        require(fits, f"{field}.parents: the previous level has only {previous} entries")
        for token, node in zip(level.ids, level.nodes, strict=True):
            fits = node is None or (node < len(step.nodes) and step.nodes[node].token == token)
            require(fits, f"{field}.nodes: node {node} does not exist or its token is not {token}")
        previous = count


def _check_draft(draft: Draft, field: str) -> None:
    count = len(draft.ids)
    each = f"one for each of the {count} ids"
    require(len(draft.texts) == count, f"{field}.texts: {each}")
    _need_all_or_none(draft.confidence, count, f"{field}.confidence", each)
    _need_all_or_none(draft.alternatives, count, f"{field}.alternatives", each)
