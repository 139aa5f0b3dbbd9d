#!/usr/bin/env python3
"""Writes what derivatives.py compares with for operators that are no elementwise functions: PyTorch's gradients of a loss
sum(c * y) with random c, and a model that computes them all. Needs PyTorch and onnx.

    make_operators.py             writes operators.npz and operators.onnx beside itself

Every operand that takes a gradient is a parameter, so that one step of SGD with learning rate 1 moves it by the gradient.
"""
import pathlib

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.nn import functional as F

HERE = pathlib.Path(__file__).parent
MICROSOFT = "com.microsoft"
RANDOM = np.random.default_rng(38)
CASES = {}  # name: (parameters, constants, ONNX nodes, PyTorch's function of the parameters)


def values(*shape, low=-1.0, high=1.0):
    return RANDOM.uniform(low, high, shape).astype(np.float32)


def case(name, parameters, nodes, torch_function, **constants):
    CASES[name] = (parameters, {key: np.asarray(value) for key, value in constants.items()}, nodes, torch_function)


def node(op, inputs, outputs="y", domain="", **attributes):
    return op, inputs.split(","), outputs.split(","), domain, attributes


def ints(*numbers):
    return np.array(numbers, np.int64)


# --- functions and reductions
case("CumProd", {"x": values(3, 5, low=0.5, high=1.5)}, [node("CumProd", "x,axis")], lambda x: x.cumprod(1), axis=ints(1)[0])
case("CumProd_reverse_exclusive", {"x": values(3, 5, low=0.5, high=1.5)}, [node("CumProd", "x,axis", reverse=1, exclusive=1)],
     lambda x: torch.cat([x[:, 1:].flip(1).cumprod(1).flip(1), torch.ones(3, 1)], 1), axis=ints(1)[0])
case("ReduceProd", {"x": values(3, 7)}, [node("ReduceProd", "x,axes", keepdims=0)], lambda x: x.prod(1), axes=ints(1))
case("Det", {"x": values(3, 4, 4)}, [node("Det", "x")], torch.det)

# --- pools
image = (2, 3, 7, 6)
case("LpPool", {"x": values(*image)}, [node("LpPool", "x", kernel_shape=[2, 3], strides=[2, 1], p=3)],
     lambda x: F.avg_pool2d(x.abs() ** 3, (2, 3), (2, 1)).mul(6) ** (1 / 3))
case("GlobalLpPool", {"x": values(*image)}, [node("GlobalLpPool", "x", p=2)],
     lambda x: x.pow(2).sum((2, 3), keepdim=True).sqrt())
case("MaxUnpool", {"x": values(*image[:2], 6, 6)}, [node("MaxPool", "x", "z,at", kernel_shape=[2, 2], strides=[2, 2]),
                                                    node("MaxUnpool", "z,at", kernel_shape=[2, 2], strides=[2, 2])],
     lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2))
case("Col2Im", {"x": values(2, 12, 12)}, [node("Col2Im", "x,image,block", strides=[1, 2], pads=[0, 1, 0, 1])],
     lambda x: F.fold(x, (4, 7), (2, 3), padding=(0, 1), stride=(1, 2)), image=ints(4, 7), block=ints(2, 3))

# --- samplings
for mode in ("linear", "cubic", "nearest"):
    for padding in ("zeros", "border", "reflection"):
        corners = int(padding == "border")
        torch_mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
        reach = 0.7 if mode == "cubic" else 1.4  # past the ends ONNX clips a cubic's positions, PyTorch its elements
        case(f"GridSample_{mode}_{padding}", {"x": values(2, 3, 5, 4), "g": values(2, 3, 4, 2, low=-reach, high=reach)},
             [node("GridSample", "x,g", mode=mode, padding_mode=padding, align_corners=corners)],
             lambda x, g, m=torch_mode, p=padding, c=corners: F.grid_sample(x, g, mode=m, padding_mode=p, align_corners=bool(c)))
case("GridSample_3d", {"x": values(1, 2, 3, 4, 5), "g": values(1, 2, 3, 2, 3, low=-1.2, high=1.2)}, [node("GridSample", "x,g", mode="linear")],
     lambda x, g: F.grid_sample(x, g, mode="bilinear", align_corners=False))
