"""Tiny models of known architectures: build(name) -> (module, example, recipe). Those of transformers, timm and diffusers need
these packages; `available()` names the ones that can be made here."""
import importlib.util
import os

import torch
from torch import nn
from torch.nn import functional as F

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

CE = {"kind": "softmax_cross_entropy"}
VOCAB, LENGTH, BATCH = 64, 12, 4


class TutorialBlock(nn.Module):
    """A block of the minGPT of PyTorch's DDP tutorial: nn.MultiheadAttention, a mask as a buffer."""

    def __init__(self, width, heads, length):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))
        self.register_buffer("mask", torch.tril(torch.ones(length, length)) == 0)

    def forward(self, x):
        y = self.ln1(x)
        size = x.shape[1]
        x = x + self.attn(y, y, y, attn_mask=self.mask[:size, :size], need_weights=False)[0]
        return x + self.mlp(self.ln2(x))


class TutorialGPT(nn.Module):
    """Biases of zeros and a table of positions of zeros, as the tutorial begins."""

    def __init__(self, width=32, heads=4, layers=2):
        super().__init__()
        self.tok_emb, self.pos_emb = nn.Embedding(VOCAB, width), nn.Parameter(torch.zeros(1, LENGTH, width))
        self.drop, self.blocks = nn.Dropout(0.1), nn.Sequential(*(TutorialBlock(width, heads, LENGTH) for _ in range(layers)))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, VOCAB, bias=False)
        for part in self.modules():
            if isinstance(part, (nn.Linear, nn.Embedding)):
                nn.init.normal_(part.weight, std=0.02)
            if isinstance(part, nn.Linear) and part.bias is not None:
                nn.init.zeros_(part.bias)

    def forward(self, ids):
        x = self.drop(self.tok_emb(ids) + self.pos_emb[:, :ids.shape[1]])
        return self.head(self.ln_f(self.blocks(x)))


class Basic(nn.Module):
    """A residual block of ResNet-18."""

    def __init__(self, inner, outer, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer)
        self.conv2, self.bn2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)
        plain = stride == 1 and inner == outer
        self.downsample = None
        if not plain:
            self.downsample = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


def resnet18(width=8):
    """ResNet-18 with fewer channels."""
    widths = [width, width, 2 * width, 4 * width, 8 * width]
    layers = [Basic(widths[at] if not part else widths[at + 1], widths[at + 1], 2 if at and not part else 1)
              for at in range(4) for part in range(2)]
    return nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
                         *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10))


def fairscale_classifier(part=8):
    """The classifier of FairScale's pipeline tutorial, its linear layers narrower by `part`."""
    sizes = [1152, 4096 // part, 2048 // part, 1024 // part, 10]
    features = [nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
                nn.MaxPool2d(2, 1), nn.Conv2d(64, 128, 2, 2, 1), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten()]
    linear = [layer for inner, outer in zip(sizes, sizes[1:]) for layer in (nn.Linear(inner, outer), nn.ReLU())][:-1]
    return nn.Sequential(*features, *linear, nn.Softmax(dim=1))


class Lstm(nn.Module):
    """Two layers, both directions, zero biases of the second kind."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(VOCAB, 16, padding_idx=0), nn.Linear(32, 7)
        self.lstm = nn.LSTM(16, 16, 2, batch_first=True, bidirectional=True, dropout=0.2)

    def forward(self, ids):
        return self.head(self.lstm(self.table(ids))[0][:, -1])


SMALL = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "max_position_embeddings": 32}


def hugging_face(model, config, **sizes):
    def make():
        import transformers
        return getattr(transformers, model)(getattr(transformers, config)(**sizes))
    return make


def unet():
    from diffusers import UNet2DModel
    return UNet2DModel(sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32),
                       norm_num_groups=8, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                       up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8)


def vit():
    import timm
    return timm.create_model("vit_base_patch16_224", img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4,
                             num_classes=10, drop_rate=0.1)


def ids(*names):
    return lambda: {name: torch.randint(3, VOCAB, (BATCH, LENGTH)) for name in names}


def padded():
    found = ids("input_ids")()
    found["attention_mask"] = torch.ones_like(found["input_ids"])
    found["attention_mask"][0, :3] = 0
    return found


def image(size=32):
    return lambda: (torch.randn(BATCH, 3, size, size),)


LOGITS = {**CE, "output": "logits"}
GPT2 = hugging_face("GPT2LMHeadModel", "GPT2Config", vocab_size=VOCAB, n_positions=32, n_embd=32, n_layer=2, n_head=4)
T5 = hugging_face("T5ForConditionalGeneration", "T5Config", vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=64, num_layers=2,
                  num_heads=4, decoder_start_token_id=0)
LLAMA = hugging_face("LlamaForCausalLM", "LlamaConfig", **SMALL, num_key_value_heads=2)
MIXTRAL = hugging_face("MixtralForCausalLM", "MixtralConfig", **SMALL, num_key_value_heads=2, num_local_experts=4,
                       num_experts_per_tok=2)
QWEN3_MOE = hugging_face("Qwen3MoeForCausalLM", "Qwen3MoeConfig", **SMALL, num_key_value_heads=2, head_dim=8, num_experts=4,
                         num_experts_per_tok=2, moe_intermediate_size=32)
DEEPSEEK_V2 = hugging_face("DeepseekV2ForCausalLM", "DeepseekV2Config", **SMALL, num_key_value_heads=4, n_routed_experts=4,
                           n_shared_experts=1, num_experts_per_tok=2, moe_intermediate_size=32, kv_lora_rank=16, q_lora_rank=16,
                           qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8, first_k_dense_replace=1, topk_method="greedy")
MODELS = {  # name: (package, how to make it, example, loss)
    "tutorial_mingpt": (None, TutorialGPT, lambda: (torch.randint(0, VOCAB, (BATCH, LENGTH)),), CE),
    "fairscale_classifier": (None, fairscale_classifier, image(), {"kind": "bce"}),
    "resnet18": (None, resnet18, image(64), CE),
    "lstm": (None, Lstm, lambda: (torch.randint(0, VOCAB, (BATCH, LENGTH)),), CE),
    "gpt2": ("transformers", GPT2, ids("input_ids"), CE),
    "gpt2_labels": ("transformers", GPT2, ids("input_ids", "labels"), {"kind": "output", "output": "loss"}),
    "t5": ("transformers", T5, ids("input_ids", "decoder_input_ids"), LOGITS),
    "llama_gqa": ("transformers", LLAMA, padded, CE),
    "mixtral": ("transformers", MIXTRAL, ids("input_ids"), CE),
    "qwen3_moe": ("transformers", QWEN3_MOE, ids("input_ids"), CE),
    "deepseek_v2": ("transformers", DEEPSEEK_V2, ids("input_ids"), CE),
    "ddpm_unet": ("diffusers", unet, lambda: (torch.randn(BATCH, 3, 8, 8), torch.randint(0, 1000, (BATCH,))), {"kind": "mse"}),
    "vit": ("timm", vit, image(), CE),
}


def available():
    return [name for name, (package, *_) in MODELS.items() if package is None or importlib.util.find_spec(package)]


def build(name):
    torch.manual_seed(0)
    _, make, example, loss = MODELS[name]
    return make().train(), example(), loss
