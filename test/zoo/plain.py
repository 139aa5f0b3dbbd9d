"""Models in plain torch: recurrent, graphs, recommenders, convolutions, generative ones."""
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from case import BCE, CE, MSE, OUT, Case, classes, coin, floats, image, next_tokens, normal, tokens

V, T, H = 31, 10, 24


class Recurrent(nn.Module):
    def __init__(self, kind, tokens_out=True, **more):
        super().__init__()
        self.embed = nn.Embedding(V, 16)
        self.rnn = getattr(nn, kind)(16, H, batch_first=True, **more)
        self.head = nn.Linear(H * (2 if more.get("bidirectional") else 1), V if tokens_out else 3)
        self.tokens_out = tokens_out

    def forward(self, ids):
        y, _ = self.rnn(self.embed(ids))
        return self.head(y if self.tokens_out else y[:, -1])


class Cells(nn.Module):
    """An LSTMCell and a GRUCell, unrolled."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.LSTMCell(6, H), nn.GRUCell(H, H), nn.Linear(H, 1)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], H)
        c, g = h, h
        for t in range(x.shape[1]):
            h, c = self.a(x[:, t], (h, c))
            g = self.b(h, g)
        return self.head(g)


class Seq2Seq(nn.Module):
    """A GRU that reads, a GRU that writes and looks back by additive attention."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(V, 16)
        self.reader, self.writer = nn.GRU(16, H, batch_first=True), nn.GRU(16, H, batch_first=True)
        self.q, self.k, self.v = nn.Linear(H, H, bias=False), nn.Linear(H, H), nn.Linear(H, 1)
        self.head = nn.Linear(2 * H, V)

    def forward(self, source, target):
        memory, last = self.reader(self.embed(source))
        y, _ = self.writer(self.embed(target), last)
        score = self.v(torch.tanh(self.q(y)[:, :, None] + self.k(memory)[:, None])).squeeze(-1)
        return self.head(torch.cat([y, score.softmax(-1) @ memory], -1))


