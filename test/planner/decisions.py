"""What a record keeps of a decision, and how two are compared.

decisions.txt has a line for each record (seconds a step, bytes of a device, gap, choice) and, where presets were priced
beside it, lines with their prices:

    mlp-cpu: 9.2302e-05 s 34880 B, gap 0: mesh dp=1,tp=4; zero 0 over dp; batch over -; microbatches 1; ...
      twice the memory 9.2302e-05 s; ddp 0.000106736 s 128000 B; ulysses refused; ...

texts/NAME.txt is the whole answer of `cleave plan` for five records; a difference there is shown as a diff.
"""
import dataclasses
import itertools
import re
import textwrap

TOLERANCES = {"step": 0.005, "memory": 0.01}  # of the recorded number
GAP_TOLERANCE = 0.005                         # a gap may be as much larger, as a fraction of the step time
UNITS = {"step": "s", "memory": "B"}
GIBI = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
CHOICES = ("mesh", "zero", "batch", "microbatches", "recompute", "schedule", "attention", "offload", "gathers", "like")


@dataclasses.dataclass
class Price:
    """Seconds of a step and bytes of a device; None where a decision does not say."""
    step: float | None
    memory: float | None

    def __str__(self):
        return " ".join(f"{getattr(self, key):g} {unit}" for key, unit in UNITS.items() if getattr(self, key) is not None) or "refused"


@dataclasses.dataclass
class Decision:
    choice: str
    price: Price
    gap: float | None
    others: dict[str, Price]

    def text(self, name):
        gap = "" if self.gap is None else f", gap {self.gap:g}"
        entries = [f"{other} {price}".replace(" ", "~") for other, price in self.others.items()]  # is not broken over lines
        lines = textwrap.wrap("; ".join(entries), 120, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
        return f"{name}: {self.price}{gap}: {self.choice}\n" + "".join(line.replace("~", " ") + "\n" for line in lines)


def number(pattern, text):
    found = re.search(pattern, text, re.M)
    return float(found[1]) if found else None


def run_lengths(blocks):
    runs = [(value, len(list(same))) for value, same in itertools.groupby(blocks)]
    return ",".join(value if count == 1 else f"{count}x{value}" for value, count in runs)


def of_answer(text):
    """The decision that an answer of `cleave plan` tells, or the leanest plan that its error names."""
    fits = re.findall(r"^  (.*?)(?: with [\d.]+ \wiB)?: .* fits with ([\d.]+) (\w+), ([\d.]+) s a step", text, re.M)
    refused = re.search(r"error: (.*) needs ([\d.]+) (\w*B) on a device", text)
    if refused:
        others = {name: Price(float(step), float(size) * GIBI[unit]) for name, size, unit, step in fits}
        return Decision(refused[1], Price(None, float(refused[2]) * GIBI[refused[3]]), None, others)
    if not re.search(r"^step [\d.e+-]+ s", text, re.M):
        raise ValueError(f"no decision and no reason in: {text[:300]}")
    head = text[:text.index("\nstep ")].splitlines()[2:]  # below the problem and the cluster
    choice = [line for line in head if line.split()[0] in CHOICES]
    if len(choice) != len(head):
        raise ValueError(f"unknown choice: {sorted(set(head) - set(choice))}")
    blocks = re.findall(r"^stage .* (\d+) blocks,", text, re.M)
    if len(blocks) > 1:
        choice.append("blocks " + run_lengths(blocks))
    others = {"twice the memory": Price(number(r"^with twice the memory (\S+) s", text), None)}
    for name, answer in re.findall(r'^alternative "([\w.-]+)": (.*)', text, re.M):  # not "searched #2": presets
        others[name] = Price(number(r"^(\S+) s, ", answer), number(r"^\S+ s, (\S+) B, ", answer))
    if not others["twice the memory"].step:
        del others["twice the memory"]
    return Decision("; ".join(choice), Price(number(r"^step (\S+) s", text), number(r"^memory (\S+) B", text)),
                    number(r"^gap (\S+)", text), others)


def price_of(text):
    return Price(number(r"(\S+) s\b", text), number(r"(\S+) B\b", text))


def read(path):
    """{name: Decision} of decisions.txt."""
    decisions = {}
    for record in re.split(r"\n(?=\S)", path.read_text().strip()):
        line, *prices = record.split("\n  ")
        name, figures, choice = line.split(": ", 2)
        others = {other: price_of(price) for other, price in
                  re.findall(r"(.+?) (refused|\S+ s\b.*?)(?:; |$)", " ".join(prices))}
        decisions[name] = Decision(choice, price_of(figures), number(r"gap (\S+)", figures), others)
    return decisions


def compared_numbers(what, recorded, now):
    for key, tolerance in TOLERANCES.items():
        before, after = getattr(recorded, key), getattr(now, key)
        if before is None or after is None:
            if before is not after:
                yield f"{what}{key}: recorded {before}, now {after}"
        elif abs(after - before) > tolerance * before:
            yield (f"{what}{key}: recorded {before:g} {UNITS[key]}, now {after:g} {UNITS[key]} "
                   f"({100 * (after / before - 1):+.2f} %, tolerance {100 * tolerance:g} %)")


def differences(recorded, now):
    """What differs by more than its tolerance, a line each."""
    if now.choice != recorded.choice:
        yield f"choice: recorded {recorded.choice!r}\n           now {now.choice!r}"
    yield from compared_numbers("", recorded.price, now.price)
    if (recorded.gap is None) != (now.gap is None) or (now.gap or 0) > (recorded.gap or 0) + GAP_TOLERANCE:
        yield f"gap: recorded {recorded.gap}, now {now.gap} (tolerance {GAP_TOLERANCE} more)"
    if list(recorded.others) != list(now.others):
        yield f"others: recorded {', '.join(recorded.others)}\n           now {', '.join(now.others)}"
    for name in recorded.others.keys() & now.others.keys():
        yield from compared_numbers(f"{name}: ", recorded.others[name], now.others[name])
