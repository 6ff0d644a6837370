"""Runs the real SDK clients against a running relay on loopback, and judges what they saw.

Starts `rubicon mock` and `rubicon serve` (RUBICON_BIN, or target/debug/rubicon) with the script and config of
scenarios.py, drives cases_python.py and cases_node.mjs as long-lived workers, and compares for every case what the
application saw and how often each provider was called. Prints `PASS clients::client::scenario` or `FAIL …` with the
reasons, then `N passed, N failed`. Exit 0 when all passed, 1 when a case failed, 2 when the suite could not run.

Standard library only: it runs with any Python 3.11; the SDKs live in the venv given by `--python`.
Deliberately not here: installing anything (.ci/run does), and any retry of a failed case.
"""

import argparse
import datetime
import http.client
import json
import os
import queue
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import ledger
import ledger_scenes
import scenarios
import twin

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / "target" / "ci"

START_SECONDS = 60     # for a process to say that it is ready (a cold import of LangChain takes 10 s on a busy machine)
CASE_SECONDS = 30      # for one case; the slowest good one takes 2 s, one with the AI SDK's retries 7 s
STOP_SECONDS = 10      # for the relay to end after SIGTERM; no stream is left by then
SETTLE_SECONDS = 0.5   # for a call that nobody waits for to reach the provider before the last count
RUN_SECONDS = 1200     # for everything

# What would let an environment reach out, or change a client's defaults.
DROPPED = re.compile(r"(?i)(_proxy$|^(openai|anthropic|azure|langchain|langsmith|langfuse|otel|node|python|ai_)_?)")


class CannotRun(Exception):
    """The suite itself could not run: never the same as a failed case, never a silent skip."""


def clean_environment():
    env = {name: value for name, value in os.environ.items() if not DROPPED.search(name)}
    env |= {"NO_PROXY": "127.0.0.1,localhost", "LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false",
            "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "AI_SDK_LOG_WARNINGS": "false",
            "SUITE_KEY_A": "suite-upstream-a", "SUITE_KEY_B": "suite-upstream-b"}
    return env


class Process:
    """A child whose standard output is read line by line with a limit of time; the rest goes to a log file."""

    def __init__(self, name, argv, folder):
        self.name = name
        self.log = folder / f"{name}.log"
        self.lines = queue.Queue()
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen([str(arg) for arg in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                          stderr=log, env=clean_environment(), cwd=folder)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        with open(self.log, "ab") as log:
            for line in self.child.stdout:
                log.write(line)
                log.flush()
                self.lines.put(line.decode("utf-8", "replace"))
        self.lines.put(None)

    def line(self, seconds):
        try:
            line = self.lines.get(timeout=max(seconds, 0.01))
        except queue.Empty:
            raise TimeoutError(f"{self.name}: nothing within {seconds:.0f} s") from None
        if line is None:
            raise EOFError(f"{self.name} ended with status {self.child.wait(STOP_SECONDS)}")
        return line

    def send(self, value):
        self.child.stdin.write(json.dumps(value).encode() + b"\n")
        self.child.stdin.flush()

    def stop(self):
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait(STOP_SECONDS)
        return self.child.returncode

    def tail(self, lines=25):
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])


class Worker:
    """One language's worker, started when first needed and again after a case that hung or killed it."""

    def __init__(self, name, argv, folder):
        self.name, self.argv, self.folder = name, argv, folder
        self.process = None
        self.starts = 0

    def start(self):
        self.starts += 1
        self.process = Process(f"{self.name}-{self.starts}", self.argv, self.folder)
        try:
            ready = json.loads(self.process.line(START_SECONDS))["ready"]
        except (TimeoutError, EOFError, ValueError, KeyError) as error:
            raise CannotRun(f"the {self.name} worker did not start: {error}\n{self.process.tail()}") from error
        if self.starts == 1:
            print(f"{self.name} worker: " + ", ".join(f"{name} {version}" for name, version in ready.items()), flush=True)

    def play(self, command):
        if self.process is None:
            self.start()
        try:
            self.process.send(command)
            return json.loads(self.process.line(CASE_SECONDS))
        except (TimeoutError, EOFError, BrokenPipeError, ValueError) as error:
            tail = self.process.tail(6)
            self.stop()
            return {"broken": f"{error}; {tail}"}

    def stop(self):
        if self.process is not None:
            self.process.child.kill()
            self.process.child.wait(STOP_SECONDS)
            self.process = None


