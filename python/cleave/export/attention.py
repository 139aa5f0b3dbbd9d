"""scaled_dot_product_attention in plain operators, where exporters lose its dropout, take four dimensions only, or write
NaN for a query whose mask hides every key (PyTorch: zero).

    with PlainAttention():
        torch.export.export(module, ...)
"""
import math

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


ATTENTION = F.scaled_dot_product_attention


class PlainAttention(TorchFunctionMode):
    """Replaces the function's name, which nn.MultiheadAttention reads, and calls by those who imported it before."""

    def __enter__(self):
        F.scaled_dot_product_attention = _attention
        return super().__enter__()

    def __exit__(self, *error):
        F.scaled_dot_product_attention = ATTENTION
        return super().__exit__(*error)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return (_attention if function is ATTENTION else function)(*args, **(kwargs or {}))


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """query [..., T, d], key and value [..., S, d]; as PyTorch's documentation writes it."""
    if dropout_p == 0.0 and query.dim() == 4 and attn_mask is None:
        grouped = {"enable_gqa": True} if enable_gqa else {}
        return ATTENTION(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, **grouped)
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        later = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril().logical_not()
        scores = scores.masked_fill(later, float("-inf"))
    elif attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(attn_mask.logical_not(), float("-inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights = scores.softmax(-1)
    if attn_mask is not None:  # a query that sees no key gets zero
        weights = torch.where(torch.isnan(weights), 0.0, weights)
    return F.dropout(weights, dropout_p, training=dropout_p > 0) @ value
