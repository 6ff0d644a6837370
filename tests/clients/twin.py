"""The example's Python twin (examples/agent/agent.py) on the real openai SDK, against a relay with the example's own config.

In: the venv's interpreter, a `run.Bench`. Out: for each scene the reasons why it failed. The same demands as tests/relay/agent.rs makes of
the Rust agent: one refund an order, in whatever words, however often the run is started; nothing of a stream that was cut.
"""

import os
import subprocess
from pathlib import Path

import scenarios
from scenarios import ABORT_RST, Chat, full_stream, head

ROOT = Path(__file__).resolve().parent.parent.parent
AGENT = ROOT / "examples" / "agent"
SECONDS = 60            # for one run of the agent, its imports on a busy machine included
MODEL = "gpt-5.2"       # the example's upstream model
NAMES = ["agent::agent-py::refunds-once", "agent::agent-py::cut-stream", "agent::agent-py::unknown"]
REFUND = '{"order":"1001","cents":4200,"reason":"arrived broken"}'


def calling(name, arguments, cut=False):
    call = {"index": 0, "id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": ""}}
    pieces = [{"index": 0, "function": {"arguments": part}} for part in scenarios.fragments(arguments)]
    end = [{"delay_ms": 100}, ABORT_RST] if cut else Chat.end(MODEL, "tools")
    return [head(), *Chat.prelude(MODEL), *[Chat.chunk(MODEL, {"tool_calls": [piece]}) for piece in [call, *pieces]], *end]


def wish(refund):
    return [calling("lookup_order", '{"order":"1001"}'), calling("refund_order", refund),
            full_stream(Chat, MODEL, ["Your money ", "is on its way."])]


class Table:
    """What `run.Bench` needs of a table: one scene's answers and the example's config."""

    @staticmethod
    def script(name):
        wishes = [REFUND, REFUND.replace("arrived broken", "never worked"), REFUND.replace("4200", "4100"), REFUND]
        answers = [step for refund in wishes for step in wish(refund)]
        if name == NAMES[1]:
            answers = [calling("refund_order", REFUND, cut=True)]
        return {"listen": "127.0.0.1:0", "rules": [{"name": "model", "path": Chat.path, "model": MODEL, "answers": answers}]}

    @staticmethod
    def config(_, provider_url, listen, *__):
        text = (AGENT / "rubicon.toml").read_text()
        for old, new in [('store = "redb:data/agent.redb"', f'listen = "{listen}"\nadmin_listen = "127.0.0.1:0"\nstore = "redb:agent.redb"'),
                         ('kind = "openai"', f'kind = "openai"\nbase_url = "{provider_url}/v1"'),
                         ("env:OPENAI_API_KEY", "env:SUITE_KEY_A"), ("env:RUBICON_TOKEN", "env:SUITE_KEY_B")]:
            if old not in text:
                raise ValueError(f"the example's config has no {old}")
            text = text.replace(old, new)
        return text


class Shop:
    """The agent, started again and again, and its book of refunds."""

    def __init__(self, bench, python, folder):
        self.bench, self.python, self.path = bench, python, folder / "refunds.txt"

    def run(self, run, book=None):
        env = {"RUBICON_URL": self.bench.base, "AGENT_RUN": run, "AGENT_BOOK": str(book or self.path), "PATH": os.environ["PATH"],
               "NO_PROXY": "127.0.0.1", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([self.python, AGENT / "agent.py", "Please refund order 1001"], env=env, capture_output=True,
                              text=True, timeout=SECONDS, stdin=subprocess.DEVNULL, check=False)
        return done.returncode, done.stdout + done.stderr

    def book(self):
        return self.path.read_text().splitlines() if self.path.exists() else []


def refunds_once(shop):
    code, printed = shop.run("run-1")
    book = shop.book()
    if code != 0 or "Your money is on its way." not in printed or '"refunded": "1001"' not in printed:
        yield f"the first run ended with {code}: {printed}"
    if len(book) != 1 or not book[0].endswith(' "1001" 4200'):
        yield f"after the first run the book is {book}"
    for what, said in [("a reason in other words", '"refunded": "1001"'), ("other cents", "in other words")]:
        code, printed = shop.run("run-1")
        if code != 0 or said not in printed:
            yield f"{what}: {code}, and no {said!r}: {printed}"
        if shop.book() != book:
            yield f"{what}: the book is {shop.book()}, not {book}"
    code, printed = shop.run("run-2")
    if code != 0 or len(shop.book()) != 2:
        yield f"another run ended with {code}, the book is {shop.book()}: {printed}"
    calls = shop.bench.calls()["by_rule"].get("model")
    if calls != 12:
        yield f"four runs of three turns called the model {calls} times"


def cut_stream(shop):
    code, printed = shop.run("run-1")
    if code == 0 or "APIError" not in printed:
        yield f"a cut stream ended with {code}: {printed}"
    if shop.book():
        yield f"a cut stream was acted on: {shop.book()}"


def unknown(shop):
    # The folder itself is no file that can be written to.
    for book, said in [(shop.path.parent, "It is not known whether this took effect."),
                       (shop.path, "Do not call it again, neither with the same nor")]:
        code, printed = shop.run("run-1", book)
        if code != 0 or said not in printed:
            yield f"a run ended with {code}, and no {said!r}: {printed}"
    if shop.book():
        yield f"what may have taken effect was done again: {shop.book()}"


def play(name, bench, python, folder):
    """All reasons why this scene failed; none: it passed."""
    try:
        return list(dict(zip(NAMES, (refunds_once, cut_stream, unknown)))[name](Shop(bench, python, folder)))
    except subprocess.TimeoutExpired as error:
        return [f"the agent did not end: {error}"]
