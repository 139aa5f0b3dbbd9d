#include "compiler/codegen/emission/emit_command.h"
#include "compiler/codegen/commands/command_building.h"
#include "compiler/codegen/commands/strided_view.h"
#include "compiler/codegen/kernels/kernels.h"
#include "compiler/elements/element_data.h"
#include "dialects/dist/Dist.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/routine.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"

namespace cleave::codegen {
using namespace mlir;
namespace {

template <typename Field> void assign(Field &field, ArrayRef<int64_t> values) {
  for (int64_t value : values) field.Add(value);
}

void setAffine(plan::AffineOfCoordinate &out, plan::AffineOfCoordinateAttr affine) {
  out.set_base(affine.getBase());
  for (auto [axes, stride] : llvm::zip(affine.getAxes(), affine.getStrides().asArrayRef())) {
    auto *term = out.add_terms();
    for (Attribute axis : cast<ArrayAttr>(axes)) term->add_axes(cast<StringAttr>(axis).getValue().str());
    term->set_stride(stride);
  }
}

// The commands of one op, with its name, stream, events and phase: the first waits, the last records.
class CommandWriter {
public:
  CommandWriter(Operation &op, const EmissionContext &context, plan::Fragment &fragment)
      : op(op), context(context), fragment(fragment) {}

  LogicalResult write() {
    return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
        .Case<plan::LaunchOp, plan::ContractCommandOp, plan::GroupedContractCommandOp, plan::ConvolutionCommandOp,
              plan::AttentionCommandOp, plan::PoolCommandOp, plan::GatherCommandOp, plan::ScatterAddCommandOp,
              plan::CopyCommandOp, plan::ConcatCommandOp, plan::FillCommandOp, plan::CollectiveCommandOp,
              plan::CumSumCommandOp, plan::CheckFiniteCommandOp, plan::StoreOp, plan::SendCommandOp,
              plan::ReceiveCommandOp>([&](auto command) { return finish(emit(command)); })
        .Case<plan::ViewOp, plan::ConstantCommandOp, onnx::ReadOp, func::ReturnOp>([](auto) { return success(); })
        .Default([](Operation *other) { return other->emitOpError("is no command of a plan"); });
  }

private:
  plan::Command &add() {
    plan::Command &command = *fragment.add_commands();
    command.set_name(nodeName(op.getLoc()));
    if (auto stream = plan::streamAttr.of(&op)) command.set_stream(*stream);
    if (const auto phase = place::of(&op).phase) command.set_phase(place::stringifyPhase(*phase).str());
    ++written;
    return command;
  }

  LogicalResult finish(LogicalResult emitted) {
    if (failed(emitted)) return failure();
    auto waits = plan::waitAttr.of(&op);
    auto record = plan::recordAttr.of(&op);
    if (written == 0) {
      if (!record && !waits) return success();
      if (isa<plan::StoreOp>(op)) return success(); // what it would wait for is in place already
      plan::Copy &nothing = *add().mutable_copy();  // a concatenation all in place, whose events others count on
      *nothing.mutable_source() = *nothing.mutable_target() = bufferOf(op.getResult(0));
      nothing.add_sizes(0);
      nothing.add_source_strides(1);
      nothing.add_target_strides(1);
      nothing.mutable_source_offset();
      nothing.mutable_target_offset();
    }
    if (waits)
      for (int64_t event : *waits)
        fragment.mutable_commands(fragment.commands_size() - written)->add_wait_events(event);
    if (record) fragment.mutable_commands(fragment.commands_size() - 1)->set_record_event(*record);
    return success();
  }

  LogicalResult emit(plan::LaunchOp op) {
    auto kernel = context.kernels.find(op.getKernelAttr());
    if (kernel == context.kernels.end())
      return op.emitOpError() << "launches the unknown kernel " << op.getKernelAttr();
    plan::Launch &launch = *add().mutable_launch();
    launch.set_kernel(kernel->second);
    for (Value input : op.getInputs()) *launch.add_buffers() = bufferOf(input);
    for (Value result : op.getResults()) *launch.add_buffers() = bufferOf(result);
    for (Attribute scalar : op.getScalars())
      setAffine(*launch.add_scalars(), cast<plan::AffineOfCoordinateAttr>(scalar));
    launch.set_extent(op.getExtent());
    launch.set_grain(op.getGrain());
    return success();
  }

