// The split in ONNX's own terms: device configurations, sharding specs and pipeline stages (IR version 11 and later).
//
//   CLEAVE_RETURN_IF_ERROR(readSplit(model, recipe, cluster, flags, notes));   // flags.mesh == "dp=2,tp=2", flags.pins
//   ... CLEAVE_RETURN_IF_ERROR(writeSplit(plan, "", "split.onnx"));                // the plan's model, annotated
//
// Annotations tell which devices hold which part of a tensor, and each node's stage. Metadata of the model tells the
// rest under the names of the flags: cleave.mesh (names of axes), cleave.zero, cleave.microbatches, cleave.schedule,
// cleave.recompute, cleave.offload, cleave.like; cleave.split_at: operations that begin a stage, a line each.
#pragma once
#include "compiler/annotations/results.h"
#include "compiler/cluster/cluster.h"
#include "compiler/planner/problem/constraints.h"
#include "compiler/recipe/recipe.h"
#include "plan/plan.pb.h"
#include "runtime/base/status.h"

namespace cleave::annotations {

// Flags for what the model's annotations say and `flags` leaves open; `results`: how nodes' results lie, which a step
// may compute in another form; `notes` tells what was taken. A model without annotations changes nothing. Without
// cleave.mesh, the axis that divides samples is dp and another one tp.
// Errors, with file, node and tensor: a configuration for another number of devices than the cluster's; a device, an
// axis or a dimension that is not there; parts that do not follow the axes of a mesh; two specs that contradict.
Status readSplit(const std::string &model, const recipe::Recipe &recipe, const planner::Cluster &cluster,
                 planner::SplitFlags &flags, std::vector<ResultLayout> &results, std::vector<std::string> &notes);

// The model that the plan was compiled from, with the plan's split. `model`: where the file is, if it moved. Weights
// stay in their own files where the output lies beside the model. Errors: weights of more than 2 GiB that do not.
Status writeSplit(const plan::Plan &plan, const std::string &model, const std::string &output);

} // namespace cleave::annotations