case("AffineGrid", {"t": values(2, 2, 3)}, [node("AffineGrid", "t,size", align_corners=1)],
     lambda t: F.affine_grid(t, (2, 3, 4, 5), align_corners=True), size=ints(2, 3, 4, 5))


def bilinear(x, rows, columns):
    """x [n, c, h, w] at positions [n, p], zeros outside."""
    h, w = x.shape[2:]
    grid = torch.stack([2 * columns / (w - 1) - 1, 2 * rows / (h - 1) - 1], -1)[:, None]
    return F.grid_sample(x, grid, align_corners=True)[:, :, 0]


def deform(x, w, offset, mask, bias, stride=1, pad=1):
    """By taps, groups=1; offset_group=2."""
    n, c, height, width = x.shape
    rows = (height + 2 * pad - w.shape[2]) // stride + 1
    columns = (width + 2 * pad - w.shape[3]) // stride + 1
    y = bias[None, :, None, None].expand(n, w.shape[0], rows, columns)
    at = torch.meshgrid(torch.arange(rows) * stride - pad, torch.arange(columns) * stride - pad, indexing="ij")
    taps = w.shape[2] * w.shape[3]
    parts = offset.shape[1] // (2 * taps)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            k = i * w.shape[3] + j
            sampled = []
            for part in range(parts):
                base = 2 * (part * taps + k)
                r = (at[0] + i + offset[:, base]).reshape(n, -1)
                s = (at[1] + j + offset[:, base + 1]).reshape(n, -1)
                each = c // parts
                value = bilinear(x[:, part * each:(part + 1) * each], r, s).reshape(n, each, rows, columns)
                sampled.append(value * mask[:, part * taps + k][:, None])
            y = y + torch.einsum("nchw,oc->nohw", torch.cat(sampled, 1), w[:, :, i, j])
    return y


case("DeformConv", {"x": values(1, 4, 5, 6), "w": values(3, 4, 3, 3), "o": values(1, 36, 5, 6), "b": values(3), "m": values(1, 18, 5, 6, low=0.2)},
     [node("DeformConv", "x,w,o,b,m", kernel_shape=[3, 3], pads=[1, 1, 1, 1], offset_group=2)],
     lambda x, w, o, b, m: deform(x, w, o, m, b))


def roi_align(x, rois, of, rows=2, columns=3, count=2):
    out = []
    for roi, b in zip(rois, of):
        left, top, right, bottom = (roi - 0.5).unbind()
        r = top + (bottom - top) * (torch.arange(rows * count) + 0.5) / (rows * count)
        c = left + (right - left) * (torch.arange(columns * count) + 0.5) / (columns * count)
        grid = torch.meshgrid(r, c, indexing="ij")
        value = bilinear(x[b:b + 1], grid[0].reshape(1, -1), grid[1].reshape(1, -1))
        out.append(F.avg_pool2d(value.reshape(1, x.shape[1], rows * count, columns * count), count))
    return torch.cat(out)


case("RoiAlign", {"x": values(2, 3, 8, 9), "h": np.array([[0.65, 0.55, 3.1, 2.7], [1.1, 1.3, 3.55, 3.35]], np.float32)},
     [node("Add", "h,h", "r"), node("RoiAlign", "x,r,of", output_height=2, output_width=3, sampling_ratio=2)],
     lambda x, h: roi_align(x, h + h, [1, 0]), of=ints(1, 0))
case("Resize_crop", {"x": values(1, 1, 6, 5)}, [node("Resize", "x,roi,,sizes", mode="linear", coordinate_transformation_mode="tf_crop_and_resize")],
     lambda x: bilinear(x, *[g.reshape(1, -1) for g in torch.meshgrid(1.0 + torch.arange(4) * 3.0 / 3, 0.8 + torch.arange(3) * 2.4 / 2, indexing="ij")])
     .reshape(1, 1, 4, 3), roi=np.array([0, 0, 0.2, 0.2, 1, 1, 0.8, 0.8], np.float32), sizes=ints(1, 1, 4, 3))