  // The part of an operand from `offset` elements on, flat: what strides then index.
  static plan::Buffer from(Value value, int64_t offset) {
    plan::Buffer buffer = bufferOf(value);
    if (offset == 0) return buffer;
    auto type = cast<RankedTensorType>(value.getType());
    buffer.set_offset(buffer.offset() + offset * elementBytes(type.getElementType()));
    buffer.clear_shape();
    buffer.add_shape(type.getNumElements() - offset);
    return buffer;
  }

  // The strides that a result has in its buffer: as they are, or where it lies in rows, as there.
  static SmallVector<int64_t> stridesIn(Value value, ArrayRef<int64_t> sizes, ArrayRef<int64_t> dense) {
    const std::optional<PitchedRows> rows = pitchedRowsOf(value);
    return rows ? *rows->strides(sizes, dense) : SmallVector<int64_t>(dense);
  }
  static void setWritten(Value value, ArrayRef<int64_t> sizes, ArrayRef<int64_t> dense, plan::Buffer &buffer,
                         google::protobuf::RepeatedField<int64_t> &strides) {
    buffer = bufferOf(value);
    if (const std::optional<PitchedRows> rows = pitchedRowsOf(value)) {
      buffer.clear_shape();
      buffer.add_shape(rows->span(cast<RankedTensorType>(value.getType()).getNumElements()));
    }
    assign(strides, stridesIn(value, sizes, dense));
  }

  LogicalResult emit(plan::ContractCommandOp op) {
    plan::Contract &contract = *add().mutable_contract();
    *contract.mutable_lhs() = from(op.getLhs(), op.getLhsOffset());
    *contract.mutable_rhs() = from(op.getRhs(), op.getRhsOffset());
    setWritten(op.getY(), sizesOf(op), op.getOutStrides(), *contract.mutable_out(), *contract.mutable_out_strides());
    if (op.getSum()) {
      if (bufferOf(op.getSum()).offset() != contract.out().offset())
        return op.emitOpError("is added to a tensor that lies elsewhere; this is a defect of plan-memory");
      contract.set_accumulate(true);
    }
    if (op.getBias()) *contract.mutable_bias() = bufferOf(op.getBias());
    assign(*contract.mutable_batch(), op.getBatch());
    contract.set_m(op.getM());
    contract.set_n(op.getN());
    contract.set_k(op.getK());
    assign(*contract.mutable_lhs_strides(), op.getLhsStrides());
    assign(*contract.mutable_rhs_strides(), op.getRhsStrides());
    contract.set_rhs_is_parameter(op.getRhsIsParameter());
    auto more = op.getMore();
    if (op.getActivation() == "gelu") {
      contract.set_activation(plan::Contract::GELU);
      if (op.getKeepsPreActivation()) {
        *contract.mutable_pre_activation() = bufferOf(more.front());
        more = more.drop_front();
      }
    } else if (op.getActivation() == "gelu_gradient") {
      contract.set_activation(plan::Contract::GELU_GRADIENT);
      *contract.mutable_pre_activation() = bufferOf(op.getPreActivation());
    }
    if (auto operations = plan::operationsAttr.of(op)) contract.set_operations(operations->str());
    if (op.getSumOf())
      *(op.getSumOf() == "lhs" ? contract.mutable_lhs_sum() : contract.mutable_rhs_sum()) = bufferOf(more.front());
    return success();
  }

  LogicalResult emit(plan::GroupedContractCommandOp op) {
    plan::GroupedContract &product = *add().mutable_grouped_contract();
    *product.mutable_lhs() = from(op.getLhs(), op.getLhsOffset());
    *product.mutable_rhs() = from(op.getRhs(), op.getRhsOffset());
    *product.mutable_group_of_row() = bufferOf(op.getGroupOfRow());
    *product.mutable_out() = bufferOf(op.getY());
    assign(*product.mutable_rows(), op.getRows());
    product.set_k(op.getK());
    product.set_n(op.getN());
    product.set_groups(op.getGroups());
    assign(*product.mutable_lhs_strides(), op.getLhsStrides());
    assign(*product.mutable_rhs_strides(), op.getRhsStrides());
    product.set_sums_rows(op.getSumsRows());
    product.set_transposed(op.getTransposed());
    setAffine(*product.mutable_start(), op.getStart());
    product.set_global_groups(op.getGlobalGroups());
    return success();
  }

