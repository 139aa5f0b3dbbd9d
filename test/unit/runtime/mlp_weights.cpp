#include "test/unit/runtime/mlp_weights.h"

namespace cleave::runtime::test {

void loadWeights(Executor &executor, const MlpData &data) {
  for (const plan::Parameter &parameter : executor.plan().parameters()) {
    const std::vector<float> &whole = parameter.name() == "w1" ? data.w1 : parameter.name() == "b1" ? data.b1 : data.w2;
    std::vector<int64_t> shape(parameter.shape().begin(), parameter.shape().end());
    for (int64_t device : executor.devices()) {
      Shard shard = executor.shardShape(device, parameter);
      copyBox(shard.size, {shape, shard.begin}, reinterpret_cast<const std::byte *>(whole.data()), {shard.size},
              executor.shard(device, parameter, ShardAccess::Replace).data(), 4);
    }
  }
}

} // namespace cleave::runtime::test
