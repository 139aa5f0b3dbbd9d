#include "compiler/partition/local_attributes.h"
#include "dialects/onnx/result_shape.h"
#include <llvm/ADT/TypeSwitch.h>

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {

void localizeAttributes(Operation *op, const Mesh &mesh, const FactorRule &rule, const FactorSharding &split,
                        ArrayRef<int64_t> local) {
  MLIRContext *context = op->getContext();
  // The axes that split dimension `dim` of a tensor.
  auto axesAt = [&](const TensorFactors &tensor, size_t dim) {
    for (int64_t factor : tensor[dim])
      if (!split[factor].empty()) return split[factor];
    return Axes();
  };
  auto localGroups = [&](const TensorFactors &x, int64_t groups) {
    return groups / mesh.groupSize(split[x[1].front()]);
  };
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](onnx::IotaOp iota) {
        Axes axes = axesAt(rule.results[0], static_cast<size_t>(iota.getDim()));
        if (!axes.empty()) iota.setShardAxesAttr(axesAttribute(context, axes));
      })
      .Case([&](onnx::RandomUniformOp random) {
        auto global = cast<RankedTensorType>(random.getType()).getShape();
        if (!random.getGlobalShape()) random.setGlobalShapeAttr(DenseI64ArrayAttr::get(context, global));
        SmallVector<Attribute> axes;
        for (size_t dim = 0; dim < global.size(); ++dim)
          axes.push_back(axesAttribute(context, axesAt(rule.results[0], dim)));
        random.setShardAxesAttr(ArrayAttr::get(context, axes));
      })
      .Case([&](onnx::GatherOp gather) {
        size_t axis = static_cast<size_t>(gather.getAxis());
        Axes axes = axesAt(rule.operands[0], axis);
        if (axes.empty()) return;
        gather.setShardAxesAttr(axesAttribute(context, axes));
        if (!gather.getGlobalRows()) gather.setGlobalRows(shapeOf(gather.getTable())[axis]);
      })
      .Case([&](onnx::ScatterAddOp scatter) {
        size_t axis = static_cast<size_t>(scatter.getAxis());
        Axes axes = axesAt(rule.results[0], axis);
        if (axes.empty()) return;
        scatter.setShardAxesAttr(axesAttribute(context, axes));
        if (!scatter.getGlobalRows()) scatter.setGlobalRows(scatter.getRows());
      })
      .Case([&](onnx::GroupedContractOp product) {
        const auto group = static_cast<int64_t>(product.getGroupIndex());
        const bool inResult = product.sumsRows();
        ArrayRef<int64_t> indices = inResult ? product.getResultIndices() : product.getRhsIndices();
        Axes axes = axesAt(inResult ? rule.results[0] : rule.operands[1], llvm::find(indices, group) - indices.begin());
        if (axes.empty()) return;
        product.setShardAxesAttr(axesAttribute(context, axes));
        if (!product.getGlobalGroups()) product.setGlobalGroups(product.getGroupCount());
        product.setGroupCount(product.getGroupCount() / mesh.groupSize(axes));
      })
      .Case([&](onnx::ConvOp conv) { conv.setGroups(localGroups(rule.operands[0], conv.getGroups())); })
      .Case([&](onnx::ConvGradInputOp conv) { conv.setGroups(localGroups(rule.results[0], conv.getGroups())); })
      .Case([&](onnx::ConvGradWeightOp conv) { conv.setGroups(localGroups(rule.operands[0], conv.getGroups())); });
  onnx::setResultShape(op, local);
}

} // namespace cleave::partition
