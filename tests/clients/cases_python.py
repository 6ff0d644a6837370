"""Drives the real Python SDKs: one JSON command a line in, one JSON line of facts out.

In (stdin): `{"client", "mode", "base", "model", "tools"}`, or `{"turn": …}` (turns_python.py). Out (stdout): what the
application saw: `text` (collected as it was yielded), `pieces`, `spread_ms` (from the first piece to the last), `tools`
(whole calls only), `finish`, `usage`, `error`. Nothing is judged here: run.py does that with one table for all languages.
Every client is made as an application would make it: no retry setting, no transport of our own, so that the defaults are
what is tested.
"""

import asyncio
import json
import sys
import time
from importlib import metadata

import anthropic
import openai
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI

import turns_python

KEY = "suite-key"
MESSAGES = [{"role": "user", "content": "Cross it."}]
MAX_TOKENS = 256
PARAMETERS = {
    "get_weather": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "get_time": {"zone": {"type": "string"}},
}


def schema(name):
    properties = PARAMETERS[name]
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


OPENAI_TOOLS = [
    {"type": "function", "function": {"name": name, "description": name, "strict": True, "parameters": schema(name)}}
    for name in PARAMETERS
]
ANTHROPIC_TOOLS = [{"name": name, "description": name, "input_schema": schema(name)} for name in PARAMETERS]


class Seen:
    """What an application has in hand; it stays when an exception ends the call."""

    def __init__(self):
        self.text = ""
        self.pieces = 0
        self.tools = []
        self.finish = None
        self.usage = None
        self.first = self.last = 0.0

    def piece(self, text):
        if text:
            self.text += text
            self.pieces += 1
            self.last = time.monotonic()
            self.first = self.first or self.last

    def tokens(self, entry, given):
        if entry is not None and given is not None:
            self.usage = {"input": entry, "output": given}

    def call(self, name, arguments):
        self.tools.append([name, json.loads(arguments) if isinstance(arguments, str) else arguments])


