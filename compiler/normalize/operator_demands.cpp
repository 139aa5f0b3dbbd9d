#include "compiler/normalize/operator_demands.h"
#include "llvm/ADT/STLExtras.h"

namespace cleave::normalize {

// Products of two such numbers, and some sums of them, fit into 64 bits.
static constexpr int64_t mostOfWindow = int64_t(1) << 30;

llvm::ArrayRef<NumberDemand> numberDemands() {
  static constexpr NumberDemand demands[] = {
      {"", "allowzero", 0, 1},
      {"", "align_corners", 0, 1},
      {"", "antialias", 0, 1},
      {"", "ceil_mode", 0, 1},
      {"", "count_include_pad", 0, 1},
      {"", "detect_negative", 0, 1},
      {"", "detect_positive", 0, 1},
      {"", "exclude_outside", 0, 1},
      {"", "exclusive", 0, 1},
      {"", "fmod", 0, 1},
      {"", "input_forget", 0, 1},
      {"", "inverse", 0, 1},
      {"", "is_causal", 0, 1},
      {"", "keepdims", 0, 1},
      {"", "largest", 0, 1},
      {"", "layout", 0, 1},
      {"", "linear_before_reset", 0, 1},
      {"", "new_axis", 0, 1},
      {"", "onesided", 0, 1},
      {"", "noop_with_empty_axes", 0, 1},
      {"", "reverse", 0, 1},
      {"", "select_last_index", 0, 1},
      {"", "sorted", 0, 1},
      {"", "storage_order", 0, 1},
      {"", "training_mode", 0, 1},
      {"", "transA", 0, 1},
      {"", "transB", 0, 1},
      {"", "upper", 0, 1},
      {"", "group", 1, mostOfWindow},
      {"", "offset_group", 1, mostOfWindow},
      {"", "blocksize", 1, 1 << 15},
      {"", "hidden_size", 1, mostOfWindow},
      {"", "num_groups", 1, mostOfWindow},
      {"", "num_outputs", 1, mostOfWindow},
      {"", "q_num_heads", 1, mostOfWindow},
      {"", "kv_num_heads", 1, mostOfWindow},
      {"", "num_heads", 0, mostOfWindow},
      {"EyeLike", "k", -mostOfWindow, mostOfWindow},
      {"TopK", "k", 0, mostOfWindow},
      {"BatchNormalization", "spatial", 1, 1},
      {"LRN", "size", 1, 1 << 16},
      {"", "block_size", 0, mostOfWindow},
      {"", "saturate", 0, 1},
      {"LpPool", "p", 1, 1 << 10},
      {"GlobalLpPool", "p", 1, 1 << 10},
      {"RoiAlign", "output_height", 1, 1 << 15},
      {"RoiAlign", "output_width", 1, 1 << 15},
      {"RoiAlign", "sampling_ratio", 0, 1 << 10},
      {"LpNormalization", "p", 1, 2},
  };
  return demands;
}

llvm::ArrayRef<WordDemand> wordDemands() {
  static constexpr WordDemand demands[] = {
      {"", "approximate", "none|tanh"},
      {"", "auto_pad", "NOTSET|SAME_UPPER|SAME_LOWER|VALID"},
      {"", "keep_aspect_ratio_policy", "stretch|not_larger|not_smaller"},
      {"", "nearest_mode", "round_prefer_floor|round_prefer_ceil|floor|ceil"},
      {"Resize", "coordinate_transformation_mode",
       "half_pixel|half_pixel_symmetric|pytorch_half_pixel|align_corners|asymmetric|tf_half_pixel_for_nn|"
       "tf_crop_and_resize"},
      {"GRU", "direction", "forward|reverse|bidirectional"},
      {"LSTM", "direction", "forward|reverse|bidirectional"},
      {"RNN", "direction", "forward|reverse|bidirectional"},
      {"BitShift", "direction", "LEFT|RIGHT"},
      {"", "round_mode", "up|down|nearest"},
      {"DepthToSpace", "mode", "DCR|CRD"},
      {"GridSample", "mode", "bilinear|nearest|bicubic|linear|cubic"},
      {"GridSample", "padding_mode", "zeros|border|reflection"},
      {"RoiAlign", "mode", "avg|max"},
      {"RoiAlign", "coordinate_transformation_mode", "half_pixel|output_half_pixel"},
      {"MoE", "activation_type", "relu|gelu|silu|swiglu|identity"},
      {"TensorScatter", "mode", "linear|circular"},
      {"Pad", "mode", "constant|reflect|edge|wrap"},
      {"Resize", "mode", "nearest|linear|cubic"},
      {"Upsample", "mode", "nearest|linear|bilinear|trilinear"},
      {"ScatterND", "reduction", "none|add|mul|max|min"},
      {"ScatterElements", "reduction", "none|add|mul|max|min"},
      {"NegativeLogLikelihoodLoss", "reduction", "none|sum|mean"},
      {"SoftmaxCrossEntropyLoss", "reduction", "none|sum|mean"},
  };
  return demands;
}

llvm::ArrayRef<WindowDemand> windowDemands() {
  static constexpr WindowDemand demands[] = {
      {"kernel_shape", 1, 1, mostOfWindow}, {"strides", 1, 1, mostOfWindow},        {"dilations", 1, 1, mostOfWindow},
      {"pads", 2, 0, mostOfWindow},         {"output_padding", 1, 0, mostOfWindow},
  };
  return demands;
}

bool isWindowed(llvm::StringRef op) {
  static constexpr llvm::StringRef ops[] = {"AveragePool", "Conv",    "ConvInteger", "ConvTranspose", "DeformConv",
                                            "LpPool",      "MaxPool", "MaxUnpool",   "QLinearConv"};
  return llvm::is_contained(ops, op);
}

llvm::ArrayRef<ShapeDemand> shapeDemands() {
  static constexpr ShapeDemand demands[] = {
      {"AveragePool", ". . . *"},
      {"BatchNormalization", "N C *,C,C,C,C"},
      {"Conv", "N C . *,M . . *,M"},
      {"ConvInteger", "N C . *,M . . *"},
      {"ConvTranspose", "N C . *,C . . *,."},
      {"DeformConv", "N C . *,M . . *"},
      {"DepthToSpace", ". . . ."},
      {"Det", "* M M"},
      {"EyeLike", ". ."},
      {"Gather", ". *"},
      {"GatherElements", ". *,. *"},
      {"GatherND", ". *,. *"},
      {"Gemm", ". .,. ."},
      {"GlobalAveragePool", ". . . *"},
      {"GlobalLpPool", ". . . *"},
      {"GlobalMaxPool", ". . . *"},
      {"GridSample", "N C . *,N . . *"},
      {"GroupNormalization", "N C *,.,."},
      {"GRU", ". . I,D G I,D G H,D ."},
      {"InstanceNormalization", "N C *,C,C"},
      {"LpPool", ". . . *"},
      {"LRN", "N C *"},
      {"LSTM", ". . I,D G I,D G H,D ."},
      {"MaxPool", ". . . *"},
      {"NegativeLogLikelihoodLoss", "N C *,N *,C"},
      {"MaxUnpool", "N C . *,N C . *"},
      {"OneHot", "*,*,2"},
      {"QLinearConv", "N C . *,*,*,M . . *"},
      {"ReverseSequence", ". . *,."},
      {"RoiAlign", "N C . .,R 4,R"},
      {"RNN", ". . I,D G I,D G H,D ."},
      {"Scatter", ". *,. *,. *"},
      {"ScatterElements", ". *,. *,. *"},
      {"ScatterND", ". *,. *"},
      {"SoftmaxCrossEntropyLoss", "N C *,N *,C"},
      {"SpaceToDepth", ". . . ."},
      {"Split", ". *"},
      {"SplitToSequence", ". *"},
      {"TensorScatter", "N . . *,N . . *,N"},
      {"Trilu", "* . ."},
  };
  return demands;
}

} // namespace cleave::normalize
