"""Cases as they end, on the screen and on disk, within a time that is given: a machine with a GPU may be there for minutes only.

    cases = Cases(out, deadline)
    cases.run("conformance", ["test/conformance/run", ..., "--verbose"])      its lines PASS, FAIL, DRIFT and SKIP are counted
    cases.counts["conformance"] == {"passed": 11, "failed": 0, "skipped": 0}

In the folder `out`: cases.jsonl, a line for each case, NAME.txt with all that a suite wrote, and summary.json. A command that is not done at the
deadline ends then, with the processes it started, and its suite is in `cut`.
"""
import collections
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

OUTCOMES = {"PASS": "passed", "FAIL": "failed", "DRIFT": "failed", "SKIP": "skipped"}


class Cases:
    def __init__(self, out=None, deadline=None):
        self.out, self.deadline = out and pathlib.Path(out), deadline
        self.counts = collections.defaultdict(lambda: {"passed": 0, "failed": 0, "skipped": 0})
        self.cut, self.start, self.lock = set(), time.monotonic(), threading.Lock()
        if self.out:
            self.out.mkdir(parents=True, exist_ok=True)
            (self.out / "cases.jsonl").write_text("")

    def left(self, limit=None):
        """Seconds until the deadline, at most `limit`; None: any number."""
        bounds = [bound for bound in (limit, self.deadline and self.deadline - time.monotonic()) if bound is not None]
        return max(0.0, min(bounds)) if bounds else None

    def tell(self, suite, line):
        """A line of a suite; one that begins with an outcome is a case."""
        outcome, _, case = line.partition(" ")
        with self.lock:
            print(line, flush=True)
            if outcome in OUTCOMES:
                self.counts[suite][OUTCOMES[outcome]] += 1
            if self.out:
                with open(self.out / f"{suite}.txt", "a") as text:
                    text.write(line + "\n")
                if outcome in OUTCOMES:
                    record = {"suite": suite, "outcome": OUTCOMES[outcome], "case": case, "at_s": round(time.monotonic() - self.start, 1)}
                    with open(self.out / "cases.jsonl", "a") as cases:
                        cases.write(json.dumps(record) + "\n")

    def end(self, suite, limit=None):
        """The suite ends before it is done."""
        with self.lock:
            first = suite not in self.cut
            self.cut.add(suite)
        if first:
            self.tell(suite, f"   {suite} ends here: its time is over")

    def sum_up(self, facts):
        """summary.json, which says what has ended so far."""
        if self.out:
            text = json.dumps({**facts, "suites": self.counts, "cut": sorted(self.cut)}, indent=1)
            (self.out / "summary.json").write_text(text + "\n")

    def run(self, suite, command, environment=None, limit=None):
        """Tells the lines of a command as they come. False: it was cut, or failed without a case that says why."""
        seconds = self.left(limit)
        if seconds is not None and seconds < 1:
            self.end(suite)
            return False
        process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   text=True, errors="replace", env=environment, start_new_session=True)
        over = threading.Event()

        def stop():
            over.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(seconds, stop) if seconds is not None else None
        if timer:
            timer.start()
        failed, last = False, ""
        try:
            for line in process.stdout:
                line = line.rstrip("\n")
                failed = failed or line.startswith(("FAIL ", "DRIFT "))
                last = line or last
                self.tell(suite, line)
            process.wait()
        finally:
            if timer:
                timer.cancel()
        if over.is_set():
            self.end(suite)
            return False
        if process.returncode and not failed:
            name = " ".join(map(str, command[:1]))
            self.tell(suite, f"FAIL {pathlib.Path(name).name}: exit status {process.returncode}: {last}")
        return process.returncode == 0
