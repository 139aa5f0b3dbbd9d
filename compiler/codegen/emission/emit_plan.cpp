#include "compiler/codegen/emission/emit_plan.h"
#include "compiler/codegen/commands/command_building.h"
#include "compiler/codegen/emission/emit_command.h"
#include "compiler/codegen/kernels/kernels.h"
#include "compiler/codegen/memory/persistent_layout.h"
#include "compiler/elements/element_data.h"
#include "dialects/dist/Dist.h"
#include "dialects/onnx/sample_dim.h"
#include "runtime/plan/routine.h"
#include "llvm/ADT/StringSwitch.h"

namespace cleave::codegen {
using namespace mlir;
namespace {

template <typename Message> void setDims(Message &message, const dist::Sharding &sharding) {
  for (const dist::Axes &axes : sharding.dims) {
    plan::DimSharding &dim = *message.add_dims();
    for (const std::string &axis : axes) dim.add_axes(axis);
  }
}

double numberOf(DictionaryAttr init, StringRef name) {
  auto number = init.getAs<FloatAttr>(name);
  return number ? number.getValueAsDouble() : 0.0;
}

LogicalResult setSource(onnx::ParamOp param, plan::Parameter &out) {
  auto type = cast<RankedTensorType>(param.getType());
  if (auto path = param.getPath()) {
    plan::Source &source = *out.mutable_file();
    source.set_path(path->str());
    source.set_offset(param.getOffset().value_or(0));
    Type stored = param.getFileType().value_or(type.getElementType());
    source.set_dtype(dtypeOf(stored));
    source.set_length(param.getLength().value_or(type.getNumElements() * elementBytes(stored)));
    return success();
  }
  if (auto init = param.getInit(); init && init->contains("sources")) {
    const auto sources = init->getAs<ArrayAttr>("sources");
    plan::Source &file = *out.mutable_file();
    for (auto place : sources.getAsRange<DictionaryAttr>()) {
      plan::Source &source = sources.size() == 1 ? file : *file.add_runs();
      source.set_path(place.getAs<StringAttr>("path").getValue().str());
      source.set_offset(place.getAs<IntegerAttr>("offset").getInt());
      source.set_length(place.getAs<IntegerAttr>("length").getInt());
      source.set_dtype(dtypeOf(place.getAs<TypeAttr>("type").getValue()));
      source.set_in_checkpoint(true);
      source.set_transposed(place.contains("transposed"));
    }
    return success();
  }
  if (auto init = param.getInit()) {
    plan::RandomInit &random = *out.mutable_random();
    if (auto kind = init->getAs<StringAttr>("kind")) random.set_kind(kind.getValue().str());
    random.set_mean(numberOf(*init, "mean"));
    random.set_std(numberOf(*init, "std"));
    random.set_low(numberOf(*init, "low"));
    random.set_high(numberOf(*init, "high"));
    if (auto stream = init->getAs<IntegerAttr>("stream")) random.set_stream(stream.getInt());
    return success();
  }
  if (!param.getFill() && param.getRole() == "parameter")
    return param.emitOpError("has no data: neither a place in a file, nor a fill value, nor a distribution");
  out.set_fill(param.getFill() ? param.getFill()->convertToDouble() : 0.0);
  return success();
}

// Without padding; state of the optimizer that has a parameter's shape is padded as the parameter.
ArrayRef<int64_t> storedShape(onnx::ParamOp param) {
  if (auto stored = onnx::storedShapeAttr.of(param)) return *stored;
  auto of = param.getOf() ? SymbolTable::lookupNearestSymbolFrom<onnx::ParamOp>(param->getParentOp(), param.getOfAttr())
                          : onnx::ParamOp();
  auto shapeOf = [](onnx::ParamOp one) { return cast<RankedTensorType>(one.getType()).getShape(); };
  auto stored = of ? onnx::storedShapeAttr.of(of) : std::nullopt;
  return stored && shapeOf(of) == shapeOf(param) ? *stored : shapeOf(param);
}

void setOriginal(onnx::ParamOp param, plan::Parameter &out) {
  for (int64_t size : param.getOriginalShape().value_or(storedShape(param))) out.add_original_shape(size);
  if (auto aliases = param.getAliases())
    for (Attribute alias : *aliases) out.add_aliases(cast<StringAttr>(alias).getValue().str());
}

// The tensors that a parameter is stacked of (compiler/normalize/stack_experts.cpp).
LogicalResult emitPieces(onnx::ParamOp param, ArrayAttr pieces, plan::Parameter &out) {
  OpBuilder builder(param.getContext());
  for (auto attributes : pieces.getAsRange<DictionaryAttr>()) {
    OwningOpRef<onnx::ParamOp> piece =
        onnx::ParamOp::create(builder, param.getLoc(), TypeRange(), ValueRange(), attributes.getValue());
    plan::Parameter &part = *out.add_pieces();
    part.set_name(piece->getSymName().str());
    part.set_dtype(out.dtype());
    for (int64_t size : cast<RankedTensorType>(piece->getType()).getShape()) part.add_shape(size);
    setOriginal(*piece, part);
    if (failed(setSource(*piece, part))) return failure();
  }
  return success();
}

LogicalResult emitParameter(onnx::ParamOp param, int64_t programs, plan::Parameter &out) {
  auto type = cast<RankedTensorType>(param.getType());
  out.set_name(param.getSymName().str());
  out.set_dtype(dtypeOf(type.getElementType()));
  if (out.dtype() == plan::DTYPE_INVALID) return param.emitOpError() << "has the unsupported type " << type;
  const ArrayRef<int64_t> stored = storedShape(param);
  for (int64_t size : stored) out.add_shape(size);
  if (stored != type.getShape())
    for (int64_t size : type.getShape()) out.add_padded_shape(size);
  setDims(out, homeLayout(param));
  auto role = llvm::StringSwitch<plan::Parameter::Role>(param.getRole())
                  .Cases({"optimizer_state", "previous_parameter"}, plan::Parameter::OPTIMIZER_STATE)
                  .Case("running_statistic", plan::Parameter::RUNNING_STATISTIC)
                  .Case("accumulator", plan::Parameter::ACCUMULATOR)
                  .Default(plan::Parameter::PARAMETER);
  out.set_role(role);
  out.set_trainable(param.getTrainable());
  if (auto since = onnx::sinceAttr.of(param)) out.set_since(*since);
  out.set_snapshot(role != plan::Parameter::ACCUMULATOR);
  auto offsets = *plan::programOffsetsAttr.of(param);
  out.set_on_host(isOnHost(param));
  int64_t begin = isOnHost(param) ? runtime::hostMemory : 0;
  if (programs == 1) {
    out.set_offset(offsets[0] - begin);
  } else {
    for (int64_t holder : holdersOf(param, programs)) out.add_pp_coordinates(holder);
    for (int64_t offset : offsets) out.add_offsets(offset - begin);
  }
  setOriginal(param, out);
  if (auto user = param.getUsedBy()) out.set_used_by(user->str());
  auto pieces = onnx::piecesAttr.of(param);
  return pieces ? emitPieces(param, pieces, out) : setSource(param, out);
}

void emitKernel(plan::KernelOp kernel, plan::Kernel &out) {
  out.set_symbol(kernel.getSymName().str());
  out.set_num_outputs(kernel.getYield().getNumOperands());
  out.set_num_buffers(kernel.getTensorArguments().size() + out.num_outputs());
  out.set_num_scalars(kernel.getScalarArguments().size());
  if (auto description = kernel.getDescription()) out.set_description(description->str());
  if (auto operations = plan::operationsAttr.of(kernel)) out.set_operations(operations->str());
  out.set_flat(kernel.getFlat());
  auto addBuffer = [&](Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    plan::KernelBuffer &buffer = *out.add_buffers();
    buffer.set_element_bytes(static_cast<int32_t>(elementBytes(type.getElementType())));
    const bool growsWithExtent = kernel.getFlat() && type.getNumElements() != 1;
    buffer.set_elements(growsWithExtent ? 1 : type.getNumElements());
    buffer.set_per(growsWithExtent ? 1 : 0);
  };
  for (Value argument : kernel.getTensorArguments()) addBuffer(argument);
  for (Value result : kernel.getYield().getValues()) addBuffer(result);
}

// One program: its fragments, slots and routines.
class ProgramWriter {
public:
  ProgramWriter(ModuleOp module, const dist::Mesh &mesh, int64_t number, EmissionContext context,
                plan::Program &program)
      : module(module), mesh(mesh), number(number), program(program), context(std::move(context)) {}