  LogicalResult emit(plan::ConvolutionCommandOp op) {
    plan::Convolution &convolution = *add().mutable_convolution();
    plan::Buffer a = bufferOf(op.getA()), b = bufferOf(op.getB()), y = bufferOf(op.getY());
    auto set = [&](plan::Convolution::Pass pass, const plan::Buffer &input, const plan::Buffer &weight,
                   const plan::Buffer &output) {
      convolution.set_pass(pass);
      *convolution.mutable_input() = input;
      *convolution.mutable_weight() = weight;
      *convolution.mutable_output() = output;
    };
    if (op.getPass() == "forward")
      set(plan::Convolution::FORWARD, a, b, y);
    else if (op.getPass() == "grad_input")
      set(plan::Convolution::GRAD_INPUT, y, b, a);
    else if (op.getPass() == "grad_weight")
      set(plan::Convolution::GRAD_WEIGHT, a, y, b);
    else
      return op.emitOpError() << "has the unknown pass '" << op.getPass() << "'";
    assign(*convolution.mutable_strides(), op.getStrides());
    assign(*convolution.mutable_pads_begin(), op.getPadsBegin());
    assign(*convolution.mutable_pads_end(), op.getPadsEnd());
    assign(*convolution.mutable_dilations(), op.getDilations());
    convolution.set_groups(op.getGroups());
    convolution.set_channels_last(op.getChannelsLast());
    convolution.set_weight_channels_last(op.getWeightChannelsLast());
    return success();
  }

  LogicalResult emit(plan::AttentionCommandOp op) {
    plan::Attention &attention = *add().mutable_attention();
    ArrayRef<int64_t> n = op.getSizes(); // batch, heads, heads of keys, queries, keys, features, features of values
    auto shaped = [](plan::Buffer buffer, std::initializer_list<int64_t> shape, int64_t offset = 0) {
      buffer.set_offset(buffer.offset() + offset * runtime::byteSize(buffer.dtype()));
      buffer.clear_shape();
      for (int64_t size : shape) buffer.add_shape(size);
      return buffer;
    };
    auto operand = [&](Value value, std::initializer_list<int64_t> shape, size_t number) {
      return shaped(bufferOf(value), shape, op.getOffsets()[number]);
    };
    *attention.mutable_query() = operand(op.getQuery(), {n[0], n[1], n[3], n[5]}, 0);
    *attention.mutable_key() = operand(op.getKey(), {n[0], n[2], n[4], n[5]}, 1);
    *attention.mutable_value() = operand(op.getValue(), {n[0], n[2], n[4], n[6]}, 2);
    assign(*attention.mutable_query_strides(), op.getQueryStrides());
    assign(*attention.mutable_key_strides(), op.getKeyStrides());
    assign(*attention.mutable_value_strides(), op.getValueStrides());
    if (op.getBias()) {
      auto shape = cast<RankedTensorType>(op.getBias().getType()).getShape();
      *attention.mutable_bias() = operand(op.getBias(), {shape[0], shape[1], shape[2], shape[3]}, 3);
      assign(*attention.mutable_bias_strides(), op.getBiasStrides());
    }
    assign(*attention.mutable_output_strides(), {n[3] * n[1] * n[6], n[6], n[1] * n[6], 1});
    auto results = op.getYs();
    plan::Buffer output = bufferOf(op.getOut() ? Value(op.getOut()) : Value(results[0]));
    *attention.mutable_output() = shaped(output, {n[0], n[1], n[3], n[6]});
    if (op.getOutGradient()) {
      attention.set_pass(plan::Attention::BACKWARD);
      *attention.mutable_stats() = bufferOf(op.getStats());
      *attention.mutable_output_gradient() = shaped(bufferOf(op.getOutGradient()), {n[0], n[1], n[3], n[6]});
      auto gradient = [&](size_t number, plan::Buffer &buffer, google::protobuf::RepeatedField<int64_t> &strides) {
        const AttentionGradient one = gradientOf(op, number);
        buffer = bufferOf(results[number]);
        buffer.clear_shape();
        assign(*buffer.mutable_shape(), one.sizes);
        assign(strides, stridesIn(results[number], one.sizes, one.strides));
      };
      gradient(0, *attention.mutable_query_gradient(), *attention.mutable_query_gradient_strides());
      gradient(1, *attention.mutable_key_gradient(), *attention.mutable_key_gradient_strides());
      gradient(2, *attention.mutable_value_gradient(), *attention.mutable_value_gradient_strides());
    } else if (results.size() > 1) {
      *attention.mutable_stats() = bufferOf(results[1]);
    }
    attention.set_scale(op.getScale().convertToDouble());
    if (op.getLeftBound()) attention.set_left_bound(static_cast<int64_t>(*op.getLeftBound()));
    if (op.getRightBound()) attention.set_right_bound(static_cast<int64_t>(*op.getRightBound()));
    if (op.getSoftCap()) attention.set_soft_cap(op.getSoftCap()->convertToDouble());
    return success();
  }