def ask(port, method, path, seconds=5):
    """(status, body) of one request to loopback."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Bench:
    """The scripted provider and the relay, running."""

    def __init__(self, selected, folder, fake=None, table=scenarios):
        folder.mkdir(parents=True, exist_ok=True)
        self.relay = None
        binary = Path(os.environ.get("RUBICON_BIN") or ROOT / "target" / "debug" / "rubicon")
        fakes = [sys.executable, HERE / "fakes.py"]
        if fake is None and not binary.is_file():
            raise CannotRun(f"there is no relay at {binary}: build it, or set RUBICON_BIN")
        script, config = folder / "script.json", folder / "rubicon.toml"
        script.write_text(json.dumps(table.script(selected)))
        self.provider = Process("mock", [*fakes, "provider", script] if fake is not None
                                else [binary, "mock", "--script", script], folder)
        try:
            self.provider_port = self._provider_port()
            self.port = free_port()
            today = datetime.date.today()
            config.write_text(table.config(
                selected, f"http://127.0.0.1:{self.provider_port}", f"127.0.0.1:{self.port}",
                (today - datetime.timedelta(days=1)).isoformat(), (today + datetime.timedelta(days=60)).isoformat()))
            argv = [*fakes, "relay", config] if fake is not None else [binary, "serve", "-c", config]
            self.relay = Process("relay", argv + (["--fault", fake] if fake else []), folder)
            self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def _provider_port(self):
        until = time.monotonic() + START_SECONDS
        try:
            while True:
                found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", self.provider.line(until - time.monotonic()))
                if found:
                    return int(found.group(1))
        except (TimeoutError, EOFError) as error:
            raise CannotRun(f"the scripted provider did not start: {error}\n{self.provider.tail()}") from error

    def _wait_ready(self):
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.relay.child.poll() is None:
            try:
                if ask(self.port, "GET", "/readyz")[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.05)
        raise CannotRun(f"the relay did not get ready\n{self.relay.tail()}")

    @property
    def base(self):
        return f"http://127.0.0.1:{self.port}"

    def calls(self):
        status, body = ask(self.provider_port, "GET", "/__mock/calls")
        if status != 200:
            raise CannotRun(f"the scripted provider's counts: status {status}")
        return json.loads(body)

    def stop(self):
        """The relay's exit status, None where it was not started."""
        status = self.relay.stop() if self.relay else None
        self.provider.stop()
        return status


FINISH = {"completed": "stop", "stop": "stop", "end_turn": "stop", "tool_calls": "tools", "tool_use": "tools", "tool-calls": "tools"}


def judge_answer(scenario, facts):
    """Reasons why a case that should have been answered well was not."""
    if facts["error"] is not None:
        yield f"raised {facts['error']['class']} ({facts['error']['status']}): {facts['error']['message']}"
    if facts["text"] != scenario.text:
        yield f"text is {facts['text']!r}, not {scenario.text!r}"
    if scenario.mode == "stream" and scenario.text and facts["pieces"] < 2:
        yield f"the text came in {facts['pieces']} piece(s)"
    if facts["spread_ms"] < scenario.spread_ms:
        yield f"the text came within {facts['spread_ms']:.0f} ms, not as the provider sent it"
    wanted = [[name, json.loads(arguments)] for name, arguments in scenarios.TOOLS] if scenario.tools else []
    if facts["tools"] != wanted:
        yield f"tool calls are {facts['tools']}, not {wanted}"
    # A response that ends with calls is `completed` like any other.
    finish = "tools" if facts["finish"] == "completed" and facts["tools"] else FINISH.get(facts["finish"])
    if scenario.finish and finish != scenario.finish:
        yield f"finish is {facts['finish']!r}, not {scenario.finish!r}"
    tokens = {"input": scenarios.INPUT_TOKENS, "output": scenarios.OUTPUT_TOKENS}
    if scenario.usage and facts["usage"] != tokens:
        yield f"usage is {facts['usage']}, not {tokens}"


