"""The agent of main.rs on the openai SDK: two tools, one root a run, claim - run - complete."""
import json, os, sys, time, uuid

import httpx
from openai import OpenAI

URL, KEY = os.environ.get("RUBICON_URL", "http://127.0.0.1:8080"), os.environ.get("RUBICON_KEY", "none")
MODEL = os.environ.get("AGENT_MODEL", "agent")
RUN, BOOK = os.environ.get("AGENT_RUN", f"run-{uuid.uuid4()}"), os.environ.get("AGENT_BOOK", "refunds.txt")
TOOLS = [
    {"type": "function", "function": {"name": name, "description": text, "parameters": {
        "type": "object", "properties": fields, "required": [f for f in fields if f != "reason"]}}}
    for name, text, fields in [
        ("lookup_order", "What is known of an order.", {"order": {"type": "string"}}),
        ("refund_order", "Pays money back. Once an order.",
         {"order": {"type": "string"}, "cents": {"type": "integer"}, "reason": {"type": "string"}})]]

llm = OpenAI(base_url=f"{URL}/v1", api_key=KEY, default_headers={"Rubicon-Root": RUN})
ledger = httpx.Client(base_url=URL, headers={"Authorization": f"Bearer {KEY}", "Prefer": "wait=10"}, timeout=30)


def refund_order(key, order, cents, reason=None):
    with open(BOOK, "ab", buffering=0) as book:
        book.write(f"{key} {json.dumps(order)} {cents}\n".encode())
        os.fsync(book.fileno())
    return {"refunded": order, "cents": cents}


def lookup_order(key, order):
    return {"order": order, "paid_cents": 4200, "state": "delivered"}


def post(path, body):
    """One call of the ledger, again while it says that the same call may be sent again."""
    for left in range(4, -1, -1):
        told = ledger.post(path, json=body).json()
        if not told.get("retryable") or not left:
            return told
        time.sleep(1)


def execute(operation, call):
    """Claim, run, complete; what the model is to be told."""
    name, arguments = call["name"], json.loads(call["arguments"])
    told = post("/v1/executions", {"operation_id": operation, "root": RUN, "tool": name, "arguments": arguments,
                                   "tool_call_id": call["id"], "claim_id": f"{operation}:{call['id']}"})
    if told.get("decision") == "use_result":  # it ran before, in this run
        return json.dumps(told["execution"]["result"])
    if told.get("decision") != "execute":  # not known, not meant, not allowed: in words that a model may read
        return told.get("model_text") or told.get("error", {}).get("message", "The tool was not run.")
    try:
        result = {"lookup_order": lookup_order, "refund_order": refund_order}[name](told["execution"]["key"], **arguments)
        done = {"outcome": "succeeded", "result": result}
    except OSError as error:  # before or after the effect? nobody knows
        result = {"error": "It is not known whether this took effect. Do not call it again."}
        done = {"outcome": "unknown", "error": {"message": str(error)}}
    told = post(f"/v1/executions/{told['execution']['key']}/complete", {"lease_token": told["lease_token"]} | done)
    return json.dumps(result) if "error" not in told else sys.exit(f"the outcome could not be recorded: {told['error']}")


messages = [{"role": "user", "content": sys.argv[1] if len(sys.argv) > 1 else "Please refund order 1001"}]
for _ in range(8):
    text, calls = "", {}
    stream = llm.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS, stream=True)
    for chunk in stream:  # an interrupted stream raises here, and nothing of it is acted on
        for delta in (choice.delta for choice in chunk.choices):
            text += delta.content or ""
            for piece in delta.tool_calls or []:
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
