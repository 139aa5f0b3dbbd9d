#include "test/unit/partition/simulated_devices.h"
#include "compiler/partition/layouts.h"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

using namespace mlir;
using namespace cleave::dist;
using ValueType = cleave::runtime::TensorType;

namespace cleave::partition {
namespace {

plan::DType dtypeOf(Type type) {
  if (type.isF32() || type.isF64() || type.isF16() || type.isBF16()) return plan::F64;
  if (type.isInteger(1)) return plan::BOOL;
  if (type.isInteger(32)) return plan::I32;
  return plan::I64;
}

HostTensor part(const HostTensor &t, size_t dim, int64_t index, int64_t parts) {
  std::vector<int64_t> shape = t.shape;
  shape[dim] /= parts;
  HostTensor result = HostTensor::zeros(t.dtype, shape);
  size_t inner = static_cast<size_t>(runtime::byteSize(t.dtype));
  for (size_t d = dim + 1; d < shape.size(); ++d) inner *= static_cast<size_t>(shape[d]);
  size_t run = inner * static_cast<size_t>(shape[dim]), full = inner * static_cast<size_t>(t.shape[dim]);
  if (full == 0) return result;
  for (size_t outer = 0; outer < t.data.size() / full; ++outer)
    std::memcpy(result.data.data() + outer * run, t.data.data() + outer * full + static_cast<size_t>(index) * run, run);
  return result;
}

HostTensor joined(const std::vector<const HostTensor *> &parts, size_t dim) {
  std::vector<int64_t> shape = parts[0]->shape;
  shape[dim] *= static_cast<int64_t>(parts.size());
  HostTensor result = HostTensor::zeros(parts[0]->dtype, shape);
  size_t run = static_cast<size_t>(runtime::byteSize(result.dtype));
  for (size_t d = dim; d < shape.size(); ++d) run *= static_cast<size_t>(parts[0]->shape[d]);
  if (run == 0) return result;
  size_t at = 0;
  for (size_t outer = 0; outer < parts[0]->data.size() / run; ++outer)
    for (const HostTensor *p : parts) {
      std::memcpy(result.data.data() + at, p->data.data() + outer * run, run);
      at += run;
    }
  return result;
}

HostTensor combined(const std::vector<const HostTensor *> &group, Reduction reduction) {
  std::vector<double> values = group[0]->reals();
  for (size_t g = 1; g < group.size(); ++g) {
    std::vector<double> other = group[g]->reals();
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = reduction == Reduction::Sum   ? values[i] + other[i]
                  : reduction == Reduction::Max ? std::max(values[i], other[i])
                                                : std::min(values[i], other[i]);
  }
  return HostTensor::ofReals(group[0]->dtype, group[0]->shape, values);
}

HostTensor block(const Mesh &mesh, const Sharding &layout, HostTensor t, int64_t device) {
  for (size_t dim = 0; dim < layout.dims.size(); ++dim)
    t = part(t, dim, mesh.indexAlong(device, layout.dims[dim]), mesh.groupSize(layout.dims[dim]));
  return t;
}

HostTensor constantOf(onnx::ConstantOp op) {
  auto dense = dyn_cast<DenseElementsAttr>(op.getValue());
  auto type = cast<RankedTensorType>(op.getY().getType());
  EXPECT_TRUE(static_cast<bool>(dense));
  if (isa<FloatType>(type.getElementType())) {
    std::vector<double> values;
    for (const APFloat &value : dense.getValues<APFloat>()) {
      APFloat wide = value;
      bool lossy = false;
      wide.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lossy);
      values.push_back(wide.convertToDouble());
    }
    return HostTensor::ofReals(plan::F64, type.getShape().vec(), values);
  }
  std::vector<int64_t> values;
  for (const APInt &value : dense.getValues<APInt>())
    values.push_back(value.getBitWidth() == 1 ? static_cast<int64_t>(value.getZExtValue()) : value.getSExtValue());
  return HostTensor::ofIntegers(dtypeOf(type.getElementType()), type.getShape().vec(), values);
}

runtime::Attributes attributesOf(Operation *op) {
  runtime::Attributes result;
  for (NamedAttribute named : op->getAttrs()) {
    std::string name = named.getName().str();
    if (name == "shard_axes" || name == "global_shape" || name == "global_rows" || name == "global_groups") continue;
    Attribute value = named.getValue();
    if (auto array = dyn_cast<DenseI64ArrayAttr>(value))
      result[name] = runtime::Ints(array.asArrayRef().begin(), array.asArrayRef().end());
    else if (auto flag = dyn_cast<BoolAttr>(value))
      result[name] = runtime::Ints{flag.getValue()};
    else if (auto integer = dyn_cast<IntegerAttr>(value))
      result[name] = runtime::Ints{integer.getInt()};
    else if (auto real = dyn_cast<FloatAttr>(value))
      result[name] = real.getValueAsDouble();
    else if (isa<UnitAttr>(value))
      result[name] = runtime::Ints{};
  }
  return result;
}

HostTensor evaluateCore(Operation *op, const std::vector<const HostTensor *> &operands,
                        const runtime::Attributes &attributes, ValueType type) {
  auto result = runtime::evaluate(op->getName().stripDialect().str(), operands, attributes,
                                  std::vector<ValueType>{type}, runtime::Precision::Double);
  if (!result) {
    ADD_FAILURE() << op->getName().getStringRef().str() << ": " << result.status().message();
    return HostTensor::zeros(type.dtype, type.shape);
  }
  return std::move((*result)[0]);
}

} // namespace