  LogicalResult emit(plan::PoolCommandOp op) {
    auto kind = llvm::StringSwitch<std::optional<plan::Pool::Kind>>(op.getKind())
                    .Case("max", plan::Pool::MAX)
                    .Case("average", plan::Pool::AVERAGE)
                    .Case("average_include_pad", plan::Pool::AVERAGE_INCLUDE_PAD)
                    .Case("max_grad", plan::Pool::MAX_GRAD)
                    .Case("average_grad", plan::Pool::AVERAGE_GRAD)
                    .Case("average_include_pad_grad", plan::Pool::AVERAGE_INCLUDE_PAD_GRAD)
                    .Default(std::nullopt);
    if (!kind) return op.emitOpError() << "has the unknown kind '" << op.getKind() << "'";
    plan::Pool &pool = *add().mutable_pool();
    pool.set_kind(*kind);
    bool gradient = *kind >= plan::Pool::MAX_GRAD;
    // The average's gradient does not read the forward input: its shape alone counts, which is grad_input's.
    *pool.mutable_input() = bufferOf(gradient && op.getXs().size() == 1 ? op.getY() : op.getXs().front());
    *pool.mutable_output() = bufferOf(gradient ? op.getXs().back() : op.getY());
    if (gradient) *pool.mutable_grad_input() = bufferOf(op.getY());
    assign(*pool.mutable_kernel(), op.getKernel());
    assign(*pool.mutable_strides(), op.getStrides());
    assign(*pool.mutable_pads_begin(), op.getPadsBegin());
    assign(*pool.mutable_pads_end(), op.getPadsEnd());
    assign(*pool.mutable_dilations(), op.getDilations());
    pool.set_channels_last(op.getChannelsLast());
    return success();
  }

  template <typename Op, typename Message> static void setIndexed(Op op, Message &message) {
    *message.mutable_indices() = bufferOf(op.getIndices());
    *message.mutable_out() = bufferOf(op.getY());
    message.set_outer(op.getOuter());
    message.set_rows(op.getRows());
    message.set_inner(op.getInner());
    setAffine(*message.mutable_start(), op.getStart());
    message.set_global_rows(op.getGlobalRows());
  }
  LogicalResult emit(plan::GatherCommandOp op) {
    plan::Gather &gather = *add().mutable_gather();
    *gather.mutable_table() = bufferOf(op.getTable());
    setIndexed(op, gather);
    return success();
  }
  LogicalResult emit(plan::ScatterAddCommandOp op) {
    plan::ScatterAdd &scatter = *add().mutable_scatter_add();
    *scatter.mutable_updates() = bufferOf(op.getUpdates());
    setIndexed(op, scatter);
    return success();
  }

