"""A small second provider and a small second relay, so that the suite itself can be proved.

`provider` plays the same script as `rubicon mock`; `relay` reads the same TOML as `rubicon serve` and behaves as SPEC.md
sections 4 to 7 say, as far as the scenarios need it. With `--fault NAME` the relay has one defect; selftest.py demands
that the suite notices each. Nothing here is used against the real relay, and nothing of it is a model for it: no limits,
no time-outs, loopback only.
"""

import argparse
import asyncio
import json
import socket
import struct
import tomllib
from urllib.parse import urlsplit

import fake_ledger

FAULTS = {
    "clean_end": "ends a cut stream as if nothing had happened",
    "abort_only": "aborts a cut stream without an error frame",
    "made_up_end": "ends a cut stream with a terminal event of its own",
    "splice": "lets the second provider answer after visible output",
    "wrong_frame": "sends an error frame of a form that official SDKs do not raise",
    "no_failover": "gives up after the first provider",
    "retryable_status": "answers 503 when it has given up, without x-should-retry",
    "hidden_call": "calls the second provider although the first one answered",
    "drops_event": "loses one event in the middle of a stream",
    "leaks_error": "passes a provider's error before output on to the client instead of failing over",
    "retryable_frame": "sends a frame that the AI SDK answers with retries, when it has given up after a keep-alive",
    "late_text": "holds all text back, so that nothing was shown when the stream is cut",
}


# ---- a little HTTP/1.1 ----------------------------------------------------------------------------------------------

