// The form of an Attention command's buffers: sizes, and where each tensor has its elements.
//
//   Result<AttentionForm> form = attentionForm(command.attention());
//   form->queries, form->heads / form->keyHeads     // positions; heads of queries that share one of keys
//   form->query[0] ... form->query[3]               // strides of batch, heads, positions, features, in elements
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/attention_band.h"
#include "runtime/base/status.h"
#include "runtime/plan/accesses.h"
#include <array>

namespace cleave::runtime {

using AttentionStrides = std::array<int64_t, 4>;

struct AttentionForm {
  int64_t batch = 0, heads = 0, keyHeads = 0, queries = 0, keys = 0, features = 0, valueFeatures = 0;
  AttentionBand band; // of keys that the queries see
  AttentionStrides query{}, key{}, value{}, bias{};
  AttentionStrides output{}; // and its gradient
  // Dense [batch, positions, heads, features], or as the command says: parts of one packed gradient.
  AttentionStrides queryGradient{}, keyGradient{}, valueGradient{};
};

AttentionBand bandOf(const plan::Attention &command);
// Error: sizes that do not fit each other, bounds that leave a query without keys, strides that are missing or negative, results whose elements meet, a tensor
// that the pass needs and the command lacks.
Result<AttentionForm> attentionForm(const plan::Attention &command);
// With strided tensors as all that lies between their first and last element.
std::vector<Access> attentionAccesses(const plan::Attention &command);

} // namespace cleave::runtime
