"""One turn of an agent on the real Python SDKs; the conversation of a session stays here between its turns.

In: `{"client", "session", "base", "model", "say", "results", "headers"}`: what the user says (or null), results of calls as `[[id, text]…]`,
headers that this request alone carries. Out: the operation's id from the response's header, the calls and text that the application has in
hand. The messages go back as the SDK made them. An exception is the caller's.
"""

import json

import anthropic
import openai

KEY = "suite-key"
SESSIONS = {}
PARAMETERS = {"type": "object", "properties": {"order": {"type": "string"}, "cents": {"type": "integer"}},
              "required": ["order", "cents"]}
TOOL = {"name": "refund_order", "description": "Pays money back.", "parameters": PARAMETERS}


def openai_client(turn):
    return openai.OpenAI(api_key=KEY, base_url=turn["base"] + "/v1")


def chat(turn, told, history):
    history += [{"role": "tool", "tool_call_id": ident, "content": text} for ident, text in turn["results"]]
    if turn["say"]:
        history.append({"role": "user", "content": turn["say"]})
    with openai_client(turn) as client:
        stream = client.chat.completions.create(model=turn["model"], messages=history, stream=True,
                                                tools=[{"type": "function", "function": TOOL}], extra_headers=turn["headers"])
        told["operation"] = stream.response.headers["rubicon-operation-id"]
        calls = {}
        for chunk in stream:
            for choice in chunk.choices:
                told["text"] += choice.delta.content or ""
                for part in choice.delta.tool_calls or []:
                    call = calls.setdefault(part.index, {"id": part.id, "name": part.function.name, "arguments": ""})
                    call["arguments"] += part.function.arguments or ""
                    told["calls"] = list(calls.values())
    said = {"role": "assistant", "content": told["text"] or None}
    if calls:
        said["tool_calls"] = [{"id": call["id"], "type": "function",
                               "function": {"name": call["name"], "arguments": call["arguments"]}} for call in calls.values()]
    history.append(said)


def responses(turn, told, history, previous=False):
    """With `previous`, the account keeps the conversation, and a turn carries only what is new."""
    news = [{"type": "function_call_output", "call_id": ident, "output": text} for ident, text in turn["results"]]
    if turn["say"]:
        news.append({"role": "user", "content": turn["say"]})
    args = {"model": turn["model"], "stream": True, "tools": [{"type": "function", **TOOL}], "extra_headers": turn["headers"]}
    if previous:
        # Where an answer was cut, what was asked is asked again; after it, the history is the last response's id.
        if news:
            history[1:] = [news]
        args["input"] = history[1]
        if history[0]:
            args["previous_response_id"] = history[0]
    else:
        history += news
        args["input"] = history
    with openai_client(turn) as client:
        stream = client.responses.create(**args)
        told["operation"] = stream.response.headers["rubicon-operation-id"]
        for event in stream:
            if event.type == "response.output_text.delta":
                told["text"] += event.delta
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                told["calls"].append({"id": event.item.call_id, "name": event.item.name, "arguments": event.item.arguments})
            elif event.type == "response.completed":
                final = event.response
    if previous:
        history[0] = final.id
    else:
        history += [item.model_dump(exclude_none=True) for item in final.output]


def responses_previous(turn, told, history):
    if not history:
        history += [None, []]
    responses(turn, told, history, previous=True)


