"""The agent of main.rs on the openai SDK: two tools, one root a run, claim - run - complete."""
import json, os, sys, uuid

import httpx
from openai import OpenAI

URL = os.environ.get("RUBICON_URL", "http://127.0.0.1:8080")
KEY = os.environ.get("RUBICON_KEY", "none")
RUN = os.environ.get("AGENT_RUN", f"run-{uuid.uuid4()}")
BOOK = os.environ.get("AGENT_BOOK", "refunds.txt")
ORDER = {"type": "string", "description": "the order's number"}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": text, "parameters": {
        "type": "object", "properties": fields, "required": [f for f in fields if f != "reason"]}}}
    for name, text, fields in [
        ("lookup_order", "What is known of an order.", {"order": ORDER}),
        ("refund_order", "Pays money back. Once an order.",
         {"order": ORDER, "cents": {"type": "integer"}, "reason": {"type": "string"}})]]

llm = OpenAI(base_url=f"{URL}/v1", api_key=KEY, default_headers={"Rubicon-Root": RUN})
ledger = httpx.Client(base_url=URL, headers={"Authorization": f"Bearer {KEY}"}, timeout=30)


def refund_order(key, order, cents, reason=None):
    with open(BOOK, "a") as book:
        book.write(f"{key} {order} {cents}\n")
        book.flush()
        os.fsync(book.fileno())
    return {"refunded": order, "cents": cents}


def lookup_order(key, order):
    return {"order": order, "paid_cents": 4200, "state": "delivered"}


def execute(operation, call):
    """Claim, run, complete; what the model is to be told."""
    told = ledger.post("/v1/executions", headers={"Prefer": "wait=10"}, json={
        "operation_id": operation, "root": RUN, "tool": call["name"], "arguments": json.loads(call["arguments"]),
        "tool_call_id": call["id"], "claim_id": f"{operation}:{call['id']}"}).json()
    if told.get("decision") == "use_result":
        return json.dumps(told["execution"]["result"])
    if told.get("decision") != "execute":
        return told.get("model_text") or told["error"]["message"]
    key, done = told["execution"]["key"], {"lease_token": told["lease_token"]}
    try:
        result = {"lookup_order": lookup_order, "refund_order": refund_order}[call["name"]](key, **json.loads(call["arguments"]))
        done |= {"outcome": "succeeded", "result": result}
    except OSError as error:  # before or after the effect? nobody knows
        result, done = {"error": "outcome not known; do not call again"}, done | {
            "outcome": "unknown", "error": {"message": str(error)}}
    ledger.post(f"/v1/executions/{key}/complete", json=done).raise_for_status()
    return json.dumps(result)


messages = [{"role": "user", "content": sys.argv[1] if len(sys.argv) > 1 else "Please refund order 1001"}]
for _ in range(8):
    text, calls = "", {}
    stream = llm.chat.completions.create(model=os.environ.get("AGENT_MODEL", "agent"), messages=messages, tools=TOOLS, stream=True)
    for chunk in stream:  # an interrupted stream raises here, and nothing of it is acted on
        delta = chunk.choices[0].delta if chunk.choices else None
        text += (delta and delta.content) or ""
        for piece in (delta and delta.tool_calls) or []:
            call = calls.setdefault(piece.index, {"id": piece.id, "name": piece.function.name, "arguments": ""})
            call["arguments"] += piece.function.arguments or ""
    if not calls:
        sys.exit(print(text))
    messages.append({"role": "assistant", "content": text, "tool_calls": [
        {"id": c["id"], "type": "function", "function": {k: c[k] for k in ("name", "arguments")}} for c in calls.values()]})
    for call in calls.values():
        result = execute(stream.response.headers["rubicon-operation-id"], call)
        print(f"{call['name']}({call['arguments']}) -> {result}")
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
sys.exit("the model never came to an end")
