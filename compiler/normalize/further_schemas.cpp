#include "compiler/normalize/further_schemas.h"
#include <vector>

using ::onnx::AttributeProto;
using ::onnx::OpSchema;

namespace cleave::normalize {
namespace {

// com.microsoft's norms of input plus skip: with beta, or of root mean squares without it.
OpSchema skipNormalization(const char *name, bool hasBeta) {
  OpSchema schema(name, "", 0);
  schema.Attr("epsilon", "", AttributeProto::FLOAT, 1e-12f)
      .Input(0, "input", "", "T")
      .Input(1, "skip", "", "T")
      .Input(2, "gamma", "", "T");
  if (hasBeta) schema.Input(3, "beta", "", "T", OpSchema::Optional);
  return schema.Input(hasBeta ? 4 : 3, "bias", "", "T", OpSchema::Optional)
      .Output(0, "output", "", "T")
      .Output(1, "mean", "", "any", OpSchema::Optional)
      .Output(2, "inv_std_var", "", "any", OpSchema::Optional)
      .Output(3, "input_skip_bias_sum", "", "T", OpSchema::Optional);
}

} // namespace

const std::map<std::string, OpSchema> &furtherSchemas() {
  static const std::map<std::string, OpSchema> schemas = [] {
    const std::vector<std::string> floats = {"tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)"};
    std::vector<std::string> any = floats;
    any.insert(any.end(), {"tensor(uint8)", "tensor(int8)"});
    std::map<std::string, OpSchema> made;
    auto add = [&](const std::string &key, OpSchema schema) {
      schema.TypeConstraint("T", floats, "");
      schema.TypeConstraint("any", any, "");
      schema.TypeConstraint("ints", {"tensor(int32)", "tensor(int64)"}, "");
      schema.TypeConstraint("bytes", {"tensor(uint8)"}, "");
      schema.Finalize();
      made.emplace(key, std::move(schema));
    };
    add("com.microsoft::Gelu", OpSchema("Gelu", "", 0)
                                   .Attr("approximate", "", AttributeProto::STRING, std::string("none"))
                                   .Input(0, "X", "", "T")
                                   .Output(0, "Y", "", "T"));
    add("::SimplifiedLayerNormalization", OpSchema("SimplifiedLayerNormalization", "", 0)
                                              .Attr("axis", "", AttributeProto::INT, int64_t(-1))
                                              .Attr("epsilon", "", AttributeProto::FLOAT, 1e-5f)
                                              .Attr("stash_type", "", AttributeProto::INT, int64_t(1))
                                              .Input(0, "X", "", "T")
                                              .Input(1, "scale", "", "T")
                                              .Output(0, "Y", "", "T")
                                              .Output(1, "inverse", "", "T", OpSchema::Optional));
    add("com.microsoft::BiasGelu",
        OpSchema("BiasGelu", "", 0).Input(0, "A", "", "T").Input(1, "B", "", "T").Output(0, "C", "", "T"));
    add("com.microsoft::FastGelu", OpSchema("FastGelu", "", 0)
                                       .Input(0, "X", "", "T")
                                       .Input(1, "bias", "", "T", OpSchema::Optional)
                                       .Output(0, "Y", "", "T"));
    add("com.microsoft::QuickGelu", OpSchema("QuickGelu", "", 0)
                                        .Attr("alpha", "", AttributeProto::FLOAT, 1.702f)
                                        .Input(0, "X", "", "T")
                                        .Output(0, "Y", "", "T"));
    add("com.microsoft::FusedMatMul", OpSchema("FusedMatMul", "", 0)
                                          .Attr("alpha", "", AttributeProto::FLOAT, 1.0f)
                                          .Attr("transA", "", AttributeProto::INT, int64_t(0))
                                          .Attr("transB", "", AttributeProto::INT, int64_t(0))
                                          .Attr("transBatchA", "", AttributeProto::INT, int64_t(0))
                                          .Attr("transBatchB", "", AttributeProto::INT, int64_t(0))
                                          .Input(0, "A", "", "T")
                                          .Input(1, "B", "", "T")
                                          .Output(0, "Y", "", "T"));
    add("com.microsoft::SkipLayerNormalization", skipNormalization("SkipLayerNormalization", true));
    add("com.microsoft::SkipSimplifiedLayerNormalization",
        skipNormalization("SkipSimplifiedLayerNormalization", false));
    add("com.microsoft::MultiHeadAttention", OpSchema("MultiHeadAttention", "", 0)
                                                 .Attr("num_heads", "", AttributeProto::INT, true)
                                                 .Attr("mask_filter_value", "", AttributeProto::FLOAT, -10000.0f)
                                                 .Attr("scale", "", AttributeProto::FLOAT, 0.0f)
                                                 .Attr("unidirectional", "", AttributeProto::INT, int64_t(0))
                                                 .Input(0, "query", "", "T")
                                                 .Input(1, "key", "", "T", OpSchema::Optional)
                                                 .Input(2, "value", "", "T", OpSchema::Optional)
                                                 .Input(3, "bias", "", "T", OpSchema::Optional)
                                                 .Input(4, "key_padding_mask", "", "ints", OpSchema::Optional)
                                                 .Input(5, "attention_bias", "", "T", OpSchema::Optional)
                                                 .Input(6, "past_key", "", "T", OpSchema::Optional)
                                                 .Input(7, "past_value", "", "T", OpSchema::Optional)
                                                 .Input(8, "past_sequence_length", "", "ints", OpSchema::Optional)
                                                 .Input(9, "cache_indirection", "", "ints", OpSchema::Optional)
                                                 .Output(0, "output", "", "T")
                                                 .Output(1, "present_key", "", "T", OpSchema::Optional)
                                                 .Output(2, "present_value", "", "T", OpSchema::Optional)
                                                 .Output(3, "qk", "", "T", OpSchema::Optional));
    add("com.microsoft::GroupQueryAttention", OpSchema("GroupQueryAttention", "", 0)
                                                  .Attr("num_heads", "", AttributeProto::INT, true)
                                                  .Attr("kv_num_heads", "", AttributeProto::INT, true)
                                                  .Attr("scale", "", AttributeProto::FLOAT, 0.0f)
                                                  .Attr("softcap", "", AttributeProto::FLOAT, 0.0f)
                                                  .Attr("local_window_size", "", AttributeProto::INT, int64_t(-1))
                                                  .Attr("do_rotary", "", AttributeProto::INT, int64_t(0))
                                                  .Attr("rotary_interleaved", "", AttributeProto::INT, int64_t(0))
                                                  .Attr("smooth_softmax", "", AttributeProto::INT, int64_t(-1))
                                                  .Attr("k_quant_type", "", AttributeProto::STRING, std::string("NONE"))
                                                  .Attr("v_quant_type", "", AttributeProto::STRING, std::string("NONE"))
                                                  .Input(0, "query", "", "T")
                                                  .Input(1, "key", "", "T", OpSchema::Optional)
                                                  .Input(2, "value", "", "T", OpSchema::Optional)
                                                  .Input(3, "past_key", "", "T", OpSchema::Optional)
                                                  .Input(4, "past_value", "", "T", OpSchema::Optional)
                                                  .Input(5, "seqlens_k", "", "ints", OpSchema::Optional)
                                                  .Input(6, "total_sequence_length", "", "ints", OpSchema::Optional)
                                                  .Input(7, "cos_cache", "", "T", OpSchema::Optional)
                                                  .Input(8, "sin_cache", "", "T", OpSchema::Optional)
                                                  .Input(9, "position_ids", "", "ints", OpSchema::Optional)
                                                  .Input(10, "attention_bias", "", "T", OpSchema::Optional)
                                                  .Input(11, "head_sink", "", "T", OpSchema::Optional)
                                                  .Output(0, "output", "", "T")
                                                  .Output(1, "present_key", "", "T", OpSchema::Optional)
                                                  .Output(2, "present_value", "", "T", OpSchema::Optional));
    add("com.microsoft::RotaryEmbedding", OpSchema("RotaryEmbedding", "", 0)
                                              .Attr("interleaved", "", AttributeProto::INT, int64_t(0))
                                              .Attr("num_heads", "", AttributeProto::INT, int64_t(0))
                                              .Attr("rotary_embedding_dim", "", AttributeProto::INT, int64_t(0))
                                              .Attr("scale", "", AttributeProto::FLOAT, 1.0f)
                                              .Attr("is_packed_batching", "", AttributeProto::INT, int64_t(0))
                                              .Input(0, "input", "", "T")
                                              .Input(1, "position_ids", "", "ints")
                                              .Input(2, "cos_cache", "", "T")
                                              .Input(3, "sin_cache", "", "T")
                                              .Output(0, "output", "", "T"));
    add("com.microsoft::MatMulNBits", OpSchema("MatMulNBits", "", 0)
                                          .Attr("K", "", AttributeProto::INT, true)
                                          .Attr("N", "", AttributeProto::INT, true)
                                          .Attr("bits", "", AttributeProto::INT, int64_t(4))
                                          .Attr("block_size", "", AttributeProto::INT, true)
                                          .Attr("accuracy_level", "", AttributeProto::INT, int64_t(0))
                                          .Input(0, "A", "", "T")
                                          .Input(1, "B", "", "bytes")
                                          .Input(2, "scales", "", "T")
                                          .Input(3, "zero_points", "", "any", OpSchema::Optional)
                                          .Input(4, "g_idx", "", "ints", OpSchema::Optional)
                                          .Input(5, "bias", "", "T", OpSchema::Optional)
                                          .Output(0, "Y", "", "T"));
    add("com.microsoft::MoE", OpSchema("MoE", "", 0)
                                  .Attr("activation_type", "", AttributeProto::STRING, std::string("relu"))
                                  .Attr("activation_alpha", "", AttributeProto::FLOAT, 1.0f)
                                  .Attr("activation_beta", "", AttributeProto::FLOAT, 0.0f)
                                  .Attr("k", "", AttributeProto::INT, int64_t(1))
                                  .Attr("normalize_routing_weights", "", AttributeProto::INT, int64_t(0))
                                  .Attr("swiglu_fusion", "", AttributeProto::INT, int64_t(0))
                                  .Attr("swiglu_limit", "", AttributeProto::FLOAT, false)
                                  .Attr("use_sparse_mixer", "", AttributeProto::INT, int64_t(0))
                                  .Input(0, "input", "", "T")
                                  .Input(1, "router_probs", "", "T")
                                  .Input(2, "fc1_experts_weights", "", "T")
                                  .Input(3, "fc1_experts_bias", "", "T", OpSchema::Optional)
                                  .Input(4, "fc2_experts_weights", "", "T")
                                  .Input(5, "fc2_experts_bias", "", "T", OpSchema::Optional)
                                  .Input(6, "fc3_experts_weights", "", "T", OpSchema::Optional)
                                  .Input(7, "fc3_experts_bias", "", "T", OpSchema::Optional)
                                  .Output(0, "output", "", "T"));
    return made;
  }();
  return schemas;
}

} // namespace cleave::normalize