def messages(turn, told, history):
    content = [{"type": "tool_result", "tool_use_id": ident, "content": text} for ident, text in turn["results"]]
    if turn["say"]:
        content.append({"type": "text", "text": turn["say"]})
    if content:
        history.append({"role": "user", "content": content})
    tool = {"name": TOOL["name"], "description": TOOL["description"], "input_schema": PARAMETERS}
    with anthropic.Anthropic(api_key=KEY, base_url=turn["base"]) as client:
        stream = client.messages.create(model=turn["model"], max_tokens=256, messages=history, tools=[tool], stream=True,
                                        extra_headers=turn["headers"])
        told["operation"] = stream.response.headers["rubicon-operation-id"]
        blocks = {}
        for event in stream:
            if event.type == "content_block_start" and event.content_block.type == "tool_use":
                blocks[event.index] = {"id": event.content_block.id, "name": event.content_block.name, "arguments": ""}
            elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                blocks[event.index]["arguments"] += event.delta.partial_json
            elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                told["text"] += event.delta.text
            elif event.type == "content_block_stop" and event.index in blocks:
                told["calls"].append(blocks[event.index])
    said = [{"type": "text", "text": told["text"]}] if told["text"] else []
    said += [{"type": "tool_use", "id": block["id"], "name": block["name"], "input": json.loads(block["arguments"])}
             for block in told["calls"]]
    history.append({"role": "assistant", "content": said})


def chat_whole(turn, told, history):
    history += [{"role": "tool", "tool_call_id": ident, "content": text} for ident, text in turn["results"]]
    if turn["say"]:
        history.append({"role": "user", "content": turn["say"]})
    with openai_client(turn) as client:
        raw = client.chat.completions.with_raw_response.create(
            model=turn["model"], messages=history, tools=[{"type": "function", "function": TOOL}], extra_headers=turn["headers"])
    told["operation"], message = raw.headers["rubicon-operation-id"], raw.parse().choices[0].message
    told["text"] = message.content or ""
    told["calls"] = [{"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
                     for call in message.tool_calls or []]
    history.append(message.model_dump(exclude_none=True))


def responses_whole(turn, told, history):
    history += [{"type": "function_call_output", "call_id": ident, "output": text} for ident, text in turn["results"]]
    if turn["say"]:
        history.append({"role": "user", "content": turn["say"]})
    with openai_client(turn) as client:
        raw = client.responses.with_raw_response.create(
            model=turn["model"], input=history, tools=[{"type": "function", **TOOL}], extra_headers=turn["headers"])
    told["operation"], answer = raw.headers["rubicon-operation-id"], raw.parse()
    told["text"] = answer.output_text
    told["calls"] = [{"id": item.call_id, "name": item.name, "arguments": item.arguments}
                     for item in answer.output if item.type == "function_call"]
    history += [item.model_dump(exclude_none=True) for item in answer.output]


def messages_whole(turn, told, history):
    content = [{"type": "tool_result", "tool_use_id": ident, "content": text} for ident, text in turn["results"]]
    if turn["say"]:
        content.append({"type": "text", "text": turn["say"]})
    history.append({"role": "user", "content": content})
    tool = {"name": TOOL["name"], "description": TOOL["description"], "input_schema": PARAMETERS}
    with anthropic.Anthropic(api_key=KEY, base_url=turn["base"]) as client:
        raw = client.messages.with_raw_response.create(model=turn["model"], max_tokens=256, messages=history, tools=[tool],
                                                       extra_headers=turn["headers"])
    told["operation"], answer = raw.headers["rubicon-operation-id"], raw.parse()
    for block in answer.content:
        if block.type == "text":
            told["text"] += block.text
        elif block.type == "tool_use":
            told["calls"].append({"id": block.id, "name": block.name, "arguments": json.dumps(block.input)})
    history.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]})


TURNS = {
    "openai-python": chat,
    "openai-python.responses": responses,
    "openai-python.previous": responses_previous,
    "anthropic-python": messages,
    "openai-python.whole": chat_whole,
    "openai-python.responses.whole": responses_whole,
    "anthropic-python.whole": messages_whole,
}


def take(turn, failure):
    """Plays a turn; `failure` describes what was raised."""
    told = {"operation": None, "calls": [], "text": "", "error": None}
    try:
        TURNS[turn["client"]](turn, told, SESSIONS.setdefault(turn["session"], []))
    except Exception as raised:  # every kind of exception is a fact for the judge
        told["error"] = failure(raised)
    return told