runtime::TensorType typeOf(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return {dtypeOf(tensor.getElementType()), tensor.getShape().vec()};
}

SimulatedDevices::SimulatedDevices(ModuleOp module, Mesh given, const std::map<std::string, HostTensor> &initial,
                                   double noise)
    : module(module), mesh(std::move(given)), noise(noise) {
  for (auto param : module.getOps<onnx::ParamOp>()) {
    std::string name = param.getSymName().str();
    auto layout = dyn_cast_or_null<ShardingAttr>(param.getShardingAttr());
    auto rank = cast<RankedTensorType>(param.getType()).getRank();
    homes[name] = layout && !mesh.axes.empty() ? layout.getSharding() : Sharding::replicated(rank);
    const HostTensor &whole = initial.at(name);
    for (int64_t device = 0; device < mesh.numDevices(); ++device) {
      HostTensor mine = block(mesh, homes[name], whole, device);
      // The first device of a partial group holds the value, the others nothing.
      if (mesh.indexAlong(device, homes[name].partial) != 0) mine = HostTensor::zeros(mine.dtype, mine.shape);
      state[name].push_back(mine);
    }
  }
}

HostTensor SimulatedDevices::parameter(const std::string &name) const {
  const Sharding &home = homes.at(name);
  Devices now = state.at(name);
  for (const ReshardStep &step : reshard(mesh, home, Sharding::replicated(home.dims.size()))) {
    Devices next;
    for (int64_t device = 0; device < mesh.numDevices(); ++device) {
      std::vector<const HostTensor *> group;
      for (int64_t member : mesh.group(device, step.axes)) group.push_back(&now[member]);
      if (step.kind == Collective::AllReduce)
        next.push_back(combined(group, step.reduction));
      else if (step.kind == Collective::AllGather)
        next.push_back(joined(group, step.dim));
      else
        ADD_FAILURE() << "a home layout is put together by sums and gathers only";
    }
    now = next;
  }
  for (int64_t device = 1; device < mesh.numDevices(); ++device)
    expectClose(now[device], now[0], name + ": device " + std::to_string(device) + " against device 0");
  return now[0];
}

