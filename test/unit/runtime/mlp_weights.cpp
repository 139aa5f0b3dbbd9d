#include "test/unit/runtime/mlp_weights.h"
#include "runtime/engine/device/strided_copy.h"

namespace cleave::runtime::test {

void loadWeights(Executor &executor, const MlpData &data) {
  for (const plan::Parameter &parameter : executor.plan().parameters()) {
    const std::vector<float> &whole = parameter.name() == "w1" ? data.w1 : parameter.name() == "b1" ? data.b1 : data.w2;
    std::vector<int64_t> shape(parameter.shape().begin(), parameter.shape().end()), strides = denseStrides(shape);
    for (int64_t device : executor.devices()) {
      Shard shard = executor.shardShape(device, parameter);
      int64_t from = 0;
      for (size_t d = 0; d < shape.size(); ++d) from += shard.begin[d] * strides[d];
      StridedCopy(shard.size, strides, denseStrides(shard.size), 4)
          .run(reinterpret_cast<const std::byte *>(whole.data() + from),
               executor.shard(device, parameter, ShardAccess::Replace).data());
    }
  }
}

} // namespace cleave::runtime::test
