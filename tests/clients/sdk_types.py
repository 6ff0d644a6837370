"""Checks the visible-output table against the event and delta types that the installed official SDKs declare, and the
table of failure classes against the error codes that they declare.

In: `src/protocol/visible-output.md` and `src/classify/CLASSES.md` (printed from the tables by which the relay decides) and the openai
and anthropic packages of the running interpreter. Out: PASS or FAIL for each kind of type, with every type that has no row, and
`N passed, N failed`. A catch-all row (`*`) is no row here: a type that an SDK declares was decided by somebody, or fails.

`--prove` shows that the check can fail: it drops every needed row once, and empties the extraction.
Exit 0 all well, 1 a type without a row, 2 the check could not run.
"""

import argparse
import inspect
import re
import sys
import typing
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import anthropic._streaming
from anthropic.types import ErrorObject
from anthropic.types import RawContentBlockDelta, RawContentBlockStartEvent, RawMessageStreamEvent, ServerToolUseBlock
from anthropic.types.beta import (BetaRawContentBlockDelta, BetaRawContentBlockStartEvent, BetaRawMessageStreamEvent,
                                  BetaServerToolUseBlock)
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import Choice, ChoiceDelta
from openai.types.responses import ResponseError, ResponseOutputItem, ResponseStreamEvent
from pydantic import BaseModel

SRC = Path(__file__).resolve().parent.parent.parent / "src"
TABLE = SRC / "protocol" / "visible-output.md"
CLASSES = SRC / "classify" / "CLASSES.md"

# Members that carry other members or name the answer, and show nothing themselves: the table's `choice.*` and `chunk.*`
# rows speak for them. Anything that a new SDK adds is in neither list and fails until somebody has looked at it.
STRUCTURE = {"choice.delta", "choice.index", "chunk.choices", "chunk.id", "chunk.created", "chunk.model", "chunk.object",
             "chunk.service_tier", "chunk.system_fingerprint"}


class CannotRun(Exception):
    """The check itself could not run."""


@dataclass
class Kind:
    """One kind of type: what was extracted, what must be among it, and how many there are at least."""

    name: str
    dialect: str
    found: set
    least: int
    sure: set
    # A type's rows, any of which will do: (event, sub, when); None is any value.
    rows: typing.Callable = field(repr=False)


def literals(annotation):
    """The `type` values of a union of models, or the values of a Literal."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return literals(typing.get_args(annotation)[0])
    if origin is typing.Literal:
        return set(typing.get_args(annotation))
    if origin is typing.Union:
        return set().union(*(literals(arm) for arm in typing.get_args(annotation) if arm is not type(None)))
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return literals(annotation.model_fields["type"].annotation)
    raise CannotRun(f"the SDK declares something this check does not understand: {annotation!r}")


def members(model, prefix):
    """Every member of a model and of the models in it, as `prefix.name` and `prefix.name.inner`."""
    found = set()
    for name, info in model.model_fields.items():
        found.add(f"{prefix}.{name}")
        for inner in models(info.annotation):
            found |= members(inner, f"{prefix}.{name}")
    return found


def models(annotation):
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for arm in typing.get_args(annotation) for model in models(arm)]


def member_rows(name):
    """A member's own row or, for what lies deeper, that of the member of the delta that it is part of."""
    if name in STRUCTURE:
        return [(name.split(".")[0] + ".*", "", None)]
    return [(name, None, None), (".".join(name.split(".")[:2]), None, None)]


def extract():
    decoder = set(re.findall(r'sse\.event == "(\w+)"', inspect.getsource(anthropic._streaming)))
    block = "content_block"
    return [
        Kind("delta members", "chat-completions", members(ChoiceDelta, "delta"), 12,
             {"delta.content", "delta.refusal", "delta.tool_calls", "delta.tool_calls.function.arguments"}, member_rows),
        Kind("choice members", "chat-completions", {f"choice.{name}" for name in Choice.model_fields}, 4,
             {"choice.delta", "choice.finish_reason"}, member_rows),
        Kind("chunk members", "chat-completions", {f"chunk.{name}" for name in ChatCompletionChunk.model_fields}, 8,
             {"chunk.choices", "chunk.usage"}, member_rows),
        Kind("event types", "anthropic-messages",
             literals(RawMessageStreamEvent) | literals(BetaRawMessageStreamEvent) | decoder, 8,
             {"message_start", "content_block_delta", "message_stop", "ping", "error"}, lambda name: [(name, None, None)]),
        Kind("content block types", "anthropic-messages",
             literals(RawContentBlockStartEvent.model_fields[block].annotation), 12,
             {"text", "tool_use", "thinking"}, lambda name: [("content_block_start", name, None)]),
        Kind("content block types, beta", "anthropic-messages",
             literals(BetaRawContentBlockStartEvent.model_fields[block].annotation), 15,
             {"text", "mcp_tool_use"}, lambda name: [("content_block_start", name, None)]),
        Kind("delta types", "anthropic-messages", literals(RawContentBlockDelta), 5,
             {"text_delta", "input_json_delta"}, lambda name: [("content_block_delta", name, None)]),
        Kind("delta types, beta", "anthropic-messages", literals(BetaRawContentBlockDelta), 5,
             {"text_delta"}, lambda name: [("content_block_delta", name, None)]),
        # Which tool it is decides whether it may act.
        Kind("hosted tools", "anthropic-messages",
             literals(ServerToolUseBlock.model_fields["name"].annotation)
             | literals(BetaServerToolUseBlock.model_fields["name"].annotation), 7,
             {"web_search", "code_execution"}, lambda name: [("content_block_start", "server_tool_use", f"named {name}")]),
        Kind("event types", "responses", literals(ResponseStreamEvent), 50,
             {"response.created", "response.output_text.delta", "error"}, lambda name: [(name, None, None)]),
        # Which item it is decides whether it is output, and whether it may act.
        Kind("item types", "responses", literals(ResponseOutputItem), 25,
             {"message", "function_call", "mcp_call"}, lambda name: [("response.output_item.added", name, None)]),
        Kind("item types when done", "responses", literals(ResponseOutputItem), 25,
             {"message", "function_call", "mcp_call"}, lambda name: [("response.output_item.done", name, None)]),
        # A code or type alone decides whose fault a failure is, and so whether another route may be asked.
        Kind("error codes of responses", "classes", literals(ResponseError.model_fields["code"].annotation), 20,
             {"server_error", "invalid_prompt", "image_content_policy_violation"}, lambda name: [(name, None, None)]),
        Kind("error types of messages", "classes", literals(ErrorObject), 9,
             {"overloaded_error", "invalid_request_error"}, lambda name: [(name, None, None)]),
    ]