  LogicalResult emit(plan::CopyCommandOp op) {
    if (op.getFill()) {
      plan::Fill &fill = *add().mutable_fill();
      *fill.mutable_target() = bufferOf(op.getY());
      fill.set_value(
          oneElement(cast<RankedTensorType>(op.getType()).getElementType(), op.getFill()->convertToDouble()));
    }
    plan::Copy &copy = *add().mutable_copy();
    *copy.mutable_source() = bufferOf(op.getX());
    setWritten(op.getY(), op.getSizes(), op.getTargetStrides(), *copy.mutable_target(), *copy.mutable_target_strides());
    assign(*copy.mutable_sizes(), op.getSizes());
    assign(*copy.mutable_source_strides(), op.getSourceStrides());
    setAffine(*copy.mutable_source_offset(), op.getSourceOffset());
    copy.mutable_target_offset()->set_base(op.getTargetOffset());
    return success();
  }

  LogicalResult emit(plan::ConcatCommandOp op) {
    auto strides = rowMajorStrides(cast<RankedTensorType>(op.getType()).getShape());
    plan::Buffer whole = bufferOf(op.getY());
    int64_t bytes = elementBytes(cast<RankedTensorType>(op.getType()).getElementType()), start = 0;
    for (Value part : op.getXs()) {
      auto shape = cast<RankedTensorType>(part.getType()).getShape();
      plan::Buffer source = bufferOf(part);
      bool inPlace = source.in_slot() == whole.in_slot() && source.offset() == whole.offset() + start * bytes;
      if (!inPlace) {
        plan::Copy &copy = *add().mutable_copy();
        *copy.mutable_source() = source;
        *copy.mutable_target() = whole;
        assign(*copy.mutable_sizes(), shape);
        assign(*copy.mutable_source_strides(), rowMajorStrides(shape));
        assign(*copy.mutable_target_strides(), strides);
        copy.mutable_target_offset()->set_base(start);
        copy.mutable_source_offset();
      }
      start += shape[op.getAxis()] * strides[op.getAxis()];
    }
    return success();
  }

  LogicalResult emit(plan::FillCommandOp op) {
    FailureOr<std::string> value = elementData(op.getValue());
    if (failed(value)) return op.emitOpError("carries no data");
    plan::Fill &fill = *add().mutable_fill();
    *fill.mutable_target() = bufferOf(op.getY());
    fill.set_value(*value);
    return success();
  }

  LogicalResult emit(plan::CollectiveCommandOp op) {
    static_assert(int(dist::Collective::Shift) == plan::Collective::SHIFT &&
                  int(dist::Reduction::Min) == plan::Collective::MIN);
    plan::Collective &collective = *add().mutable_collective();
    collective.set_op(static_cast<plan::Collective::Op>(op.getOp()));
    collective.set_reduce(static_cast<plan::Collective::Reduce>(op.getReduce()));
    for (Attribute axis : op.getAxes()) collective.add_axes(cast<StringAttr>(axis).getValue().str());
    int64_t bytes = 0;
    for (Value x : op.getXs()) {
      *collective.add_inputs() = bufferOf(x);
      bytes += bytesOf(x.getType());
    }
    for (Value y : op.getYs()) *collective.add_outputs() = bufferOf(y);
    assign(*collective.mutable_dims(), op.getDims());
    assign(*collective.mutable_split_dims(), op.getSplitDims());
    collective.set_bytes(bytes);
    collective.set_sequence(op.getSequence());
    collective.set_why(op.getWhy().str());
    for (const std::string &name : dist::tensorsAttr.of(op)) collective.add_tensors(name);
    return success();
  }

  LogicalResult emit(plan::CumSumCommandOp op) {
    plan::CumSum &sum = *add().mutable_cumsum();
    *sum.mutable_input() = bufferOf(op.getX());
    *sum.mutable_output() = bufferOf(op.getY());
    sum.set_outer(op.getOuter());
    sum.set_length(op.getLength());
    sum.set_inner(op.getInner());
    sum.set_exclusive(op.getExclusive());
    sum.set_reverse(op.getReverse());
    return success();
  }

