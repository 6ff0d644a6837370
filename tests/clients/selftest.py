"""Proves that the client suite can fail: every fault that fakes.py can have must be noticed.

In: the installed SDKs. For the fake relay without a fault every case must pass; for each fault the cases named here
must fail, each client's own. Prints PASS or FAIL for each demand and `N passed, N failed`. Exit codes as run.py.

Without this a suite that judged nothing would look like a relay that does everything right.
"""

import sys
import tempfile
from pathlib import Path

import fake_ledger
import fakes
import ledger
import ledger_scenes
import run
import scenarios

# fault -> (the cases played, what it is in a case's name that must be noticed: all of these must fail).
# A fault is played with the clients that can tell: why not the others, stands beside it.
EVERYONE = [client.name for client in scenarios.CLIENTS]
ONE_EACH = ["openai-python", "anthropic-python", "openai-node", "anthropic-node", "ai-sdk-openai", "ai-sdk-anthropic",
            "openai-python.responses", "openai-node.responses", "ai-sdk-openai.responses"]
DEMANDS = {
    "clean_end": (EVERYONE, ["interrupted-reset"]),
    "abort_only": (EVERYONE, ["interrupted-fin"]),
    "made_up_end": (EVERYONE, ["interrupted-clean-end"]),
    "splice": (EVERYONE, ["interrupted-reset"]),
    "late_text": (EVERYONE, ["interrupted-reset", "stream-live"]),
    # The AI SDK makes an error part of any frame it does not understand, so it raises on this one too; the helper of
    # openai-node raises on a flat error of the responses dialect.
    "wrong_frame": ([name for name in EVERYONE if not name.startswith("ai-sdk") and name != "openai-node.responses.stream"],
                    ["interrupted-reset"]),
    "no_failover": (ONE_EACH, ["failover-503", "whole-failover-503"]),
    "leaks_error": (ONE_EACH, ["failover-error-before-output"]),
    # Every client's own retries, with its own pauses: the slow ones, so one case each.
    "retryable_status": (ONE_EACH, ["whole-exhausted"]),
    "retryable_frame": (["ai-sdk-openai", "ai-sdk-anthropic", "ai-sdk-openai.responses"], ["exhausted-after-keepalive"]),
    "hidden_call": (ONE_EACH, ["whole-normal", "stream-normal"]),
    # The AI SDK takes a response's call from the item that is done, and does not miss a piece of it.
    "drops_event": ([name for name in EVERYONE if name != "ai-sdk-openai.responses"], ["stream-tool-call"]),
}

# The same for the ledger's scenes: every client plays those of these kinds, and all must fail.
BOTH = ["run-by-relay", "run-by-client"]
LEDGER_DEMANDS = {
    "runs_twice": BOTH,
    "pays_again": ["run-by-relay", "parallel"],
    "forgets_root": BOTH,
    "one_root": BOTH,
    "no_occurrences": ["parallel"],
    "other_bytes": ["run-by-relay", "parallel"],
    "restarts_at_once": ["restart"],
    "forgets_restart": ["restart"],
    "runs_unknown": ["restart"],
    "odd_record": list(ledger_scenes.KINDS),
}


def check_ledger(fault, kinds, folder, workers):
    """As `check`, with the ledger's scenes."""
    wanted = [scene for scene in ledger_scenes.scenes() if scene.kind in kinds]
    tool = ledger.Tool()
    try:
        bench = run.Bench(wanted, folder / f"ledger-{fault}", fault, ledger_scenes.Table(tool.url))
        try:
            for scene in wanted:
                why = ledger.play(scene, bench, workers, tool)
                if fault:
                    yield bool(why), f"{scene.name} notices {fault}"
                else:
                    yield not why, f"{scene.name} passes without a fault" + "".join(f"\n     {one}" for one in why)
        finally:
            bench.stop()
    finally:
        tool.stop()


def check(fault, names, words, folder, workers):
    """Yields (good, text) for each demand of one fault."""
    wanted = [case for case in scenarios.cases() if case.client.name in names and case.scenario.name in words]
    if not wanted:
        raise run.CannotRun(f"the demands for {fault} name no case")
    bench = run.Bench(wanted, folder / (fault or "none"), fault)
    try:
        reasons = {case.name: run.play(case, bench, workers)[0] for case in wanted}
        for name, reason in run.recount(wanted, bench).items():
            reasons[name].append(reason)
    finally:
        bench.stop()
    for name, why in reasons.items():
        if fault:
            yield bool(why), f"{name} notices {fault}"
        else:
            yield not why, f"{name} passes without a fault" + "".join(f"\n     {one}" for one in why)


def main():
    args = run.arguments(__doc__.split("\n")[0]).parse_args()
    missing = (set(fakes.FAULTS) ^ set(DEMANDS)) | (set(fake_ledger.FAULTS) ^ set(LEDGER_DEMANDS))
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="rubicon-selftest-") as folder:
        folder = Path(folder)
        try:
            if missing:
                raise run.CannotRun(f"faults without a demand, or the other way round: {sorted(missing)}")
            workers = run.make_workers(args.python, args.node, folder / "workers")
            try:
                quick = [case for words in DEMANDS.values() for case in words[1]]
                plays = [("", EVERYONE, sorted(set(quick)))] + [(fault, *DEMANDS[fault]) for fault in DEMANDS]
                ledgers = [("", list(ledger_scenes.KINDS)), *LEDGER_DEMANDS.items()]
                checks = [check_ledger(fault, kinds, folder, workers) for fault, kinds in ledgers]
                checks += [check(fault, names, words, folder, workers) for fault, names, words in plays]
                for good, text in (found for found_by in checks for found in found_by):
                    passed += good
                    failed += not good
                    print(f"{'PASS' if good else 'FAIL'} selftest::{text}", flush=True)
            finally:
                for worker in workers.values():
                    worker.stop()
        except run.CannotRun as error:
            print(f"the self-test could not run: {error}\n0 passed, 1 failed")
            return 2
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
