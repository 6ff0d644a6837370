"""What is played against the real SDK clients: the scenarios, the scripted provider's answers and the relay's config.

In: the list of clients. Out: one `Case` for each (client x scenario), the script for `rubicon mock` and the TOML for
`rubicon serve`. Every case has its own providers, routes, workflow and model names, so that no breaker, budget or count
of one case can touch another. The answers are built from the wire formats in the providers' public references.

Deliberately not here: how a client is driven (cases_python.py, cases_node.mjs) and how processes are run (run.py).
"""

import json
from dataclasses import dataclass, field

# What the providers say. More than one piece, some of it not ASCII, so that a cut or a decoding fault shows.
TEXT_A = ["Crossing ", "the ", "Rubicon: ", "\u00e4lea iacta est \u2713"]
TEXT_B = ["The second ", "route ", "answers."]
TOOLS = [
    ("get_weather", '{"city":"Rimini","days":3}'),
    ("get_time", '{"zone":"Europe/Rome"}'),
]
INPUT_TOKENS = 11
OUTPUT_TOKENS = 7

# The pause of the `live` answer. Half of it must be seen between the first and the last piece.
LIVE_MS = 400

SSE = {"content-type": "text/event-stream; charset=utf-8"}
JSON = {"content-type": "application/json"}
CREATED = 1_750_000_000


def joined(pieces):
    return "".join(pieces)