  LogicalResult emit(plan::CheckFiniteCommandOp op) {
    plan::CheckFinite &check = *add().mutable_check_finite();
    *check.mutable_buffer() = bufferOf(op.getX());
    check.set_what(op.getWhat().str());
    return success();
  }

  LogicalResult emit(plan::SendCommandOp op) { return emitTransfer(op, plan::Transfer::SEND, op.getX()); }
  LogicalResult emit(plan::ReceiveCommandOp op) { return emitTransfer(op, plan::Transfer::RECEIVE, op.getY()); }

  template <typename Op> LogicalResult emitTransfer(Op op, plan::Transfer::Direction direction, Value value) {
    plan::Transfer &transfer = *add().mutable_transfer();
    transfer.set_direction(direction);
    setAffine(*transfer.mutable_peer(), op.getPeer());
    *transfer.mutable_buffer() = bufferOf(value);
    transfer.set_tag(static_cast<int32_t>(op.getTag()));
    transfer.set_why(op.getWhy().str());
    for (const std::string &name : dist::tensorsAttr.of(op)) transfer.set_tensor(name);
    transfer.set_channel(static_cast<int32_t>(dist::channelAttr.of(op).value_or(0)));
    transfer.set_buffers(static_cast<int32_t>(dist::buffersAttr.of(op).value_or(0)));
    return success();
  }

  LogicalResult emit(plan::StoreOp op) {
    if (op.getInPlace()) return success();
    auto offset = context.paramOffsets.find(op.getParamAttr());
    if (offset == context.paramOffsets.end())
      return op.emitOpError() << "stores to the unknown persistent tensor " << op.getParamAttr();
    int64_t elements = cast<RankedTensorType>(op.getValue().getType()).getNumElements();
    plan::Copy &copy = *add().mutable_copy();
    *copy.mutable_source() = bufferOf(op.getValue());
    *copy.mutable_target() = copy.source();
    copy.mutable_target()->set_offset(offset->second);
    copy.add_sizes(elements);
    copy.add_source_strides(1);
    copy.add_target_strides(1);
    copy.mutable_source_offset();
    copy.mutable_target_offset();
    return success();
  }

  Operation &op;
  const EmissionContext &context;
  plan::Fragment &fragment;
  int written = 0;
};

} // namespace

LogicalResult emitCommand(Operation &op, const EmissionContext &context, plan::Fragment &fragment) {
  return CommandWriter(op, context, fragment).write();
}

int64_t addressOf(Value value) {
  if (auto result = dyn_cast<OpResult>(value))
    return (*plan::offsetsAttr.of(result.getOwner()))[result.getResultNumber()];
  auto argument = cast<BlockArgument>(value);
  auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  return *plan::offsetAttr.of(function, argument.getArgNumber());
}

plan::Buffer bufferOf(Value value) {
  plan::Buffer buffer;
  int64_t place = addressOf(value);
  buffer.set_on_host(place >= runtime::hostMemory);
  buffer.set_offset(place - (buffer.on_host() ? runtime::hostMemory : 0));
  auto function = value.getParentRegion()->getParentOfType<func::FuncOp>();
  if (auto region = plan::slotRegionAttr.of(function)) {
    int64_t begin = buffer.on_host() ? (*region)[4] : (*region)[0],
            bytes = buffer.on_host() ? (*region)[5] : (*region)[1];
    if (place >= begin && place < begin + bytes) {
      buffer.set_offset(place - begin);
      buffer.set_in_slot(true);
    }
  }
  auto type = cast<RankedTensorType>(value.getType());
  buffer.set_dtype(dtypeOf(type.getElementType()));
  assign(*buffer.mutable_shape(), type.getShape());
  return buffer;
}

std::string nodeName(Location location) {
  SmallVector<StringRef> names;
  location->walk([&](Location part) {
    auto named = dyn_cast<NameLoc>(part);
    if (!named) return WalkResult::advance();
    if (!named.getName().empty() && !llvm::is_contained(names, named.getName().getValue()))
      names.push_back(named.getName().getValue());
    return names.size() < 3 ? WalkResult::skip() : WalkResult::interrupt(); // within is the module's name
  });
  return llvm::join(names, "+");
}

} // namespace cleave::codegen
