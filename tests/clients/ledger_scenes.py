"""What agents do with one write tool through the real SDKs: the scenes, the scripted model's answers and the relay's config.

In: nothing. Out: one `Scene` for each (kind x client that can play it), the script for `rubicon mock`, the TOML for `rubicon serve`.
The model is obstinate: each answer asks for the same refund again, under another `tool_call_id`. Whether money is paid twice is then up to
the relay, and to what its client tells it. Every scene has its own provider, workflow, tool and order.

Deliberately not here: how a turn is made (turns_python.py, turns_node.mjs) and what must come of it (ledger.py).
"""

import json
from dataclasses import dataclass

import scenarios
from scenarios import ABORT_RST, JSON, Anthropic, Chat, Responses, full_answer, full_stream, head

TEXT = ["The money ", "is on its way."]


@dataclass(frozen=True)
class Client:
    """A real SDK as the model's side of an agent loop."""

    name: str
    worker: str            # "python" or "node"
    fmt: type
    streams: bool = True
    restarts: bool = True  # raises what the relay refuses as it is, and shows the application its status


# The AI SDK hands failures on as parts of its stream and tries a 409 again by itself: it plays what goes well. An answer that is not
# streamed cannot be cut after a call.
CLIENTS = [
    Client("openai-python", "python", Chat),
    Client("openai-python.responses", "python", Responses),
    Client("openai-python.previous", "python", Responses),
    Client("anthropic-python", "python", Anthropic),
    Client("openai-python.whole", "python", Chat, streams=False, restarts=False),
    Client("openai-python.responses.whole", "python", Responses, streams=False, restarts=False),
    Client("anthropic-python.whole", "python", Anthropic, streams=False, restarts=False),
    Client("openai-node", "node", Chat),
    Client("openai-node.responses", "node", Responses),
    Client("anthropic-node", "node", Anthropic),
    Client("ai-sdk-openai", "node", Chat, restarts=False),
    Client("ai-sdk-openai.responses", "node", Responses, restarts=False),
    Client("ai-sdk-anthropic", "node", Anthropic, restarts=False),
]

# kind -> what the model does, answer after answer: how many calls, or "text", or "cut" (one whole call, then a reset).
KINDS = {
    "run-by-relay": [1, 1, "text", 1],
    "run-by-client": [1, 1, "text", 1],
    "parallel": [2, "text"],
    "restart": ["cut", 1],
}


@dataclass(frozen=True)
class Scene:
    """One client in one kind of scene, with the names that are its own."""

    client: Client
    kind: str

    @property
    def id(self):
        return f"{self.client.name}-{self.kind}".replace(".", "-")

    @property
    def name(self):
        return f"ledger::{self.client.name}::{self.kind}"

    @property
    def model(self):
        return f"app-{self.id}"

    @property
    def upstream(self):
        return f"up-{self.id}"

    @property
    def rule(self):
        return f"{self.id}/model"

    @property
    def order(self):
        return f"order-{self.id}"

    @property
    def arguments(self):
        return json.dumps({"order": self.order, "cents": 4200}, separators=(",", ":"))


def scenes(only=""):
    """Every scene whose name contains one of the comma-separated words of `only`."""
    words = [word for word in only.split(",") if word]
    found = [Scene(client, kind) for client in CLIENTS for kind in KINDS if client.restarts or kind != "restart"]
    return [scene for scene in found if not words or any(word in scene.name for word in words)]


def chat_calls(scene, turn, ids):
    steps = Chat.prelude(scene.upstream)
    for index, ident in enumerate(ids):
        call = {"index": index, "id": ident, "type": "function", "function": {"name": "refund_order", "arguments": ""}}
        steps.append(Chat.chunk(scene.upstream, {"tool_calls": [call]}))
        for part in scenarios.fragments(scene.arguments):
            steps.append(Chat.chunk(scene.upstream, {"tool_calls": [{"index": index, "function": {"arguments": part}}]}))
    return steps, Chat.end(scene.upstream, "tools")


def anthropic_calls(scene, turn, ids):
    steps = Anthropic.prelude(scene.upstream)
    for index, ident in enumerate(ids):
        steps.append(Anthropic.event({"type": "content_block_start", "index": index, "content_block": {
            "type": "tool_use", "id": ident, "name": "refund_order", "input": {}}}))
        steps += [Anthropic.event({"type": "content_block_delta", "index": index,
                                   "delta": {"type": "input_json_delta", "partial_json": part}})
                  for part in scenarios.fragments(scene.arguments)]
        steps.append(Anthropic.event({"type": "content_block_stop", "index": index}))
    return steps, Anthropic.end(scene.upstream, "tools")


