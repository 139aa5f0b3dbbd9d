#include "runtime/engine/device/contract_batch.h"

namespace cleave::runtime {

std::vector<ContractBatch> batchOf(const plan::Contract &c) {
  std::vector<ContractBatch> batch;
  for (int i = 0; i < c.batch_size(); ++i) {
    ContractBatch dim{c.batch(i), c.lhs_strides(i), c.rhs_strides(i), c.out_strides(i)};
    if (dim.size == 1) continue;
    if (!batch.empty()) { // runs on from the dimension before it?
      ContractBatch &last = batch.back();
      if (last.lhs == dim.lhs * dim.size && last.rhs == dim.rhs * dim.size && last.out == dim.out * dim.size) {
        last = {last.size * dim.size, dim.lhs, dim.rhs, dim.out};
        continue;
      }
    }
    batch.push_back(dim);
  }
  return batch;
}

} // namespace cleave::runtime