# --- spectra
case("DFT", {"x": values(2, 6, 2)}, [node("DFT", "x,,axis")], lambda x: torch.view_as_real(torch.fft.fft(torch.view_as_complex(x))),
     axis=ints(1)[0])
case("DFT_real", {"x": values(2, 7, 1)}, [node("DFT", "x,length,axis", onesided=1)],
     lambda x: torch.view_as_real(torch.fft.rfft(x[..., 0], n=9)), length=ints(9)[0], axis=ints(1)[0])
case("DFT_inverse", {"x": values(2, 6, 2)}, [node("DFT", "x,,axis", inverse=1)],
     lambda x: torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x))), axis=ints(1)[0])
case("DFT_inverse_real", {"x": values(2, 5, 2)}, [node("DFT", "x,,axis", inverse=1, onesided=1)],
     lambda x: torch.fft.irfft(torch.view_as_complex(x))[..., None], axis=ints(1)[0])
case("STFT", {"x": values(2, 20), "w": values(8, low=0.2)}, [node("STFT", "x,step,w,length")],
     lambda x, w: torch.view_as_real(torch.stft(x, 8, 3, 8, w, center=False, return_complex=True)).transpose(1, 2),
     step=ints(3)[0], length=ints(8)[0])

# --- indexing
case("ReverseSequence", {"x": values(4, 3, 2)}, [node("ReverseSequence", "x,lengths")],
     lambda x: torch.stack([torch.cat([x[:n, i].flip(0), x[n:, i]]) for i, n in enumerate((2, 4, 1))], 1), lengths=ints(2, 4, 1))
case("TensorScatter", {"x": values(2, 3, 5, 2), "u": values(2, 3, 2, 2)}, [node("TensorScatter", "x,u,at", mode="circular")],
     lambda x, u: torch.stack([x[i].index_copy(1, torch.tensor([(s + j) % 5 for j in range(2)]), u[i]) for i, s in enumerate((4, 1))]),
     at=ints(4, 1))
case("Compress", {"x": values(3, 4)}, [node("Compress", "x,keep", axis=1)], lambda x: x[:, [0, 3]], keep=np.array([True, False, False, True]))
for reduction, name in (("max", "amax"), ("min", "amin"), ("mul", "prod")):
    case(f"ScatterElements_{reduction}", {"x": values(4, 3), "u": values(5, 3)[:4]},
         [node("ScatterElements", "x,at,u", reduction=reduction)],
         lambda x, u, n=name: x.scatter_reduce(0, torch.tensor([[0, 1, 2], [0, 3, 2], [3, 1, 1], [0, 0, 2]]), u, n),
         at=np.array([[0, 1, 2], [0, 3, 2], [3, 1, 1], [0, 0, 2]], np.int64))


# --- quantization: PyTorch's fake_quantize
def fake(x, s, z, low=-128, high=127):
    return torch.fake_quantize_per_tensor_affine(x, float(s), int(z), low, high)


case("QuantizeLinear", {"x": values(5, 6, low=-3, high=3)}, [node("QuantizeLinear", "x,s,z", "q"), node("DequantizeLinear", "q,s,z")],
     lambda x: fake(x, 0.02, 5), s=np.float32(0.02), z=np.int8(5))
case("QuantizeLinear_channels", {"x": values(4, 6, low=-3, high=3), "r": values(4, low=0.1, high=0.17)},
     [node("Mul", "r,r", "s"), node("QuantizeLinear", "x,s,z", "q", axis=0), node("DequantizeLinear", "q,s,z", axis=0)],
     lambda x, r: torch._fake_quantize_learnable_per_channel_affine(x, r * r, torch.tensor([3.0, 0, -2, 1]), 0, -128, 127, 1.0),
     z=np.array([3, 0, -2, 1], np.int8))
case("QuantizeLinear_int4", {"x": values(5, 6, low=-3, high=3)}, [node("QuantizeLinear", "x,s", "q", output_dtype=TensorProto.INT4), node("DequantizeLinear", "q,s")],
     lambda x: fake(x, 0.3, 0, -8, 7), s=np.float32(0.3))
case("DynamicQuantizeLinear", {"x": values(5, 6, low=-3, high=3)}, [node("DynamicQuantizeLinear", "x", "q,s,z"), node("DequantizeLinear", "q,s,z")],
     lambda x: x * 1.0)