def responses_calls(scene, turn, ids):
    def response(status, output=(), usage=False):
        return Responses.response(scene.upstream, status, output, usage) | {"id": f"resp_{scene.id}_{turn}"}

    def item(ident, status, arguments):
        return {"id": f"fc_{ident}", "type": "function_call", "status": status, "call_id": ident, "name": "refund_order",
                "arguments": arguments}

    steps = [Responses.event("response.created", response=response("in_progress"))]
    for index, ident in enumerate(ids):
        place = {"item_id": f"fc_{ident}", "output_index": index}
        steps.append(Responses.event("response.output_item.added", output_index=index, item=item(ident, "in_progress", "")))
        steps += [Responses.event("response.function_call_arguments.delta", **place, delta=part)
                  for part in scenarios.fragments(scene.arguments)]
        steps.append(Responses.event("response.function_call_arguments.done", **place, name="refund_order",
                                     arguments=scene.arguments))
        steps.append(Responses.event("response.output_item.done", output_index=index,
                                     item=item(ident, "completed", scene.arguments)))
    output = [item(ident, "completed", scene.arguments) for ident in ids]
    return steps, [Responses.event("response.completed", response=response("completed", output, usage=True))]


CALLS = {Chat: chat_calls, Anthropic: anthropic_calls, Responses: responses_calls}


def whole_calls(scene, turn, ids):
    """The same calls in an answer that is not streamed."""
    fmt, answer = scene.client.fmt, scene.client.fmt.whole(scene.upstream)
    if fmt is Chat:
        answer["choices"][0] |= {"finish_reason": "tool_calls"}
        answer["choices"][0]["message"]["tool_calls"] = [
            {"id": ident, "type": "function", "function": {"name": "refund_order", "arguments": scene.arguments}} for ident in ids]
    elif fmt is Anthropic:
        answer |= {"stop_reason": "tool_use", "content": [
            {"type": "tool_use", "id": ident, "name": "refund_order", "input": json.loads(scene.arguments)} for ident in ids]}
    else:
        answer |= {"id": f"resp_{scene.id}_{turn}", "output": [
            {"id": f"fc_{ident}", "type": "function_call", "status": "completed", "call_id": ident, "name": "refund_order",
             "arguments": scene.arguments} for ident in ids]}
    return [head(200, JSON), {"json": answer}]


def answers(scene):
    """The model's answers, one after another."""
    fmt, made = scene.client.fmt, []
    for turn, act in enumerate(KINDS[scene.kind]):
        if act == "text":
            made.append(fmt.numbered(full_stream(fmt, scene.upstream, TEXT)) if scene.client.streams
                        else full_answer(fmt, scene.upstream, TEXT))
            continue
        ids = [f"call_{scene.id}_{turn}_{at}" for at in range(1 if act == "cut" else act)]
        if not scene.client.streams:
            made.append(whole_calls(scene, turn, ids))
            continue
        steps, end = CALLS[fmt](scene, turn, ids)
        # Time for what came before to be read, so that the reset cannot overtake it in the kernel's buffers.
        tail = [{"delay_ms": 100}, ABORT_RST] if act == "cut" else end
        made.append(fmt.numbered([head()] + steps + tail))
    return made


class Table:
    """What `run.Bench` needs of a table; `tool_url` is the scripted tool's."""

    def __init__(self, tool_url):
        self.tool_url = tool_url

    @staticmethod
    def script(selected):
        rules = [{"name": scene.rule, "path": scene.client.fmt.path, "model": scene.upstream, "answers": answers(scene)}
                 for scene in selected]
        return {"listen": "127.0.0.1:0", "rules": rules}

    def config(self, selected, provider_url, listen, verified_on, until):
        lines = ["[server]", f'listen = "{listen}"', 'store = "redb:ledger.redb"', "",
                 "[tool.refund_order]", 'effect = "write"', 'owner = "payments"', 'key_fields = ["/order"]',
                 f'endpoint = {{ url = "{self.tool_url}" }}', ""]
        for scene in selected:
            fmt, name = scene.client.fmt, scene.id
            base = provider_url + ("" if fmt.kind == "anthropic" else "/v1")
            lines += [f"[provider.{name}]", f'kind = "{fmt.kind}"', f'base_url = "{base}"', 'api_key = "env:SUITE_KEY_A"', "",
                      f"[route.{name}]", f'provider = "{name}"', f'model = "{scene.upstream}"',
                      f'dialects = ["{fmt.dialect}"]', "",
                      f"[workflow.{name}]", f'models = ["{scene.model}"]', f'primary = "{name}"', ""]
        return "\n".join(lines)