  LogicalResult write() {
    const int64_t programs = programCount(module);
    for (auto param : module.getOps<onnx::ParamOp>())
      if (auto offset = offsetIn(param, number, programs))
        context.paramOffsets[FlatSymbolRefAttr::get(param.getSymNameAttr())] = *offset;
    program.set_arena_bytes((*plan::arenaBytesAttr.of(module))[number]);
    program.set_host_bytes((*plan::hostBytesAttr.of(module))[number]);
    program.set_persistent_bytes((*plan::persistentBytesAttr.of(module))[number]);
    for (auto function : module.getOps<func::FuncOp>()) {
      if (programOf(function) != number) continue;
      fragments[FlatSymbolRefAttr::get(function.getSymNameAttr())] = program.fragments_size();
      if (failed(writeFragment(function))) return failure();
    }
    return writeRoutines();
  }

private:
  LogicalResult writeFragment(func::FuncOp function) {
    plan::Fragment &fragment = *program.add_fragments();
    auto name = place::fragmentAttr.of(function); // where a symbol of that name is taken
    fragment.set_name((name ? *name : function.getSymName()).str());
    if (auto region = plan::slotRegionAttr.of(function)) {
      fragment.set_slot_region(static_cast<int32_t>((*region)[3]));
      while (program.slot_regions_size() <= (*region)[3]) program.add_slot_regions();
      plan::SlotRegion &out = *program.mutable_slot_regions(static_cast<int>((*region)[3]));
      out.set_offset((*region)[0]);
      out.set_bytes((*region)[1]);
      out.set_count(static_cast<int32_t>((*region)[2]));
      out.set_host_offset((*region)[4] - runtime::hostMemory);
      out.set_host_bytes((*region)[5]);
    }
    for (BlockArgument argument : function.getArguments())
      if (!place::keptAttr.of(function, argument.getArgNumber()) && failed(writeArgument(function, argument, fragment)))
        return failure();
    Block &block = function.getBody().front();
    for (Operation &op : block) {
      if (auto constant = dyn_cast<plan::ConstantCommandOp>(op)) {
        FailureOr<std::string> data = elementData(constant.getValue());
        if (failed(data)) return constant.emitOpError("carries no data");
        plan::ConstantData &out = *fragment.add_constants();
        *out.mutable_buffer() = bufferOf(constant.getY());
        out.set_data(*data);
      }
      if (failed(emitCommand(op, context, fragment))) return failure();
    }
    for (auto [i, value] : llvm::enumerate(block.getTerminator()->getOperands())) {
      if (place::keptAttr.ofResult(function, i)) continue;
      plan::OutputBinding &output = *fragment.add_outputs();
      auto name = onnx::nameAttr.ofResult(function, i);
      output.set_name(name ? name->str() : "result" + std::to_string(i));
      *output.mutable_buffer() = bufferOf(value);
    }
    return success();
  }