async def read_head(reader):
    """The first line and the headers; None at the end of the connection."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    lines = raw.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return lines[0], headers


async def read_chunks(reader):
    """The chunks of a chunked body; raises when it is cut."""
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        data = await reader.readexactly(size + 2)
        if size == 0:
            return
        yield data[:-2]


async def read_body(reader, headers):
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return b"".join([chunk async for chunk in read_chunks(reader)])
    return b""


class Reply:
    """Writes one response, chunked once a first byte of the body goes out."""

    def __init__(self, writer, request=None):
        self.writer = writer
        self.request = request or {}    # the request's headers
        self.always = {}                # headers that the answer has, whatever it is
        self.started = False

    async def head(self, status, headers, length=None):
        lines = [f"HTTP/1.1 {status} X"] + [f"{name}: {value}" for name, value in (headers | self.always).items()]
        lines.append("transfer-encoding: chunked" if length is None else f"content-length: {length}")
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        self.started = True
        await self.writer.drain()

    async def chunk(self, data):
        self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await self.writer.drain()

    async def end(self):
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def json(self, status, value, headers=None):
        await self.text(status, json.dumps(value), headers)

    async def text(self, status, text, headers=None):
        data = text.encode()
        await self.head(status, {"content-type": "application/json", **(headers or {})}, len(data))
        self.writer.write(data)
        await self.writer.drain()

    async def abort(self, how):
        if how == "rst":
            sock = self.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort()
        else:
            self.writer.close()
        raise ConnectionAbortedError


async def serve(port, handle, banner):
    async def connection(reader, writer):
        try:
            while (head := await read_head(reader)) is not None:
                line, headers = head
                method, target, _ = line.split(" ", 2)
                await handle(method, urlsplit(target).path, await read_body(reader, headers), Reply(writer, headers))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", port)
    print(banner.format(server.sockets[0].getsockname()[1]), flush=True)
    async with server:
        await server.serve_forever()


# ---- the provider ---------------------------------------------------------------------------------------------------

class Provider:
    def __init__(self, script):
        self.rules = script["rules"]
        self.counts = {}

    async def handle(self, method, path, body, reply):
        if path == "/__mock/reset":
            self.counts = {}
            return await reply.json(200, {})
        if path == "/__mock/calls":
            return await reply.json(200, {"total": sum(self.counts.values()), "by_rule": self.counts})
        model = json.loads(body or b"{}").get("model")
        for rule in self.rules:
            if rule["path"] == path and rule["model"] == model:
                seen = self.counts.get(rule["name"], 0)
                self.counts[rule["name"]] = seen + 1
                return await self.play(rule["answers"][min(seen, len(rule["answers"]) - 1)], reply)
        await reply.json(404, {"error": {"message": "no rule"}})

    async def play(self, steps, reply):
        head = (200, {})
        for step in steps:
            (kind, value), = step.items()
            if kind == "delay_ms":
                await asyncio.sleep(value / 1000)
                continue
            if kind == "head":
                head = (value["status"], value["headers"])
                continue
            if kind == "json":
                return await reply.json(head[0], value, head[1])
            if not reply.started:
                await reply.head(*head)
            if kind == "event":
                data = value["data"] if isinstance(value["data"], str) else json.dumps(value["data"])
                name = f"event: {value['name']}\n" if value.get("name") else ""
                await reply.chunk(f"{name}data: {data}\n\n".encode())
            elif kind == "text":
                await reply.chunk(value.encode())
            elif kind == "abort":
                await reply.abort(value)
            else:
                raise ValueError(f"step {kind} is not known here")
        await reply.end()


# ---- the relay ------------------------------------------------------------------------------------------------------

class ChatFormat:
    keepalive = b": keep-alive\n\n"

    @staticmethod
    def read(event):
        """(visible, fault, ending) of one event."""
        data = [line[6:] for line in event.decode().split("\n") if line.startswith("data: ")]
        if data == ["[DONE]"]:
            return False, False, "terminal"
        value = json.loads("".join(data) or "{}")
        if "error" in value:
            return False, True, None
        visible = any(item not in ("", None) for choice in value.get("choices", [])
                      for name, item in choice["delta"].items() if name != "role")
        return visible, False, None

    @staticmethod
    def frame(message, handle, fault, code=None):
        if fault == "wrong_frame":
            return b'event: error\ndata: {"type":"error","message":"broken"}\n\n'
        error = {"message": message, "type": "rubicon_error", "param": None, "code": code, "rubicon": handle}
        return b"data: " + json.dumps({"error": error}).encode() + b"\n\n"

    @staticmethod
    def body(message, handle):
        return {"error": {"message": message, "type": "rubicon_error", "param": None, "code": None}, "rubicon": handle}

    made_up = (b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
               b'"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')


class AnthropicFormat:
    keepalive = b'event: ping\ndata: {"type":"ping"}\n\n'

    @staticmethod
    def read(event):
        data = [line[6:] for line in event.decode().split("\n") if line.startswith("data: ")]
        value = json.loads("".join(data) or "{}")
        kind = value.get("type")
        if kind == "message_stop":
            return False, False, "terminal"
        if kind == "error":
            return False, True, None
        visible = kind == "content_block_delta" or (kind == "content_block_start" and
                                                    value["content_block"]["type"] == "tool_use")
        return visible, False, None

    @staticmethod
    def frame(message, handle, fault, code=None):
        kind = "overloaded_error" if fault == "retryable_frame" else "api_error"
        value = {"type": "error", "error": {"type": kind, "message": message}, "rubicon": handle}
        name = b"" if fault == "wrong_frame" else b"event: error\n"
        return name + b"data: " + json.dumps(value).encode() + b"\n\n"

    @staticmethod
    def body(message, handle):
        return {"type": "error", "error": {"type": "api_error", "message": message}, "rubicon": handle}

    made_up = (b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
               b'"usage":{"output_tokens":1}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n')


class ResponsesFormat:
    # The helpers of the official SDKs raise at any event before `response.created`.
    keepalive = b": keep-alive\n\n"

    @staticmethod
    def read(event):
        data = [line[6:] for line in event.decode().split("\n") if line.startswith("data: ")]
        value = json.loads("".join(data) or "{}")
        kind = value.get("type")
        if kind == "response.completed":
            return False, False, "terminal"
        if kind in ("error", "response.failed"):
            return False, True, None
        visible = bool(value.get("delta")) or (kind == "response.output_item.added" and
                                               value["item"]["type"] == "function_call")
        return visible, False, None

    @staticmethod
    def frame(message, handle, fault, code=None):
        code = "server_error" if fault == "retryable_frame" else str(code or "rubicon_interrupted")
        value = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": 99}
        if fault == "wrong_frame":
            return b"event: error\ndata: " + json.dumps(value).encode() + b"\n\n"
        value |= {"error": {"type": "upstream_error", "code": code, "message": message, "param": None}, "rubicon": handle}
        response = {"id": "resp_x", "object": "response", "status": "failed", "output": [],
                    "error": {"code": "rubicon_interrupted", "message": message, "rubicon": handle}}
        failed = {"type": "response.failed", "sequence_number": 100, "response": response}
        return (b"event: error\ndata: " + json.dumps(value).encode() + b"\n\nevent: response.failed\ndata: " +
                json.dumps(failed).encode() + b"\n\n")

    body = ChatFormat.body
    made_up = (b'event: response.completed\ndata: {"type":"response.completed","sequence_number":99,"response":{"id":"x",'
               b'"object":"response","created_at":1,"status":"completed","model":"m","output":[],"tools":[],'
               b'"parallel_tool_calls":true,"tool_choice":"auto","usage":{"input_tokens":1,"input_tokens_details":'
               b'{"cached_tokens":0},"output_tokens":1,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":2}}}\n\n')


FORMATS = {"/v1/chat/completions": ChatFormat, "/v1/messages": AnthropicFormat, "/v1/responses": ResponsesFormat}
UNAVAILABLE = {"status": "unavailable", "reason": "no_eligible_fallback", "operation_id": "op_fake", "retryable": False}
INTERRUPTED = {"status": "interrupted", "reason": "partial_output", "operation_id": "op_fake", "after": 1,
               "actions": ["restart"], "unresolved_executions": 0, "retryable": False}

UNCERTAIN = {"status": "unavailable", "reason": "side_effect_uncertain", "actions": ["reconcile"], "retryable": False}


class Relay:
    def __init__(self, config, fault):
        self.config = config
        self.fault = fault
        self.by_model = {model: flow for flow in config["workflow"].values() for model in flow["models"]}
        self.ledger = fake_ledger.Ledger(config.get("tool", {}), fault)

    async def handle(self, method, path, body, reply):
        if path == "/readyz":
            return await reply.json(200, {})
        if path not in FORMATS:
            return await self.ledger.handle(method, path, body, reply)
        fmt, request = FORMATS[path], json.loads(body)
        operation = self.ledger.enter(request, reply.request.get("rubicon-restart-of"))
        if operation is None:
            return await reply.json(409, fmt.body("An outcome is not known.", UNCERTAIN), {"x-should-retry": "false"})
        reply.always = {"rubicon-operation-id": operation}
        flow = self.by_model[request["model"]]
        names = [flow["primary"]] + flow.get("equivalents", [])
        routes = [self.config["route"][name] for name in names[:flow.get("envelope", {}).get("max_attempts", 1)]]
        if self.fault == "no_failover":
            routes = routes[:1]
        after = flow.get("hold", {}).get("keepalive_after_ms", 15000)
        beat = asyncio.create_task(self.beat(reply, fmt, after)) if request.get("stream") else None
        state = {"fmt": fmt, "reply": reply, "beat": beat, "shown": False}
        try:
            for route in routes:
                if await self.attempt(route, path, request, state):
                    if self.fault == "hidden_call":
                        quiet = {"fmt": fmt, "reply": None, "beat": None, "shown": False}
                        await self.attempt(self.config["route"][names[1]], path, request, quiet)
                    return
            await self.give_up(state, UNAVAILABLE)
        finally:
            if beat:
                beat.cancel()

    async def beat(self, reply, fmt, after_ms):
        await asyncio.sleep(after_ms / 1000)
        await reply.head(200, {"content-type": "text/event-stream"})
        while True:
            await reply.chunk(fmt.keepalive)
            await asyncio.sleep(after_ms / 1000)

    async def give_up(self, state, handle):
        fmt, reply = state["fmt"], state["reply"]
        if state["beat"]:
            state["beat"].cancel()
        if reply.started:
            code = 503 if self.fault == "retryable_frame" else 424
            await reply.chunk(fmt.frame("No provider could answer.", handle, self.fault, code))
            await asyncio.sleep(0.05)
            await reply.abort("fin")
        if self.fault == "retryable_status":
            return await reply.json(503, fmt.body("No provider could answer.", handle))
        await reply.json(424, fmt.body("No provider could answer.", handle), {"x-should-retry": "false"})

    async def attempt(self, route, path, request, state):
        """True once the client has its answer, whatever it is."""
        provider = self.config["provider"][route["provider"]]
        address = urlsplit(provider["base_url"])
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            body = json.dumps({**request, "model": route["model"]}).encode()
            writer.write(f"POST {path} HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-type: application/json\r\n"
                         f"content-length: {len(body)}\r\n\r\n".encode() + body)
            line, headers = await read_head(reader) or ("HTTP/1.1 0 cut", {})
            status = int(line.split(" ")[1])
            if request.get("stream") and status == 200:
                return await self.stream(reader, state)
            answer = await read_body(reader, headers)
            if state["reply"] is None:
                return True
            self.ledger.saw(state["reply"].always["rubicon-operation-id"], answer)
            if status in (200, 400):
                if state["beat"]:
                    state["beat"].cancel()
                value = json.loads(answer)
                await state["reply"].json(status, value)
                return True
            if status == 401:
                await self.give_up(state, UNAVAILABLE)
                return True
            return False
        finally:
            writer.close()

    async def stream(self, reader, state):
        fmt, reply = state["fmt"], state["reply"]
        held, buffer, count, terminal = [], b"", 0, False
        try:
            async for chunk in read_chunks(reader):
                buffer += chunk
                while b"\n\n" in buffer:
                    event, buffer = buffer.split(b"\n\n", 1)
                    if reply:
                        self.ledger.saw(reply.always["rubicon-operation-id"], event)
                    visible, fault, ending = fmt.read(event)
                    if fault and self.fault != "leaks_error":
                        raise ConnectionError("the provider's own error event")
                    count += 1
                    terminal = terminal or ending == "terminal"
                    if self.fault == "drops_event" and count == 7:
                        continue
                    held.append(event + b"\n\n")
                    holding = self.fault == "late_text" and not terminal
                    if (visible or terminal or fault or state["shown"]) and not holding and reply:
                        if state["beat"]:
                            state["beat"].cancel()
                        if not reply.started:
                            await reply.head(200, {"content-type": "text/event-stream", "cache-control": "no-store"})
                        state["shown"] = True
                        for piece in held:
                            await reply.chunk(piece)
                        held = []
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        if terminal or reply is None:
            if reply:
                await reply.end()
            return True
        if self.fault == "late_text" and len(held) > 3:
            return await self.cut(state)
        return await self.cut(state) if state["shown"] else False

    async def cut(self, state):
        fmt, reply = state["fmt"], state["reply"]
        if self.fault == "splice":
            return False
        if not reply.started:
            await reply.head(200, {"content-type": "text/event-stream"})
        if self.fault == "made_up_end":
            await reply.chunk(fmt.made_up)
        if self.fault in ("clean_end", "made_up_end"):
            await reply.end()
            return True
        if self.fault != "abort_only":
            await reply.chunk(fmt.frame("The answer was interrupted.", INTERRUPTED, self.fault))
        await asyncio.sleep(0.02)
        await reply.abort("fin")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=["provider", "relay"])
    parser.add_argument("file")
    parser.add_argument("--fault", choices=sorted(FAULTS | fake_ledger.FAULTS))
    args = parser.parse_args()
    with open(args.file, "rb") as file:
        if args.part == "provider":
            provider = Provider(json.load(file))
            return asyncio.run(serve(0, provider.handle, "mock listening on http://127.0.0.1:{}"))
        config = tomllib.load(file)
    relay = Relay(config, args.fault)
    port = int(config["server"]["listen"].rsplit(":", 1)[1])
    return asyncio.run(serve(port, relay.handle, "listening on 127.0.0.1:{}"))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