# --- loops
decay = helper.make_graph(
    [helper.make_node("Mul", ["a_in", "step"], ["scaled"]), helper.make_node("Tanh", ["scaled"], ["a_out"]), helper.make_node("Identity", ["a_out"], ["out"])],
    "body", [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("a_in", "step")],
    [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("a_out", "out")])


def scan(a, x):
    out = []
    for step in x.flip(0):
        a = torch.tanh(a * step)
        out.append(a)
    return torch.cat([a[None], torch.stack(out)])


case("Scan", {"a": values(3), "x": values(5, 3)}, [node("Scan", "a,x", "last,all", body=decay, num_scan_inputs=1, scan_input_directions=[1]),
                                                     node("Unsqueeze", "last,first", "row"), node("Concat", "row,all", axis=0)], scan, first=ints(0))


def linear_attention(q, k, v):
    state, out = torch.zeros(2, 2, 4, 3), []
    for t in range(q.shape[1]):
        row = lambda x: x[:, t].reshape(2, 2, -1)
        state = state + row(k)[..., :, None] * row(v)[..., None, :]
        out.append(torch.einsum("nhk,nhkv->nhv", row(q) / 2, state).reshape(2, -1))
    return torch.stack(out, 1)


case("LinearAttention", {"q": values(2, 5, 8), "k": values(2, 5, 8), "v": values(2, 5, 6)},
     [node("LinearAttention", "q,k,v", "y,state", q_num_heads=2, kv_num_heads=2, update_rule="linear")], linear_attention)

# --- onnxruntime's
case("FusedMatMul", {"a": values(3, 4), "b": values(5, 3)}, [node("FusedMatMul", "a,b", domain=MICROSOFT, alpha=0.5, transA=1, transB=1)],
     lambda a, b: 0.5 * a.T @ b.T)
case("BiasGelu", {"a": values(3, 4), "b": values(4)}, [node("BiasGelu", "a,b", domain=MICROSOFT)], lambda a, b: F.gelu(a + b))
case("FastGelu", {"a": values(3, 4), "b": values(4)}, [node("FastGelu", "a,b", domain=MICROSOFT)], lambda a, b: F.gelu(a + b, approximate="tanh"))
case("QuickGelu", {"x": values(3, 4)}, [node("QuickGelu", "x", domain=MICROSOFT)], lambda x: x * torch.sigmoid(1.702 * x))
case("SkipLayerNormalization", {"x": values(2, 3, 6), "s": values(2, 3, 6), "g": values(6), "b": values(6), "c": values(6)},
     [node("SkipLayerNormalization", "x,s,g,b,c", "z,,,sum", domain=MICROSOFT, epsilon=1e-5), node("Add", "z,sum")],
     lambda x, s, g, b, c: F.layer_norm(x + s + c, (6,), g, b) + x + s + c)
case("SkipSimplifiedLayerNormalization", {"x": values(2, 3, 6), "s": values(2, 3, 6), "g": values(6)},
     [node("SkipSimplifiedLayerNormalization", "x,s,g", domain=MICROSOFT, epsilon=1e-5)], lambda x, s, g: F.rms_norm(x + s, (6,), g, 1e-5))


def heads(x, count):
    return x.reshape(*x.shape[:2], count, -1).transpose(1, 2)


def attend(q, k, v, count, kv, mask=None, causal=False):
    y = F.scaled_dot_product_attention(heads(q, count), heads(k, kv), heads(v, kv), mask, is_causal=causal, enable_gqa=count != kv)
    return y.transpose(1, 2).flatten(2)


case("MultiHeadAttention", {"q": values(2, 3, 8), "k": values(2, 4, 8), "v": values(2, 4, 6), "b": values(22)},
     [node("MultiHeadAttention", "q,k,v,b,mask", domain=MICROSOFT, num_heads=2)],
     lambda q, k, v, b: attend(q + b[:8], k + b[8:16], v + b[16:], 2, 2, torch.tensor([[0.0, 0, 0, -1e4], [0, 0, 0, 0]])[:, None, None]),
     mask=np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32))
angles = np.outer(np.arange(6), [1.0, 0.1]).astype(np.float32)


