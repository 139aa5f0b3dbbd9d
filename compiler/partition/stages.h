// How a pipeline is written on the IR between the passes of this folder and codegen:
//
//   %y = onnx.Contract %x, %w {cleave.stage = 1}              of a forward op by the decision; AssignStages gives one
//   to
//                                                             every op of @accumulate and @evaluate that has a place
//   %g = onnx.Contract %dy, %w {cleave.origin = 17}           backward: the forward op (same number) it differentiates
//   func @forward.1(%x {cleave.kept = 4}) -> (tensor {cleave.kept = 5})
//       attributes {cleave.program = 1,                       the pipeline rank that runs it
//                   cleave.region = "step.1",                 functions that share slots; before the dot: the routine
//                   cleave.slots = 2}                         copies of the region, a microbatch in flight each
//   dist.all_reduce %n over pp {cleave.order = 1}             its number, of one sequence with the tags of transfers
//   onnx.param @w {cleave.programs = array<i64: 0, 3>}        the ranks that hold it
//   dist.send %y {cleave.channel = 1,                         numbers the pairs of stages that send from rank to rank,
//                                                             and of each the sizes of messages
//                 cleave.crosses = 0,                         not to the next stage: the earlier stage of the two
//                 cleave.buffers = 4}                         then: microbatches that may be on the way
//   func @forward.1.last                                      of the last microbatch, where it alone is not recomputed
//   func @forward.0.ahead {cleave.ahead}                       of the next step's microbatches, while this one runs: it
//                                                             reads the newest weights, which will be the next step's
//   module {cleave.routines = [...]}                          build_routines.cpp
//
// A value with `cleave.kept` n leaves a function as a result and enters later ones of its region as an argument.
#pragma once
#include "llvm/ADT/StringRef.h"

namespace cleave::partition {

inline constexpr llvm::StringLiteral stageAttr = "cleave.stage", originAttr = "cleave.origin",
                                     programAttr = "cleave.program", programsAttr = "cleave.programs",
                                     regionAttr = "cleave.region", slotsAttr = "cleave.slots", keptAttr = "cleave.kept",
                                     fragmentAttr = "cleave.fragment", routinesAttr = "cleave.routines",
                                     orderAttr = "cleave.order", channelAttr = "cleave.channel",
                                     crossesAttr = "cleave.crosses", buffersAttr = "cleave.buffers",
                                     aheadAttr = "cleave.ahead", besideAttr = "cleave.beside";

} // namespace cleave::partition