class Chunks:
    """Puts chat chunks together as an application does that uses the raw stream."""

    def __init__(self, seen):
        self.seen = seen
        self.calls = {}

    def add(self, chunk):
        if chunk.usage:
            self.seen.tokens(chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
        for choice in chunk.choices:
            self.seen.piece(choice.delta.content)
            for part in choice.delta.tool_calls or []:
                call = self.calls.setdefault(part.index, ["", ""])
                call[0] += part.function.name or ""
                call[1] += part.function.arguments or ""
            self.seen.finish = choice.finish_reason or self.seen.finish

    def done(self):
        for _, (name, arguments) in sorted(self.calls.items()):
            self.seen.call(name, arguments)


def openai_args(command):
    args = {"model": command["model"], "messages": MESSAGES}
    if command["tools"]:
        args["tools"] = OPENAI_TOOLS
    return args


def openai_whole(seen, answer):
    choice = answer.choices[0]
    seen.piece(choice.message.content)
    for call in choice.message.tool_calls or []:
        seen.call(call.function.name, call.function.arguments)
    seen.finish = choice.finish_reason
    seen.tokens(answer.usage.prompt_tokens, answer.usage.completion_tokens)


USAGE = {"stream_options": {"include_usage": True}}


def openai_python(seen, command):
    with openai.OpenAI(api_key=KEY, base_url=command["base"] + "/v1") as client:
        if command["mode"] == "whole":
            return openai_whole(seen, client.chat.completions.create(**openai_args(command)))
        chunks = Chunks(seen)
        for chunk in client.chat.completions.create(stream=True, **USAGE, **openai_args(command)):
            chunks.add(chunk)
        chunks.done()


def openai_python_stream(seen, command):
    with openai.OpenAI(api_key=KEY, base_url=command["base"] + "/v1") as client:
        with client.chat.completions.stream(**USAGE, **openai_args(command)) as stream:
            for event in stream:
                if event.type == "content.delta":
                    seen.piece(event.delta)
            final = stream.get_final_completion()
    shown, seen.text, seen.pieces = (seen.text, seen.pieces), "", 0
    openai_whole(seen, final)
    if seen.text != shown[0]:
        raise AssertionError("the helper's final text is not the text that it yielded")
    seen.pieces = shown[1]


async def openai_python_async(seen, command):
    async with openai.AsyncOpenAI(api_key=KEY, base_url=command["base"] + "/v1") as client:
        if command["mode"] == "whole":
            return openai_whole(seen, await client.chat.completions.create(**openai_args(command)))
        chunks = Chunks(seen)
        async for chunk in await client.chat.completions.create(stream=True, **USAGE, **openai_args(command)):
            chunks.add(chunk)
        chunks.done()


RESPONSES_TOOLS = [{"type": "function", **tool["function"]} for tool in OPENAI_TOOLS]


def responses_args(command):
    args = {"model": command["model"], "input": "Cross it."}
    if command["tools"]:
        args["tools"] = RESPONSES_TOOLS
    return args


def responses_whole(seen, answer):
    for item in answer.output:
        if item.type == "message":
            seen.piece("".join(part.text for part in item.content))
        elif item.type == "function_call":
            seen.call(item.name, item.arguments)
    seen.finish = answer.status
    seen.tokens(answer.usage.input_tokens, answer.usage.output_tokens)


class Items:
    """Puts response events together as an application does that uses the raw stream."""

    def __init__(self, seen):
        self.seen = seen
        self.calls = {}

    def add(self, event):
        if event.type == "response.output_text.delta":
            self.seen.piece(event.delta)
        elif event.type == "response.output_item.added" and event.item.type == "function_call":
            self.calls[event.output_index] = [event.item.name, ""]
        elif event.type == "response.function_call_arguments.delta":
            self.calls[event.output_index][1] += event.delta
        elif event.type == "response.completed":
            self.seen.finish = event.response.status
            self.seen.tokens(event.response.usage.input_tokens, event.response.usage.output_tokens)

    def done(self):
        for _, (name, arguments) in sorted(self.calls.items()):
            self.seen.call(name, arguments)


def openai_python_responses(seen, command):
    with openai.OpenAI(api_key=KEY, base_url=command["base"] + "/v1") as client:
        if command["mode"] == "whole":
            return responses_whole(seen, client.responses.create(**responses_args(command)))
        items = Items(seen)
        for event in client.responses.create(stream=True, **responses_args(command)):
            items.add(event)
        items.done()


def openai_python_responses_stream(seen, command):
    items = Items(seen)
    with openai.OpenAI(api_key=KEY, base_url=command["base"] + "/v1") as client:
        with client.responses.stream(**responses_args(command)) as stream:
            for event in stream:
                items.add(event)
            final = stream.get_final_response()
    if final.output_text != seen.text:
        raise AssertionError("the helper's final text is not the text that it yielded")
    items.done()
    told = [[item.name, json.loads(item.arguments)] for item in final.output if item.type == "function_call"]
    if told != seen.tools:
        raise AssertionError("the helper's final calls are not the calls that it yielded")


class Events:
    """Puts Anthropic events together as an application does that uses the raw stream."""

    def __init__(self, seen):
        self.seen = seen
        self.blocks = {}
        self.input_tokens = None

    def add(self, event):
        if event.type == "message_start":
            self.input_tokens = event.message.usage.input_tokens
        elif event.type == "content_block_start" and event.content_block.type == "tool_use":
            self.blocks[event.index] = [event.content_block.name, ""]
        elif event.type == "content_block_delta" and event.delta.type == "text_delta":
            self.seen.piece(event.delta.text)
        elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
            self.blocks[event.index][1] += event.delta.partial_json
        elif event.type == "message_delta":
            self.seen.finish = event.delta.stop_reason
            self.seen.tokens(self.input_tokens, event.usage.output_tokens)

    def done(self):
        for _, (name, arguments) in sorted(self.blocks.items()):
            self.seen.call(name, arguments)


def anthropic_args(command):
    args = {"model": command["model"], "messages": MESSAGES, "max_tokens": MAX_TOKENS}
    if command["tools"]:
        args["tools"] = ANTHROPIC_TOOLS
    return args


def anthropic_whole(seen, answer):
    for block in answer.content:
        if block.type == "text":
            seen.piece(block.text)
        elif block.type == "tool_use":
            seen.call(block.name, block.input)
    seen.finish = answer.stop_reason
    seen.tokens(answer.usage.input_tokens, answer.usage.output_tokens)


def anthropic_python(seen, command):
    with anthropic.Anthropic(api_key=KEY, base_url=command["base"]) as client:
        if command["mode"] == "whole":
            return anthropic_whole(seen, client.messages.create(**anthropic_args(command)))
        events = Events(seen)
        for event in client.messages.create(stream=True, **anthropic_args(command)):
            events.add(event)
        events.done()


def anthropic_python_stream(seen, command):
    with anthropic.Anthropic(api_key=KEY, base_url=command["base"]) as client:
        with client.messages.stream(**anthropic_args(command)) as stream:
            for text in stream.text_stream:
                seen.piece(text)
            final = stream.get_final_message()
    shown, seen.text, seen.pieces = (seen.text, seen.pieces), "", 0
    anthropic_whole(seen, final)
    if seen.text != shown[0]:
        raise AssertionError("the helper's final text is not the text that it yielded")
    seen.pieces = shown[1]


async def anthropic_python_async(seen, command):
    async with anthropic.AsyncAnthropic(api_key=KEY, base_url=command["base"]) as client:
        if command["mode"] == "whole":
            return anthropic_whole(seen, await client.messages.create(**anthropic_args(command)))
        events = Events(seen)
        async for event in await client.messages.create(stream=True, **anthropic_args(command)):
            events.add(event)
        events.done()


def langchain(seen, command, model, tools):
    """LangChain's own loop: chunks are added up, the sum holds whole calls."""
    runnable = model.bind_tools(tools) if command["tools"] else model
    if command["mode"] == "whole":
        message = runnable.invoke("Cross it.")
        seen.piece(message.text)
    else:
        message = None
        for chunk in runnable.stream("Cross it."):
            seen.piece(chunk.text)
            message = chunk if message is None else message + chunk
    for call in message.tool_calls:
        seen.call(call["name"], call["args"])
    if message.invalid_tool_calls:
        raise AssertionError(f"invalid tool calls: {message.invalid_tool_calls}")
    told = message.response_metadata
    seen.finish = told.get("finish_reason") or told.get("stop_reason")
    usage = message.usage_metadata or {}
    seen.tokens(usage.get("input_tokens"), usage.get("output_tokens"))


def langchain_openai(seen, command):
    model = ChatOpenAI(model=command["model"], api_key=KEY, base_url=command["base"] + "/v1", stream_usage=True,
                       use_responses_api=False)
    langchain(seen, command, model, OPENAI_TOOLS)


def langchain_anthropic(seen, command):
    model = ChatAnthropic(model=command["model"], api_key=KEY, base_url=command["base"], max_tokens=MAX_TOKENS)
    langchain(seen, command, model, ANTHROPIC_TOOLS)


RUNNERS = {
    "openai-python": openai_python,
    "openai-python.stream": openai_python_stream,
    "openai-python.async": openai_python_async,
    "openai-python.responses": openai_python_responses,
    "openai-python.responses.stream": openai_python_responses_stream,
    "langchain-openai": langchain_openai,
    "anthropic-python": anthropic_python,
    "anthropic-python.stream": anthropic_python_stream,
    "anthropic-python.async": anthropic_python_async,
    "langchain-anthropic": langchain_anthropic,
}


def failure(error):
    """The exception as an application can look at it."""
    sdk = isinstance(error, (openai.APIError, anthropic.APIError))
    body = getattr(error, "body", None)
    response = getattr(error, "response", None)
    if response is not None:
        try:
            body = response.json()
        except Exception:  # a stream's body was read by the SDK already, or is no JSON: what `body` holds is all there is
            pass
    handle = None
    if isinstance(body, dict):
        inner = body.get("error")
        handle = body.get("rubicon") or (inner.get("rubicon") if isinstance(inner, dict) else None)
    return {
        "class": f"{type(error).__module__.split('.')[0]}.{type(error).__name__}", "sdk": sdk,
        "transport": isinstance(error, (openai.APIConnectionError, anthropic.APIConnectionError)),
        "status": getattr(error, "status_code", None), "message": str(error)[:500], "rubicon": handle,
        "should_retry": response.headers.get("x-should-retry") if response is not None else None,
    }


def play(command):
    seen, error = Seen(), None
    runner = RUNNERS[command["client"]]
    try:
        if asyncio.iscoroutinefunction(runner):
            asyncio.run(runner(seen, command))
        else:
            runner(seen, command)
    except Exception as raised:  # every kind of exception is a fact for the judge
        error = failure(raised)
    return {"text": seen.text, "pieces": seen.pieces, "spread_ms": (seen.last - seen.first) * 1000, "tools": seen.tools,
            "finish": seen.finish, "usage": seen.usage, "error": error}


def main():
    # Standard output is the line protocol's alone: whatever a library prints goes to the log.
    out, sys.stdout = sys.stdout, sys.stderr
    names = ["openai", "anthropic", "langchain-openai", "langchain-anthropic"]
    print(json.dumps({"ready": {name: metadata.version(name) for name in names}}), file=out, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        facts = turns_python.take(command["turn"], failure) if "turn" in command else play(command)
        print(json.dumps(facts), file=out, flush=True)


if __name__ == "__main__":
    main()