def rotate(x, count, interleaved=False):
    x = x.reshape(*x.shape[:2], count, -1)
    c, s = (f(torch.tensor(angles))[:x.shape[1], None] for f in (torch.cos, torch.sin))
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    pair = [a * c - b * s, a * s + b * c]
    return (torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)).flatten(2)


TABLES = {"cos": np.cos(angles), "sin": np.sin(angles)}
case("GroupQueryAttention", {"q": values(2, 5, 16), "k": values(2, 5, 8), "v": values(2, 5, 8)},
     [node("GroupQueryAttention", "q,k,v,,,lengths,longest,cos,sin", domain=MICROSOFT, num_heads=4, kv_num_heads=2, do_rotary=1)],
     lambda q, k, v: attend(rotate(q, 4), rotate(k, 2), v, 4, 2, causal=True), lengths=np.array([4, 4], np.int32), longest=np.array(5, np.int32), **TABLES)
case("RotaryEmbedding", {"x": values(2, 5, 8)}, [node("RotaryEmbedding", "x,at,cos,sin", domain=MICROSOFT, interleaved=1)],
     lambda x: rotate(x, 2, True), at=ints(0), **TABLES)
NIBBLES = RANDOM.integers(0, 256, (3, 2, 8)).astype(np.uint8)
SCALES = values(6, low=0.5)


def of_nibbles(a):
    packed = torch.tensor(NIBBLES)
    numbers = torch.stack([packed & 15, packed >> 4], -1).flatten(2).float() - 8
    return a @ (numbers * torch.tensor(SCALES).reshape(3, 2, 1)).reshape(3, 32).T


case("MatMulNBits", {"a": values(4, 32)}, [node("MatMulNBits", "a,b,s", domain=MICROSOFT, K=32, N=3, bits=4, block_size=16)], of_nibbles,
     b=NIBBLES, s=SCALES)


def main():
    nodes, parameters, totals, table = [], [], [], {}
    for name, (operands, constants, body, function) in CASES.items():
        tensors = {key: torch.tensor(value, requires_grad=True) for key, value in operands.items()}
        y = function(*tensors.values())
        weight = values(*y.shape)
        (y * torch.tensor(weight)).sum().backward()
        names = {"": ""}
        for key, value in operands.items():
            parameters.append(numpy_helper.from_array(value, f"{name}.{key}"))
            table[f"{name}.{key}"] = np.stack([value, tensors[key].grad.numpy()])
            names[key] = f"{name}.{key}"
        for key, value in [*constants.items(), ("weight", weight)]:
            nodes.append(helper.make_node("Constant", [], [f"{name}.{key}"], name=f"{name}.{key}",
                                          value=numpy_helper.from_array(np.asarray(value), f"{name}.{key}")))
            names[key] = f"{name}.{key}"
        for op, inputs, outputs, domain, attributes in body:
            names.update({output: f"{name}.{output}" for output in outputs if output})
            nodes.append(helper.make_node(op, [names[i] for i in inputs], [names[o] for o in outputs], name=f"{name}.{outputs[0]}",
                                          domain=domain, **attributes))
        nodes += [helper.make_node("Mul", [f"{name}.y", f"{name}.weight"], [f"{name}.weighed"], name=f"{name}.weighed"),
                  helper.make_node("ReduceSum", [f"{name}.weighed"], [f"{name}.total"], keepdims=0, name=f"{name}.total")]
        totals.append(f"{name}.total")
    nodes += [helper.make_node("Sum", totals, ["all"], name="all"), helper.make_node("ReduceSum", ["batched"], ["nothing"], keepdims=0, name="nothing"),
              helper.make_node("Add", ["all", "nothing"], ["loss"], name="loss")]
    inputs = [helper.make_tensor_value_info("batched", TensorProto.FLOAT, [1, 1])]
    graph = helper.make_graph(nodes, "operators", inputs, [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])], parameters)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27), helper.make_opsetid(MICROSOFT, 1)], ir_version=13)
    onnx.save(model, HERE / "operators.onnx")
    np.savez_compressed(HERE / "operators.npz", **table)
    print(f"{len(CASES)} operators")


if __name__ == "__main__":
    main()
