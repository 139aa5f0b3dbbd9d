"""Experts as people write them, beside PyTorch: loops that select each expert's tokens, and onnxruntime's MoE in a file."""
import copy
import tempfile

import cleave
import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional as F

BATCH, LENGTH, WORDS, WIDTH, INNER, EXPERTS, CHOSEN, STEPS = 4, 5, 20, 8, 12, 4, 2, 3
RECIPE = {"loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "adamw", "lr": 1e-2}, "dims": {"batch": BATCH}}


class Routed(nn.Module):
    """No token chooses expert 3."""

    def __init__(self):
        super().__init__()
        self.embed, self.router, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, EXPERTS), nn.Linear(WIDTH, WORDS)
        with torch.no_grad():
            self.router.bias[3] = -100
        self.make()

    def make(self):
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, INNER), nn.SiLU(), nn.Linear(INNER, WIDTH)) for _ in range(EXPERTS))

    def forward(self, ids):
        x = self.embed(ids).reshape(-1, WIDTH)
        weight, index = torch.topk(self.router(x).softmax(-1), CHOSEN, dim=-1)
        return self.head((x + self.mix(x, weight / weight.sum(-1, keepdim=True), index)).reshape(*ids.shape, WIDTH))


class Stacked(Routed):
    """One weight for all experts, as transformers has them, and index_add_."""

    def make(self):
        self.up, self.down = (nn.Parameter(torch.randn(EXPERTS, *sizes) * 0.3) for sizes in ((2 * INNER, WIDTH), (WIDTH, INNER)))

    def mix(self, x, weight, index):
        y = torch.zeros_like(x)
        for at in range(EXPERTS):
            row, choice = torch.where(index == at)
            gate, up = F.linear(x[row], self.up[at]).chunk(2, -1)
            y.index_add_(0, row, F.linear(F.silu(gate) * up, self.down[at]) * weight[row, choice, None])
        return y


class Modules(Routed):
    """A module for each expert, a one-hot mask, rows that are added to."""

    def mix(self, x, weight, index):
        y, mask = torch.zeros_like(x), F.one_hot(index, EXPERTS).permute(2, 1, 0)
        for at, expert in enumerate(self.experts):
            choice, row = torch.where(mask[at])
            y.index_add_(0, row, expert(x[None, row].reshape(-1, WIDTH)) * weight[row, choice, None])
        return y


class Masked(Routed):
    """A boolean mask for each expert, whose rows are assigned; only the best expert counts."""

    def mix(self, x, weight, index):
        y = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            mask = index[:, 0] == at
            y[mask] += expert(x[mask]) * weight[mask, :1]
        return y


class Hits(Routed):
    """Over the experts that some token chose, as transformers' Switch goes; its encoder makes a mask unless it is exported, and
    reads one."""

    def mix(self, x, weight, index):
        known = None if torch.compiler.is_compiling() else torch.ones_like(x)
        x = x * known[:, :]
        y, mask = torch.zeros_like(x), F.one_hot(index, EXPERTS).permute(2, 1, 0)
        for hit in torch.greater(mask.sum((-1, -2)), 0).nonzero():
            choice, row = torch.where(mask[hit].squeeze(0))
            y.index_add_(0, row, self.experts[int(hit[0])](x[row]) * weight[row, choice, None])
        return y


