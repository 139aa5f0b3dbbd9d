"""Reports of splits: as text, as data, as a page; Jupyter shows the page."""
import html
import json
import pathlib
import tempfile

from cleave._tool import CleaveError, run_tool
from cleave._whole import whole


class Report:
    """The price of a split, and why it was chosen. `data` has the keys of docs/reference/report.md."""

    def __init__(self, text_of_json):
        self._json = text_of_json
        self.data = json.loads(text_of_json)

    def _rendered(self, *options):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "report.json")
            path.write_text(self._json)
            return run_tool("report", path, *options)

    def __str__(self):
        return self._rendered()

    def explain(self, node):
        """The candidate splits of a node or parameter, with their prices."""
        return self._rendered("--explain", node)

    def html(self):
        return self._rendered("--format", "html")

    def save(self, path):
        """As a page (.html), as data (.json), else as text."""
        suffix = pathlib.Path(path).suffix
        text = self.html() if suffix == ".html" else self._json if suffix == ".json" else str(self)
        with whole(path) as partial:
            partial.write_text(text)

    def _repr_html_(self):
        return f'<iframe style="width:100%;height:40em;border:0" srcdoc="{html.escape(self.html())}"></iframe>'


class Comparison:
    """The same model on several clusters: a Report for each, or the message why no plan fits."""

    columns = ("cluster", "devices", "step_s", "samples_per_s", "memory_bytes_per_device", "mesh", "error")

    def __init__(self, entries):
        self.reports = [Report(json.dumps(entry)) if "error" not in entry else entry["error"] for entry in entries]
        self.rows = [self._row(entry) for entry in entries]

    @staticmethod
    def _row(entry):
        if "error" in entry:
            return (entry["cluster"], None, None, None, None, None, entry["error"])
        step = entry["predicted"]["step_time_s"]
        mesh = ",".join(f"{axis}={size}" for axis, size in entry["mesh"].items())
        return (entry["cluster"], entry["devices"], step, entry["batch"] / step,
                entry["predicted"]["memory_bytes_per_device"], mesh, None)

    def to_pandas(self):
        """A pandas.DataFrame with a row for each cluster."""
        try:
            import pandas
        except ImportError:
            raise CleaveError("to_pandas() needs pandas; `rows` and `columns` have the same without it", 2) from None
        return pandas.DataFrame(self.rows, columns=self.columns)

    def __str__(self):
        return "\n".join("  ".join("" if cell is None else str(cell) for cell in row) for row in [self.columns, *self.rows])
