"""cleave.fit beside PyTorch's own loop: losses, weights, callbacks, snapshots, and what it refuses."""
import copy
import os
import tempfile
import warnings

import cleave
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from refused import refused

RECIPE = {"loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "adamw", "lr": 1e-2}}


class Two(nn.Module):
    """Two inputs, in another order than the names'."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(6, 3)

    def forward(self, wide, narrow):
        return self.a(narrow) + self.b(wide)


def beside_each_other():
    """Plans of two modules in one folder keep a model each, from which a later process loads; an evaluation is of whole batches."""
    recipe = {"dims": {"batch": 8}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "sgd", "lr": 0.1}}
    x, labels = torch.randn(8, 6), torch.arange(8) % 3
    with tempfile.TemporaryDirectory() as folder:
        nets = [nn.Linear(6, 3), nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))]
        plans = [cleave.compile(net, recipe, "cpu:1", f"{folder}/{i}.plan", (x,)) for i, net in enumerate(nets)]
        for i, (net, plan) in enumerate(zip(nets, plans)):
            with cleave.Trainer(plan.path, snapshots=f"{folder}/s{i}") as trainer:
                trainer.step({"input": x, "labels": labels})
                refused(lambda: trainer.evaluate({"input": x[:4], "labels": labels[:4]}), "an evaluation takes whole batches")
                trainer.save()
            cleave.load_into(net, f"{folder}/s{i}")


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    wide, narrow, labels = torch.randn(32, 6), torch.randn(32, 4), torch.randint(0, 3, (32,))
    loader = DataLoader(TensorDataset(wide, narrow, labels), batch_size=8)
    net = Two()
    torchs, losses = copy.deepcopy(net), []
    optimizer = torch.optim.AdamW(torchs.parameters(), 1e-2)
    for _ in range(2):
        for a, b, target in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(torchs(a, b), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    named = [{"wide": a, "narrow": b, "labels": target} for a, b, target in loader]
    workers = DataLoader(TensorDataset(wide, narrow, labels), batch_size=8, num_workers=2)
    arrays = [{name: tensor.numpy() for name, tensor in batch.items()} for batch in named]
    for batches, split in (workers, {}), (named, {"mesh": "dp=2"}):
        own = copy.deepcopy(net)
        told = cleave.fit(own, batches, RECIPE, cluster="cpu:2", epochs=2, **split)
        assert max(abs(one.loss - value) / value for one, value in zip(told, losses, strict=True)) < 2e-5, (told, losses)
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(own.parameters(), torchs.parameters()))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CLEAVE_CACHE_DIR"] = folder
        first = cleave.fit(copy.deepcopy(net), loader, RECIPE, snapshots=f"{folder}/s", callbacks=[cleave.EarlyStopping(patience=3, min_delta=100)])
        assert len(first) == 4
        own = copy.deepcopy(net)
        rest = cleave.fit(own, loader, RECIPE, snapshots=f"{folder}/s", resume=True)
        assert rest[-1].step == 8 and abs(rest[-1].loss - losses[-1]) < 1e-5
        refused(lambda: cleave.fit(copy.deepcopy(net), loader, RECIPE, snapshots=f"{folder}/s"), "snapshot")
        assert cleave.fit(copy.deepcopy(net), loader, RECIPE, snapshots=f"{folder}/s", overwrite=True)[0].step == 1
        plan = cleave.compile(own, {"dims": {"batch": 8}, **RECIPE}, "cpu:2", example=(wide[:2], narrow[:2]))
        with cleave.Trainer(plan, snapshots=f"{folder}/t") as trainer:
            assert all(torch.equal(value, own.state_dict()[name]) for name, value in trainer.state_dict().items())
        with cleave.Trainer(plan) as trainer:
            refused(trainer.state_dict, "folder of `snapshots`")
        # Snapshots of an object store, which weights come from, too: of the newest, or of one.
        with cleave.Trainer(plan, snapshots="memory://one") as trainer:
            trainer.step({"wide": wide[:8], "narrow": narrow[:8], "labels": labels[:8]})
            wanted = trainer.state_dict()
            trainer.save()
        for url in "memory://one", "memory://one/step-00000001":
            other = copy.deepcopy(net)
            cleave.load_into(other, url)
            assert all(torch.equal(value, wanted[name]) for name, value in other.state_dict().items())
        own = copy.deepcopy(net)
        for at in 0, 2:
            told = cleave.fit(own, arrays[at:at + 2], RECIPE, snapshots="memory://fit", resume=True, check=False)
            assert [metrics.step for metrics in told] == [at + 1, at + 2]
            assert all(abs(one.loss - losses[one.step - 1]) < 1e-5 for one in told)
    refused(lambda: cleave.fit(net, [], RECIPE), "no batch")
    refused(lambda: cleave.fit(net, loader, {**RECIPE, "loss": nn.CrossEntropyLoss()}), "the recipe's loss is a CrossEntropyLoss")
    assert len(cleave.fit(copy.deepcopy(net), loader, RECIPE, callbacks=lambda trainer, metrics: metrics.step == 2)) == 2
    # Generators are gone through once, from their first batch on; what was trained stays when a callback fails.
    assert len(cleave.fit(copy.deepcopy(net), iter(named), RECIPE)) == len(named)
    refused(lambda: cleave.fit(copy.deepcopy(net), iter(named), RECIPE, epochs=2), "an iterator can be gone through once")

    def fail(trainer, metrics):
        if metrics.step == 4:
            raise ValueError("of the callback")
    own = copy.deepcopy(net)
    try:
        cleave.fit(own, loader, RECIPE, callbacks=[fail])
    except ValueError:
        pass
    assert not torch.equal(own.a.weight, net.a.weight)
    # A module that was trained before, with its count of batches.
    normed = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    normed(wide)
    for batches in 5, 9:
        cleave.fit(normed, DataLoader(TensorDataset(wide, labels), batch_size=8), RECIPE)
        assert normed[1].num_batches_tracked == batches
    refused(lambda: cleave.fit(net, [{"wide": wide, "narrow": narrow}], RECIPE), "no 'labels'")
    beside_each_other()
    print("fit: as expected")


main()
