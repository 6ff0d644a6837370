"""The ledger of the small second relay in fakes.py, so that the ledger's scenes can be proved.

In: what the relay saw of its requests and streams, and the ledger's calls. Out: their answers, as SPEC.md section 8 says, as far as the
scenes of ledger_scenes.py need it: in memory, one tool, no leases that end. With a fault from `FAULTS` it has one defect; selftest.py
demands that the scenes notice each.
"""

import asyncio
import hashlib
import json
import re
from urllib.parse import urlsplit

FAULTS = {
    "runs_twice": "runs what is on record, and says that it ran",
    "pays_again": "runs what is on record, and says that it did not",
    "forgets_root": "takes each request for a run of its own",
    "one_root": "takes a new wish of the user for the run before",
    "no_occurrences": "takes two calls of one answer for one",
    "other_bytes": "answers a replay in other bytes than the first time",
    "restarts_at_once": "restarts while an outcome is not known",
    "forgets_restart": "gives a restart a root of its own",
    "runs_unknown": "runs again what may have taken effect",
    "odd_record": "flags what nothing is odd about",
}

# The ids that the scenes' model gives its calls.
CALL_ID = re.compile(r'"(?:id|call_id)": ?"(call_[\w-]+)"')


def results_of(request):
    """Ids of the calls whose results follow the last user turn."""
    found, turns = [], request.get("messages") or request.get("input")
    for turn in reversed([] if isinstance(turns, str) else turns):
        if turn.get("role") == "tool":
            found.append(turn["tool_call_id"])
        elif turn.get("type") == "function_call_output":
            found.append(turn["call_id"])
        elif turn.get("role") == "user":
            content = turn["content"] if isinstance(turn["content"], list) else []
            return found + [part["tool_use_id"] for part in content if part["type"] == "tool_result"]
    return found


class Ledger:
    def __init__(self, tools, fault):
        self.tools, self.fault = tools, fault
        self.roots = {}       # operation -> root
        self.plans = {}       # operation -> ids of its calls, in order
        self.emitted = {}     # call id -> operation
        self.records = {}     # key -> record

    def enter(self, request, restart_of):
        """A request's operation, or None where a restart must wait."""
        operation = f"op_{len(self.roots) + 1}"
        root = operation
        if restart_of:
            open_ones = [one for one in self.records.values() if one["root"] == self.roots[restart_of] and not one["result"]]
            if open_ones and self.fault != "restarts_at_once":
                return None
            root = operation if self.fault == "forgets_restart" else self.roots[restart_of]
        elif self.fault == "one_root":
            root = request["model"]
        elif self.fault != "forgets_root":
            known = {self.roots[self.emitted[ident]] for ident in results_of(request) if ident in self.emitted}
            root = known.pop() if len(known) == 1 else operation
        self.roots[operation], self.plans[operation] = root, []
        return operation

    def saw(self, operation, event):
        for ident in CALL_ID.findall(event.decode()):
            if ident not in self.plans[operation]:
                self.plans[operation].append(ident)
                self.emitted[ident] = operation

    def claim(self, body):
        """(may it run, record)."""
        plan = self.plans.get(body["operation_id"], [])
        ident = body.get("tool_call_id")
        occurrence = plan.index(ident) if ident in plan and self.fault != "no_occurrences" else 0
        root = self.roots[body["operation_id"]]
        key = hashlib.sha256(f"{root}/{body['arguments']['order']}/{occurrence}".encode()).hexdigest()
        fresh = key not in self.records
        flags = ["unplanned"] if self.fault == "odd_record" else []
        record = self.records.setdefault(key, {"key": key, "root": root, "occurrence": occurrence, "state": "started",
                                               "flags": flags, "result": None})
        again = (self.fault == "runs_twice" and record["result"]) or (self.fault == "runs_unknown" and record["state"] == "unknown")
        return bool(fresh or again), record

    async def call(self, tool, key, arguments):
        address = urlsplit(self.tools[tool]["endpoint"]["url"])
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        body = json.dumps(arguments).encode()
        writer.write(f"POST {address.path} HTTP/1.0\r\nidempotency-key: {key}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.read()
        writer.close()
        return answer.split(b"\r\n\r\n", 1)[1].decode()

    async def run(self, tool, body, reply):
        runs, record = self.claim(body)
        if runs or self.fault == "pays_again":
            told = await self.call(tool, record["key"], body["arguments"])
            if runs:
                record |= {"state": "succeeded", "result": told}
        text = record["result"]
        if self.fault == "other_bytes" and not runs:
            text = json.dumps(json.loads(text), indent=1)
        headers = {"Idempotent-Replayed": "false" if runs else "true", "Rubicon-Execution-Key": record["key"]}
        await reply.text(200, text, headers)

    async def handle(self, method, path, body, reply):
        """Answers a call of the ledger."""
        parts, body = path.split("/")[2:], json.loads(body or b"{}")
        if parts[0] == "operations":
            return await reply.json(200, {"root": self.roots[parts[1]]})
        if parts[0] == "tools":
            return await self.run(parts[1], body, reply)
        if method == "GET":
            return await reply.json(200, self.records[parts[1]])
        if len(parts) == 3:
            record = self.records[parts[1]]
            record |= {"state": body["outcome"], "result": json.dumps(body["result"]) if "result" in body else None}
            return await reply.json(200, {"execution": record})
        runs, record = self.claim(body)
        shown = record | {"result": json.loads(record["result"]) if record["result"] else None}
        if runs:
            return await reply.json(201, {"decision": "execute", "execution": shown, "lease_token": "lease"})
        if record["result"]:
            return await reply.json(200, {"decision": "use_result", "execution": shown})
        decision = {"started": "in_progress", "unknown": "reconcile"}[record["state"]]
        await reply.json(409, {"decision": decision, "error": {"message": "It may have run."}})
