"""Optimizers, parameter groups, schedules and clipping beside PyTorch's classes: losses and weights, on one device and split.

    optimizers.py [NAME...]
"""
import sys
import tempfile
import warnings

import cleave
import torch
from torch import nn
from torch.optim import lr_scheduler as schedules

STEPS, BATCH = 8, 8
SPLITS = [("cpu:1", {}), ("cpu:2", {"mesh": "dp=2", "zero": 3}), ("cpu:2", {"mesh": "tp=2"}), ("cpu:2", {"mesh": "pp=2", "microbatches": 2})]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x):
        return x + torch.tanh(self.fc(self.norm(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.blocks, self.head = nn.Linear(8, 16), nn.Sequential(*(Block() for _ in range(3))), nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)))


def split_by(*patterns):
    """Groups of parameters by what their names begin or end with; the rest last."""
    def groups(net, **rest):
        left, made = dict(net.named_parameters()), []
        for test, options in patterns:
            own = [left.pop(name) for name in list(left) if test(name)]
            made.append({"params": own, **options})
        return [*made, {"params": list(left.values()), **rest}]
    return groups


def layer_decay(net, rate, decay):
    layer = lambda name: 0 if name.startswith("embed") else 4 if name.startswith("head") else 1 + int(name.split(".")[1])
    return [{"params": [parameter], "lr": rate * decay ** (4 - layer(name))} for name, parameter in net.named_parameters()]


class WithMuon(torch.optim.AdamW):
    """Muon for matrices, AdamW for the rest."""

    def __init__(self, net):
        super().__init__([parameter for parameter in net.parameters() if parameter.dim() != 2], 1e-2, weight_decay=0.1)
        self.muon = torch.optim.Muon([parameter for parameter in net.parameters() if parameter.dim() == 2], 1e-2)

    def zero_grad(self):
        super().zero_grad()
        self.muon.zero_grad()

    def step(self, closure=None):
        super().step()
        self.muon.step()


def constant(optimizer):
    return schedules.ConstantLR(optimizer, factor=1.0)


def case(recipe, optimizer, schedule=constant, clip=None, tolerance=2e-5, **more):
    return {"recipe": {"optimizer": recipe, **more}, "optimizer": optimizer, "schedule": schedule, "clip": clip,
            "tolerance": tolerance}


bias = split_by((lambda name: name.endswith("bias"), {"weight_decay": 0.0, "lr": 2e-3}),
                (lambda name: name.startswith("head"), {"lr": 1e-2, "betas": (0.8, 0.95)}))