  // The attribute that BuildRoutines leaves.
  LogicalResult writeRoutines() {
    auto routines = place::routinesAttr.of(module);
    if (!routines) return module.emitError("has no place.routines: run build-routines first");
    for (auto routine : routines.getAsRange<DictionaryAttr>()) {
      if (routine.getAs<IntegerAttr>("program").getInt() != number) continue;
      plan::Routine &out = *program.add_routines();
      out.set_name(routine.getAs<StringAttr>("name").str());
      for (auto [fragment, microbatch, slot] : llvm::zip_equal(
               routine.getAs<ArrayAttr>("fragments"), routine.getAs<DenseI64ArrayAttr>("microbatches").asArrayRef(),
               routine.getAs<DenseI64ArrayAttr>("slots").asArrayRef())) {
        auto known = fragments.find(fragment);
        if (known == fragments.end())
          return module.emitError() << "the routine '" << out.name() << "' of program " << number << " runs "
                                    << fragment << ", which is no function of that program";
        plan::Action &action = *out.add_actions();
        action.set_fragment(known->second);
        action.set_microbatch(microbatch);
        action.set_slot(static_cast<int32_t>(slot));
      }
      if (auto ahead = routine.getAs<DenseI64ArrayAttr>("ahead"))
        for (int64_t action : ahead.asArrayRef()) out.mutable_actions(static_cast<int>(action))->set_ahead(true);
    }
    return success();
  }

