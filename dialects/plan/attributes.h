// The discardable attributes of the plan dialect (dialects/owned_attribute.h), by the pass that writes them.
#pragma once
#include "dialects/owned_attribute.h"

namespace cleave::plan {

// --- ScheduleCommands, on commands
inline constexpr OwnedAttribute<int64_t> streamAttr{"plan.stream"};             // absent: the compute stream
inline constexpr OwnedAttribute<int64_t> recordAttr{"plan.record"};             // the event that the command is
inline constexpr OwnedAttribute<llvm::ArrayRef<int64_t>> waitAttr{"plan.wait"}; // events that must have happened

// --- PlanMemory. Bytes; one number each program where a list stands on the module or on an onnx.param.
inline constexpr OwnedAttribute<llvm::ArrayRef<int64_t>> offsetsAttr{"plan.offsets"}; // of a command's results
inline constexpr OwnedAttribute<int64_t> offsetAttr{"plan.offset"};                   // of an argument
inline constexpr OwnedAttribute<llvm::ArrayRef<int64_t>> programOffsetsAttr{"plan.program_offsets"}; // of an onnx.param
inline constexpr OwnedAttribute<llvm::ArrayRef<int64_t>> rowsAttr{"plan.rows"};                      // strided_view.h
inline constexpr OwnedAttribute<llvm::ArrayRef<int64_t>> slotRegionAttr{
    "plan.slot_region"}; // of a function: begin, size, count
inline constexpr OwnedAttribute<llvm::ArrayRef<int64_t>> arenaBytesAttr{"plan.arena_bytes"};
inline constexpr OwnedAttribute<llvm::ArrayRef<int64_t>> hostBytesAttr{"plan.host_bytes"};
inline constexpr OwnedAttribute<llvm::ArrayRef<int64_t>> persistentBytesAttr{"plan.persistent_bytes"};
inline constexpr OwnedAttribute<mlir::DictionaryAttr> memoryAttr{"plan.memory"}; // what the peak consists of

// --- offloading
inline constexpr OwnedAttribute<llvm::ArrayRef<std::string>> offloadAttr{
    "plan.offload"};                                                    // the module: "optimizer", "activations"
inline constexpr OwnedAttribute<Mark> onHostAttr{"plan.on_host"};       // an onnx.param
inline constexpr OwnedAttribute<llvm::StringRef> linkAttr{"plan.link"}; // a copy: "fetch", "evict"

// --- kernels
// The loops of a kernel: how many turns each has, and the numbers of those that reduce.
inline constexpr OwnedAttribute<llvm::ArrayRef<int64_t>> domainAttr{"plan.domain"};
inline constexpr OwnedAttribute<llvm::ArrayRef<int64_t>> reducedAttr{"plan.reduced"};
inline constexpr OwnedAttribute<llvm::ArrayRef<int64_t>> loopsAttr{
    "plan.loops"}; // an operation in it: the loop of each dimension
inline constexpr OwnedAttribute<int64_t> scalarAttr{
    "plan.scalar"}; // the number of its start among the launch's scalars
inline constexpr OwnedAttribute<llvm::StringRef> operationsAttr{"plan.operations"}; // serialized, for the proof
inline constexpr OwnedAttribute<int64_t> blocksAttr{"plan.blocks"};                 // of a GPU kernel's function

} // namespace cleave::plan