std::vector<HostTensor> SimulatedDevices::run(StringRef name, const std::vector<HostTensor> &arguments) {
  auto function = module.lookupSymbol<func::FuncOp>(name);
  std::vector<HostTensor> results;
  if (!function) {
    ADD_FAILURE() << "no function " << name.str();
    return results;
  }
  DenseMap<Value, Devices> values;
  for (BlockArgument argument : function.getArguments()) {
    Devices &devices = values[argument];
    auto layout = dist::layoutAttr.of(function, argument.getArgNumber());
    for (int64_t device = 0; device < mesh.numDevices(); ++device) {
      const HostTensor &whole = arguments[argument.getArgNumber()];
      devices.push_back(layout && !mesh.axes.empty() ? block(mesh, layout.getSharding(), whole, device) : whole);
    }
  }
  std::vector<std::pair<std::string, Devices>> writes;
  for (Operation &op : function.getBody().front()) {
    if (auto read = dyn_cast<onnx::ReadOp>(op)) {
      values[read.getValue()] = state.at(read.getParam().str());
    } else if (auto write = dyn_cast<onnx::WriteOp>(op)) {
      writes.emplace_back(write.getParam().str(), values.at(write.getValue()));
    } else if (isa<func::ReturnOp>(op)) {
      for (Value operand : op.getOperands()) {
        Devices &devices = values.at(operand);
        for (int64_t device = 1; device < mesh.numDevices(); ++device)
          expectClose(devices[device], devices[0], "result on device " + std::to_string(device));
        results.push_back(devices[0]);
      }
    } else if (auto bucket = dyn_cast<dist::BucketOp>(op)) {
      for (auto [x, y, dim] : llvm::zip_equal(bucket.getXs(), bucket.getYs(), bucket.getDims())) {
        Devices devices = collective(&op, dist::name(bucket.getOp()), values.at(x), dim);
        values[y] = std::move(devices);
      }
    } else {
      Devices devices = evaluate(&op, [&](Value value) -> const Devices & { return values.find(value)->second; });
      for (const HostTensor &t : devices)
        if (t.shape != typeOf(op.getResult(0).getType()).shape) {
          ADD_FAILURE() << op.getName().getStringRef().str() << " gives another shape than its type says";
          return results;
        }
      values[op.getResult(0)] = std::move(devices);
    }
  }
  for (auto &[param, devices] : writes) state[param] = std::move(devices);
  return results;
}

SimulatedDevices::Devices SimulatedDevices::evaluate(Operation *op,
                                                     llvm::function_ref<const Devices &(Value)> operand) const {
  if (op->getName().getDialectNamespace() == "dist") {
    auto dim = op->getAttrOfType<IntegerAttr>("dim");
    return collective(op, op->getName().stripDialect(), operand(op->getOperand(0)), dim ? dim.getInt() : -1);
  }
  Devices result;
  for (int64_t device = 0; device < mesh.numDevices(); ++device) {
    std::vector<const HostTensor *> operands;
    for (Value value : op->getOperands()) operands.push_back(&operand(value)[device]);
    result.push_back(evaluateOn(op, operands, device));
    if (noise > 0 && result.back().dtype == plan::F64) {
      std::vector<double> values = result.back().reals();
      for (double &value : values) value *= 1 + std::uniform_real_distribution<double>(-noise, noise)(random);
      result.back().setReals(values.data());
    }
  }
  return result;
}

SimulatedDevices::Devices SimulatedDevices::collective(Operation *op, StringRef kind, const Devices &x,
                                                       int64_t dim) const {
  Axes axes = axesOf(op->getAttr("axes"));
  auto reduce = op->getAttrOfType<dist::ReductionAttr>("reduce");
  const Reduction reduction = reduce ? reduce.getValue() : Reduction::Sum;
  auto split = op->getAttrOfType<IntegerAttr>("split_dim");
  int64_t n = mesh.groupSize(axes);
  Devices result;
  for (int64_t device = 0; device < mesh.numDevices(); ++device) {
    int64_t index = mesh.indexAlong(device, axes);
    std::vector<const HostTensor *> group;
    for (int64_t member : mesh.group(device, axes)) group.push_back(&x[member]);
    if (kind == "all_reduce") {
      result.push_back(combined(group, reduction));
    } else if (kind == "reduce_scatter") {
      result.push_back(part(combined(group, reduction), dim, index, n));
    } else if (kind == "all_gather") {
      result.push_back(joined(group, dim));
    } else if (kind == "own_part") {
      result.push_back(part(x[device], dim, index, n));
    } else if (kind == "shift") {
      int64_t distance = op->getAttrOfType<IntegerAttr>("distance").getInt();
      result.push_back(*group[static_cast<size_t>(((index - distance) % n + n) % n)]);
    } else if (kind == "broadcast") {
      result.push_back(*group[0]);
    } else if (kind == "all_to_all") {
      Devices pieces;
      for (const HostTensor *member : group) pieces.push_back(part(*member, split.getInt(), index, n));
      std::vector<const HostTensor *> arriving;
      for (const HostTensor &piece : pieces) arriving.push_back(&piece);
      result.push_back(joined(arriving, dim));
    } else {
      ADD_FAILURE() << "unknown collective " << kind.str();
      return x;
    }
  }
  return result;
}