class GCN(nn.Module):
    """Graph convolutions over a dense adjacency."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm, self.head = nn.Linear(5, H), nn.Linear(H, H), nn.LayerNorm(H), nn.Linear(H, 3)

    def forward(self, x, adjacency):
        a = adjacency + torch.eye(adjacency.shape[-1])
        d = a.sum(-1).rsqrt()
        a = d[..., :, None] * a * d[..., None, :]
        x = F.relu(self.a(a @ x))
        x = self.norm(x + F.elu(self.b(a @ x)))
        return self.head(x.mean(1))


class GAT(nn.Module):
    """Graph attention over lists of edges, by gathers and scatters, a graph a sample."""

    def __init__(self):
        super().__init__()
        self.w, self.score, self.head = nn.Linear(5, H), nn.Linear(2 * H, 1), nn.Linear(H, 3)

    def forward(self, x, source, target):
        h = self.w(x)
        wide = lambda i: i[..., None].expand(-1, -1, H)
        a, b = h.gather(1, wide(source)), h.gather(1, wide(target))
        e = F.leaky_relu(self.score(torch.cat([a, b], -1)), 0.2).clamp(max=5).exp()
        total = torch.zeros_like(h[..., :1]).scatter_add(1, target[..., None], e)
        out = torch.zeros_like(h).scatter_add(1, wide(target), a * e)
        return self.head(F.relu(out / (total + 1e-6)).sum(1))


class EdgeGNN(nn.Module):
    """One graph for the whole batch: nodes in a row, messages by index_add."""

    def __init__(self):
        super().__init__()
        self.message, self.update, self.head = nn.Linear(10, H), nn.Linear(H + 5, H), nn.Linear(H, 3)

    def forward(self, x, edge):
        n = x.shape[1]
        flat = x.flatten(0, 1)
        at = edge + (torch.arange(x.shape[0]) * n)[:, None, None]
        s, t = at[:, 0].flatten(), at[:, 1].flatten()
        m = F.silu(self.message(torch.cat([flat[s], flat[t]], -1)))
        total = torch.zeros(flat.shape[0], H, dtype=x.dtype).index_add(0, t, m)
        return self.head(self.update(torch.cat([flat, total], -1))).reshape(x.shape[0], n, 3)


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(k, 8) for k in (11, 7, 23))
        self.bottom = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(8 + 6, 16), nn.ReLU(), nn.Linear(16, 1))
        i, j = torch.tril_indices(4, 4, -1)
        self.register_buffer("pairs", i * 4 + j)

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        e = torch.stack([x] + [t(sparse[:, i]) for i, t in enumerate(self.tables)], 1)
        z = (e @ e.transpose(1, 2)).flatten(1)[:, self.pairs]
        return self.top(torch.cat([x, z], 1)).squeeze(1)


class DeepFM(nn.Module):
    def __init__(self, fields=4, size=20):
        super().__init__()
        self.register_buffer("offset", torch.arange(fields) * size)
        self.first, self.second = nn.Embedding(fields * size, 1), nn.Embedding(fields * size, 8)
        self.bias = nn.Parameter(torch.zeros(1))
        self.deep = nn.Sequential(nn.Linear(fields * 8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, ids):
        ids = ids + self.offset
        e = self.second(ids)
        pair = 0.5 * (e.sum(1) ** 2 - (e**2).sum(1)).sum(1)
        return self.bias + self.first(ids).sum((1, 2)) + pair + self.deep(e.flatten(1)).squeeze(1)


class Bag(nn.Module):
    """EmbeddingBag with weights of its samples, and neural collaborative filtering."""

    def __init__(self):
        super().__init__()
        self.bag, self.user = nn.EmbeddingBag(V, 8, mode="sum"), nn.Embedding(9, 8)
        self.top = nn.Sequential(nn.Linear(24, 16), nn.PReLU(), nn.Linear(16, 1))

    def forward(self, items, user):
        a, b = self.bag(items), self.user(user)
        return self.top(torch.cat([a, b, a * b], 1)).squeeze(1)


class TCN(nn.Module):
    """Causal dilated convolutions with weight_norm."""

    def __init__(self):
        super().__init__()
        from torch.nn.utils.parametrizations import weight_norm

        self.layers = nn.ModuleList(weight_norm(nn.Conv1d(4 if i == 0 else 16, 16, 3, dilation=2**i)) for i in range(3))
        self.down, self.head = nn.Conv1d(4, 16, 1), nn.Linear(16, 2)

    def forward(self, x):
        y = x
        for i, layer in enumerate(self.layers):
            skip = self.down(y) if i == 0 else y
            y = F.relu(skip + F.relu(layer(F.pad(y, (2 * 2**i, 0)))))
        return self.head(y[..., -1])


class UNet(nn.Module):
    """With the time embedding of a diffusion model, GroupNorm and transposed convolutions."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 16))
        self.i, self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, padding=1)
        self.n1, self.n2 = nn.GroupNorm(4, 8), nn.GroupNorm(4, 16)
        self.up, self.c = nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.Conv2d(16, 8, 3, padding=1)
        self.up2, self.o = nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(8, 3, 3, 2, 1)

    def forward(self, x, t):
        f = torch.exp(-math.log(1000.0) * torch.arange(8) / 8)
        e = t[:, None] * f
        e = self.time(torch.cat([e.sin(), e.cos()], -1))
        x = self.i(x)
        y = self.b(F.silu(self.n2(self.a(F.silu(self.n1(x))) + e[:, :, None, None])))
        z = self.c(torch.cat([x, self.up(y)], 1))
        return self.o(self.up2(F.silu(z)))


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 32), nn.ReLU())
        self.mu, self.var = nn.Linear(32, 8), nn.Linear(32, 8)
        self.d = nn.Sequential(nn.Linear(8, 8 * 64), nn.ReLU(), nn.Unflatten(1, (8, 8, 8)), nn.ConvTranspose2d(8, 1, 4, 2, 1))

    def forward(self, x, noise):
        h = self.e(x)
        mu, log = self.mu(h), self.var(h)
        y = self.d(mu + noise * torch.exp(0.5 * log))
        kl = -0.5 * (1 + log - mu**2 - log.exp()).sum(1).mean()
        return F.binary_cross_entropy_with_logits(y, torch.sigmoid(x)) + 0.01 * kl


class VQVAE(nn.Module):
    """Nearest codes and a straight-through estimate."""

    def __init__(self):
        super().__init__()
        self.e, self.d, self.codes = nn.Linear(12, 8), nn.Linear(8, 12), nn.Parameter(torch.randn(7, 8))

    def forward(self, x):
        z = self.e(x)
        d = (z[:, None] - self.codes).pow(2).sum(-1)
        q = F.embedding(d.argmin(1), self.codes)
        y = self.d(z + (q - z).detach())
        return F.mse_loss(y, x) + F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())


