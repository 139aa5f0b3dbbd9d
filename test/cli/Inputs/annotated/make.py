"""Writes *.onnx beside this file: an MLP with device annotations as a person writes them, by onnx's own API, and the same
with one fault each. Needs the onnx package, 1.18 or later; run by hand."""
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).parent
random = np.random.default_rng(0)


def spec(tensor, devices, *dims, groups=None):
    """`devices`: of each shard; a list is a group that holds the same."""
    proto = onnx.ShardingSpecProto(tensor_name=tensor)
    for i, device in enumerate(devices):
        if isinstance(device, list):
            proto.device.append(-1 - i)
            proto.index_to_device_group_map.add(key=-1 - i, value=device)
        else:
            proto.device.append(device)
    for axis, shards in dims:
        proto.sharded_dim.add(axis=axis).simple_sharding.add(num_shards=shards)
    return proto


def mlp(stages=False):
    """dp=2,tp=2: the hidden layer's columns over tp; devices 0 and 1 have the first samples. With stages: pp=2,dp=2."""
    weights = [("up.weight", (16, 32)), ("down.weight", (32, 8))]
    nodes = [helper.make_node("MatMul", ["x", "up.weight"], ["up"], name="up"),
             helper.make_node("Relu", ["up"], ["hidden"], name="relu"),
             helper.make_node("MatMul", ["hidden", "down.weight"], ["logits"], name="down")]
    graph = helper.make_graph(
        nodes, "mlp", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 8])],
        [numpy_helper.from_array(random.standard_normal(shape).astype(np.float32) * 0.1, name) for name, shape in weights])
    model = helper.make_model(graph, ir_version=11, opset_imports=[helper.make_opsetid("", 20)])
    model.configuration.add(name="four", num_devices=4)
    if stages:
        specs = [[spec("x", [0, 1], (0, 2))], [], [spec("down.weight", [[2, 3]])]]
    else:
        specs = [[spec("x", [[0, 1], [2, 3]], (0, 2)), spec("up.weight", [[0, 2], [1, 3]], (1, 2)),
                  spec("up", [0, 1, 2, 3], (0, 2), (-1, 2))],
                 [], [spec("down.weight", [[0, 2], [1, 3]], (0, 2))]]
    for number, (node, own) in enumerate(zip(model.graph.node, specs)):
        proto = onnx.NodeDeviceConfigurationProto(configuration_id="four", sharding_spec=own)
        if stages:
            proto.pipeline_stage = number // 2
        node.device_configurations.append(proto)
    return model


def write(name, model, change=None):
    if change:
        change(model.graph.node[0].device_configurations[0].sharding_spec[1])
    else:
        onnx.checker.check_model(model)
    onnx.save(model, HERE / f"{name}.onnx")


def replace(**fields):
    def change(sharding):
        for key, value in fields.items():
            if key == "device":
                sharding.index_to_device_group_map.clear()
                sharding.device[:] = value
            elif key == "tensor_name":
                sharding.tensor_name = value
            else:
                setattr(sharding.sharded_dim[0] if key == "axis" else sharding.sharded_dim[0].simple_sharding[0], key, value)
    return change


write("mlp", mlp())
write("stages", mlp(stages=True))
write("device", mlp(), replace(device=[0, 9]))
write("axis", mlp(), replace(axis=2))
write("shards", mlp(), replace(num_shards=3))
write("tensor", mlp(), replace(tensor_name="down.weight"))
write("crossed", mlp(), replace(device=[0, 3]))
