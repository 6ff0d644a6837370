"""An obstinate model asks for one refund again and again, through the real SDKs: how often was money paid?

In: the scenes of ledger_scenes.py, a `run.Bench`, the workers. Out: for each scene the reasons why it failed. The worker is the agent's
side of the model (a turn, the operation's id from the response's header); this file is its tools: it runs a call through
`POST /v1/tools/refund_order`, or claims and completes it. The scripted tool counts each payment by itself, so a relay that pays twice and
says otherwise is noticed. No turn sends `Rubicon-Root`: what run a request belongs to is the relay's to find out.
"""

import json
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import ledger_scenes

KEY = "suite-key"
SECONDS = 10    # for one call of the ledger; a good one takes milliseconds


class Tool:
    """The scripted payment system: each call pays, and its answer says which payment of the order it was."""

    def __init__(self):
        self.paid = {}
        self.lock = threading.Lock()
        tool = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                order = json.loads(self.rfile.read(int(self.headers["content-length"])))["order"]
                body = json.dumps(tool.pay(order, self.headers.get("idempotency-key"))).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                """Nothing: standard output is the report's."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}/refund"

    def pay(self, order, key):
        with self.lock:
            keys = self.paid.setdefault(order, [])
            keys.append(key)
            return {"refunded": order, "payment": len(keys)}

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@dataclass
class Ran:
    """What came of a tool call: whether it ran now, under which key, and what the model is told."""

    now: bool
    key: str
    text: str


class Wrong(Exception):
    """The scene cannot go on."""


class Play:
    """One scene in the playing."""

    def __init__(self, scene, bench, worker, tool):
        self.scene, self.bench, self.worker, self.tool = scene, bench, worker, tool
        self.reasons = []

    def demand(self, good, text):
        if not good:
            self.reasons.append(text)

    def ask(self, method, path, body=None, **headers):
        """(status, headers, JSON or text) of one call."""
        request = urllib.request.Request(
            self.bench.base + path, method=method, data=None if body is None else json.dumps(body).encode(),
            headers={"authorization": f"Bearer {KEY}", "content-type": "application/json"} | headers)
        try:
            response = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=SECONDS)
        except urllib.error.HTTPError as refused:
            response = refused
        with response:
            text = response.read().decode()
            return response.status, response.headers, text

    def turn(self, say=None, results=(), restart_of=None):
        """One request through the SDK; what the application saw."""
        headers = {"Rubicon-Restart-Of": restart_of} if restart_of else {}
        told = self.worker.play({"turn": {
            "client": self.scene.client.name, "session": f"{self.scene.id}:{self.bench.port}", "base": self.bench.base, "model": self.scene.model,
            "say": say, "results": list(results), "headers": headers}})
        if "broken" in told:
            raise Wrong(f"the client hung or died: {told['broken']}")
        return told

    def calls(self, count, **turn):
        """A turn that must end well with so many calls: (operation, calls)."""
        told = self.turn(**turn)
        if told["error"]:
            raise Wrong(f"raised {told['error']['class']} ({told['error']['status']}): {told['error']['message']}")
        if not told["operation"]:
            raise Wrong("the response has no rubicon-operation-id")
        if len(told["calls"]) != count or any(json.loads(call["arguments"]) != json.loads(self.scene.arguments)
                                              for call in told["calls"]):
            raise Wrong(f"the calls are {told['calls']}, not {count} of {self.scene.arguments}")
        return told["operation"], told["calls"]

    def by_relay(self, operation, call):
        status, headers, text = self.ask("POST", f"/v1/tools/{call['name']}", {
            "operation_id": operation, "tool_call_id": call["id"], "arguments": json.loads(call["arguments"])})
        replayed = headers.get("Idempotent-Replayed")
        if status != 200 or replayed not in ("true", "false"):
            raise Wrong(f"the tool's call: {status}, Idempotent-Replayed {replayed}: {text}")
        return Ran(replayed == "false", headers.get("Rubicon-Execution-Key"), text)

    def claim(self, operation, call):
        status, _, text = self.ask("POST", "/v1/executions", {
            "operation_id": operation, "tool": call["name"], "tool_call_id": call["id"],
            "arguments": json.loads(call["arguments"]), "claim_id": f"{operation}:{call['id']}"})
        return status, json.loads(text)

    def complete(self, claimed, **outcome):
        status, _, text = self.ask("POST", f"/v1/executions/{claimed['execution']['key']}/complete",
                                   {"lease_token": claimed["lease_token"]} | outcome)
        if status != 200:
            raise Wrong(f"the completion: {status} {text}")

    def by_client(self, operation, call):
        status, told = self.claim(operation, call)
        if (status, told.get("decision")) == (200, "use_result"):
            return Ran(False, told["execution"]["key"], json.dumps(told["execution"]["result"]))
        if (status, told.get("decision")) != (201, "execute"):
            raise Wrong(f"the claim: {status} {told}")
        key = told["execution"]["key"]
        result = self.tool.pay(self.scene.order, key)
        self.complete(told, outcome="succeeded", result=result)
        return Ran(True, key, json.dumps(result))

    def paid(self, times, when):
        found = len(self.tool.paid.get(self.scene.order, []))
        self.demand(found == times, f"{when} the order was paid {found} times, not {times}")

    def record(self, key):
        status, _, text = self.ask("GET", f"/v1/executions/{key}")
        if status != 200:
            raise Wrong(f"the execution {key}: {status} {text}")
        return json.loads(text)

    def clean(self, key, occurrence=0):
        """The record is a success that nothing is odd about."""
        record = self.record(key)
        seen = (record["state"], record["flags"], record["occurrence"])
        self.demand(seen == ("succeeded", [], occurrence), f"state, flags and occurrence of {key} are {seen}")

    def rooted(self, operation, root):
        status, _, text = self.ask("GET", f"/v1/operations/{operation}")
        found = json.loads(text).get("root") if status == 200 else f"{status} {text}"
        self.demand(found == root, f"the root of {operation} is {found}, not {root}")

    def model_calls(self):
        return self.bench.calls()["by_rule"].get(self.scene.rule, 0)


def repeated(play, run):
    """A run in which the model asks for the refund twice, and then a new wish of the user."""
    first_op, [call] = play.calls(1, say="Refund the order.")
    first = run(first_op, call)
    play.demand(first.now, "the first call did not run")
    later_op, [again] = play.calls(1, results=[[call["id"], first.text]])
    play.demand(again["id"] != call["id"], "the script gave both calls one id")
    later = run(later_op, again)
    play.demand(not later.now and later.key == first.key, f"the later turn's call is {later}, not a replay of {first}")
    play.demand(later.text == first.text, f"the replay says {later.text}, not {first.text}")
    play.paid(1, "after two turns of one run")
    play.rooted(later_op, first_op)
    play.calls(0, results=[[again["id"], later.text]])
    wish_op, [wish] = play.calls(1, say="And refund it once more, please.")
    new = run(wish_op, wish)
    play.demand(new.now and new.key != first.key, f"the user's new wish got {new}, as {first}")
    play.paid(2, "after a new wish of the user")
    play.rooted(wish_op, wish_op)
    for key in (first.key, new.key):
        play.clean(key)


def parallel(play):
    """The model asks for two refunds at once: both are meant, each once."""
    operation, calls = play.calls(2, say="Refund both halves of the order.")
    ran = [play.by_relay(operation, call) for call in calls]
    play.demand(all(one.now for one in ran) and ran[0].key != ran[1].key, f"two calls of one answer: {ran}")
    resent = [play.by_relay(operation, call) for call in calls]
    play.demand([(one.now, one.key, one.text) for one in resent] == [(False, one.key, one.text) for one in ran],
                f"sent again: {resent}, not replays of {ran}")
    play.paid(2, "after two calls of one answer, each sent twice")
    for occurrence, one in enumerate(ran):
        play.clean(one.key, occurrence)
    play.calls(0, results=[[call["id"], one.text] for call, one in zip(calls, ran)])


def restart(play):
    """A stream that is cut after a whole call, which the agent has begun to run."""
    cut = play.turn(say="Refund the order.")
    play.demand(cut["error"] is not None, "nothing was raised by a cut stream")
    if not (cut["operation"] and cut["calls"]):
        raise Wrong(f"the application has no call in hand: {cut}")
    operation, [call] = cut["operation"], cut["calls"]
    status, claimed = play.claim(operation, call)
    if status != 201:
        raise Wrong(f"the claim: {status} {claimed}")
    result = play.tool.pay(play.scene.order, claimed["execution"]["key"])
    for state in ("started", "unknown"):
        if state == "unknown":
            play.complete(claimed, outcome="unknown")
        refused = play.turn(restart_of=operation)
        error = refused["error"] or {}
        play.demand(error.get("status") == 409 and error.get("sdk"), f"a restart while it is {state}: {refused}")
        play.demand(error.get("should_retry") == "false", f"the SDK is not told to let it be: {error}")
        play.demand(play.model_calls() == 1, f"a refused restart called the model: {play.model_calls()} calls")
    status, told = play.claim(operation, {**call, "id": "call_of_a_retry"})
    play.demand((status, told.get("decision")) == (409, "reconcile"), f"a claim of what is unknown: {status} {told}")
    play.complete(claimed, outcome="succeeded", result=result)
    again_op, [again] = play.calls(1, restart_of=operation)
    play.rooted(again_op, operation)
    later = play.by_client(again_op, again)
    play.demand(not later.now and json.loads(later.text) == result, f"after the restart: {later}, not {result}")
    play.paid(1, "after the restart")
    play.clean(claimed["execution"]["key"])


KINDS = {
    "run-by-relay": lambda play: repeated(play, play.by_relay),
    "run-by-client": lambda play: repeated(play, play.by_client),
    "parallel": parallel,
    "restart": restart,
}


def play(scene, bench, workers, tool):
    """All reasons why this scene failed; none: it passed."""
    playing = Play(scene, bench, workers[scene.client.worker], tool)
    try:
        KINDS[scene.kind](playing)
        wanted = len(ledger_scenes.KINDS[scene.kind])
        playing.demand(playing.model_calls() == wanted, f"the model was called {playing.model_calls()} times, not {wanted}")
    except Wrong as wrong:
        playing.reasons.append(str(wrong))
    except (OSError, ValueError, KeyError, TypeError) as error:
        playing.reasons.append(f"{type(error).__name__}: {error}")
    return playing.reasons