class FreshTransformer(nn.Module):
    """nn.TransformerEncoder, whose layers begin as copies."""

    def __init__(self, first=False, act="relu"):
        super().__init__()
        self.embed, self.position = nn.Embedding(V, 32), nn.Parameter(torch.randn(T, 32) * 0.1)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, 0.0, act, batch_first=True, norm_first=first), 3,
                                             enable_nested_tensor=False)
        self.head = nn.Linear(32, 4)

    def forward(self, ids):
        return self.head(self.encoder(self.embed(ids) + self.position).mean(1))


class Translator(nn.Module):
    """nn.Transformer with a causal mask."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(V, 32)
        self.body = nn.Transformer(32, 4, 1, 2, 64, 0.0, batch_first=True)
        self.head = nn.Linear(32, V)
        self.register_buffer("mask", torch.triu(torch.full((8, 8), float("-inf")), 1), persistent=False)

    def forward(self, source, target):
        return self.head(self.body(self.embed(source), self.embed(target), tgt_mask=self.mask, tgt_is_causal=True))


class TiedGPT(nn.Module):
    """A language model whose head is its embedding; biases and scales as they begin."""

    def __init__(self, vocab=V, width=32, layers=2):
        super().__init__()
        self.embed, self.place = nn.Embedding(vocab, width), nn.Embedding(T, width)
        self.blocks = nn.ModuleList(TiedGPT.block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.head.weight = self.embed.weight

    @staticmethod
    def block(width):
        return nn.ModuleDict({"n1": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width),
                              "n2": nn.LayerNorm(width), "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width)})

    def forward(self, ids):
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1]))
        for b in self.blocks:
            q, k, v = b["qkv"](b["n1"](x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + b["out"](a.transpose(1, 2).flatten(2))
            x = x + b["down"](F.gelu(b["up"](b["n2"](x)), approximate="tanh"))
        return self.head(self.norm(x))


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.t, self.a = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 9)), nn.Conv1d(3, 16, 1)
        self.n, self.b, self.head = nn.BatchNorm1d(16), nn.Conv1d(16, 24, 1), nn.Linear(24, 4)

    def forward(self, x):
        m = self.t(x).amax(1).view(-1, 3, 3) + torch.eye(3)
        y = torch.bmm(x, m).transpose(1, 2)
        return self.head(self.b(F.relu(self.n(self.a(y)))).amax(-1))


class Siren(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(2, H), nn.Linear(H, H), nn.Linear(H, 3)

    def forward(self, x):
        return self.c(torch.sin(3.0 * self.b(torch.sin(3.0 * self.a(x)))))


class KAN(nn.Module):
    """Edges are cubic B-splines (Cox-de Boor over a fixed grid) and a SiLU."""

    def __init__(self, i=4, o=6):
        super().__init__()
        def layer(i, o):
            m = nn.Module()
            m.base, m.spline = nn.Parameter(torch.randn(o, i) * 0.3), nn.Parameter(torch.randn(o, i, 8) * 0.3)
            m.register_buffer("grid", torch.linspace(-2.2, 2.2, 12).expand(i, -1).contiguous())
            return m
        self.layers = nn.ModuleList([layer(i, o), layer(o, 1)])

    def forward(self, x):
        for m in self.layers:
            g, y = m.grid, x[..., None]
            b = ((y >= g[:, :-1]) & (y < g[:, 1:])).to(x.dtype)
            for k in (1, 2, 3):
                b = ((y - g[:, : -(k + 1)]) / (g[:, k:-1] - g[:, : -(k + 1)]) * b[..., :-1]
                     + (g[:, k + 1 :] - y) / (g[:, k + 1 :] - g[:, 1:-k]) * b[..., 1:])
            x = F.linear(F.silu(x), m.base) + torch.einsum("nik,oik->no", b, m.spline)
        return x


class Experts(nn.Module):
    """A dense mixture of experts with a noisy-free gate and its balance loss."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(4))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        g = self.gate(x).softmax(-1)
        top, at = g.topk(2)
        g = torch.zeros_like(g).scatter(-1, at, top / top.sum(-1, keepdim=True))
        y = torch.stack([e(x) for e in self.experts], -1)
        return self.head(x + (y * g[..., None, :]).sum(-1))