class Fused(nn.Module):
    """What onnxruntime's MoE computes: gates and linear parts in turns, as GPT-OSS has them."""

    def __init__(self):
        super().__init__()
        sizes = {"embed": (WORDS, WIDTH), "router": (WIDTH, EXPERTS), "fc1": (EXPERTS, 2 * INNER, WIDTH), "bias1": (EXPERTS, 2 * INNER),
                 "fc2": (EXPERTS, WIDTH, INNER), "bias2": (EXPERTS, WIDTH), "head": (WIDTH, WORDS)}
        for name, shape in sizes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape) * 0.5))

    def forward(self, ids):
        x = self.embed[ids]
        tokens = x.reshape(-1, WIDTH)
        weight, index = torch.topk((tokens @ self.router).softmax(-1), CHOSEN, dim=-1)
        y = torch.einsum("th,tkoh->tko", tokens, self.fc1[index]) + self.bias1[index]
        gate, linear = y[..., ::2].clamp(max=1.5), y[..., 1::2].clamp(-1.5, 1.5)
        y = gate * torch.sigmoid(1.702 * gate) * (linear + 1)
        y = torch.einsum("tkh,tkoh->tko", y, self.fc2[index]) + self.bias2[index]
        return (x + (y * (weight / weight.sum(-1, keepdim=True)).unsqueeze(-1)).sum(1).reshape(x.shape)) @ self.head

    def save(self, path):
        nodes = [helper.make_node("Gather", ["embed", "ids"], ["x"]), helper.make_node("Reshape", ["x", "flat"], ["tokens"]),
                 helper.make_node("MatMul", ["tokens", "router"], ["scores"]),
                 helper.make_node("MoE", ["x", "scores", "fc1", "bias1", "fc2", "bias2"], ["mixed"], domain="com.microsoft", k=CHOSEN,
                                  normalize_routing_weights=1, activation_type="swiglu", swiglu_fusion=1, swiglu_limit=1.5,
                                  activation_alpha=1.702, activation_beta=1.0),
                 helper.make_node("Add", ["x", "mixed"], ["sum"]), helper.make_node("MatMul", ["sum", "head"], ["logits"])]
        tensors = [numpy_helper.from_array(value.detach().numpy(), name) for name, value in self.named_parameters()]
        tensors.append(numpy_helper.from_array(np.array([-1, WIDTH]), "flat"))
        graph = helper.make_graph(nodes, "moe", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", LENGTH])],
                                  [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", LENGTH, WORDS])], tensors)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]), path)
        return path


def by_torch(module, batches):
    module, losses = copy.deepcopy(module).double(), []
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    for ids, labels in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(module(ids).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.detach().float() for name, value in module.state_dict().items()}


def main():
    torch.manual_seed(0)
    batches = [tuple(torch.randint(WORDS, (BATCH, LENGTH)) for _ in range(2)) for _ in range(STEPS)]
    cases = [(Stacked, "cpu:1", {}), (Stacked, "cpu:2", {"mesh": "ep=2"}), (Modules, "cpu:2", {"mesh": "ep=2"}), (Masked, "cpu:1", {}),
             (Hits, "cpu:1", {}), (Fused, "cpu:2", {"mesh": "ep=2"})]
    with tempfile.TemporaryDirectory() as folder:
        for make, cluster, split in cases:
            torch.manual_seed(1)
            module = make()
            wanted, state = by_torch(module, batches)
            roles = {name: "parameter" for name, _ in module.named_parameters()} if make is Fused else {}
            source = module.save(f"{folder}/moe.onnx") if make is Fused else copy.deepcopy(module)
            given = {} if make is Fused else {"example": batches[0][:1]}
            plan = cleave.compile(source, {**RECIPE, **({"roles": roles} if roles else {})}, cluster, f"{folder}/x.plan", **given, **split)
            with cleave.Trainer(plan) as trainer:
                losses = [trainer.step({"ids": ids, "labels": labels}).loss for ids, labels in batches]
                trained = trainer.parameters()
            assert np.allclose(losses, wanted, rtol=1e-5), (make.__name__, cluster, losses, wanted)
            for name, value in state.items():
                if name in trained:  # those of modules are stacked
                    assert np.allclose(trained[name].reshape(value.shape), value, atol=5e-5), (make.__name__, cluster, name)
            print(f"{make.__name__}: as in PyTorch on {cluster}", flush=True)
    print("expert forms: as expected")


if __name__ == "__main__":
    main()
