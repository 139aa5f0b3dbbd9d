"""Small nets whose training a default export loses: build(name) -> (module, example, loss)."""
import torch
from torch import nn
from torch.nn import functional as F

CE = {"kind": "softmax_cross_entropy"}


class ScaledLoss(nn.Module):
    """A scale that begins at 0.5 beside a loss whose form has a literal 0.5."""

    def __init__(self):
        super().__init__()
        self.fc, self.scale = nn.Linear(8, 1), nn.Parameter(torch.tensor(0.5))

    def forward(self, x, y):
        return F.smooth_l1_loss(self.fc(x) * self.scale, y)


class Scaled(nn.Module):
    """A scalar parameter that begins at 1."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.scale = nn.Linear(8, 16), nn.Linear(16, 5), nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)) * self.scale)


class ClassToken(nn.Module):
    """A parameter that is repeated for every sample."""

    def __init__(self):
        super().__init__()
        self.token, self.embed, self.head = nn.Parameter(torch.randn(1, 1, 8)), nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x):
        joined = torch.cat([self.token.expand(x.shape[0], -1, -1), self.embed(x)], 1)
        return self.head(torch.tanh(joined.mean(1) + joined[:, 0]))


def cnn():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, bias=False), nn.BatchNorm2d(8),
                         nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


def zero_biases():
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 5))
    for part in module:
        if isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)
    return module


def group_norm():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.GroupNorm(4, 8), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


NETS = {
    "batch_norm": (cnn, lambda: (torch.randn(8, 3, 10, 10),), CE),
    "zero_biases": (zero_biases, lambda: (torch.randn(8, 8),), CE),
    "scale_of_one": (Scaled, lambda: (torch.randn(8, 8),), CE),
    "group_norm": (group_norm, lambda: (torch.randn(8, 3, 10, 10),), CE),
    "class_token": (ClassToken, lambda: (torch.randn(8, 4, 8),), CE),
    "scale_beside_loss": (ScaledLoss, lambda: (torch.randn(8, 8), torch.randn(8, 1)), {"kind": "output"}),
}


def build(name):
    torch.manual_seed(0)
    make, example, loss = NETS[name]
    return make().train(), example(), loss