def judge_interruption(client, scenario, facts):
    """Reasons why a cut stream did not reach the application as one."""
    if facts["error"] is None:
        yield f"nothing was raised; finish is {facts['finish']!r}, text {facts['text']!r}"
        return
    if facts["text"] != scenario.text:
        yield f"before the error it had yielded {facts['text']!r}, not {scenario.text!r}"
    if scenario.shown_first and not facts["pieces"]:
        yield "no text was yielded before the error"
    # The AI SDK hands a call to the application once its arguments parse, so the first of two calls may have been
    # handed over, whole; the one that was cut may not.
    cut = scenarios.TOOLS[-1][0]
    if any(name == cut for name, _ in facts["tools"]):
        yield f"a call that was cut off reached the application: {facts['tools']}"
    yield from judge_frame(facts["error"], "interrupted", client)


def judge_error(error, state, shows_handle):
    if not error["sdk"]:
        yield f"raised {error['class']} ({error['message']}), which is not the SDK's own API error"
    if not error["message"].strip():
        yield "the error has no message"
    if shows_handle:
        said = (error["rubicon"] or {}).get("status")
        if said != state:
            yield f"the error's rubicon.status is {said!r}, not {state!r}: {error['class']} {error['message']}"


def judge_frame(error, state, client):
    yield from judge_error(error, state, client.frame_handle)
    if error["transport"]:
        yield f"only the lost connection reached the application, not the error frame: {error['message']}"


def judge_refusal(client, scenario, facts):
    """Reasons why a request that nobody could answer did not end in the right error."""
    error = facts["error"]
    if error is None:
        yield f"nothing was raised; finish is {facts['finish']!r}, text {facts['text']!r}"
        return
    if facts["text"] or facts["tools"]:
        yield f"output came with the error: {facts['text']!r} {facts['tools']}"
    if scenario.error == "frame":
        yield from judge_frame(error, "unavailable", client)
        return
    # A 400 keeps the provider's own words; whether a handle stands beside them is not this suite's question.
    yield from judge_error(error, "unavailable", client.body_handle and scenario.error == 424)
    if error["status"] != scenario.error:
        yield f"status is {error['status']}, not {scenario.error}"
    if scenario.error == 424 and error["should_retry"] != "false":
        yield f"x-should-retry is {error['should_retry']!r}, not 'false'"


def judge(case, facts, calls):
    """All reasons why this case failed; none: it passed."""
    scenario = case.scenario
    if "broken" in facts:
        reasons = [f"the client hung or died: {facts['broken']}"]
    elif scenario.error is None:
        reasons = list(judge_answer(scenario, facts))
    elif scenario.error == "interrupted":
        reasons = list(judge_interruption(case.client, scenario, facts))
    else:
        reasons = list(judge_refusal(case.client, scenario, facts))
    counted = case.counted(calls)
    if counted != scenario.calls:
        reasons.append(f"provider calls (primary, secondary) are {counted}, not {scenario.calls}")
    return reasons


def play(case, bench, workers):
    facts = workers[case.client.worker].play({
        "client": case.client.name, "mode": case.scenario.mode, "base": bench.base, "model": case.model,
        "tools": case.scenario.tools or case.scenario.declares_tools,
    })
    return judge(case, facts, bench.calls()), facts


def recount(selected, bench):
    """Cases whose providers were called again after the case was over: {name: reason}. Asked at the end."""
    time.sleep(SETTLE_SECONDS)
    calls = bench.calls()
    if calls.get("unmatched"):
        raise CannotRun(f"the scripted provider got {calls['unmatched']} calls that no case makes")
    return {case.name: f"provider calls are {case.counted(calls)} at the end, not {case.scenario.calls}"
            for case in selected if case.counted(calls) != case.scenario.calls}


def make_workers(python, node, folder):
    """The workers' commands; node finds its packages beside the script, so that is copied to where they lie."""
    folder.mkdir(parents=True, exist_ok=True)
    modules = Path(node)
    if not Path(python).is_file():
        raise CannotRun(f"there is no Python with the SDKs at {python}: .ci/run makes it")
    if not (modules / "node_modules" / "openai").is_dir():
        raise CannotRun(f"there are no SDKs in {modules}/node_modules: .ci/run installs them")
    for name in ("cases_node.mjs", "turns_node.mjs"):
        shutil.copyfile(HERE / name, modules / name)
    return {"python": Worker("python", [python, HERE / "cases_python.py"], folder),
            "node": Worker("node", ["node", modules / "cases_node.mjs"], folder)}


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", default="", help="comma-separated words; cases whose name contains one")
    parser.add_argument("--python", default=CACHE / "venv" / "bin" / "python", help="the venv's interpreter")
    parser.add_argument("--node", default=CACHE / "node", help="the folder with node_modules")
    parser.add_argument("--facts", action="store_true", help="print what each client saw")
    return parser