// One core op on one device. The evaluator knows no split: ops that carry shard_axes are evaluated globally and cut.
HostTensor SimulatedDevices::evaluateOn(Operation *op, std::vector<const HostTensor *> operands, int64_t device) const {
  if (auto constant = dyn_cast<onnx::ConstantOp>(op)) return constantOf(constant);
  ValueType type = typeOf(op->getResult(0).getType());
  runtime::Attributes attributes = attributesOf(op);
  if (auto iota = dyn_cast<onnx::IotaOp>(op)) {
    Axes axes = axesOf(iota.getShardAxesAttr());
    size_t dim = static_cast<size_t>(iota.getDim());
    type.shape[dim] *= mesh.groupSize(axes);
    return part(evaluateCore(op, operands, attributes, type), dim, mesh.indexAlong(device, axes), mesh.groupSize(axes));
  }
  if (auto random = dyn_cast<onnx::RandomUniformOp>(op); random && random.getGlobalShape()) {
    type.shape = random.getGlobalShape()->vec();
    Sharding layout;
    for (Attribute axes : random.getShardAxesAttr()) layout.dims.push_back(axesOf(axes));
    return block(mesh, layout, evaluateCore(op, operands, attributes, type), device);
  }
  if (auto gather = dyn_cast<onnx::GatherOp>(op); gather && gather.getShardAxesAttr()) {
    Axes axes = axesOf(gather.getShardAxesAttr());
    size_t axis = static_cast<size_t>(gather.getAxis());
    HostTensor zero = HostTensor::zeros(operands[0]->dtype, operands[0]->shape);
    std::vector<const HostTensor *> rows(mesh.groupSize(axes), &zero);
    rows[mesh.indexAlong(device, axes)] = operands[0];
    HostTensor table = joined(rows, axis);
    EXPECT_EQ(table.shape[axis], *gather.getGlobalRows());
    return evaluateCore(op, {&table, operands[1]}, attributes, type);
  }
  if (auto grouped = dyn_cast<onnx::GroupedContractOp>(op); grouped && grouped.getShardAxesAttr()) {
    Axes axes = axesOf(grouped.getShardAxesAttr());
    const int64_t group = static_cast<int64_t>(grouped.getGroupIndex());
    attributes["group_count"] = runtime::Ints{static_cast<int64_t>(*grouped.getGlobalGroups())};
    auto dimOf = [&](ArrayRef<int64_t> indices) { return size_t(llvm::find(indices, group) - indices.begin()); };
    if (grouped.sumsRows()) {
      const size_t dim = dimOf(grouped.getResultIndices());
      type.shape[dim] *= mesh.groupSize(axes);
      return part(evaluateCore(op, operands, attributes, type), dim, mesh.indexAlong(device, axes),
                  mesh.groupSize(axes));
    }
    HostTensor zero = HostTensor::zeros(operands[1]->dtype, operands[1]->shape);
    std::vector<const HostTensor *> parts(mesh.groupSize(axes), &zero);
    parts[mesh.indexAlong(device, axes)] = operands[1];
    HostTensor matrices = joined(parts, dimOf(grouped.getRhsIndices()));
    return evaluateCore(op, {operands[0], &matrices, operands[2]}, attributes, type);
  }
  if (auto scatter = dyn_cast<onnx::ScatterAddOp>(op); scatter && scatter.getShardAxesAttr()) {
    Axes axes = axesOf(scatter.getShardAxesAttr());
    size_t axis = static_cast<size_t>(scatter.getAxis());
    EXPECT_EQ(scatter.getRows(), type.shape[axis]);
    type.shape[axis] = *scatter.getGlobalRows();
    attributes["rows"] = runtime::Ints{type.shape[axis]};
    return part(evaluateCore(op, operands, attributes, type), axis, mesh.indexAlong(device, axes),
                mesh.groupSize(axes));
  }
  return evaluateCore(op, operands, attributes, type);
}

void expectClose(const HostTensor &a, const HostTensor &b, const std::string &what, double tolerance) {
  ASSERT_EQ(a.shape, b.shape) << what;
  std::vector<double> x = a.reals(), y = b.reals();
  double scale = 1;
  for (double value : y) scale = std::max(scale, std::abs(value));
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_TRUE(std::abs(x[i] - y[i]) <= tolerance * scale)
        << what << ": element " << i << " is " << x[i] << ", not " << y[i];
}

} // namespace cleave::partition