CASES = {
    "amsgrad": case({"kind": "adamw", "lr": 1e-2, "amsgrad": True, "betas": [0.5, 0.6]},
                    lambda net: torch.optim.AdamW(net.parameters(), 1e-2, betas=(0.5, 0.6), amsgrad=True)),
    "rmsprop": case({"kind": "rmsprop", "lr": 1e-3, "weight_decay": 0.1},
                    lambda net: torch.optim.RMSprop(net.parameters(), 1e-3, weight_decay=0.1)),
    "rmsprop_centered": case({"kind": "rmsprop", "lr": 1e-3, "alpha": 0.9, "centered": True, "momentum": 0.5},
                             lambda net: torch.optim.RMSprop(net.parameters(), 1e-3, alpha=0.9, centered=True, momentum=0.5)),
    "nadam": case({"kind": "nadam", "lr": 5e-3, "weight_decay": 0.1},
                  lambda net: torch.optim.NAdam(net.parameters(), 5e-3, weight_decay=0.1)),
    "nadam_decoupled": case({"kind": "nadam", "lr": 5e-3, "weight_decay": 0.1, "decoupled_weight_decay": True},
                            lambda net: torch.optim.NAdam(net.parameters(), 5e-3, weight_decay=0.1, decoupled_weight_decay=True)),
    "radam": case({"kind": "radam", "lr": 1e-2, "betas": [0.9, 0.99], "weight_decay": 0.1},
                  lambda net: torch.optim.RAdam(net.parameters(), 1e-2, betas=(0.9, 0.99), weight_decay=0.1)),
    "adamax": case({"kind": "adamax", "lr": 1e-2}, lambda net: torch.optim.Adamax(net.parameters(), 1e-2)),
    "adadelta": case({"kind": "adadelta", "lr": 1.0}, lambda net: torch.optim.Adadelta(net.parameters(), 1.0)),
    "groups": case({"kind": "adamw", "lr": {"kind": "polynomial", "peak": 1e-3, "total_steps": 10, "power": 2},
                    "weight_decay": 0.1,
                    "groups": [{"match": ["*.bias"], "lr": 2e-3, "weight_decay": 0},
                               {"match": ["head.*"], "lr": {"scale": 10}, "betas": [0.8, 0.95]}]},
                   lambda net: torch.optim.AdamW(bias(net), 1e-3, weight_decay=0.1),
                   lambda optimizer: schedules.PolynomialLR(optimizer, 10, power=2)),
    "layer_decay": case({"kind": "sgd", "lr": 0.2, "momentum": 0.9, "layer_decay": 0.75},
                        lambda net: torch.optim.SGD(layer_decay(net, 0.2, 0.75), 0.2, momentum=0.9)),
    "one_cycle": case({"kind": "sgd", "lr": {"kind": "one_cycle", "peak": 0.5, "total_steps": 10}},
                      lambda net: torch.optim.SGD(net.parameters(), 0.5),
                      lambda optimizer: schedules.OneCycleLR(optimizer, 0.5, total_steps=10, cycle_momentum=False)),
    "clip_value": case({"kind": "sgd", "lr": 0.5}, lambda net: torch.optim.SGD(net.parameters(), 0.5), clip=0.01,
                       clip_value=0.01),
    # Products of 8 bits of mantissa.
    "muon_bf16": case({"kind": "muon", "lr": 1e-2, "ns_dtype": "bf16"}, WithMuon, tolerance=1e-2),
    # Momenta are rounded to 8 bits of mantissa: near torch's, and not equal.
    "bf16_state": case({"kind": "adamw", "lr": 1e-3, "state_dtype": "bf16"},
                       lambda net: torch.optim.AdamW(net.parameters(), 1e-3), tolerance=2e-3),
}


def trained(net, case, batches):
    optimizer = case["optimizer"](net)
    schedule, losses = case["schedule"](optimizer), []
    for x, labels in batches:
        loss = nn.functional.cross_entropy(net(x), labels)
        optimizer.zero_grad()
        loss.backward()
        if case["clip"]:
            nn.utils.clip_grad_value_(net.parameters(), case["clip"])
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(0)
    batches = [(torch.randn(BATCH, 8), torch.randint(0, 4, (BATCH,))) for _ in range(STEPS)]
    net, failed = Net(), 0
    start = {key: value.clone() for key, value in net.state_dict().items()}
    exported = tempfile.TemporaryDirectory()
    model = f"{exported.name}/net.onnx"
    cleave.export(net, (batches[0][0],), model)
    for name in sys.argv[1:] or CASES:
        own = CASES[name]
        net = Net()
        net.load_state_dict(start)
        losses = trained(net, own, batches)
        recipe = {"dims": {"batch": BATCH}, "loss": {"kind": "softmax_cross_entropy"}, **own["recipe"]}
        for cluster, flags in SPLITS:
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                plan = cleave.compile(model, recipe, cluster, f"{folder}/x.plan", **flags)
                told = []
                for part in (batches[:5], batches[5:]):  # and resumed
                    with cleave.Trainer(plan, snapshots=f"{folder}/s", resume=bool(told)) as trainer:
                        names = [name for name in trainer.inputs if name != "labels"]
                        told += [trainer.step({names[0]: x.numpy(), "labels": labels.numpy()}).loss for x, labels in part]
                        trainer.save()
                after = Net()
                cleave.load_into(after, f"{folder}/s")
            off = max(abs(a - b) / abs(b) for a, b in zip(told, losses))
            wrong = max(((after.state_dict()[key] - value).norm() / value.norm()).item() for key, value in net.state_dict().items())
            if not (off < own["tolerance"] and wrong < 10 * own["tolerance"] and len(told) == STEPS):
                failed += 1
                print(f"{name} on {cluster} {flags}: losses {told}, torch {losses}, weights off by {wrong:.2e}")
    print(f"optimizers: {'as expected' if not failed else f'{failed} differ'}")


main()