  // How an input lies over the mesh: MaterializeCollectives leaves it on the argument.
  dist::Sharding inputLayout(func::FuncOp function, BlockArgument argument) const {
    if (auto layout = dist::layoutAttr.of(function, argument.getArgNumber())) return layout.getSharding();
    return dist::Sharding::replicated(cast<RankedTensorType>(argument.getType()).getRank());
  }

  LogicalResult writeArgument(func::FuncOp function, BlockArgument argument, plan::Fragment &fragment) {
    unsigned number = argument.getArgNumber();
    if (Attribute key = hostScalarKey(function, number)) {
      if (!hosts.insert(key).second) return success(); // another fragment has it
      const StringRef host = *onnx::hostAttr.of(function, number);
      auto kind = llvm::StringSwitch<std::optional<plan::HostScalar::Kind>>(host)
                      .Case("learning_rate", plan::HostScalar::LEARNING_RATE)
                      .Case("one_minus_power", plan::HostScalar::ONE_MINUS_POWER)
                      .Case("step", plan::HostScalar::STEP)
                      .Default(std::nullopt);
      if (!kind) return function.emitOpError() << "asks the host for '" << host << "', which nobody computes";
      plan::HostScalar &scalar = *program.add_host_scalars();
      scalar.set_kind(*kind);
      if (auto base = onnx::baseAttr.of(function, number)) scalar.set_base(*base);
      if (auto since = onnx::sinceAttr.of(function, number)) scalar.set_since(*since);
      *scalar.mutable_buffer() = bufferOf(argument);
      return success();
    }
    plan::InputBinding &input = *fragment.add_inputs();
    if (auto name = onnx::nameAttr.of(function, number)) input.set_name(name->str());
    input.set_label(onnx::labelAttr.of(function, number));
    *input.mutable_buffer() = bufferOf(argument);
    if (int64_t dim = onnx::sampleDim(function, number); dim >= 0)
      input.set_sample_dim(dim);
    else
      input.set_without_samples(true);
    dist::Sharding layout = inputLayout(function, argument);
    setDims(input, layout);
    for (auto [size, axes] : llvm::zip(cast<RankedTensorType>(argument.getType()).getShape(), layout.dims))
      input.add_global_shape(size * mesh.groupSize(axes));
    return success();
  }

  ModuleOp module;
  const dist::Mesh &mesh;
  int64_t number;
  plan::Program &program;
  EmissionContext context;
  llvm::DenseMap<Attribute, int32_t> fragments; // by symbol
  llvm::DenseSet<Attribute> hosts;
};

} // namespace

FailureOr<plan::Plan> emitPlan(ModuleOp module, const dist::Mesh &mesh) {
  plan::Plan plan;
  for (const dist::MeshAxis &axis : mesh.axes) {
    plan::MeshAxis &out = *plan.mutable_mesh()->add_axes();
    out.set_name(axis.name);
    out.set_size(axis.size);
  }
  int64_t programs = programCount(module);
  for (auto param : module.getOps<onnx::ParamOp>())
    if (failed(emitParameter(param, programs, *plan.add_parameters()))) return failure();
  EmissionContext context;
  for (auto kernel : module.getOps<plan::KernelOp>()) {
    context.kernels[FlatSymbolRefAttr::get(kernel.getSymNameAttr())] = plan.kernels_size();
    emitKernel(kernel, *plan.add_kernels());
  }
  module.walk([&](plan::LaunchOp launch) { // all launches of a kernel have its grain, and its extent unless it is flat
    plan::Kernel &kernel = *plan.mutable_kernels(context.kernels.lookup(launch.getKernelAttr()));
    kernel.set_grain(launch.getGrain());
    if (llvm::all_of(kernel.buffers(), [](const plan::KernelBuffer &buffer) { return buffer.per() == 0; }))
      kernel.set_extent(launch.getExtent());
  });
  for (int64_t program = 0; program < programs; ++program)
    if (failed(ProgramWriter(module, mesh, program, context, *plan.add_programs()).write())) return failure();
  return plan;
}

} // namespace cleave::codegen
