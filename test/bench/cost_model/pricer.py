"""Prices requests of ground_truth.py: makes the models, extracts their problems, and asks price_rows."""
import json
import subprocess
import sys
import zlib

RECIPE = """dims: {{batch: {batch}}}
loss: {{kind: softmax_cross_entropy, output: logits, labels: {{name: labels}}}}
optimizer: {{kind: adam, lr: 1.0e-4}}
clip_norm: 1.0
"""


class Pricer:
    """`folder` keeps models' problems between runs; `device` and `links` replace keys of the clusters' files."""

    def __init__(self, root, build, folder, device=None, links=None):
        sys.path.insert(0, str(root / "models/gpt"))
        import make_gpt
        self.make_gpt, self.cleave, self.folder = make_gpt, build / "bin/cleave", folder
        self.device, self.links = device or {}, links or {}
        folder.mkdir(parents=True, exist_ok=True)
        self.program = subprocess.Popen([build / "test/bench/price_rows"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def problem(self, model):
        path = self.folder / (model.name.replace(" ", "_") + ".problem")
        if path.exists():
            return path
        onnx, recipe = path.with_suffix(".onnx"), path.with_suffix(".yaml")
        # GPT and Megatron-LM train with dropout.
        self.make_gpt.write(onnx, model.layers, model.hidden, model.heads, model.vocab, model.seq, dropout=0.1)
        recipe.write_text(RECIPE.format(batch=2))
        done = subprocess.run([self.cleave, "estimate", onnx, "--recipe", recipe, "--cluster", "h200:1", "--like", "ddp",
                               "--microbatches", "1", "--problem", path],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)
        onnx.unlink()
        if not path.exists():  # status 3, no plan fits one device, writes the problem too
            sys.exit(f"cleave estimate of {model.name}: {done.stderr}")
        return path

    def cluster(self, kind, devices, network_gbps, software):
        nodes, per_node = max(1, devices // 8), min(8, devices)
        keys = {"nodes": nodes, "devices_per_node": per_node, "software": software, "device": {"kind": kind, **self.device}}
        links = {key: dict(value) for key, value in self.links.items()}
        if network_gbps:
            links.setdefault("network", {})["gbps"] = network_gbps
        if links and devices > 1:
            keys["links"] = links
        text = json.dumps(keys)  # JSON is YAML
        path = self.folder / f"{kind}-{devices}-{zlib.crc32(text.encode()):08x}.yaml"
        path.write_text(text)
        return path

    def price(self, request):
        request = dict(request)
        request["cluster"] = str(self.cluster(*request["cluster"]))
        if "model" in request:
            model = request.pop("model")
            request["problem"], request["precision"] = str(self.problem(model)), model.precision
        self.program.stdin.write(json.dumps(request) + "\n")
        self.program.stdin.flush()
        return json.loads(self.program.stdout.readline())