class Chat:
    """Answers in the chat-completions format."""

    name = "chat"
    dialect = "chat-completions"
    kind = "openai"
    path = "/v1/chat/completions"

    @staticmethod
    def event(data):
        return {"event": {"data": data}}

    @staticmethod
    def numbered(steps):
        return steps

    @classmethod
    def chunk(cls, model, delta, finish=None):
        return cls.event({
            "id": "chatcmpl-suite", "object": "chat.completion.chunk", "created": CREATED, "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        })

    @classmethod
    def prelude(cls, model):
        return [cls.chunk(model, {"role": "assistant", "content": ""})]

    @classmethod
    def text(cls, model, pieces):
        return [cls.chunk(model, {"content": piece}) for piece in pieces]

    @classmethod
    def tools(cls, model, whole=True):
        steps = []
        for index, (name, arguments) in enumerate(TOOLS):
            head = {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": ""}}
            steps.append(cls.chunk(model, {"tool_calls": [head]}))
            for part in fragments(arguments):
                steps.append(cls.chunk(model, {"tool_calls": [{"index": index, "function": {"arguments": part}}]}))
        return steps if whole else steps[:-2]

    @classmethod
    def end(cls, model, reason="stop"):
        finish = {"stop": "stop", "tools": "tool_calls"}[reason]
        return [
            cls.chunk(model, {}, finish),
            cls.event({"id": "chatcmpl-suite", "object": "chat.completion.chunk", "created": CREATED, "model": model,
                       "choices": [], "usage": cls.usage()}),
            cls.event("[DONE]"),
        ]

    @staticmethod
    def usage():
        return {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS,
                "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS}

    @classmethod
    def stream_error(cls):
        return [cls.event({"error": {"message": "The server had an error", "type": "server_error", "param": None,
                                     "code": None}})]

    @classmethod
    def whole(cls, model, pieces=(), tools=False):
        message = {"role": "assistant", "content": joined(pieces) or None, "refusal": None}
        if tools:
            message["tool_calls"] = [{"id": f"call_{index}", "type": "function",
                                      "function": {"name": name, "arguments": arguments}}
                                     for index, (name, arguments) in enumerate(TOOLS)]
        return {"id": "chatcmpl-suite", "object": "chat.completion", "created": CREATED, "model": model,
                "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if tools else "stop"}],
                "usage": cls.usage()}

    ERRORS = {
        503: {"error": {"message": "That model is currently overloaded.", "type": "server_error", "param": None,
                        "code": "overloaded"}},
        401: {"error": {"message": "Incorrect API key provided.", "type": "invalid_request_error", "param": None,
                        "code": "invalid_api_key"}},
        400: {"error": {"message": "Invalid 'messages'.", "type": "invalid_request_error", "param": "messages",
                        "code": "invalid_value"}},
    }


class Anthropic:
    """Answers in the anthropic-messages format."""

    name = "anthropic"
    dialect = "anthropic-messages"
    kind = "anthropic"
    path = "/v1/messages"

    @staticmethod
    def event(data):
        return {"event": {"name": data["type"], "data": data}}

    @staticmethod
    def numbered(steps):
        return steps

    @classmethod
    def prelude(cls, model):
        return [
            cls.event({"type": "message_start", "message": {
                "id": "msg_suite", "type": "message", "role": "assistant", "model": model, "content": [],
                "stop_reason": None, "stop_sequence": None,
                "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": 1}}}),
            cls.event({"type": "ping"}),
        ]

    @classmethod
    def text(cls, model, pieces):
        steps = [cls.event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})]
        for piece in pieces:
            steps.append(cls.event({"type": "content_block_delta", "index": 0,
                                    "delta": {"type": "text_delta", "text": piece}}))
        return steps

    @classmethod
    def tools(cls, model, whole=True):
        steps = []
        for index, (name, arguments) in enumerate(TOOLS):
            steps.append(cls.event({"type": "content_block_start", "index": index, "content_block": {
                "type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}}))
            for part in fragments(arguments):
                steps.append(cls.event({"type": "content_block_delta", "index": index,
                                        "delta": {"type": "input_json_delta", "partial_json": part}}))
            steps.append(cls.event({"type": "content_block_stop", "index": index}))
        return steps if whole else steps[:-3]

    @classmethod
    def end(cls, model, reason="stop"):
        steps = [cls.event({"type": "content_block_stop", "index": 0})] if reason == "stop" else []
        return steps + [
            cls.event({"type": "message_delta",
                       "delta": {"stop_reason": {"stop": "end_turn", "tools": "tool_use"}[reason],
                                 "stop_sequence": None},
                       "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}}),
            cls.event({"type": "message_stop"}),
        ]

    @classmethod
    def stream_error(cls):
        return [{"event": {"name": "error", "data": {"type": "error", "error": {"type": "overloaded_error",
                                                                                "message": "Overloaded"}}}}]

    @classmethod
    def whole(cls, model, pieces=(), tools=False):
        content = [{"type": "text", "text": joined(pieces)}] if pieces else []
        if tools:
            content += [{"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": json.loads(arguments)}
                        for index, (name, arguments) in enumerate(TOOLS)]
        return {"id": "msg_suite", "type": "message", "role": "assistant", "model": model, "content": content,
                "stop_reason": "tool_use" if tools else "end_turn", "stop_sequence": None,
                "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}}

    ERRORS = {
        503: {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        401: {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}},
        400: {"type": "error", "error": {"type": "invalid_request_error", "message": "messages: invalid"}},
    }


class Responses:
    """Answers in the responses format."""

    name = "responses"
    dialect = "responses"
    kind = "openai"
    path = "/v1/responses"

    @staticmethod
    def event(kind, **members):
        return {"event": {"name": kind, "data": {"type": kind} | members}}

    @staticmethod
    def numbered(steps):
        """Every event has its number, from 0; other steps stay."""
        number, out = 0, []
        for step in steps:
            if "event" in step:
                step = {"event": step["event"] | {"data": step["event"]["data"] | {"sequence_number": number}}}
                number += 1
            out.append(step)
        return out

    @classmethod
    def response(cls, model, status, output=(), usage=False):
        return {"id": "resp_suite", "object": "response", "created_at": CREATED, "status": status, "background": False,
                "error": None, "incomplete_details": None, "instructions": None, "max_output_tokens": None, "model": model,
                "output": list(output), "parallel_tool_calls": True, "previous_response_id": None,
                "reasoning": {"effort": None, "summary": None}, "store": True, "temperature": 1.0,
                "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": 1.0,
                "truncation": "disabled", "usage": cls.usage() if usage else None, "user": None, "metadata": {}}

    @classmethod
    def prelude(cls, model):
        return [cls.event("response.created", response=cls.response(model, "in_progress")),
                cls.event("response.in_progress", response=cls.response(model, "in_progress"))]

    @staticmethod
    def part(text):
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    @classmethod
    def message(cls, status, text=None):
        return {"id": "msg_suite", "type": "message", "role": "assistant", "status": status,
                "content": [] if text is None else [cls.part(text)]}

    @staticmethod
    def call(index, status, arguments):
        return {"id": f"fc_{index}", "type": "function_call", "status": status, "call_id": f"call_{index}",
                "name": TOOLS[index][0], "arguments": arguments}

    PLACE = {"item_id": "msg_suite", "output_index": 0, "content_index": 0}

    @classmethod
    def text(cls, model, pieces):
        steps = [cls.event("response.output_item.added", output_index=0, item=cls.message("in_progress")),
                 cls.event("response.content_part.added", **cls.PLACE, part=cls.part(""))]
        return steps + [cls.event("response.output_text.delta", **cls.PLACE, delta=piece, logprobs=[])
                        for piece in pieces]

    @classmethod
    def tools(cls, model, whole=True):
        steps = []
        for index, (name, arguments) in enumerate(TOOLS):
            steps.append(cls.event("response.output_item.added", output_index=index,
                                   item=cls.call(index, "in_progress", "")))
            place = {"item_id": f"fc_{index}", "output_index": index}
            steps += [cls.event("response.function_call_arguments.delta", **place, delta=part)
                      for part in fragments(arguments)]
            steps.append(cls.event("response.function_call_arguments.done", **place, name=name, arguments=arguments))
            steps.append(cls.event("response.output_item.done", output_index=index,
                                   item=cls.call(index, "completed", arguments)))
        return steps if whole else steps[:-4]

    @classmethod
    def end(cls, model, reason="stop", pieces=None):
        """The end repeats the answer, so the text must be told (`full_stream` does)."""
        if reason == "tools":
            output = [cls.call(index, "completed", arguments) for index, (_, arguments) in enumerate(TOOLS)]
            return [cls.event("response.completed", response=cls.response(model, "completed", output, usage=True))]
        text = joined(TEXT_A if pieces is None else pieces)
        done = cls.message("completed", text)
        return [cls.event("response.output_text.done", **cls.PLACE, text=text, logprobs=[]),
                cls.event("response.content_part.done", **cls.PLACE, part=cls.part(text)),
                cls.event("response.output_item.done", output_index=0, item=done),
                cls.event("response.completed", response=cls.response(model, "completed", [done], usage=True))]

    @staticmethod
    def usage():
        return {"input_tokens": INPUT_TOKENS, "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": OUTPUT_TOKENS, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS}

    @classmethod
    def stream_error(cls):
        """As OpenAI sends it: nested, and then the response that failed."""
        error = {"type": "server_error", "code": "server_error", "message": "The server had an error", "param": None}
        failed = cls.response("m", "failed") | {"error": {"code": "server_error", "message": "The server had an error"}}
        return [cls.event("error", error=error), cls.event("response.failed", response=failed)]

    @classmethod
    def whole(cls, model, pieces=(), tools=False):
        output = [cls.message("completed", joined(pieces))] if pieces else []
        if tools:
            output += [cls.call(index, "completed", arguments) for index, (_, arguments) in enumerate(TOOLS)]
        return cls.response(model, "completed", output, usage=True)

    ERRORS = Chat.ERRORS


def fragments(text, size=5):
    """Small parts, so that no client can get a call in one piece."""
    return [text[at:at + size] for at in range(0, len(text), size)]


def head(status=200, headers=SSE):
    return {"head": {"status": status, "headers": dict(headers)}}


def refusal(fmt, status):
    return [head(status, JSON), {"json": fmt.ERRORS[status]}]


def full_stream(fmt, model, pieces):
    ending = {"pieces": pieces} if fmt is Responses else {}
    return [head()] + fmt.prelude(model) + fmt.text(model, pieces) + fmt.end(model, **ending)


def full_tools(fmt, model):
    return [head()] + fmt.prelude(model) + fmt.tools(model) + fmt.end(model, "tools")


def full_answer(fmt, model, pieces=(), tools=False):
    return [head(200, JSON), {"json": fmt.whole(model, pieces, tools)}]


# The answers below take (format, upstream model) and give the steps of one answer.
def ok_a(fmt, model):
    return full_stream(fmt, model, TEXT_A)


def ok_b(fmt, model):
    return full_stream(fmt, model, TEXT_B)


def live(fmt, model):
    """A pause in the middle of the text: what came before it must be shown before it is over."""
    steps = ok_a(fmt, model)
    return steps[:-len(fmt.end(model)) - 1] + [{"delay_ms": LIVE_MS}] + steps[-len(fmt.end(model)) - 1:]


def status(code):
    return lambda fmt, model: refusal(fmt, code)


def broken(*tail, pieces=TEXT_A, tools=False):
    """Starts well, shows text (or parts of a call), then comes to the end given by `tail`."""
    def answer(fmt, model):
        shown = fmt.tools(model, whole=False) if tools else (fmt.text(model, pieces) if pieces else [])
        rest = fmt.stream_error() if tail == ("error",) else list(tail)
        # Time for what came before to be read, so that a reset cannot overtake it in the kernel's buffers.
        pause = [{"delay_ms": 100}]
        return [head()] + fmt.prelude(model) + shown + pause + rest
    return answer


def late(ms, answer):
    return lambda fmt, model: [{"delay_ms": ms}] + answer(fmt, model)


ABORT_RST = {"abort": "rst"}
ABORT_FIN = {"abort": "fin"}
HALF_EVENT = {"text": "data: {\"half\": \"an eve"}


@dataclass(frozen=True)
class Scenario:
    """One row of the table."""

    name: str
    mode: str                       # "stream" or "whole"
    primary: object                 # answer of the primary
    secondary: object               # answer of the equivalent
    calls: tuple                    # calls that the provider must have counted: (primary, secondary)
    text: str = ""                  # exactly what the client must have yielded
    tools: bool = False             # the request declares tools, and both calls must arrive whole
    declares_tools: bool = False    # the request declares tools, no whole call may arrive
    finish: str = None              # "stop" or "tools"; None: not judged
    usage: bool = False
    error: object = None            # None, "interrupted", "frame" (an error inside a 200) or an HTTP status
    spread_ms: int = 0              # at least this long from the first piece to the last
    shown_first: bool = True        # an interruption: text must have been yielded before the error
    hold: str = ""                  # a `hold = {…}` line for the workflow
    why: str = ""


SCENARIOS = [
    Scenario("stream-normal", "stream", ok_a, ok_b, (1, 0), text=joined(TEXT_A), finish="stop", usage=True),
    Scenario("stream-live", "stream", live, ok_b, (1, 0), text=joined(TEXT_A), finish="stop", usage=True,
             spread_ms=LIVE_MS // 2, why="text is passed on as it comes, not at the end"),
    Scenario("stream-tool-call", "stream", full_tools, ok_b, (1, 0), tools=True, finish="tools", usage=True),
    Scenario("stream-slow-start", "stream", late(600, ok_a), ok_b, (1, 0), text=joined(TEXT_A), finish="stop",
             usage=True, hold="hold = { keepalive_after_ms = 200 }",
             why="the relay's keep-alives must not disturb any client"),
    Scenario("failover-503", "stream", status(503), ok_b, (1, 1), text=joined(TEXT_B), finish="stop", usage=True),
    Scenario("failover-error-before-output", "stream", broken("error", pieces=()), ok_b, (1, 1),
             text=joined(TEXT_B), finish="stop", usage=True, why="a 200 and an error in its first events"),
    Scenario("failover-cut-before-output", "stream", broken(ABORT_RST, pieces=()), ok_b, (1, 1),
             text=joined(TEXT_B), finish="stop", usage=True, why="a 200, the prelude, and a reset"),
    Scenario("interrupted-reset", "stream", broken(ABORT_RST), ok_b, (1, 0), text=joined(TEXT_A), error="interrupted"),
    Scenario("interrupted-fin", "stream", broken(ABORT_FIN), ok_b, (1, 0), text=joined(TEXT_A), error="interrupted"),
    Scenario("interrupted-clean-end", "stream", broken(), ok_b, (1, 0), text=joined(TEXT_A), error="interrupted",
             why="the provider's body ends well but without its terminal event"),
    Scenario("interrupted-half-event", "stream", broken(HALF_EVENT, {"delay_ms": 50}, ABORT_RST), ok_b, (1, 0),
             text=joined(TEXT_A), error="interrupted", why="half an event must not spoil the error frame"),
    Scenario("interrupted-provider-error", "stream", broken("error"), ok_b, (1, 0), text=joined(TEXT_A),
             error="interrupted"),
    Scenario("interrupted-tool-call", "stream", broken(ABORT_RST, tools=True), ok_b, (1, 0), declares_tools=True,
             error="interrupted", shown_first=False, why="a cut call must end in an error, not in a call"),
    Scenario("exhausted", "stream", status(503), status(503), (1, 1), error=424),
    Scenario("exhausted-after-keepalive", "stream", late(600, status(503)), status(503), (1, 1), error="frame",
             hold="hold = { keepalive_after_ms = 200 }", why="the 200 is spent: the error comes as a frame, and no SDK may retry it"),
    Scenario("blocked-401", "stream", status(401), ok_b, (1, 0), error=424, why="a blocked class makes no second call"),
    Scenario("invalid-400", "stream", status(400), ok_b, (1, 0), error=400, why="the request's own fault keeps its status"),
    Scenario("whole-normal", "whole", lambda f, m: full_answer(f, m, TEXT_A), ok_b, (1, 0), text=joined(TEXT_A),
             finish="stop", usage=True),
    Scenario("whole-tool-call", "whole", lambda f, m: full_answer(f, m, tools=True), ok_b, (1, 0), tools=True,
             finish="tools", usage=True),
    Scenario("whole-failover-503", "whole", status(503), lambda f, m: full_answer(f, m, TEXT_B), (1, 1),
             text=joined(TEXT_B), finish="stop", usage=True),
    Scenario("whole-exhausted", "whole", status(503), status(503), (1, 1), error=424),
    Scenario("whole-blocked-401", "whole", status(401), lambda f, m: full_answer(f, m, TEXT_B), (1, 0), error=424),
]


@dataclass(frozen=True)
class Client:
    """A real SDK, in one way of using it."""

    name: str
    worker: str        # "python" or "node"
    fmt: type
    streams: bool = True
    wholes: bool = True
    frame_handle: bool = True    # shows the application the `rubicon` member of an error frame
    body_handle: bool = True     # and that of an error body


# openai-node keeps only the `error` member of an error body, the AI SDK only the known members of an error frame: there
# the application has the message, the status and the headers, not the handle.
CLIENTS = [
    Client("openai-python", "python", Chat),
    Client("openai-python.stream", "python", Chat, wholes=False),
    Client("openai-python.async", "python", Chat),
    Client("langchain-openai", "python", Chat),
    Client("anthropic-python", "python", Anthropic),
    Client("anthropic-python.stream", "python", Anthropic, wholes=False),
    Client("anthropic-python.async", "python", Anthropic),
    Client("langchain-anthropic", "python", Anthropic),
    Client("openai-node", "node", Chat, body_handle=False),
    Client("openai-node.stream", "node", Chat, wholes=False, body_handle=False),
    Client("anthropic-node", "node", Anthropic),
    Client("anthropic-node.stream", "node", Anthropic, wholes=False),
    Client("ai-sdk-openai", "node", Chat, frame_handle=False),
    Client("ai-sdk-anthropic", "node", Anthropic, frame_handle=False),
    # An SDK that raises on the `error` event keeps its member `error`; `rubicon` stands beside it.
    Client("openai-python.responses", "python", Responses, frame_handle=False),
    Client("openai-python.responses.stream", "python", Responses, wholes=False, frame_handle=False),
    Client("openai-node.responses", "node", Responses, frame_handle=False, body_handle=False),
    Client("openai-node.responses.stream", "node", Responses, wholes=False, frame_handle=False, body_handle=False),
    Client("ai-sdk-openai.responses", "node", Responses, frame_handle=False),
]


@dataclass(frozen=True)
class Case:
    """One client in one scenario, with the names that are its own."""

    client: Client
    scenario: Scenario
    id: str = field(default="")

    @property
    def name(self):
        return f"clients::{self.client.name}::{self.scenario.name}"

    @property
    def model(self):
        return f"app-{self.id}"

    def counted(self, calls):
        """(primary, secondary) of what the scripted provider counted. No other case calls these routes."""
        return tuple(calls["by_rule"].get(f"{self.id}/{side}", 0) for side in ("a", "b"))

    def upstream(self, side):
        return f"up-{self.id}-{side}"


def cases(only=""):
    """Every case whose name contains one of the comma-separated words of `only`."""
    words = [word for word in only.split(",") if word]
    found = []
    for client in CLIENTS:
        for scenario in SCENARIOS:
            if not (client.streams if scenario.mode == "stream" else client.wholes):
                continue
            case = Case(client, scenario, f"{client.name}-{scenario.name}".replace(".", "-"))
            if not words or any(word in case.name for word in words):
                found.append(case)
    return found


def script(selected):
    """The script for the scripted provider: two rules a case."""
    rules = []
    for case in selected:
        fmt = case.client.fmt
        for side, answer in (("a", case.scenario.primary), ("b", case.scenario.secondary)):
            model = case.upstream(side)
            rules.append({"name": f"{case.id}/{side}", "path": fmt.path, "model": model,
                          "answers": [fmt.numbered(answer(fmt, model))]})
    return {"listen": "127.0.0.1:0", "rules": rules}


def config(selected, provider_url, listen, verified_on, until):
    """The relay's config: two providers, two routes, one approved failover and one workflow a case."""
    lines = ["[server]", f'listen = "{listen}"', ""]
    for case in selected:
        fmt, name = case.client.fmt, case.id
        base = provider_url + ("" if fmt.kind == "anthropic" else "/v1")
        for side in ("a", "b"):
            lines += [
                f"[provider.{name}-{side}]", f'kind = "{fmt.kind}"', f'base_url = "{base}"',
                f'api_key = "env:SUITE_KEY_{side.upper()}"', "",
                f"[route.{name}-{side}]", f'provider = "{name}-{side}"', f'model = "{case.upstream(side)}"',
                f'dialects = ["{fmt.dialect}"]', 'capabilities = ["text", "tools", "parallel_tools", "json_schema"]',
                "context_tokens = 100000",
                f'verified = {{ on = {verified_on}, by = "suite", evidence = "scripted", until = {until} }}', "",
            ]
        lines += [
            f"[workflow.{name}]", f'models = ["{case.model}"]', f'primary = "{name}-a"', f'equivalents = ["{name}-b"]',
        ]
        if case.scenario.hold:
            lines.append(case.scenario.hold)
        lines += [
            f"[workflow.{name}.envelope]", "max_attempts = 2", "deadline_ms = 20000", "",
            f"[workflow.{name}.failover]", "enabled = true", "",
            "[[approval]]", f'workflow = "{name}"', f'route = "{name}-b"', 'purpose = "failover"',
            'by = "suite@example.test"', 'evidence = "scripted"', f"until = {until}", "",
        ]
    return "\n".join(lines)
