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
    def __init__(self, width):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.fc(self.norm(x)))


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        blocks = nn.Sequential(*(Block(width) for _ in range(3)))
        self.embed, self.blocks, self.head = nn.Linear(8, width), blocks, nn.Linear(width, 4)

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


def rounded_rows(x):
    """Codes in e4m3 times one scale for each row, where a matrix has at least 4,096 elements."""
    if x.dim() < 2 or x.numel() < 4096:
        return x
    largest = x.abs().amax(-1, keepdim=True)
    scale = torch.where(largest > 0, largest / 448, 1.0)
    return (x / scale).to(torch.float8_e4m3fn).float() * scale


def in_8_bits(make, kind):
    """The optimizer, whose momenta are rounded when a step is done."""
    def made(net):
        optimizer = make(net)
        optimizer.register_step_post_hook(lambda *_: [state[kind].copy_(rounded_rows(state[kind])) for state in optimizer.state.values()])
        return optimizer
    return made


def constant(optimizer):
    return schedules.ConstantLR(optimizer, factor=1.0)


def case(recipe, optimizer, schedule=constant, clip=None, tolerance=2e-5, width=16, splits=SPLITS, **more):
    return {"recipe": {"optimizer": recipe, **more}, "optimizer": optimizer, "schedule": schedule, "clip": clip,
            "tolerance": tolerance, "width": width, "splits": splits}


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
    # A number between two codes may be rounded to either, which the last bit of a gradient decides; without rounding losses
    # differ by 3e-4 and more.
    "fp8_state": case({"kind": "adamw", "lr": 1e-2, "state_dtype": "fp8"},
                      in_8_bits(lambda net: torch.optim.AdamW(net.parameters(), 1e-2), "exp_avg"), tolerance=1e-4, width=64,
                      splits=[*SPLITS, ("a100-80g:1", {"emulate": True})]),
    "fp8_momentum": case({"kind": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True, "state_dtype": "fp8"},
                         in_8_bits(lambda net: torch.optim.SGD(net.parameters(), 0.1, 0.9, nesterov=True), "momentum_buffer"),
                         width=64),
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
    failed, exported, starts = 0, tempfile.TemporaryDirectory(), {}
    for name in sys.argv[1:] or CASES:
        own = CASES[name]
        net, width = Net(own["width"]), own["width"]
        model = f"{exported.name}/net{width}.onnx"
        if width not in starts:
            starts[width] = {key: value.clone() for key, value in net.state_dict().items()}
            cleave.export(net, (batches[0][0],), model)
        net.load_state_dict(starts[width])
        losses = trained(net, own, batches)
        recipe = {"dims": {"batch": BATCH}, "loss": {"kind": "softmax_cross_entropy"}, **own["recipe"]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plans = [cleave.compile(model, recipe, cluster, f"{exported.name}/{i}.plan", **flags) for i, (cluster, flags) in enumerate(own["splits"])]
        for i, (cluster, flags) in enumerate(own["splits"]):
            with tempfile.TemporaryDirectory() as folder:
                told = []
                for plan, part in (plans[i], batches[:5]), (plans[i - 1], batches[5:]):  # and resumed on another split
                    with cleave.Trainer(plan, snapshots=f"{folder}/s", resume=bool(told)) as trainer:
                        names = [name for name in trainer.inputs if name != "labels"]
                        told += [trainer.step({names[0]: x.numpy(), "labels": labels.numpy()}).loss for x, labels in part]
                        trainer.save()
                after = Net(width)
                cleave.load_into(after, f"{folder}/s")
            off = max(abs(a - b) / abs(b) for a, b in zip(told, losses))
            wrong = max(((after.state_dict()[key] - value).norm() / value.norm()).item() for key, value in net.state_dict().items())
            if not (off < own["tolerance"] and wrong < 10 * own["tolerance"] and len(told) == STEPS):
                failed += 1
                print(f"{name} on {cluster} {flags}: losses {told}, torch {losses}, weights off by {wrong:.2e}")
    print(f"optimizers: {'as expected' if not failed else f'{failed} differ'}")


main()
