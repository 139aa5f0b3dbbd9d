"""Products with matrices that a number of each sample chooses, in several forms, beside PyTorch's own loop."""
import copy
import tempfile

import cleave
import numpy as np
import torch
from torch import nn

BATCH, STEPS = 8, 3
RECIPE = {"loss": {"kind": "mse"}, "optimizer": {"kind": "adamw", "lr": 1e-2}, "clip_norm": 1.0}
SPLITS = [("cpu:1", {}), ("cpu:1", {"microbatches": 4}), ("cpu:2", {"mesh": "dp=2", "zero": 3}), ("cpu:2", {"mesh": "tp=2"}), ("cpu:2", {"mesh": "ep=2"}),
          ("cpu:4", {"mesh": "dp=2,ep=2"}), ("cpu:1", {"microbatches": 8})]


class Chosen(nn.Module):
    """One matrix a sample; adapters as LoRA's are read along the second dimension of their table."""

    def __init__(self):
        super().__init__()
        self.matrices = nn.Parameter(torch.randn(4, 6, 5) * 0.3)
        self.down, self.up = nn.Parameter(torch.randn(6, 4, 2) * 0.3), nn.Parameter(torch.randn(4, 2, 5) * 0.3)
        self.biases = nn.Parameter(torch.randn(4, 5) * 0.3)
        self.register_buffer("whole", torch.arange(4 * 2 * 3).view(4, 2, 3))

    def forward(self, input, number):
        y = torch.bmm(input[:, None], self.matrices[number])[:, 0] + self.biases[number]
        adapted = torch.einsum("bk,kbr,brn->bn", input, self.down[:, number], self.up[number])
        counts = torch.bmm(torch.ones_like(number)[:, None, None].expand(-1, 1, 2), self.whole[number])  # of integers
        return y + adapted + counts.sum(-1) * 1e-3


class Several(nn.Module):
    """Two matrices a sample, of two blocks of rows, and one of them once more."""

    def __init__(self):
        super().__init__()
        self.matrices = nn.Parameter(torch.randn(4, 6, 5) * 0.3)

    def forward(self, input, number):
        numbers = torch.stack([number, (number + 1) % 4], 1)
        y = torch.einsum("bk,bekn->ben", input, self.matrices[numbers])
        again = torch.einsum("bsk,bkn->bsn", torch.stack([input, input * 2], 1), self.matrices[number - 4])
        return (y * again).sum(1)


def by_torch(module, batches):
    module, losses = copy.deepcopy(module).double(), []
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    for x, number, labels in batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(module(x.double(), number), labels.double())
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.detach().float() for name, value in module.state_dict().items()}


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        for make in (Chosen, Several):
            module = make()
            batches = [(torch.randn(BATCH, 6), torch.randint(4, (BATCH,)), torch.randn(BATCH, 5)) for _ in range(STEPS)]
            wanted, state = by_torch(module, batches)
            for cluster, split in SPLITS:
                recipe = {**RECIPE, "dims": {"batch": BATCH}}
                plan = cleave.compile(copy.deepcopy(module), recipe, cluster, f"{folder}/x.plan", example=batches[0][:2], **split)
                with cleave.Trainer(plan) as trainer:
                    losses = [trainer.step({"input": x, "number": number, "labels": labels}).loss for x, number, labels in batches]
                    trained = trainer.parameters()
                assert np.allclose(losses, wanted, rtol=1e-5), (make.__name__, cluster, split, losses, wanted)
                for name, value in state.items():
                    assert name not in trained or np.allclose(trained[name], value, atol=2e-5), (make.__name__, cluster, split, name)
            print(f"{make.__name__}: as in PyTorch on {len(SPLITS)} splits")
    print("looked up: as expected")


if __name__ == "__main__":
    main()
