// What a run would go on with that is not as it was in the snapshot.
//
//     Changes changes = changesSince(snapshot.manifest(), plan);
//     changes.refused   // {"loss.kind: softmax_cross_entropy is now mse"}: it would be another training
//     changes.told      // {"optimizer.lr.peak: 0.01 is now 0.001"}
#pragma once
#include "runtime/train/state/snapshot.h"

namespace cleave::runtime {

struct Changes {
  std::vector<std::string> refused; // the model, the loss, the seed
  std::vector<std::string> told;    // all else of the recipe
  std::vector<std::string> all() const;
};

Changes changesSince(const SnapshotManifest &manifest, const plan::Plan &plan);

} // namespace cleave::runtime