class Linformer(nn.Module):
    """Linear attention (elu + 1) with rotary positions and RMS norms."""

    def __init__(self):
        super().__init__()
        self.embed, self.q, self.k, self.v, self.o = nn.Embedding(V, 16), *(nn.Linear(16, 16, bias=False) for _ in range(4))
        self.scale, self.head = nn.Parameter(torch.ones(16)), nn.Linear(16, V)

    def forward(self, ids):
        x = self.embed(ids)
        angle = torch.arange(ids.shape[1])[:, None] / 100 ** (torch.arange(8) / 8)
        s, c = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
        turn = lambda a: torch.cat([a[..., :8] * c - a[..., 8:] * s, a[..., 8:] * c + a[..., :8] * s], -1)
        q, k = F.elu(turn(self.q(x))) + 1, F.elu(turn(self.k(x))) + 1
        kv = torch.einsum("btd,bte->btde", k, self.v(x)).cumsum(1)
        y = torch.einsum("btd,btde->bte", q, kv) / (q * k.cumsum(1)).sum(-1, keepdim=True)
        x = x + self.o(y)
        return self.head(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.scale)


class PixelCNN(nn.Module):
    """Masked convolutions: the mask is a buffer that multiplies the weight."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.o = nn.Conv2d(1, 8, 5, padding=2), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 4, 1)
        for name, k, hole in (("ma", 5, 0), ("mb", 3, 1)):
            m = torch.ones(k, k)
            m[k // 2, k // 2 + hole:] = 0
            m[k // 2 + 1:] = 0
            self.register_buffer(name, m)

    def forward(self, x):
        x = F.relu(F.conv2d(x, self.a.weight * self.ma, self.a.bias, padding=2))
        return self.o(x + F.gelu(F.conv2d(x, self.b.weight * self.mb, self.b.bias, padding=1)))


class Triplet(nn.Module):
    """Three samples through one network, cosine distances."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Mish(), nn.LayerNorm(16), nn.Linear(16, 6))

    def forward(self, a, b, c):
        a, b, c = (F.normalize(self.net(x), dim=-1) for x in (a, b, c))
        return F.relu(1 - (a * b).sum(-1) + (a * c).sum(-1) - 0.8).mean()


class Highway(nn.Module):
    """Characters: convolutions of several widths, maxima, highway layers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(V, 8)
        self.convs = nn.ModuleList(nn.Conv1d(8, 8, k) for k in (2, 3, 4))
        self.t, self.h, self.head = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 4)

    def forward(self, ids):
        e = self.embed(ids).transpose(1, 2)
        x = torch.cat([torch.tanh(c(e)).max(-1).values for c in self.convs], 1)
        t = torch.sigmoid(self.t(x))
        return self.head(t * F.relu(self.h(x)) + (1 - t) * x)


class NeuralODE(nn.Module):
    """Four steps of Runge-Kutta: one network runs 16 times."""

    def __init__(self):
        super().__init__()
        self.f, self.head = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 6)), nn.Linear(6, 2)

    def forward(self, x):
        for _ in range(4):
            a = self.f(x)
            b = self.f(x + 0.125 * a)
            c = self.f(x + 0.125 * b)
            x = x + 0.25 / 6 * (a + 2 * b + 2 * c + self.f(x + 0.25 * c))
        return self.head(x)


class SpectralGAN(nn.Module):
    """A discriminator of instance norms and leaky ReLUs, and pixel (un)shuffles."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.n = nn.Conv2d(12, 8, 3, padding=1), nn.Conv2d(8, 16, 4, 2, 1), nn.InstanceNorm2d(16, affine=True)
        self.c, self.head = nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), nn.Linear(4 * 64, 1)

    def forward(self, x):
        y = F.leaky_relu(self.a(F.pixel_unshuffle(x, 2)), 0.2)
        y = F.pixel_shuffle(F.leaky_relu(self.n(self.b(y)), 0.1), 2)[:, :, :8, :8]
        return self.head(F.hardswish(self.c(y)).flatten(1)).squeeze(1)


def ids(*names, length=T, vocab=V):
    return lambda rng, n: {k: rng.integers(0, vocab, (n, length)) for k in names}


def several(**shapes):
    return lambda rng, n: {k: rng.standard_normal((n, *s)).astype(np.float32) for k, s in shapes.items()}


def graph(rng, n):
    a = (rng.random((n, 7, 7)) < 0.3).astype(np.float32)
    return {"x": rng.standard_normal((n, 7, 5)).astype(np.float32), "adjacency": np.maximum(a, a.transpose(0, 2, 1))}


def edges(rng, n):
    return {"x": rng.standard_normal((n, 7, 5)).astype(np.float32), "source": rng.integers(0, 7, (n, 12)), "target": rng.integers(0, 7, (n, 12))}