class Report:
    """What passed and what failed, told as it comes."""

    def __init__(self):
        self.began, self.passed, self.failed = time.monotonic(), 0, []

    def add(self, name, reasons, facts=None):
        print(f"{'FAIL' if reasons else 'PASS'} {name}", flush=True)
        for reason in reasons:
            print(f"     {reason}", flush=True)
        if facts is not None:
            print(f"     {json.dumps(facts, ensure_ascii=False)}", flush=True)
        self.passed += not reasons
        self.failed += [name] if reasons else []

    def go_on(self, bench):
        """Raises where the next case would have no meaning."""
        if time.monotonic() - self.began > RUN_SECONDS:
            raise CannotRun(f"over {RUN_SECONDS} s after {self.passed + len(self.failed)} cases")
        if bench.relay.child.poll() is not None:
            raise CannotRun(f"the relay ended with {bench.relay.child.returncode}\n{bench.relay.tail()}")


def stop(bench, report, fake, name):
    status = bench.stop()
    if fake is None:
        report.add(name, [] if status == 0 else [f"exit status {status}"])


def run_cases(args, folder, workers, report):
    selected = scenarios.cases(args.only)
    if not selected:
        return
    bench = Bench(selected, folder, args.fake)
    try:
        for case in selected:
            report.go_on(bench)
            reasons, facts = play(case, bench, workers)
            report.add(case.name, reasons, facts if args.facts else None)
        late = recount(selected, bench)
        report.add("clients::all::no-later-calls",
                   [f"{case}: {reason}" for case, reason in late.items() if case not in report.failed])
        if report.failed:
            print(f"--- the relay's last lines\n{bench.relay.tail()}")
    finally:
        stop(bench, report, args.fake, "clients::relay::stops-cleanly")


def run_ledger(args, folder, workers, report):
    selected, before = ledger_scenes.scenes(args.only), len(report.failed)
    if not selected:
        return
    tool = ledger.Tool()
    try:
        bench = Bench(selected, folder / "ledger", args.fake, ledger_scenes.Table(tool.url))
        try:
            for scene in selected:
                report.go_on(bench)
                report.add(scene.name, ledger.play(scene, bench, workers, tool))
            if len(report.failed) > before:
                print(f"--- the relay's last lines\n{bench.relay.tail()}")
        finally:
            stop(bench, report, args.fake, "ledger::relay::stops-cleanly")
    finally:
        tool.stop()


def run_twin(args, folder, report):
    for at, name in enumerate(twins(args)):
        place = folder / f"twin-{at}"
        bench = Bench(name, place, None, twin.Table)
        try:
            report.add(name, twin.play(name, bench, args.python, place))
        finally:
            bench.stop()


def twins(args):
    """The example's scenes; never with a fake relay, which has none of the ledger's refusals."""
    words = [word for word in args.only.split(",") if word]
    return [name for name in twin.NAMES if args.fake is None and (not words or any(word in name for word in words))]


def run(args, folder):
    if not scenarios.cases(args.only) and not ledger_scenes.scenes(args.only) and not twins(args):
        raise CannotRun(f"no case has {args.only!r} in its name")
    workers, report = make_workers(args.python, args.node, folder / "workers"), Report()
    try:
        run_cases(args, folder, workers, report)
        run_ledger(args, folder, workers, report)
        run_twin(args, folder, report)
    finally:
        for worker in workers.values():
            worker.stop()
    if report.failed:
        print("--- failed\n" + "\n".join(report.failed))
    print(f"client cases took {time.monotonic() - report.began:.1f} s")
    print(f"{report.passed} passed, {len(report.failed)} failed")
    return 1 if report.failed else 0


def main():
    parser = arguments(__doc__.split("\n")[0])
    parser.add_argument("--fake", nargs="?", const="", default=None, metavar="FAULT",
                        help="fakes.py instead of the relay, with a fault or none: to try the suite itself")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rubicon-clients-") as folder:
        try:
            return run(args, Path(folder))
        except CannotRun as error:
            print(f"the client suite could not run: {error}")
            print("0 passed, 1 failed")
            return 2


if __name__ == "__main__":
    sys.exit(main())