def parse(text):
    """{dialect: {(event, sub, when)}} of the printed table."""
    tables, dialect = {}, None
    for line in text.splitlines():
        if line.startswith("## "):
            dialect = line[3:].strip().strip("`")
            tables[dialect] = set()
        elif dialect and line.lstrip().startswith("|"):
            cells = [cell.replace("\\|", "|").replace("\\*", "*").strip().strip("`").strip()
                     for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            if len(cells) < 4:
                raise CannotRun(f"a row with {len(cells)} cells: {line}")
            if cells[0] == "event" or set(cells[0]) <= set(":- "):
                continue
            tables[dialect].add((cells[0], "" if cells[1] in "-\u2013\u2014" else cells[1], cells[2]))
    return tables


def codes(text):
    """{(code, "", class)} of the printed rules that one code decides by itself."""
    rules = text.split("\n## Rules\n")[-1]
    return {(code, "", said) for code, said in re.findall(r"(?m)^\| `(\w+)` \| [^|]* \| `(\w+)` \|", rules)}


def without_row(kind, table):
    """The types of a kind for which no row speaks."""
    def matches(row, wanted):
        return all(want is None or have == want for have, want in zip(row, wanted))
    return sorted(name for name in kind.found
                  if not any(matches(row, wanted) for wanted in kind.rows(name) for row in table))


def problems(kind, tables):
    """Why a kind fails; empty: it passes."""
    if kind.dialect not in tables:
        return [f"the table has no section '## {kind.dialect}'"]
    found = []
    if len(kind.found) < kind.least or not kind.sure <= kind.found:
        found.append(f"only {len(kind.found)} extracted ({sorted(kind.found)}): the extraction is broken")
    return found + [f"no row for {name}" for name in without_row(kind, tables[kind.dialect])]


def check(tables, kinds):
    passed = failed = 0
    for kind in kinds:
        name = f"sdk-types::{kind.dialect}::{kind.name}"
        why = problems(kind, tables)
        print(f"{'FAIL' if why else 'PASS'} {name} ({len(kind.found)} types)" + "".join(f"\n     {one}" for one in why))
        passed += not why
        failed += bool(why)
    return passed, failed


def prove(tables, kinds):
    """Every row that a type needs, dropped: it must be missed. Every extraction, emptied: it must be noticed."""
    passed = failed = 0
    for kind in [kind for kind in kinds if kind.dialect in tables]:
        table = tables[kind.dialect]
        missed = []
        for name in kind.found:
            wanted = kind.rows(name)
            less = {row for row in table
                    if not any(all(w is None or r == w for r, w in zip(row, one)) for one in wanted)}
            if name not in without_row(kind, less):
                missed.append(f"the rows of {name} can be dropped unnoticed")
        if not problems(Kind(kind.name, kind.dialect, set(), kind.least, kind.sure, kind.rows), tables):
            missed.append("an empty extraction passes")
        print(f"{'FAIL' if missed else 'PASS'} sdk-types::{kind.dialect}::{kind.name} can fail"
              + "".join(f"\n     {one}" for one in missed))
        passed += not missed
        failed += bool(missed)
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--classes", type=Path, default=CLASSES)
    parser.add_argument("--prove", action="store_true", help="also show that the check can fail")
    parser.add_argument("--print", action="store_true", help="print what was extracted")
    args = parser.parse_args()
    try:
        kinds = extract()
        if args.print:
            for kind in kinds:
                print(f"{kind.dialect}, {kind.name}: {' '.join(sorted(kind.found))}")
        for table in (args.table, args.classes):
            if not table.is_file():
                raise CannotRun(f"there is no table at {table}")
        tables = parse(args.table.read_text("utf-8")) | {"classes": codes(args.classes.read_text("utf-8"))}
        print(f"openai {metadata.version('openai')}, anthropic {metadata.version('anthropic')}; rows: "
              + ", ".join(f"{dialect} {len(rows)}" for dialect, rows in tables.items()))
        passed, failed = check(tables, kinds)
        if args.prove:
            more = prove(tables, kinds)
            passed, failed = passed + more[0], failed + more[1]
    except CannotRun as error:
        print(f"the SDK type check could not run: {error}\n0 passed, 1 failed")
        return 2
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