def one_graph(rng, n):
    return {"x": rng.standard_normal((n, 7, 5)).astype(np.float32), "edge": rng.integers(0, 7, (n, 2, 12))}


def ads(rng, n):
    return {"dense": rng.standard_normal((n, 4)).astype(np.float32), "sparse": np.stack([rng.integers(0, k, n) for k in (11, 7, 23)], 1)}


def unet_inputs(rng, n):
    return {"x": rng.standard_normal((n, 3, 16, 16)).astype(np.float32), "t": rng.random(n).astype(np.float32) * 100}


BN = dict(train=True, batch_norm="training", optimize=False, coupled=True)
CASES = [
    Case("lstm", lambda: Recurrent("LSTM", num_layers=2), ids("input_ids"), CE, next_tokens),
    Case("gru", lambda: Recurrent("GRU", num_layers=2), ids("input_ids"), CE, next_tokens),
    Case("rnn", lambda: Recurrent("RNN", False), ids("input_ids"), CE, classes(3)),
    Case("rnn_relu", lambda: Recurrent("RNN", False, nonlinearity="relu"), ids("input_ids"), CE, classes(3)),
    Case("bilstm", lambda: Recurrent("LSTM", bidirectional=True, num_layers=2), ids("input_ids"), CE, next_tokens),
    Case("cells", Cells, floats(6, 6), MSE, normal(1)),
    Case("seq2seq_gru", Seq2Seq, ids("source", "target"), CE, classes(V, T)),
    Case("gcn", GCN, graph, CE, classes(3)),
    Case("gat_scatter", GAT, edges, CE, classes(3)),
    Case("edge_gnn", EdgeGNN, one_graph, CE, classes(3, 7)),
    Case("dlrm", DLRM, ads, BCE, coin()),
    Case("deepfm", DeepFM, ids("sparse", length=4, vocab=20), BCE, coin(), **BN),
    Case("embedding_bag", Bag, lambda r, n: {"items": r.integers(0, V, (n, 5)), "user": r.integers(0, 9, n)}, BCE, coin()),
    Case("tcn", TCN, floats(4, 16), CE, classes(2), optimize=False),
    Case("unet", UNet, unet_inputs, MSE, normal(3, 16, 16)),
    Case("vae", VAE, several(x=(1, 16, 16), noise=(8,)), OUT),
    Case("vqvae", VQVAE, floats(12), OUT, known={e: "exporters lose detach()" for e in ("dynamo", "torchscript")}),
    Case("encoder_fresh", FreshTransformer, ids("input_ids"), CE, classes(4), perturb=False, known={"dynamo": "the optimizer leaves zero biases out"}),
    Case("encoder_fresh_unoptimized", FreshTransformer, ids("input_ids"), CE, classes(4), perturb=False, optimize=False),
    Case("encoder_prenorm", lambda: FreshTransformer(True, "gelu"), ids("input_ids"), CE, classes(4)),
    Case("transformer", Translator, ids("source", "target", length=8), CE, classes(V, 8)),
    Case("gpt_tied_fresh", TiedGPT, ids("input_ids"), CE, next_tokens, perturb=False),
    Case("gpt_tied_large", lambda: TiedGPT(700, 16), ids("input_ids"), CE, next_tokens, perturb=False),
    Case("pointnet", PointNet, floats(20, 3), CE, classes(4), **BN),
    Case("siren", Siren, floats(20, 2), MSE, normal(20, 3)),
    Case("kan", KAN, floats(4), MSE, normal(1), known={"torchscript": "folded buffers look like weights"}),
    Case("kan_unfolded", KAN, floats(4), MSE, normal(1), optimize=False, torchscript={"trainable": ["*.base", "*.spline"]}),
    Case("experts", Experts, floats(6, 8), CE, classes(3, 6)),
    Case("linear_attention", Linformer, ids("input_ids"), CE, next_tokens),
    Case("pixelcnn", PixelCNN, floats(1, 8, 8), {**CE, "axis": 1}, classes(4, 8, 8), optimize=False),
    Case("triplet", Triplet, several(a=(8,), b=(8,), c=(8,)), OUT),
    Case("highway", Highway, ids("input_ids"), CE, classes(4)),
    Case("neural_ode", NeuralODE, floats(6), MSE, normal(2)),
    Case("gan", SpectralGAN, image(16, name="x"), BCE, coin()),
]
